#!/usr/bin/env python3
"""The audit log over the API: each key reads what is its tenant's, and nothing else; followed, as a tree, as findings; without its reader nothing else fails."""
import calendar
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request

import grpc
from box import Box
from harness import BUILD, SECOND, Cluster, Suite, code_of, command, error_of, pb, run, soon, until

suite = Suite("audit_service")
check, equal = suite.check, suite.equal
NOISE = "echo x > /tmp/made; for i in $(seq 60); do /bin/true; touch /tmp/many$i; done; cat /etc/hostname; perl -e 'syscall(321, 0, 0, 0)'; exit 3"


class WithReader(Cluster):
    def start(self):
        super().start()
        self.add_reader()
        return self


def read(client, timeout=60, **kw):
    """The records, and whether the last message said that these are all."""
    last, rows = None, []
    for last in client.audit.Query(pb.AuditServiceQueryRequest(**kw), timeout=timeout):
        rows += [json.loads(line) for line in last.records]
    check("it says that these are all", last and last.caught_up and last.unreadable == 0, last)
    return rows


def code(fn, *args, **kw):
    return code_of(error_of(fn, *args, **kw))


def streams(rows):
    return {r["stream"] for r in rows}


def cloche(c, key, *argv, **kw):
    env = {**os.environ, "CLOCHE_ENDPOINT": c.endpoint, "CLOCHE_API_KEY": key}
    return subprocess.run([BUILD / "cloche", "audit", *argv], capture_output=True, text=True, env=env, timeout=soon(120), **kw)


def at(text):
    """RFC 3339 -> pb.Time"""
    whole, part = text.rstrip("Z").split(".")
    return pb.Time(unix_ns=calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * SECOND + int(part.ljust(9, "0")))


@suite.scenario
def each_reads_its_own(c):
    acme, other = c.tenant("acme", ("run", "read", "audit")), c.tenant("other", ("run", "read", "audit"))
    equal("a job of each", {run(x, "true").outcome for x in (acme, other)}, {"EXITED"})
    until(lambda: any(r["event"] == "unit.end" for r in read(acme)), 20)
    own = read(acme)
    equal("a tenant's key reads its tenant's stream", streams(own), {"tenant/acme"})
    lines = [r for r in c.audit_records("tenant/acme") if not r["event"].endswith("checkpoint")]
    equal("... as it lies in the log", own, lines[:len(own)])
    equal("... also by its name", read(acme, stream="tenant/acme", newest=3), read(acme, newest=4)[:3])
    every = read(acme, events=["*"])
    equal("with checkpoints each record names the one before", [r["prev"] for r in every[1:]], [r["hash"] for r in every[:-1]])
    equal("another's stream: as if it were not there", [code(read, acme, stream=s) for s in ("tenant/other", "tenant/nobody")], ["NOT_FOUND"] * 2)
    host = next(r["stream"] for r in c.audit_records("host"))
    equal("the host's", code(read, acme, stream=host), "PERMISSION_DENIED")
    for bad in ("tenant/", "tenant/../host", "acme", "host/", "x" * 100, "tenant/" + "a" * 300):
        equal(f"'{bad[:20]}' is no stream", code(read, acme, stream=bad), "INVALID_ARGUMENT")
    all_rows = read(c.admin)
    check("an administrator reads all", {"tenant/acme", "tenant/other", "tenant/local", host} <= streams(all_rows), streams(all_rows))
    times = [at(r["ts"]).unix_ns for r in all_rows]
    check("... in the order of time, but for what was written late", all(b > a - SECOND for a, b in zip(times, times[1:])), times)
    of = {name: [r["seq"] for r in all_rows if r["stream"] == name] for name in streams(all_rows)}
    equal("... each stream as it was written", of, {name: sorted(numbers) for name, numbers in of.items()})
    equal("... or one", streams(read(c.admin, stream="tenant/other")), {"tenant/other"})
    equal("... the host's", streams(read(c.admin, stream=host)), {host})
    equal("one that is not there", code(read, c.admin, stream="tenant/nobody"), "NOT_FOUND")
    reader = c.client(c.key("acme", ("run", "read")).secret)
    for call in (reader.audit.Query, reader.audit.Tree, reader.audit.Findings):
        request = {"Query": pb.AuditServiceQueryRequest, "Tree": pb.AuditServiceTreeRequest, "Findings": pb.AuditServiceFindingsRequest}
        name = call.raw._method.decode().rsplit("/", 1)[1]
        equal(f"without the scope `audit`: {name}", code(call, request[name]()), "PERMISSION_DENIED")
    calls = [r for r in c.audit_records("tenant/acme") if r["event"] == "api.call" and r["fields"]["method"].endswith("AuditService/Query")]
    check("each reading is in the log itself, with what was read", len(calls) > 6 and {"tenant/acme", "tenant/other", "tenant/nobody"} <= {r["fields"].get("object") for r in calls},
          [r["fields"] for r in calls])


