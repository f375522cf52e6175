#!/usr/bin/env python3
"""Network grants: a VM reaches what its grant names and nothing else; all of it is in the audit log, seen by the host."""
import hashlib
import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import urllib.parse

import mcp_client
import outside
from e2e_kept import restart
from harness import BUILD, MIB, SECOND, Suite, code_of, command, error_of, folder, follow, in_parallel, pb, read_text, skip, soon, until

suite = Suite("network")
check, equal = suite.check, suite.equal

if os.geteuid() != 0:
    skip("needs root, for network namespaces of its own")
if not shutil.which("ip"):
    skip("no ip (apt install iproute2)")
net = outside.Outside(folder("outside"))

GET = ("import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end='')")
TRY = ("import socket, sys\n"
       "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); print('connected')\n"
       "except Exception as e: print(type(e).__name__)")


def grant(*allow, egress=0):
    return pb.NetworkGrant(allow=allow, egress_bytes=egress)


def job(client, allow, *argv, egress=0, timeout_rpc=120):
    """A job of the template python with this grant (None: without)."""
    spec = pb.JobSpec(template="python", command=command(*argv))
    if allow is not None:
        spec.network_grant.CopyFrom(grant(*allow, egress=egress))
    return follow(client.jobs.Run(pb.RunRequest(spec=spec), timeout=timeout_rpc))


def script(client, allow, source, *args, **kw):
    done = job(client, allow, "python3", "-c", source, *args, **kw)
    return bytes(done.out).decode() if done.outcome == "EXITED" else str(done)


def field_of(c, unit, name):
    """Of the record of its start."""
    records = lambda: [r["fields"] for r in c.audit_records() if r["event"] == "vm.start" and r["fields"]["unit"] == unit]
    return (until(records, 20) or [{}])[0].get(name)


def log_of(c, unit, event):
    """Fields of the unit's records of this event, once its end is there."""
    def rows():
        all_rows = [r for r in c.audit_records() if r["fields"].get("unit") == unit]
        return all_rows if any(r["event"] == "unit.end" for r in all_rows) else None
    return [r["fields"] for r in until(rows, 20) or [] if r["event"] == event]


def spent(c, tenant="local"):
    return next(q.used for q in c.usage(tenant).quotas if q.dimension == "egress_bytes")


def nets(c):
    """pids of what the networks of its VMs are run by."""
    return [p for p in c.leftovers() if os.path.basename(read_text(f"/proc/{p}/cmdline").split("\0")[0]) == "cloche-net"]


class Box:
    def __init__(self, client, allow, template="python", egress=0):
        self.client = client
        self.sandbox = client.sandboxes.Create(pb.CreateRequest(template=template, ttl_ns=600 * SECOND, network_grant=grant(*allow, egress=egress)),
                                               timeout=120).sandbox
        self.id = self.sandbox.id

    def begin(self, *argv):
        return self.client.execs.Start(pb.StartRequest(sandbox_id=self.id, command=command(*argv))).exec_id

    def run(self, *argv):
        done = follow(self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.id, exec_id=self.begin(*argv)), timeout=soon(120)))
        return bytes(done.out).decode()

    def end(self):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))


@suite.scenario
def by_name(c):
    done = job(c.admin, ["web.test:80"], "python3", "-c", GET, "http://web.test/")
    equal("a name that its grant has is reached", bytes(done.out).decode(), f"hello from {outside.PUBLIC} to {outside.HOST}\n")
    (start,) = log_of(c, done.job_id, "vm.start")
    equal("vm.start tells the grant", (start["network"], start["network_allow"], start["egress_bytes"]), ("granted", ["web.test:80"], 1 << 30))
    dns = [f for f in log_of(c, done.job_id, "net.dns") if f["qtype"] == 1]
    equal("the name is in the log", [(f["name"], f["addresses"], f["rcode"], f["rule"]) for f in dns], [("web.test", [outside.PUBLIC], 0, "web.test:80")])
    (flow,), (end,) = log_of(c, done.job_id, "net.open"), log_of(c, done.job_id, "net.close")
    equal("and the flow", (flow["address"], flow["port"], flow["protocol"], flow["name"], flow["rule"]),
          (outside.PUBLIC, 80, "tcp", "web.test", "web.test:80"))
    check("with its bytes", end["flow"] == flow["flow"] and end["sent_bytes"] > 100 and end["received_bytes"] > 100, end)
    check("and how it ended", end["end"] in ("closed", "reset", "stopped"), end)
    (count,) = [f for f in log_of(c, done.job_id, "net.count") if f["last"]]
    numbers = sorted(f["number"] for e in ("net.dns", "net.open", "net.close", "net.denied") for f in log_of(c, done.job_id, e))
    equal("all of it, or counted", (count["seen"], count["recorded"], numbers), (len(numbers), len(numbers), list(range(1, len(numbers) + 1))))
    (vm,) = log_of(c, done.job_id, "vm.end")
    check("vm.end has the sums", vm["sent_bytes"] >= end["sent_bytes"] and vm["received_bytes"] >= end["received_bytes"], vm)
    rows = [r for r in c.audit_records() if r["event"].startswith("net.")]
    equal("seen by the host", {r["assurance"] for r in rows}, {"H0"})


