#!/usr/bin/env python3
"""SIGHUP: certificates, CAs and limits change under running processes; what is open goes on, and what is wrong changes nothing."""
import os
import shutil
import signal
import socket
import ssl
import threading

from e2e_two_workers import REMOTE, free_port, make_ca, make_certificate, worker_args
from harness import Client, Cluster, Suite, code_of, error_of, grpc, pb, run, soon, spec, until

suite = Suite("reload")
check, equal = suite.check, suite.equal


def serial(port):
    """Of the certificate that a new connection is shown; no CA is asked."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), 5) as raw, context.wrap_socket(raw) as s:
        return ssl.DER_cert_to_PEM_cert(s.getpeercert(True))


def hup(process, event="CONFIG_RELOADED"):
    """Send it; the log line that answers."""
    before = len(process.events(event))
    process.signal(signal.SIGHUP)
    rows = until(lambda: process.events(event)[before:], 5)
    return rows[-1] if rows else None


def install(d, name, ca, san):
    """A new certificate of this CA in the place of the old one."""
    make_certificate(d, "fresh", san, ca=ca)
    for ext in ("key", "pem"):
        os.replace(d / f"fresh.{ext}", d / f"{name}.{ext}")


def client(c, ca):
    with open(c.dir / f"{ca}.pem", "rb") as f:
        made = Client(f"localhost:{c.ports['tcp']}", c.admin_key, grpc.ssl_channel_credentials(f.read()))
    c.clients.append(made)
    return made


def write_conf(path, section, **values):
    path.write_text(f"[{section}]\n" + "".join(f"{k.replace('_', '-')} = {v}\n" for k, v in values.items()))


@suite.scenario
def server_certificate(c):
    d, port = c.dir, c.ports["tcp"]
    old = client(c, "ca")
    check("a client that trusts the old CA works", run(old, "true").outcome == "EXITED")
    shown, got = serial(port), []
    t = threading.Thread(target=lambda: got.append(run(old, "sh", "-c", "echo begin; sleep 4; echo end")), daemon=True)
    t.start()
    job = until(lambda: [j for j in c.admin.jobs.List(pb.ListRequest()).jobs if j.state == pb.UNIT_STATE_RUNNING], 10)

    install(d, "server", "ca2", "DNS:localhost,IP:127.0.0.1")
    equal("files alone change nothing", serial(port), shown)
    check("SIGHUP is answered in the log", job and hup(c.scheduler))
    check("a new connection is shown the new certificate", serial(port) != shown)
    check("who trusts the new CA only is served", run(client(c, "ca2"), "true").outcome == "EXITED")
    late = client(c, "ca")
    err = error_of(lambda: run(late, "true", timeout_rpc=5))
    late.close()
    check("who trusts the old CA only is not, on a new connection", code_of(err) in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), err)
    t.join(soon(30))
    check("the stream on the old connection went on to its end", got and bytes(got[0].out) == b"begin\nend\n", got)
    check("… and that connection takes new calls", run(old, "true").outcome == "EXITED")


@suite.scenario
def a_wrong_certificate(c):
    d, port = c.dir, c.ports["tcp"]
    shown = serial(port)
    shutil.copy(d / "server.key", d / "kept.key")
    make_certificate(d, "other", "DNS:localhost", ca="ca2")
    os.replace(d / "other.key", d / "server.key")
    row = hup(c.scheduler, "CONFIG_REFUSED")
    check("a key that does not fit is refused, by name", row and "server." in row["text"], row)
    equal("the old certificate is still shown", serial(port), shown)
    (d / "server.pem").rename(d / "away.pem")
    row = hup(c.scheduler, "CONFIG_REFUSED")
    check("a missing file too", row and str(d / "server.pem") in row["text"], row)
    equal("and still", serial(port), shown)
    (d / "away.pem").rename(d / "server.pem")
    os.replace(d / "kept.key", d / "server.key")
    check("when it is mended SIGHUP is well again", hup(c.scheduler))


@suite.scenario
def workers_papers(c):
    """The fleet moves to another CA: both ends reload, the session stays."""
    d = c.dir
    remote = c.workers[1]

    def sessions():
        return len(c.scheduler.events("WORKER_UP")), len(remote.events("DISCONNECTED"))
    before = sessions()
    (d / "both.pem").write_bytes((d / "ca.pem").read_bytes() + (d / "ca2.pem").read_bytes())
    shutil.copy(d / "both.pem", d / "fleet.pem")
    check("the scheduler takes the workers' new CA beside the old one", hup(c.scheduler))
    install(d, "worker", "ca2", f"URI:worker:{REMOTE}")
    check("the worker takes its new certificate", hup(remote))
    equal("its session did not break", sessions(), before)
    install(d, "wserver", "ca2", "DNS:localhost,IP:127.0.0.1")
    shutil.copy(d / "ca2.pem", d / "fleet.pem")
    check("the old CA goes", hup(c.scheduler) and hup(remote))
    for over_tcp in c.clients[1:]:
        over_tcp.close()
    c.scheduler.stop()
    c.scheduler.start()
    check("a new session is made with the new papers", until(lambda: any(r.get("worker") == REMOTE for r in c.scheduler.events("WORKER_UP")[before[0]:]), 20))
    check("and work goes on", c.await_answer() and run(c.admin, "true").outcome == "EXITED")


@suite.scenario
def limits(c):
    conf = c.dir / "scheduler.conf"
    write_conf(conf, "scheduler", queue_max=2)
    check("a smaller queue is taken over", hup(c.scheduler))
    # One unit fills both workers; the rest waits.
    held = [c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sleep", "60", wait=300))).job_id for _ in range(c.slots * 2)]
    until(lambda: all(c.admin.jobs.Get(pb.GetRequest(job_id=i)).job.state == pb.UNIT_STATE_RUNNING for i in held), 30)
    errors = [code_of(error_of(c.admin.jobs.Submit, pb.SubmitRequest(spec=spec("true", wait=300)))) for _ in range(4)]
    equal("it refuses what is over it", errors, ["OK", "OK", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"])
    write_conf(conf, "scheduler", queue_max=100)
    hup(c.scheduler)
    equal("a larger one lets it in", code_of(error_of(c.admin.jobs.Submit, pb.SubmitRequest(spec=spec("true", wait=300)))), "OK")
    for text, words in (("[scheduler]\nqueue-max = none\n", ("scheduler.conf", "2")), ("[scheduler]\nqueue-max = 5\nqueu = 1\n", ("scheduler.conf", "3"))):
        conf.write_text(text)
        row = hup(c.scheduler, "CONFIG_REFUSED")
        check("a wrong file is refused with its line", row and all(w in row["text"] for w in words), row)
    equal("and nothing of it is taken", code_of(error_of(c.admin.jobs.Submit, pb.SubmitRequest(spec=spec("true", wait=300)))), "OK")
    for row in c.admin.jobs.List(pb.ListRequest(page_size=100)).jobs:
        if row.state != pb.UNIT_STATE_ENDED:
            c.admin.jobs.Cancel(pb.CancelRequest(job_id=row.id))


@suite.scenario
def pool_and_disk(c):
    conf = c.dir / "worker.conf"
    check("both pools are full first", until(lambda: c.warm_vms() == 4, 30), c.warm_vms())
    write_conf(conf, "worker", warm=4)
    check("a larger pool is taken over and filled", hup(c.worker) and until(lambda: c.warm_vms() == 6, 30), c.warm_vms())
    write_conf(conf, "worker", warm=4, disk_reserve="1000000GiB")
    c.workers[1].stop()
    hup(c.worker)
    check("a larger reserve closes the worker", until(lambda: code_of(error_of(lambda: run(c.admin, "true", timeout_rpc=2))) != "OK", 10, 0.5))
    write_conf(conf, "worker", warm=4, disk_reserve="1MiB")
    hup(c.worker)
    check("a smaller one opens it", until(lambda: code_of(error_of(lambda: run(c.admin, "true", timeout_rpc=2))) == "OK", 10, 0.5))
    ups = len(c.workers[1].events("CONNECTED"))
    c.workers[1].start()
    until(lambda: len(c.workers[1].events("CONNECTED")) > ups, 10)


if __name__ == "__main__":
    c = Cluster("reload", slots=3)
    c.ports, d = {"tcp": free_port(), "worker": free_port()}, c.dir
    for ca in ("ca", "ca2"):
        make_ca(d, ca)
    make_certificate(d, "server", "DNS:localhost,IP:127.0.0.1")
    make_certificate(d, "wserver", "DNS:localhost,IP:127.0.0.1")
    make_certificate(d, "worker", f"URI:worker:{REMOTE}")
    shutil.copy(d / "ca.pem", d / "fleet.pem")
    write_conf(d / "scheduler.conf", "scheduler", queue_max=1000)
    write_conf(d / "worker.conf", "worker", warm=2)
    c.scheduler.argv += ["--config", d / "scheduler.conf", "--tcp", f"127.0.0.1:{c.ports['tcp']}", "--tls-cert", d / "server.pem", "--tls-key", d / "server.key",
                         "--worker-tcp", f"127.0.0.1:{c.ports['worker']}", "--worker-ca", d / "fleet.pem", "--worker-cert", d / "wserver.pem", "--worker-key", d / "wserver.key"]
    at = c.worker.argv.index("--warm")
    del c.worker.argv[at:at + 2]  # the file's turn
    c.worker.argv += ["--config", d / "worker.conf"]
    papers = [d / "fleet.pem" if str(a).endswith("ca.pem") else a for a in worker_args(d, "worker")]
    c.add_worker(f"localhost:{c.ports['worker']}", papers, worker_id=REMOTE)
    try:
        c.start()
        suite.play(c)
    finally:
        suite.close(c)
    suite.finish()