@suite.scenario
def what_is_asked_for(c):
    acme = c.tenant("asked", ("run", "read", "audit"))
    box = Box(acme)
    box.kill()
    run(acme, "true")
    until(lambda: any(r["event"] == "unit.end" for r in read(acme)), 20)
    rows = read(acme)
    ours = [r for r in rows if box.id in (r["fields"].get("unit"), r["fields"].get("object"))]
    equal("of one sandbox", read(acme, unit=box.id), ours)
    check("... from its begin to its end", {"unit.admit", "vm.start", "unit.end"} <= {r["event"] for r in ours}, [r["event"] for r in ours])
    equal("events by name", {r["event"] for r in read(acme, events=["unit.admit", "unit.end"])}, {"unit.admit", "unit.end"})
    equal("... but for some", read(acme, events=["!api.call", "!guest.*"]), [r for r in rows if r["event"] != "api.call" and not r["event"].startswith("guest.")])
    check("... and by their beginnings", all(r["event"].startswith("unit.") for r in read(acme, events=["unit.*"])))
    middle = ours[len(ours) // 2]
    equal("from a time on", read(acme, unit=box.id, since=at(middle["ts"])), [r for r in ours if r["ts"] >= middle["ts"]])
    equal("before it", read(acme, unit=box.id, until=at(middle["ts"])), [r for r in ours if r["ts"] < middle["ts"]])
    equal("the newest two", read(acme, unit=box.id, newest=2), ours[-2:])
    equal("of none: none", read(acme, unit="sbx_none"), [])
    for bad in ({"newest": 10001}, {"events": ["x"] * 17}, {"events": ["x" * 50]}, {"unit": "x" * 200}):
        equal(f"refused: {list(bad)[0]}", code(read, acme, **bad), "INVALID_ARGUMENT")


@suite.scenario
def followed(c):
    acme = c.tenant("followed", ("run", "read", "audit"))
    run(acme, "true")
    seen, caught_up = [], threading.Event()
    call = acme.audit.Query(pb.AuditServiceQueryRequest(follow=True, newest=1), timeout=300)

    def take():
        try:
            for m in call:
                seen.extend(json.loads(line) for line in m.records)
                if m.caught_up:
                    caught_up.set()
        except grpc.RpcError:
            pass
    thread = threading.Thread(target=take)
    thread.start()
    check("the newest come at once", caught_up.wait(soon(30)) and len(seen) == 1, seen)
    box = Box(acme)
    check("then what is written", until(lambda: any(r["event"] == "vm.start" and r["fields"]["unit"] == box.id for r in seen), 30), seen)
    box.kill()
    check("... to its end", until(lambda: any(r["event"] == "unit.end" and r["fields"]["unit"] == box.id for r in seen), 30), seen)
    numbers = [r["seq"] for r in seen]
    equal("each once, in order", numbers, sorted(set(numbers)))
    others = [acme.audit.Query(pb.AuditServiceQueryRequest(follow=True), timeout=300) for _ in range(7)]
    for other in others:
        next(other)
    equal("a ninth of one tenant has no room", code(read, acme), "RESOURCE_EXHAUSTED")
    equal("... of another it has", streams(read(c.admin, stream="tenant/followed")), {"tenant/followed"})
    for other in [*others, call]:
        other.cancel()
    thread.join(soon(30))
    check("when they have left there is room", until(lambda: code(read, acme) == "OK", 20))


@suite.scenario
def the_tree_and_the_findings(c):
    acme = c.tenant("tree", ("run", "read", "audit"))
    box = Box(acme)
    job = acme.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command("sh", "-c", NOISE))).exec_id
    acme.execs.Wait(pb.WaitRequest(sandbox_id=box.id, exec_id=job))
    box.kill()
    until(lambda: any(r["event"] == "guest.count" for r in read(acme, unit=box.id)) and any(r["event"] == "unit.end" for r in read(acme, unit=box.id)), 20)
    reply = acme.audit.Tree(pb.AuditServiceTreeRequest(unit=box.id))
    by_hand = subprocess.run([BUILD / "cloche", "audit", "tree", "--json", "--dir", c.audit_dir, box.id], capture_output=True, text=True)
    equal("the tree is the one that is made of the files", json.loads(reply.tree), json.loads(by_hand.stdout))
    check("it has the processes, and what they did", all(text in reply.tree for text in ("/tmp/made", "bpf", "exec")), reply.tree)
    equal("of another's sandbox", code(c.tenant("curious", ("audit",)).audit.Tree, pb.AuditServiceTreeRequest(unit=box.id)), "NOT_FOUND")
    equal("of none", code(acme.audit.Tree, pb.AuditServiceTreeRequest()), "INVALID_ARGUMENT")
    found = acme.audit.Findings(pb.AuditServiceFindingsRequest()).findings
    by_hand = subprocess.run([BUILD / "cloche", "audit", "findings", "--json", "--dir", c.audit_dir, "--tenant", "tree"], capture_output=True, text=True)
    rows = [json.loads(line) for line in by_hand.stdout.splitlines()]
    equal("the findings are those of the files", [(f.name, f.subject, f.value, f.count, f.seq) for f in found], [(r["name"], r["subject"], r["value"], r["count"], r["seq"]) for r in rows])
    equal("... the refused system call", [(f.name, f.severity) for f in found], [("kernel-surface", pb.FINDING_SEVERITY_HIGH)])
    check("with what it is, and what to do", found[0].what and found[0].then and found[0].first.unix_ns and found[0].last.unix_ns >= found[0].first.unix_ns, found)
    equal("from now on: none", len(acme.audit.Findings(pb.AuditServiceFindingsRequest(since=pb.Time(unix_ns=time.time_ns()))).findings), 0)
    c.box_with_findings = box.id