TLS = """
import socket, ssl, sys
def ask(name, address="web.test", cut=0):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        s = socket.create_connection((address, 443), 20)
        if cut:  # the hello comes in two segments
            coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
            talk = context.wrap_bio(coming, going, server_hostname=name)
            try: talk.do_handshake()
            except ssl.SSLWantReadError: pass
            hello = going.read()
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(hello[:cut]); __import__("time").sleep(0.2); s.sendall(hello[cut:])
            return "answered" if s.recv(1) else "ended"
        t = context.wrap_socket(s, server_hostname=name)
        t.sendall((name or "nobody").encode())
        return t.recv(100).decode()
    except OSError as e:
        return type(e).__name__
for row in eval(sys.argv[1]): print(ask(*row))
"""


@suite.scenario
def names_in_tls(c):
    rows = [("web.test",), ("WEB.test",), ("hidden.test",), (None,), ("web.test", "web.test", 40), ("hidden.test", "web.test", 40)]
    done = job(c.admin, ["web.test"], "python3", "-c", TLS, repr(rows))
    equal("a name of its rule, in one piece or two, and no other, nor none", bytes(done.out).decode().split("\n")[:-1],
          ["tls for web.test", "tls for WEB.test", "ConnectionResetError", "ConnectionResetError", "answered", "ConnectionResetError"])
    denied = log_of(c, done.job_id, "net.denied")
    check("the name that was tried is in the log", {(f.get("name"), f["address"], f["port"]) for f in denied} >= {("hidden.test", outside.PUBLIC, 443)}, denied)
    check("... with the reason", all("TLS" in f["reason"] for f in denied) and len(denied) == 3, denied)
    ends = log_of(c, done.job_id, "net.close")
    equal("the end of a flow tells what it asked for", {f.get("name") for f in ends if f["end"] != "reset"}, {"web.test"})
    both = job(c.admin, ["web.test", f"{outside.PUBLIC}:443"], "python3", "-c", TLS, repr([("hidden.test",), (None,)]))
    equal("who may go there by address may ask for anybody", bytes(both.out).decode().split("\n")[:-1], ["tls for hidden.test", "tls for nobody"])
    wild = job(c.admin, ["*.wild.test"], "python3", "-c", TLS, repr([("b.wild.test", "a.wild.test"), ("wild.test", "a.wild.test")]))
    equal("*. covers what is below", bytes(wild.out).decode().split("\n")[:-1], ["tls for b.wild.test", "ConnectionResetError"])


@suite.scenario
def nothing_else(c):
    before = len(net.asked())
    source = ("import socket\n"
              "def ask(n):\n"
              "    try: return socket.gethostbyname(n)\n"
              "    except OSError as e: return 'no name'\n"
              "def go(a, p):\n"
              "    try: socket.create_connection((a, p), 20); return 'connected'\n"
              "    except OSError as e: return type(e).__name__\n"
              f"print(ask('web.test'), ask('other.test'), ask('secret-0123.evil.test'), go('{outside.PUBLIC}', 80), go('{outside.PUBLIC}', 8080), "
              f"go('{outside.OTHER}', 80), go('{outside.HOST}', 80), go('192.0.0.1', 80), go('127.0.0.1', 80), go('10.0.0.1', 80))")
    done = job(c.admin, ["web.test:80"], "python3", "-c", source)
    refused = "ConnectionRefusedError"
    equal("other names, ports and addresses are not there", bytes(done.out).decode().split(),
          [outside.PUBLIC, "no", "name", "no", "name", "connected", *[refused] * 6])
    asked = [line.split()[0] for line in net.asked()[before:]]
    equal("a name that no rule covers never leaves the host", set(asked), {"web.test"})
    denied = log_of(c, done.job_id, "net.denied")
    want = {(outside.PUBLIC, 8080), (outside.OTHER, 80), (outside.HOST, 80), ("192.0.0.1", 80), ("10.0.0.1", 80)}
    equal("each refusal is in the log", {(f.get("address"), f.get("port")) for f in denied}, want)
    check("with a reason", all(f["reason"] for f in denied), denied)
    names = {f["name"]: f for f in log_of(c, done.job_id, "net.dns") if f.get("reason")}
    check("the names, too", {"other.test", "secret-0123.evil.test"} <= set(names), names)


