#!/usr/bin/env python3
"""Two workers: one on the unix socket, one over TCP with mutual TLS under a name of its own."""
import collections
import os
import socket
import subprocess

from harness import BUILD, IMAGES, Cluster, Suite, free_port, in_parallel, open_files, pb, run, spec, until

suite = Suite("two-workers")
check, equal = suite.check, suite.equal
REMOTE, OTHER = "wrk_" + "1" * 26, "wrk_" + "2" * 26


def openssl(*argv):
    subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True)


def make_ca(d, name):
    openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", d / f"{name}.key", "-out", d / f"{name}.pem", "-days", "2", "-subj", f"/CN={name}")


def make_certificate(d, name, san, ca="ca"):
    openssl("req", "-new", "-newkey", "ed25519", "-nodes", "-keyout", d / f"{name}.key", "-out", d / f"{name}.csr", "-subj", f"/CN={name}")
    (d / f"{name}.ext").write_text(f"subjectAltName={san}\n")
    openssl("x509", "-req", "-in", d / f"{name}.csr", "-CA", d / f"{ca}.pem", "-CAkey", d / f"{ca}.key", "-CAcreateserial", "-days", "2",
            "-extfile", d / f"{name}.ext", "-out", d / f"{name}.pem")
    os.chmod(d / f"{name}.key", 0o600)


def worker_args(d, name, ca="ca"):
    return ["--tls-ca", d / f"{ca}.pem", "--tls-cert", d / f"{name}.pem", "--tls-key", d / f"{name}.key"]


def connected(c):
    return {r.get("worker") for r in c.scheduler.events("WORKER_UP")}


def is_refused(c, name, extra, port, worker_id):
    """A worker with these papers never gets a session."""
    w = c.add_worker(f"127.0.0.1:{port}", [*extra, "--templates", ""], worker_id=worker_id)
    w.log.unlink(missing_ok=True)
    w.start()
    refusals = until(lambda: w.events("DISCONNECTED"), 4)
    check(f"{name} is refused", worker_id not in connected(c), connected(c))
    check(f"{name} is refused in words that the worker logs", refusals and refusals[-1]["text"], "silence")
    w.stop()
    c.workers.remove(w)