@suite.scenario
def by_the_command_line(c):
    acme = c.tenant("shell", ("run", "read", "audit"))
    box = Box(acme)
    job = acme.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command("sh", "-c", NOISE))).exec_id
    acme.execs.Wait(pb.WaitRequest(sandbox_id=box.id, exec_id=job))
    box.kill()
    until(lambda: any(r["event"] == "guest.count" for r in read(acme, unit=box.id)) and any(r["event"] == "unit.end" for r in read(acme, unit=box.id)), 20)
    p = cloche(c, acme.key, "query", "--json", "--unit", box.id)
    lines = [r for r in c.audit_records("tenant/shell") if box.id in (r["fields"].get("unit"), r["fields"].get("object"))]
    equal("query, far from the files", (p.returncode, [json.loads(line) for line in p.stdout.splitlines()]), (0, lines))
    p = cloche(c, acme.key, "tree", box.id)
    by_hand = subprocess.run([BUILD / "cloche", "audit", "tree", "--dir", c.audit_dir, box.id], capture_output=True, text=True)
    equal("tree", (p.returncode, p.stdout), (0, by_hand.stdout))
    p = cloche(c, acme.key, "findings", "--json")
    equal("findings, exit code 3", (p.returncode, [json.loads(line)["name"] for line in p.stdout.splitlines()]), (3, ["kernel-surface"]))
    p = cloche(c, acme.key, "query", "--tenant", "local")
    check("another's: an error that says so", p.returncode == 1 and "local" in p.stderr, p.stderr)
    env = {**os.environ, "CLOCHE_ENDPOINT": c.endpoint, "CLOCHE_API_KEY": acme.key}
    tail = subprocess.Popen([BUILD / "cloche", "audit", "tail", "-f", "-n", "1", "--event", "unit.end"], stdout=subprocess.PIPE, text=True, env=env)
    check("tail -f: the newest", box.id in tail.stdout.readline())
    outcome = run(acme, "true").outcome
    check("... and what comes", outcome == "EXITED" and "unit.end" in tail.stdout.readline())
    tail.send_signal(signal.SIGINT)
    tail.wait(soon(30))