@suite.scenario
def without_a_grant(c):
    done = job(c.admin, None, "python3", "-c", "import os; print(sorted(os.listdir('/sys/class/net')))")
    equal("there is no card", bytes(done.out).decode(), "['lo']\n")
    (start,) = log_of(c, done.job_id, "vm.start")
    check("vm.start tells it", start["network"] == "none" and "network_allow" not in start, start)
    equal("and nothing of it is told", [log_of(c, done.job_id, e) for e in ("net.dns", "net.open", "net.count")], [[], [], []])
    equal("with one there is one", script(c.admin, ["web.test"], "import os; print(sorted(os.listdir('/sys/class/net')))"), "['eth0', 'lo']\n")


@suite.scenario
def kept_warm(c):
    def source():
        return log_of(c, job(c.admin, ["web.test"], "true").job_id, "vm.start")[0]["source"]
    check("once somebody asked for a card, VMs with one wait warm", until(lambda: source() == "warm", 20, every=1), source())


@suite.scenario
def names_that_lead_inside(c):
    source = ("import socket, sys\n"
              "for n in sys.argv[1:]:\n"
              "    try: print(socket.gethostbyname_ex(n)[2])\n"
              "    except OSError: print('none')")
    got = script(c.admin, ["*.test:80", "public:80", "test:1"], source, "rebind.test", "host.test", "mixed.test", "private.test", "a.wild.test")
    equal("the host, its loopback and what is not public have no name", got.splitlines(), ["none", "none", f"['{outside.PUBLIC}']", "none", f"['{outside.PUBLIC}']"])


@suite.scenario
def rules(c):
    equal("addresses", script(c.admin, [f"{outside.OTHER}:8080"], TRY, outside.OTHER, "8080"), "connected\n")
    equal("ranges of ports", script(c.admin, ["192.31.196.0/24:8000-8099"], TRY, outside.OTHER, "8080"), "connected\n")
    equal("and not around them", script(c.admin, ["192.31.196.0/24:8000-8099"], TRY, outside.OTHER, "80"), "ConnectionRefusedError\n")
    equal("public", script(c.admin, ["public"], GET, "http://other.test:8080/"), f"hello from {outside.OTHER} to {outside.HOST}\n")
    equal("is not what is private", script(c.admin, ["public", f"{outside.PRIVATE}:80"], TRY, outside.PRIVATE, "80"), "ConnectionRefusedError\n")
    udp = ("import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect((sys.argv[1], 7777))\n"
           "try: s.send(b'abc'); print(s.recv(100))\nexcept OSError as e: print(type(e).__name__)")
    equal("UDP", script(c.admin, [f"{outside.PUBLIC}:7777/udp"], udp, outside.PUBLIC), "b'cba'\n")
    equal("which TCP does not allow", script(c.admin, [f"{outside.PUBLIC}:7777"], udp, outside.PUBLIC), "OSError\n")


@suite.scenario
def many_bytes(c):
    before = spent(c)
    source = ("import hashlib, urllib.request\nb = urllib.request.urlopen('http://web.test/big', timeout=100).read()\n"
              "print(len(b), hashlib.sha256(b).hexdigest())\n"
              "r = urllib.request.Request('http://web.test/', b, {'Content-Type': 'x'})\nprint(urllib.request.urlopen(r, timeout=100).read().decode())")
    done = job(c.admin, ["web.test:80"], "python3", "-c", source, timeout_rpc=300)
    want = hashlib.sha256(outside.BIG).hexdigest()
    equal("8 MiB down and up, whole", bytes(done.out).decode().split(), [str(len(outside.BIG)), want, want])
    (vm,) = log_of(c, done.job_id, "vm.end")
    check("are counted", vm["sent_bytes"] > len(outside.BIG) < vm["received_bytes"], vm)
    equal("and charged, to the byte", spent(c) - before, vm["sent_bytes"])


@suite.scenario
def the_budget(c):
    t = c.tenant("spender", network=True, egress_bytes_per_period=4 * MIB)
    source = ("import urllib.request\nr = urllib.request.Request('http://web.test/', b'x' * (1 << 20), {'Content-Type': 'x'})\n"
              "try: print(urllib.request.urlopen(r, timeout=30).status)\nexcept OSError as e: print('stopped')")
    done = job(t, ["web.test:80"], "python3", "-c", source, egress=256 * 1024)
    equal("what is over the budget is not sent", bytes(done.out).decode(), "stopped\n")
    check("which is in the log", any("budget" in f["reason"] for f in log_of(c, done.job_id, "net.denied")), log_of(c, done.job_id, "net.denied"))
    used = spent(c, "spender")
    check("and charged", 200 * 1024 < used <= 256 * 1024, used)
    err = error_of(lambda: job(t, ["web.test:80"], "true", egress=5 * MIB))
    equal("a grant over the tenant's quota is refused", code_of(err), "RESOURCE_EXHAUSTED")
    check("which names the dimension", "egress_bytes" in err.details(), err.details())
    equal("within it there is more", script(t, ["web.test:80"], GET, "http://web.test/", egress=MIB), f"hello from {outside.PUBLIC} to {outside.HOST}\n")


