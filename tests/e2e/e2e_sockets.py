#!/usr/bin/env python3
"""No process opens a connection that its configuration does not name; none has a second thread.

Every process runs under strace from its first instruction: each connect, bind, and message to an
address is there, also of what it starts (guardians, QEMU).  Then /proc says what is open.
"""
import os
import re
import shutil
import socket
import subprocess
import sys

from e2e_two_workers import REMOTE, free_port, make_ca, make_certificate, worker_args
from harness import BUILD, Client, Cluster, Suite, command, error_of, follow, grpc, in_parallel, open_files, pb, read_text, run, skip, until

suite = Suite("sockets")
check, equal = suite.check, suite.equal

CALLS = "connect,bind,sendto,sendmsg,sendmmsg"
ADDRESS = re.compile(r"sa_family=(\w+)(.*?)}")
UNIX, PORT = re.compile(r'sun_path=@?"([^"]*)"'), re.compile(r"sin6?_port=htons\((\d+)\)")
HOST = re.compile(r'(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')


def traced(trace, argv):
    """argv under strace; the pid stays its own, so that signals and waiting work as ever."""
    return ["strace", "-D", "-f", "-qq", "-s", "256", "--seccomp-bpf", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", trace, *argv]


def address_of(line):
    """'unix:PATH', 'HOST:PORT' or the family's name; None when the call names no address."""
    found = ADDRESS.search(line)
    if not found:
        return None
    family, rest = found.groups()
    if family == "AF_UNIX":
        path = UNIX.search(rest)
        return "unix:" + path[1] if path else None
    if family in ("AF_INET", "AF_INET6") and PORT.search(rest):
        return f"{HOST.search(rest)[1]}:{PORT.search(rest)[1]}"
    return family


def used(trace):
    """{(pid, call, address)} of a trace."""
    found = set()
    for line in read_text(trace).splitlines():
        pid, _, rest = line.partition(" ")
        call = rest.strip().split("(")[0]
        if call in CALLS.split(",") and (address := address_of(rest)):
            found.add((int(pid), "bind" if call == "bind" else "connect", address))
    return found


def strays(trace, pid, connects=(), binds=()):
    """What was done beyond the lists: only the process itself may use them, nothing it started."""
    probes = [a for a in binds if a.startswith("unix:")]  # is somebody behind the socket that lies there?
    may = {("connect", a) for a in [*connects, *probes]} | {("bind", a) for a in binds}
    return {(p, call, a) for p, call, a in used(trace) if p != pid or (call, a) not in may}


def open_inet(pid):
    """(kind, local, remote) of the IPv4 and IPv6 sockets that a process has open, by its own network namespace."""
    inodes = set(open_files(pid))
    found = set()
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet"):
        for line in read_text(f"/proc/{pid}/net/{kind}").splitlines()[1:]:
            words = line.split()
            inode = words[8 if kind == "packet" else 9]
            if f"socket:[{inode}]" in inodes:
                ports = [int(w.rsplit(":", 1)[1], 16) for w in words[1:3]] if kind != "packet" else [0, 0]
                found.add((kind, *ports))
    return found


@suite.scenario
def the_judge(c):
    """What must be found is found."""
    trace = c.dir / "trace.judge"
    script = ("import socket,os\n"
              "for f,t,a in ((socket.AF_INET,socket.SOCK_STREAM,('127.0.0.1',9)),(socket.AF_INET6,socket.SOCK_DGRAM,('::1',53))):\n"
              "  try: socket.socket(f,t).connect(a)\n  except OSError: pass\n"
              "socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b'x',('127.0.0.1',53))\n"
              "if os.fork()==0: socket.socket(socket.AF_UNIX).bind('" + str(c.dir / "judge.sock") + "')\n"
              "else: os.wait()")
    p = subprocess.Popen(traced(str(trace), [sys.executable, "-c", script]))
    p.wait()
    until(lambda: "judge.sock" in read_text(trace), 5)
    found = {(call, a) for _, call, a in strays(trace, p.pid)}
    equal("a connection, a datagram and a child's listener are seen", found,
          {("connect", "127.0.0.1:9"), ("connect", "::1:53"), ("connect", "127.0.0.1:53"), ("bind", f"unix:{c.dir}/judge.sock")})
    check("the judge knows whose it is", strays(trace, p.pid, binds=[f"unix:{c.dir}/judge.sock"]) == strays(trace, p.pid))


@suite.scenario
def work(c):
    """A day in the life: every kind of work, over every endpoint."""
    with open(c.dir / "ca.pem", "rb") as f:
        tls = grpc.ssl_channel_credentials(f.read())
    over_tcp = Client(f"localhost:{c.ports['tcp']}", c.admin_key, tls)
    c.clients.append(over_tcp)
    check("jobs run", all(getattr(f, "outcome", f) == "EXITED" for f in in_parallel(lambda i: run(c.admin if i % 2 else over_tcp, "echo", str(i)), range(8), 4)))
    f = run(c.admin, "sh", "-c", "cat </dev/tcp/127.0.0.1/80; cat </dev/udp/8.8.8.8/53; getent hosts example.org; id", resources=(1, 224, 0))
    check("a guest that wants the network gets none, in a VM of another size too", f.outcome == "EXITED" and b"uid=" in f.out, f)
    box = c.admin.sandboxes.Create(pb.CreateRequest(template="base")).sandbox
    e = c.admin.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command("echo", "x"))).exec_id
    follow(c.admin.execs.Attach(pb.AttachRequest(sandbox_id=box.id, exec_id=e), timeout=20))
    c.admin.files.Write(iter([pb.WriteRequest(sandbox_id=box.id, path="/tmp/d", data=b"data", commit=True)]))
    back = b"".join(p.data for p in c.admin.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/tmp/d")))
    equal("files pass", back, b"data")
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("the log is read", c.reads_log(c.admin))
    check("errors are errors", error_of(c.admin.jobs.Get, pb.GetRequest(job_id="job_" + "0" * 26)) is not None)
    for name, port in c.ports.items():
        if name.startswith("metrics"):
            with socket.create_connection(("127.0.0.1", port), 5) as s:
                s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                check(f"{name} answer", s.recv(100).startswith(b"HTTP/1."))
    c.audit.kill()
    c.audit.start()
    c.redis.kill()
    c.redis.start()
    check("after Redis and the audit writer were killed work goes on", until(lambda: code(c) == "EXITED", 30, 0.5))


def code(c):
    try:
        return run(c.admin, "true", timeout_rpc=10).outcome
    except grpc.RpcError as err:
        return err.code().name


@suite.scenario
def threads(c):
    for p in (c.audit, c.reader, c.scheduler, *c.workers):
        equal(f"{p.name} has one thread", os.listdir(f"/proc/{p.pid}/task"), [str(p.pid)])
    guards = [pid for w in c.workers for pid in map(int, read_text(f"/proc/{w.pid}/task/{w.pid}/children").split())]
    check("so has each guardian", guards and all(len(os.listdir(f"/proc/{pid}/task")) == 1 for pid in guards), guards)


@suite.scenario
def what_is_open(c):
    p = c.ports
    listens = {c.scheduler: {p["tcp"], p["worker"], p["metrics of the scheduler"]}, c.audit: {p["metrics of the audit writer"]}, c.reader: set(),
               c.workers[0]: {p["metrics of the worker"]}, c.workers[1]: set(), c.redis: set()}
    for process, ports in listens.items():
        rows = open_inet(process.pid)
        listening = {local for kind, local, remote in rows if remote == 0}
        equal(f"{process.name} listens where it was told to, on TCP only", (listening, {kind for kind, *_ in rows} <= {"tcp"}), (ports, True))
        out = {remote for kind, local, remote in rows if remote != 0 and local not in ports}
        equal(f"{process.name} holds no TCP connection of its own but the configured one", out, {p["worker"]} if process is c.workers[1] else set())
    below = c.leftovers()
    check("guardians and VMs have no IP socket at all", below and not any(open_inet(pid) for pid in below), {pid: open_inet(pid) for pid in below})
    vms = c.vms()
    spaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in vms}
    check("each VM has an empty network of its own", vms and len(spaces) == len(vms) and os.readlink("/proc/self/ns/net") not in spaces, spaces)
    for pid in vms:
        devices = [line.split(":")[0].strip() for line in read_text(f"/proc/{pid}/net/dev").splitlines()[2:]]
        equal("… with nothing in it but lo", devices, ["lo"])


