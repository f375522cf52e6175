#!/usr/bin/env python3
"""bench/ports.py - what it takes to reach a server in a sandbox, by `sandbox forward` and by the gateway, beside the same server on the host.

usage: bench/ports.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 15 kvm/xenpv-shared kvm/xenpv)

The servers are tests/e2e/guest_servers.py.  Each round asks the host, then each driver's sandbox both ways: 20 small pages, each on a
connection of its own, a word there and back on one that is open, and 8 MiB in either direction.  Client, services and guest share the machine.
Where sshd is installed, `ssh -L` to the host's servers stands beside: the same work without a guest.
Environment: CLOCHE_IMAGES (out/images).  As root.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import BUILD, Cluster, SECOND, command, pb  # noqa: E402

SERVERS = REPO / "tests" / "e2e" / "guest_servers.py"
ECHO, DIGEST, SOURCE, WEB, PORTS = 7000, 7001, 7002, 8000, (7000, 7001, 7002, 8000)
SIZE = 8 * 1024 * 1024
BLOB = os.urandom(SIZE)


def read_all(s):
    data = bytearray()
    while piece := s.recv(262144):
        data += piece
    return data


class Door:
    """Where the servers are, for one way to them."""

    def __init__(self, name, ports, host="localhost"):
        self.name, self.ports, self.host, self.got = name, ports, host, {}

    def connect(self, port):
        s = socket.create_connection(("127.0.0.1", self.ports[port]), timeout=120)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def note(self, what, value):
        self.got.setdefault(what, []).append(value)

    def page(self):
        begun = time.perf_counter()
        with self.connect(WEB) as s:
            s.sendall(f"GET / HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
            if not read_all(s).startswith(b"HTTP/1.1 200"):
                sys.exit(f"ports: error: {self.name}: no page")
        return (time.perf_counter() - begun) * 1e3

    def upload(self):
        begun = time.perf_counter()
        with self.connect(WEB) as s:
            s.sendall(f"POST / HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n".encode() + BLOB)
            read_all(s)
        return SIZE / 1e6 / (time.perf_counter() - begun)

    def download(self):
        begun = time.perf_counter()
        with self.connect(SOURCE) as s:
            s.sendall(b"%d\n" % SIZE)
            s.shutdown(socket.SHUT_WR)
            n = len(read_all(s))
        if n != SIZE + 64:
            sys.exit(f"ports: error: {self.name}: {n} bytes of {SIZE + 64}")
        return SIZE / 1e6 / (time.perf_counter() - begun)

    def word(self):
        with self.connect(ECHO) as s:
            times = []
            for _ in range(51):
                begun = time.perf_counter()
                s.sendall(b"word")
                s.recv(4)
                times.append((time.perf_counter() - begun) * 1e3)
        return statistics.median(times)

    def probe(self):
        self.note("page", statistics.median(self.page() for _ in range(20)))
        self.note("up", self.upload())
        if SOURCE in self.ports:
            self.note("word", self.word())
            self.note("down", self.download())


class Rig:
    def __init__(self, driver):
        harness.DRIVER = driver
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("ports", templates="python")
        client = self.cluster.start().admin
        gateway = int(self.cluster.add_gateway().split(":")[2].split("/")[0])
        box = client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=3600 * SECOND), timeout=120).sandbox.id
        client.files.Write(iter([pb.WriteRequest(sandbox_id=box, path="/tmp/servers.py", data=SERVERS.read_bytes(), commit=True)]))
        job = client.execs.Start(pb.StartRequest(sandbox_id=box, command=command("python3", "/tmp/servers.py"))).exec_id
        next(e for e in client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=job)) if e.HasField("output"))
        link = client.ports.CreateLink(pb.CreateLinkRequest(sandbox_id=box)).link
        env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{self.cluster.dir}/api.sock", "CLOCHE_API_KEY": self.cluster.admin_key}
        self.forward = subprocess.Popen([BUILD / "cloche", "sandbox", "forward", "--json", box, *(f"0:{p}" for p in PORTS)], env=env,
                                        stdout=subprocess.PIPE, text=True)
        rows = json.loads("".join(iter(self.forward.stdout.readline, "]\n")) + "]")
        self.doors = [Door(f"{driver}, forward", {r["port"]: int(r["listen"].rsplit(":", 1)[1]) for r in rows}),
                      Door(f"{driver}, gateway", {WEB: gateway}, f"{WEB}-sbx-{box[4:]}.{link.rsplit('_', 1)[1]}.localhost")]

    def stop(self):
        self.forward.send_signal(signal.SIGINT)
        self.forward.wait()
        self.cluster.stop()
        self.cluster.remove_cgroups()


class Ssh:
    """A connection to this host that forwards, with a server and keys of its own."""

    def __init__(self):
        folder = harness.folder("ssh")
        folder.chmod(0o700)
        listen = self.free_ports(1 + len(PORTS))
        for name in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "client.pub", folder / "authorized")
        os.makedirs("/run/sshd", exist_ok=True)
        options = {"ListenAddress": f"127.0.0.1:{listen[0]}", "HostKey": folder / "host", "AuthorizedKeysFile": folder / "authorized",
                   "PidFile": "none", "StrictModes": "no", "PermitRootLogin": "yes"}
        self.server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", "/dev/null", *(w for k, v in options.items() for w in ("-o", f"{k}={v}"))])
        self.ports = dict(zip(PORTS, listen[1:]))
        forwards = [w for port, at in self.ports.items() for w in ("-L", f"127.0.0.1:{at}:127.0.0.1:{port}")]
        self.client = subprocess.Popen(["ssh", "-N", "-i", folder / "client", "-p", str(listen[0]), "-o", "StrictHostKeyChecking=no", "-o",
                                        "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectionAttempts=20", *forwards, "127.0.0.1"])
        self.doors = [Door("host, ssh -L", self.ports)]
        if not harness.until(self.is_open, 20):
            sys.exit("ports: error: ssh does not connect")

    @staticmethod
    def free_ports(n):
        taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
        ports = [s.getsockname()[1] for s in taken]
        for s in taken:
            s.close()
        return ports

    def is_open(self):
        try:
            socket.create_connection(("127.0.0.1", self.ports[ECHO])).close()
        except OSError:
            return False
        return True

    def stop(self):
        for p in (self.client, self.server):
            p.terminate()
            p.wait()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds}", flush=True)
rigs = []
local = subprocess.Popen([sys.executable, SERVERS], stdout=subprocess.PIPE)
try:
    local.stdout.readline()
    rigs += [Ssh()] if os.path.exists("/usr/sbin/sshd") else []
    rigs += [Rig(d) for d in args.drivers]
    doors = [Door("host", {p: p for p in PORTS}), *(d for r in rigs for d in r.doors)]
    for door in doors:
        door.probe()  # pages are touched, connections of the services made
        door.got.clear()
    for _ in range(args.rounds):
        for door in doors:
            door.probe()
finally:
    local.terminate()
    for r in rigs:
        r.stop()
for what, title in {"page": "a small page, ms", "word": "a word there and back, ms", "down": "8 MiB down, MB/s", "up": "8 MiB up, MB/s"}.items():
    for door in doors:
        if what in door.got:
            print(f"{door.name:28} {title:26} p50 {statistics.median(door.got[what]):8.2f}  p99 {p99(door.got[what]):8.2f}")