@suite.scenario
def who_may(c):
    t = c.tenant("quiet")
    err = error_of(lambda: job(t, ["web.test:80"], "true"))
    equal("a tenant without network gets none", code_of(err), "PERMISSION_DENIED")
    check("and hears who can change that", "--network yes" in err.details(), err.details())
    equal("but VMs without", bytes(job(t, None, "echo", "1").out), b"1\n")
    bad = {"": "", "web.test:0": "port", "*": "", "http://web.test/": "", "300.1.1.1:80": "", "web.test/icmp": "", "10.0.0.1/8:80": "", "public:1-99999": ""}
    errs = {rule: error_of(lambda: job(c.admin, [rule], "true")) for rule in bad}
    equal("rules that are none are refused", {r for r, e in errs.items() if code_of(e) != "INVALID_ARGUMENT"}, set())
    equal("as are none, and too many", [code_of(error_of(lambda: job(c.admin, rules, "true"))) for rules in ([], ["web.test"] * 33)], ["INVALID_ARGUMENT"] * 2)
    both = pb.JobSpec(template="python", command=command("true"), network=pb.NETWORK_NONE, network_grant=grant("web.test"))
    equal("and a grant of no network", code_of(error_of(lambda: c.admin.jobs.Run(pb.RunRequest(spec=both)))), "INVALID_ARGUMENT")


@suite.scenario
def sandboxes(c):
    box = Box(c.admin, ["web.test:80"])
    equal("a sandbox tells its grant", list(box.sandbox.network_grant.allow), ["web.test:80"])
    got = [box.run("python3", "-c", GET, "http://web.test/") for _ in range(3)]
    equal("each of its commands has the network", set(got), {f"hello from {outside.PUBLIC} to {outside.HOST}\n"})
    box.begin("python3", "-c", "import socket, time; s = socket.create_connection(('web.test', 80)); time.sleep(1000)")
    check("its network has a process", until(lambda: len(nets(c)) == 1, 10), nets(c))
    uid = os.stat(f"/proc/{nets(c)[0]}").st_uid if nets(c) else 0
    check("that is not root", uid >= c.uid_base, uid)
    until(lambda: len([r for r in c.audit_records() if r["event"] == "net.open" and r["fields"]["unit"] == box.id]) == 4, 10)
    box.end()
    ends = [f["end"] for f in log_of(c, box.id, "net.close")]
    check("a flow that its end cuts is told, too", len(ends) == 4 and ends.count("stopped") == 1, ends)
    check("and the process is gone", until(lambda: not nets(c), 10), nets(c))


@suite.scenario
def at_rest(c):
    box = Box(c.admin, ["web.test:80"])
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    rest = pb.PauseRequest(sandbox_id=box.id)
    equal("before its rest", box.run("python3", "-c", GET, "http://web.test/"), hello)
    script = ("import socket, sys\ns = socket.create_connection(('web.test', 80))\nprint('connected', flush=True)\n"
              "s.settimeout(60)\ntry: print(s.recv(1))\nexcept Exception as e: print(type(e).__name__)\n")
    box.begin("python3", "-c", script)
    until(lambda: len([r for r in c.audit_records() if r["event"] == "net.open" and r["fields"]["unit"] == box.id]) == 2, 10)
    for i in range(2):
        c.admin.sandboxes.Pause(rest)
        check("no process sees to a network at rest", until(lambda: not nets(c), 10), nets(c))
        c.admin.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box.id))
        equal("one does afterwards", until(lambda: len(nets(c)), 10), 1)
        equal("and all works as before", box.run("python3", "-c", GET, "http://web.test/"), hello)
    box.end()
    opened, closed = log_of(c, box.id, "net.open"), log_of(c, box.id, "net.close")
    equal("its flows are told, each once", ([f["flow"] for f in opened], sorted(f["flow"] for f in closed)), ([1, 2, 3, 4], [1, 2, 3, 4]))
    equal("the one that the rest cut, too", [f["end"] for f in closed if f["flow"] == 2], ["stopped"])
    numbers = sorted(f["number"] for e in ("net.dns", "net.open", "net.close", "net.denied") for f in log_of(c, box.id, e))
    equal("no record is missing", numbers, list(range(1, len(numbers) + 1)))
    count = [f for f in log_of(c, box.id, "net.count") if f["last"]]
    check("and the count says so", len(count) == 1 and count[0]["seen"] == len(numbers) == count[0]["recorded"], (count, len(numbers)))
    ended = log_of(c, box.id, "vm.end")[-1]
    check("the bytes are those of all", ended["sent_bytes"] >= sum(f["sent_bytes"] for f in closed) > 0, (ended, closed))