def play(c, d, port):
    c.start()
    both = {c.worker.state_dir.joinpath("id").read_text().strip(), REMOTE}
    check("both workers are connected", connected(c) == both, (connected(c), both))

    def one(i):
        f = run(c.admin, "sh", "-c", f"sleep 0.5; echo {i}")
        job = c.admin.jobs.Get(pb.GetRequest(job_id=f.job_id)).job
        return bytes(f.out) == b"%d\n" % i, job.worker_id
    results = in_parallel(one, range(12), 6)
    good = [r for r in results if isinstance(r, tuple) and r[0]]
    check("every job ends with its own output", len(good) == 12, [r for r in results if r not in good][:3])
    spread = collections.Counter(r[1] for r in good)
    check("jobs run on both", set(spread) == both and min(spread.values()) >= 2, spread)

    check("both pools are full again", until(lambda: c.warm_vms() == 2 * c.warm, 30), c.warm_vms())
    boxes = [c.admin.sandboxes.Create(pb.CreateRequest(template="base")).sandbox for _ in range(4)]
    check("sandboxes too", {b.worker_id for b in boxes} == both, boxes)
    remote = next(b for b in boxes if b.worker_id == REMOTE)
    data = os.urandom(3 << 20)
    c.admin.files.Write(iter([pb.WriteRequest(sandbox_id=remote.id, path="/tmp/d", data=data[i:i + (1 << 20)], commit=i == 2 << 20) for i in range(0, 3 << 20, 1 << 20)]))
    back = b"".join(p.data for p in c.admin.files.Read(pb.ReadRequest(sandbox_id=remote.id, path="/tmp/d")))
    check("files go through mTLS both ways intact", back == data, len(back))
    get = lambda box: c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox
    c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=REMOTE))
    runs_elsewhere = lambda: all(get(b).worker_id != REMOTE and get(b).state == pb.UNIT_STATE_RUNNING for b in boxes)
    check("sandboxes leave through mTLS when it is drained", until(runs_elsewhere, 60), [get(b) for b in boxes])
    c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=REMOTE, undo=True))
    back = b"".join(p.data for p in c.admin.files.Read(pb.ReadRequest(sandbox_id=remote.id, path="/tmp/d")))
    check("… with their files", back == data, len(back))
    for b in boxes:
        c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=b.id))

    is_refused(c, "a certificate for another id", worker_args(d, "worker"), port, OTHER)
    is_refused(c, "a certificate of another CA", worker_args(d, "stranger"), port, "wrk_" + "3" * 26)
    is_refused(c, "a certificate without a worker's name", worker_args(d, "nameless"), port, "wrk_" + "4" * 26)
    try:
        with socket.create_connection(("127.0.0.1", port), 3) as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            s.settimeout(3)
            plain = s.recv(100)
    except OSError:
        plain = b""
    check("plaintext gets no HTTP/2 on the workers' port", b"\x04\x00\x00\x00\x00\x00" not in plain, plain)
    check("the others still work", run(c.admin, "true").outcome == "EXITED")

    sockets = set(open_files(c.workers[1].pid))
    shared = [(pid, link) for pid in c.vms() for link in open_files(pid) if link in sockets and link.startswith("socket:")]
    # The far end of the agent's channel is kept for the monitor that goes on after a pause (worker/vm_body.h): each VM has that one, so any other makes two.
    pids, links = [pid for pid, _ in shared], [link for _, link in shared]
    check("of its worker's sockets a VM holds one, its own", shared and len(set(pids)) == len(pids) and len(set(links)) == len(links), shared)
    for what, argv in (("instance", [d / "other", c.instance(0)]), ("state folder", [c.workers[0].state_dir, "another"])):
        os.makedirs(argv[0], exist_ok=True)
        p = subprocess.run([BUILD / "cloche-worker", "--scheduler", f"unix:{d}/worker.sock", "--state-dir", argv[0], "--instance", argv[1],
                            "--template-dir", IMAGES, "--template-key", d / "signing.pub"], capture_output=True, timeout=60, check=False)
        check(f"a second worker with the same {what} is refused", p.returncode == 1 and b"another worker" in p.stderr, p)
    c.workers[1].kill()
    down = until(lambda: [r for r in c.scheduler.events("WORKER_DOWN") if r["worker"] == REMOTE], 10)
    check("the scheduler learns at once that a worker over TCP died", down)
    f = [run(c.admin, "echo", "one is left") for _ in range(3)]
    check("when one is gone the other does the work", all(bytes(x.out) == b"one is left\n" for x in f), [str(x) for x in f])
    c.workers[1].start()
    check("and when it comes back it is taken again", until(lambda: len([r for r in c.scheduler.events("WORKER_UP") if r.get("worker") == REMOTE]) == 2, 20))


if __name__ == "__main__":
    port = free_port()
    c = Cluster("two-workers")
    d = c.dir
    make_ca(d, "ca")
    make_ca(d, "evil")
    make_certificate(d, "server", "DNS:localhost,IP:127.0.0.1")
    make_certificate(d, "worker", f"URI:worker:{REMOTE}")
    make_certificate(d, "nameless", "DNS:somewhere")
    make_certificate(d, "stranger", "URI:worker:wrk_" + "3" * 26, ca="evil")
    c.scheduler.argv += ["--worker-tcp", f"127.0.0.1:{port}", "--worker-ca", d / "ca.pem", "--worker-cert", d / "server.pem", "--worker-key", d / "server.key"]
    c.add_worker(f"127.0.0.1:{port}", worker_args(d, "worker"), worker_id=REMOTE)
    try:
        play(c, d, port)
    except Exception as err:  # noqa: BLE001
        import traceback
        check("the scenario runs to its end", False, f"{err}\n{traceback.format_exc()}\n{c.tails()}")
    assert spec
    suite.close(c)
    suite.finish()