@suite.scenario
def the_cli(c):
    trace = c.dir / "trace.cli"
    env = dict(os.environ, CLOCHE_ENDPOINT=f"unix:{c.dir}/api.sock", CLOCHE_API_KEY=c.admin_key, ASAN_OPTIONS="detect_leaks=0", HOME=str(c.dir))
    p = subprocess.Popen(traced(str(trace), [str(BUILD / "cloche"), "run", "base", "--", "echo", "42"]), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    out, _ = p.communicate(timeout=60)
    check("the CLI connects to its endpoint only", out == b"42\n" and not strays(trace, p.pid, [f"unix:{c.dir}/api.sock"]), (out, strays(trace, p.pid, [f"unix:{c.dir}/api.sock"])))


def judge_all(c):
    """After the end of all of them: the traces."""
    d, p = c.dir, c.ports
    at = {name: f"127.0.0.1:{port}" for name, port in p.items()}
    lists = {
        "redis": ([], [f"unix:{d}/redis.sock"]),
        "audit": ([], [f"unix:{d}/audit.sock", at["metrics of the audit writer"]]),
        "audit-reader": ([], [f"unix:{d}/reader.sock"]),
        "scheduler": ([f"unix:{d}/redis.sock", f"unix:{d}/audit.sock", f"unix:{d}/reader.sock"],
                      [f"unix:{d}/api.sock", f"unix:{d}/worker.sock", at["tcp"], at["worker"], at["metrics of the scheduler"]]),
        # The name in the abstract space is how a worker makes sure that its instance is the only one.
        "worker0": ([f"unix:{d}/worker.sock"], [at["metrics of the worker"], f"unix:cloche-worker-{os.geteuid()}-{c.instance(0)}"]),
        "worker1": ([at["worker"]], [f"unix:cloche-worker-{os.geteuid()}-{c.instance(1)}"]),
    }
    for process in c.processes():
        connects, binds = lists[process.name]
        runs = [(f"{process.trace}.{n}", pid) for n, pid in enumerate(process.pids)]
        seen = {a for trace, _ in runs for _, _, a in used(trace)}
        check(f"{process.name} was watched", seen & {*connects, *binds}, seen)
        found = {row for trace, pid in runs for row in strays(trace, pid, connects, binds)}
        equal(f"{process.name}, and whatever it started, opened what its configuration names and nothing else", found, set())


if __name__ == "__main__":
    if not shutil.which("strace"):
        skip("no strace (apt install strace)")
    if os.geteuid() != 0:
        skip("needs root: to trace processes of other uids")
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0:quarantine_size_mb=8"  # LeakSanitizer and a tracer exclude each other
    names = ("tcp", "worker", "metrics of the scheduler", "metrics of the audit writer", "metrics of the worker")
    ports = {name: free_port() for name in names}
    c = Cluster("sockets", audit_args=("--metrics", f"127.0.0.1:{ports['metrics of the audit writer']}"))
    c.ports, d = ports, c.dir
    make_ca(d, "ca")
    make_certificate(d, "worker", f"URI:worker:{REMOTE}")
    make_certificate(d, "server", "DNS:localhost,IP:127.0.0.1")
    c.scheduler.argv += ["--tcp", f"127.0.0.1:{ports['tcp']}", "--tls-cert", d / "server.pem", "--tls-key", d / "server.key",
                         "--worker-tcp", f"127.0.0.1:{ports['worker']}", "--worker-ca", d / "ca.pem", "--worker-cert", d / "server.pem",
                         "--worker-key", d / "server.key", "--metrics", f"127.0.0.1:{ports['metrics of the scheduler']}"]
    c.worker.argv += ["--metrics", f"127.0.0.1:{ports['metrics of the worker']}"]
    c.add_worker(f"127.0.0.1:{ports['worker']}", worker_args(d, "worker"), worker_id=REMOTE)
    c.define_reader()
    for process in c.processes():
        process.trace, process.pids = d / f"trace.{process.name}", []
        process.argv = traced(process.trace, process.argv)

        def start(process=process, begin=process.start):
            process.argv[process.argv.index("-o") + 1] = f"{process.trace}.{len(process.pids)}"
            begin()
            process.pids.append(process.pid)
            return process
        process.start = start
    try:
        c.start()
        c.add_reader()
        suite.play(c, sys.argv[1:])
    finally:
        c.stop()
        judge_all(c)
        suite.close(c, clean=False)
    suite.finish()