@suite.scenario
def kept(c):
    """At rest while its worker ends: the next one gives it the network that it had, and counts on."""
    t = c.tenant("keeper", network=True, egress_bytes_per_period=4 * MIB)
    box = Box(t, ["web.test:80"], egress=MIB)
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    post = ("import urllib.request\nr = urllib.request.Request('http://web.test/', b'x' * 600000, {'Content-Type': 'x'})\n"
            "try: print(urllib.request.urlopen(r, timeout=30).status)\nexcept OSError: print('stopped')")
    equal("before its rest", box.run("python3", "-c", GET, "http://web.test/"), hello)
    box.begin("python3", "-c", "import socket, time; s = socket.create_connection(('web.test', 80)); time.sleep(1000)")
    until(lambda: len([r for r in c.audit_records() if r["event"] == "net.open" and r["fields"]["unit"] == box.id]) == 2, 10)
    equal("more than half of what it may send", box.run("python3", "-c", post), "200\n")
    for how in ("stop", "kill"):
        t.sandboxes.Pause(pb.PauseRequest(sandbox_id=box.id))
        restart(c, how)
        equal("no process sees to a network at rest", nets(c), [])
        t.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box.id))
        equal("one does afterwards", until(lambda: len(nets(c)), 10), 1)
        equal("what its grant names is reached", box.run("python3", "-c", GET, "http://web.test/"), hello)
        equal("and nothing else", box.run("python3", "-c", TRY, outside.OTHER, "80"), "ConnectionRefusedError\n")
        check("its grant is told as before", list(t.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox.network_grant.allow) == ["web.test:80"])
    equal("what it sent before is of its budget still", box.run("python3", "-c", post), "stopped\n")
    box.end()
    opened, closed = log_of(c, box.id, "net.open"), log_of(c, box.id, "net.close")
    equal("its flows are told, each once", ([f["flow"] for f in opened], sorted(f["flow"] for f in closed)), ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]))
    equal("the one that the rest cut, too", [f["end"] for f in closed if f["flow"] == 2], ["stopped"])
    equal("each with its rule", {f["rule"] for f in opened}, {"web.test:80"})
    events = ("net.dns", "net.open", "net.close", "net.denied")
    rows = [r for r in c.audit_records() if r["fields"].get("unit") == box.id and r["event"] in events]
    numbers = [r["fields"]["number"] for r in rows]
    equal("no record is missing, or there twice", numbers, list(range(1, len(numbers) + 1)))
    denied = log_of(c, box.id, "net.denied")
    equal("what was refused is told", [f["address"] for f in denied if "budget" not in f["reason"]], [outside.OTHER] * 2)
    check("the end of its budget, too", any("budget" in f["reason"] for f in denied), denied)
    count = [f for f in log_of(c, box.id, "net.count") if f["last"]]
    check("and the count says so", len(count) == 1 and count[0]["seen"] == len(numbers) == count[0]["recorded"], (count, len(numbers)))
    ended = log_of(c, box.id, "vm.end")[-1]
    check("the bytes are those of all", MIB >= ended["sent_bytes"] >= sum(f["sent_bytes"] for f in closed) > 600000, (ended, closed))
    equal("and charged, to the byte", until(lambda: spent(c, "keeper") <= ended["sent_bytes"], 10) and spent(c, "keeper"), ended["sent_bytes"])
    c.await_ready(120)


@suite.scenario
def forked(c):
    box = Box(c.admin, ["web.test:80"])
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    equal("before it is copied", box.run("python3", "-c", GET, "http://web.test/"), hello)
    # A connection from before, and what comes of it once it is used.
    script = ("import os, socket, time\ns = socket.create_connection(('web.test', 80))\ns.settimeout(60)\nopen('/tmp/connected', 'w')\n"
              "while not os.path.exists('/tmp/go'): time.sleep(0.05)\n"
              "try:\n s.sendall(b'GET / HTTP/1.0\\r\\nHost: web.test\\r\\n\\r\\n'); got = s.recv(4).decode()\n"
              "except Exception as e: got = type(e).__name__\nopen('/tmp/part', 'w').write(got)\nos.rename('/tmp/part', '/tmp/got')\n")
    box.begin("python3", "-c", script)
    check("a program is connected", until(lambda: box.run("ls", "/tmp/connected"), 20))
    copy = Box.__new__(Box)
    copy.client, copy.id = c.admin, c.admin.sandboxes.Fork(pb.ForkRequest(sandbox_id=box.id), timeout=120).sandbox.id
    equal("each has a process that sees to its network", len(nets(c)), 2)
    for which, b in (("the first", box), ("the copy", copy)):
        equal(f"{which} reaches what its grant has", b.run("python3", "-c", GET, "http://web.test/"), hello)
    got = {}
    for which, b in (("first", box), ("copy", copy)):
        b.run("touch", "/tmp/go")
        until(lambda b=b, which=which: got.update({which: b.run("cat", "/tmp/got")}) or got[which], 60)
    check("a connection from before is the first's, and broken in the copy", got["first"] == "HTTP" and got["copy"] in ("ConnectionResetError", "ConnectionAbortedError"), got)
    for b in (box, copy):
        b.end()
        until(lambda b=b: log_of(c, b.id, "vm.end"), 20)
        numbers = sorted(f["number"] for e in ("net.dns", "net.open", "net.close", "net.denied") for f in log_of(c, b.id, e))
        (count,) = [f for f in log_of(c, b.id, "net.count") if f["last"]]
        equal("what each did is counted by itself", (numbers, count["seen"]), (list(range(1, count["recorded"] + 1)), count["recorded"]))
    equal("… and no byte is the other's", {log_of(c, b.id, "vm.end")[-1]["sent_bytes"] > 0 for b in (box, copy)}, {True})