@suite.scenario
def over_http(c):
    acme = c.tenant("http", ("run", "read", "audit"))
    run(acme, "true")
    base = c.add_gateway().removesuffix("/mcp")

    def post(method, body):
        request = urllib.request.Request(f"{base}/cloche.v1.AuditService/{method}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json", "Authorization": f"Bearer {acme.key}"})
        with urllib.request.urlopen(request, timeout=soon(60)) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]
    (message,) = post("Query", {"newest": 2})
    equal("lines of JSON in lines of JSON", [json.loads(line)["stream"] for line in message["result"]["records"]], ["tenant/http"] * 2)
    (found,) = post("Findings", {})
    equal("findings", found, {})


@suite.scenario
def without_its_reader(c):
    acme = c.tenant("blind", ("run", "read", "audit"))
    run(acme, "true")
    call = acme.audit.Query(pb.AuditServiceQueryRequest(follow=True), timeout=300)
    next(call)
    c.reader.kill()
    equal("who follows hears of it", code(list, call), "UNAVAILABLE")
    equal("nobody reads", code(read, acme), "UNAVAILABLE")
    equal("all else works, and is recorded", run(acme, "true").outcome, "EXITED")
    c.reader.start()
    check("it is found again", until(lambda: code(read, acme) == "OK", 30))
    ends = lambda: [r for r in read(acme, events=["unit.end"])]
    check("nothing is missing", until(lambda: len(ends()) == 2, 20), ends())


@suite.scenario
def a_user_who_may_not(c):
    if os.geteuid() != 0:
        suite.skip("only root can be somebody else")
        return
    os.chmod(c.dir, 0o755)
    os.chmod(c.dir / "reader.sock", 0o666)
    words = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{c.dir}/reader.sock'); print('connected')"
    p = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", words], capture_output=True, text=True)
    equal("the socket alone is no secret", p.stdout.strip(), "connected")
    tool = c.dir / "ask.py"
    tool.write_text(f"""
import grpc
call = grpc.insecure_channel('unix:{c.dir}/reader.sock').unary_stream('/cloche.v1.AuditService/Query')
try: print(len(list(call(b'', timeout=20))))
except grpc.RpcError as e: print(e.code().name)
""")
    os.chmod(tool, 0o644)
    p = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", tool], capture_output=True, text=True, timeout=soon(60))
    equal("its user may read nothing", p.stdout.strip(), "PERMISSION_DENIED")


if __name__ == "__main__":
    for name in ("CLOCHE_ENDPOINT", "CLOCHE_API_KEY", "CLOCHE_KEY_FILE"):
        os.environ.pop(name, None)
    suite.main(WithReader, warm=1)