@suite.scenario
def of_a_snapshot(c):
    before = spent(c)
    first = Box(c.admin, ["web.test:80"])
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    snap = c.admin.snapshots.Create(pb.SnapshotServiceCreateRequest(sandbox_id=first.id), timeout=120).snapshot
    equal("a snapshot tells its rules", list(snap.network_grant.allow), ["web.test:80"])
    first.end()
    check("… and holds none of the tenant's bytes", until(lambda: spent(c) - before < MIB, 10), spent(c) - before)

    def begin(**kw):
        box = Box.__new__(Box)
        box.client, box.sandbox = c.admin, c.admin.sandboxes.Create(pb.CreateRequest(snapshot=snap.id, ttl_ns=600 * SECOND, **kw), timeout=120).sandbox
        box.id = box.sandbox.id
        return box
    as_it_was, otherwise = begin(), begin(network_grant=grant("other.test:80"))
    equal("what begins with it has them", (list(as_it_was.sandbox.network_grant.allow), as_it_was.run("python3", "-c", GET, "http://web.test/")), (["web.test:80"], hello))
    equal("… or those that it asks for, and no others", (list(otherwise.sandbox.network_grant.allow), otherwise.run("python3", "-c", TRY, "web.test", "80")), (["other.test:80"], "gaierror\n"))
    done = follow(c.admin.jobs.Run(pb.RunRequest(spec=pb.JobSpec(snapshot=snap.id, command=command("python3", "-c", GET, "http://web.test/"))), timeout=120))
    equal("a job, too", bytes(done.out).decode(), hello)
    equal("it is in its log", len(log_of(c, done.job_id, "net.open")), 1)
    cut = begin(network=pb.NETWORK_NONE)
    equal("without network it reaches nothing", (list(cut.sandbox.network_grant.allow), cut.run("python3", "-c", TRY, "web.test", "80")), ([], "gaierror\n"))
    copy = c.admin.sandboxes.Fork(pb.ForkRequest(sandbox_id=cut.id, ttl_ns=600 * SECOND), timeout=120).sandbox
    equal("… nor do its copies", list(copy.network_grant.allow), [])
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=copy.id))
    equal("… which is said", (field_of(c, cut.id, "network"), field_of(c, as_it_was.id, "network")), ("none", "granted"))
    equal("rules and none are not both", code_of(error_of(lambda: begin(network=pb.NETWORK_NONE, network_grant=grant("other.test:80")))), "INVALID_ARGUMENT")
    t = c.tenant("cut-off", network=True)
    box = t.sandboxes.Create(pb.CreateRequest(template="python", network_grant=grant("web.test:80")), timeout=120).sandbox
    kept = t.snapshots.Create(pb.SnapshotServiceCreateRequest(sandbox_id=box.id), timeout=120).snapshot
    c.tenant("cut-off", network=False)
    equal("a tenant that may have no network any more has none by that", code_of(error_of(lambda: t.sandboxes.Create(pb.CreateRequest(snapshot=kept.id), timeout=120))), "PERMISSION_DENIED")
    t.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    t.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=kept.id))
    for b in (as_it_was, otherwise, cut):
        b.end()
    c.admin.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=snap.id))


@suite.scenario
def front_ends(c):
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin.key}
    cloche = lambda *words: subprocess.run([BUILD / "cloche", *words], env=env, capture_output=True, text=True, timeout=soon(60))
    equal("cloche run --net", cloche("run", "--net", "a.test,web.test:80", "--net", "b.test", "python", "--", "python3", "-c", GET, "http://web.test/").stdout, hello)
    made = json.loads(cloche("sandbox", "create", "--json", "--net", "web.test:80", "--egress", "10MiB", "base").stdout)
    equal("sandbox create --net", made["network"], ["web.test:80"])
    check("a rule that is none is named", "'web test'" in (said := cloche("run", "--net", "web test", "base", "--", "true").stderr), said)
    agent = mcp_client.Mcp(c.add_gateway(), c.admin.key)
    box = agent.tool("sandbox_create", template="python", network=["web.test:80"]).data
    equal("MCP's sandbox_create", box["network"], ["web.test:80"])
    equal("and what it made", agent.tool("exec", sandbox_id=box["sandbox_id"], argv=["python3", "-c", GET, "http://web.test/"]).data["stdout"], hello)
    refused = mcp_client.Mcp(agent.url.geturl(), c.tenant("silent").key).tool("sandbox_create", network=["web.test"])
    check("which says who may not", refused.failed and "--network yes" in refused.text, refused.text)
    e2b = http.client.HTTPConnection(agent.url.hostname, agent.url.port, timeout=soon(60))
    body = {"templateID": "base", "network": {"allowOut": ["web.test", "1.2.3.0/24"], "denyOut": ["0.0.0.0/0"]}}
    e2b.request("POST", "/v2/sandboxes", json.dumps(body), {"X-API-Key": c.admin.key})
    made = json.loads(e2b.getresponse().read())
    get = c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=made["sandboxID"])).sandbox
    equal("E2B's allowOut", list(get.network_grant.allow), ["web.test:*", "1.2.3.0/24:*"])
    e2b.close()
    for s in c.admin.sandboxes.List(pb.SandboxServiceListRequest(page_size=100)).sandboxes:
        c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=s.id))


@suite.scenario
def fails_closed(c):
    box = Box(c.admin, ["web.test:80"])
    equal("one process", len(nets(c)), 1)
    os.kill(nets(c)[0], signal.SIGKILL)
    get = lambda: c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox
    check("a VM whose network dies ends", until(lambda: get().state == pb.UNIT_STATE_ENDED, 20), get())
    equal("as one that died", pb.Reason.Name(get().reason), "REASON_START_FAILED")


@suite.scenario
def a_vm_that_dies(c):
    spec = pb.JobSpec(template="python", command=command("sh", "-c", "echo up; sleep 1000"), network_grant=grant("web.test:80"), max_attempts=1)
    stream = c.admin.jobs.Run(pb.RunRequest(spec=spec), timeout=soon(60))
    unit = next(stream).accepted.job_id
    while next(stream).WhichOneof("event") != "output":
        pass
    os.kill(c.vm_of(unit), signal.SIGKILL)
    done = follow(stream)
    check("says of what, not that its network has ended", "died by signal 9" in done.result.message, str(done))


@suite.scenario
def a_worker_that_dies(c):
    box = Box(c.admin, ["web.test:80"])
    c.worker.kill()
    check("takes its networks along", until(lambda: not nets(c), 10), nets(c))
    c.worker.start()
    c.await_ready(120)
    get = lambda: c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox
    check("its sandbox has ended", until(lambda: get().state == pb.UNIT_STATE_ENDED, 60), get())
    check("and no cgroup is left of either", until(lambda: not [g for g in c.cgroups() if g.name.endswith("-net")], 20), c.cgroups())
    equal("the next one has network", script(c.admin, ["web.test:80"], GET, "http://web.test/"), f"hello from {outside.PUBLIC} to {outside.HOST}\n")


@suite.scenario
def moved(c):
    """To another worker, since its own is drained: that one gives it the network that it had, and counts on."""
    second = c.add_worker()
    second.start()
    c.await_ready(120)
    ids = [(w.state_dir / "id").read_text().strip() for w in c.workers]
    drain = lambda worker_id, undo=False: c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=worker_id, undo=undo))
    drain(ids[1])
    box, get = Box(c.admin, ["web.test:80"]), lambda: c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    equal("before it moves", (get().worker_id, box.run("python3", "-c", GET, "http://web.test/")), (ids[0], hello))
    drain(ids[1], undo=True)
    drain(ids[0])
    check("it moves", until(lambda: (get().worker_id, get().state) == (ids[1], pb.UNIT_STATE_RUNNING), 60), get())
    equal("one process sees to its network", until(lambda: len(nets(c)) == 1, 10) and len(nets(c)), 1)
    equal("what its grant names is reached", box.run("python3", "-c", GET, "http://web.test/"), hello)
    equal("and nothing else", box.run("python3", "-c", TRY, outside.OTHER, "80"), "ConnectionRefusedError\n")
    box.end()
    events = ("net.dns", "net.open", "net.close", "net.denied")
    numbers = [r["fields"]["number"] for r in c.audit_records() if r["fields"].get("unit") == box.id and r["event"] in events]
    equal("no record is missing, or there twice", numbers, list(range(1, len(numbers) + 1)))
    count = [f for f in log_of(c, box.id, "net.count") if f["last"]]
    check("and the count says so", len(count) == 1 and count[0]["seen"] == len(numbers) == count[0]["recorded"], (count, len(numbers)))
    drain(ids[0], undo=True)
    second.stop()
    c.workers.remove(second)


@suite.scenario
def side_by_side(c):
    listener = "import socket; s = socket.socket(); s.bind(('0.0.0.0', 9000)); s.listen(); print('up', flush=True); s.settimeout(60)\ntry: s.accept(); print('came')\nexcept OSError: print('nobody')"
    boxes = in_parallel(lambda _: Box(c.admin, ["web.test:80", "192.0.0.0/29:*"]), range(4))
    check("four at once", all(isinstance(b, Box) for b in boxes), boxes)
    boxes[0].begin("python3", "-c", listener)
    got = in_parallel(lambda b: b.run("python3", "-c", TRY, "192.0.0.2", "9000"), boxes[1:])
    equal("no guest reaches another, though all have one address", got, ["ConnectionRefusedError\n"] * 3)
    got = in_parallel(lambda b: b.run("python3", "-c", GET, "http://web.test/"), boxes)
    equal("each has its own way out", set(got), {f"hello from {outside.PUBLIC} to {outside.HOST}\n"})
    in_parallel(lambda b: b.end(), boxes)


@suite.scenario
def a_flood_is_counted(c):
    source = ("import socket\nfor i in range(20000):\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
              "    try: s.sendto(b'x', (f'192.31.{i // 250}.{i % 250 + 1}', 9))\n    except OSError: pass\n    s.close()\nprint('sent')")
    done = job(c.admin, ["web.test:80"], "python3", "-c", source)
    equal("twenty thousand refused packets", bytes(done.out), b"sent\n")
    (count,) = [f for f in log_of(c, done.job_id, "net.count") if f["last"]]
    denied = log_of(c, done.job_id, "net.denied")
    check("are recorded up to the rate", 400 <= len(denied) < 15000, len(denied))
    equal("and the others counted", count["recorded"] + count["over"] + count["missing"], count["seen"])
    equal("none got out of sight", (count["recorded"], count["missing"]), (len(denied), 0))


@suite.scenario
def builds_of_templates(c):
    """What the gateway's build-net names is for the build alone, and for tenants that may have a network."""
    if c.gateway:
        equal("the gateway of before ends in order", c.gateway.stop(), 0)
    url = urllib.parse.urlsplit(c.add_gateway("--template", "python", "--build-net", "web.test:80,other.test:80"))
    hello = f"hello from {outside.PUBLIC} to {outside.HOST}\n"
    fetch = {"type": "RUN", "args": [f"python3 -c {shlex.quote(GET)} http://web.test/ > got; cat got"]}

    def call(key, method, path, body=None):
        h = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        h.request(method, path, json.dumps(body) if body else None, {"X-API-Key": key})
        return json.loads(h.getresponse().read() or "null")

    def build(key, name, base, *steps):
        where = f"/templates/{name}/builds/{call(key, 'POST', '/v3/templates', {'name': name})['buildID']}"
        call(key, "POST", "/v2" + where, {"fromTemplate": base, "steps": steps})
        until(lambda: call(key, "GET", where + "/status")["status"] in ("ready", "error"), 60)
        return call(key, "GET", where + "/status")

    may, may_not = c.tenant("builds", network=True), c.tenant("builds-cut-off")
    seen = build(may.key, "fetched", "python", fetch)
    check("a build reaches what is named", seen["status"] == "ready" and any(hello.strip() == e["message"] for e in seen["logEntries"]), seen)
    seen = build(may.key, "again", "fetched", fetch)
    check("… and one on top of it", seen["status"] == "ready", seen)
    box = Box.__new__(Box)
    box.client, box.id = may, call(may.key, "POST", "/sandboxes", {"templateID": "again"})["sandboxID"]
    equal("what begins with it has the file, and no network", box.run("python3", "-c", f"print(open('/home/user/got').read(), end='', flush=True); import subprocess; subprocess.run(['python3', '-c', {TRY!r}, 'web.test', '80'])"),
          hello + "gaierror\n")
    asked = {"templateID": "again", "network": {"allowOut": ["web.test"], "denyOut": ["0.0.0.0/0"]}}
    box.id = call(may.key, "POST", "/sandboxes", asked)["sandboxID"]
    equal("… but that which it asks for", box.run("python3", "-c", GET, "http://web.test/"), hello)
    for b in may.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
        may.sandboxes.Kill(pb.KillRequest(sandbox_id=b.id))
    seen = build(may_not.key, "cut", "python", {"type": "RUN", "args": ["echo built"]})
    check("who may have no network builds without", seen["status"] == "ready" and any("without network" in e["message"] for e in seen["logEntries"]), seen)
    for t, name in ((may, "fetched"), (may, "again"), (may_not, "cut")):
        t.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=name))


suite.main(templates="base,python", worker_args=("--net-dns", outside.RESOLVER))
