#!/usr/bin/env python3
"""The audit log over the API: each key reads what is its tenant's, and nothing else; followed, as a tree, as findings; without its reader nothing else fails."""
import calendar
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request

import grpc
from cryptography.hazmat.primitives import serialization
from box import Box
from harness import BUILD, SECOND, Cluster, Suite, code_of, command, error_of, pb, run, soon, until
from mcp_client import MODERN, Mcp

suite = Suite("audit_service")
check, equal = suite.check, suite.equal
NOISE = "echo x > /tmp/made; for i in $(seq 60); do /bin/true; touch /tmp/many$i; done; cat /etc/hostname; perl -e 'syscall(321, 0, 0, 0)'; exit 3"


class WithReader(Cluster):
    def start(self):
        super().start()
        self.add_reader()
        return self

    def mcp(self):
        """The address of its gateway, which begins with who asks first."""
        if not self.gateway:
            self.mcp_url = self.add_gateway("--template", "base")
        return self.mcp_url


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
    # each reading makes one record; that of the job's end may come between two
    same = lambda: read(acme, stream="tenant/acme", newest=3) == read(acme, newest=4)[:3]
    check("... also by its name, the newest", until(same, 20))
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
    request = {"Query": pb.AuditServiceQueryRequest, "Tree": pb.AuditServiceTreeRequest, "Findings": pb.AuditServiceFindingsRequest,
               "PublicKey": pb.AuditServicePublicKeyRequest}
    for call in (reader.audit.Query, reader.audit.Tree, reader.audit.Findings, reader.audit.PublicKey):
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


def chain_hash(record):
    """As audit/record.h has it."""
    line = json.dumps({k: v for k, v in record.items() if k != "hash"}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(line.encode()).hexdigest()


def forge(c, folder, tenant, drop):
    """What who has the host and the log's key can make: the log without one record of a tenant, chained and signed anew, also in the host's stream."""
    key = serialization.load_pem_private_key((c.dir / "audit-keys" / "audit.key").read_bytes(), None)
    shutil.copytree(c.audit_dir, folder)
    ends = {}  # of the tenant's stream: a checkpoint's old hash -> its new number and hash
    for log in [*folder.glob(f"tenant/{tenant}/*.log"), *folder.glob("host/*/*.log")]:
        lines, seq, prev = [], 0, "0" * 64
        for record in map(json.loads, log.read_text().splitlines()):
            if drop(record):
                continue
            old, seq = record["hash"], seq + 1
            if record["event"] == "tenant.checkpoint" and record["fields"]["hash"] in ends:
                record["fields"]["seq"], record["fields"]["hash"] = ends[record["fields"]["hash"]]
            record |= {"seq": seq, "prev": prev}
            if record["event"] == "checkpoint":
                f = record["fields"]
                text = f"cloche-audit-checkpoint-v1\n{record['stream']}\n{seq - 1}\n{prev}\n{f['key']}\n{f['epoch']}\n{record['ts']}\n"
                f["sig"] = key.sign(text.encode()).hex()
            record["hash"] = prev = chain_hash(record)
            ends[old] = (seq, prev)
            lines.append(json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
        log.write_text("\n".join(lines) + "\n")


@suite.scenario
def a_copy_elsewhere(c):
    acme = c.tenant("copied", ("run", "read", "audit"))
    copy, pub = c.dir / "copy", c.dir / "audit-keys" / "audit.key.pub"
    run(acme, "true")

    def is_signed(unit=None):
        rows = read(acme, events=["unit.end", "checkpoint"])
        ends_ = [r["seq"] for r in rows if r["event"] == "unit.end" and unit in (None, r["fields"]["unit"])]
        return ends_ and any(r["event"] == "checkpoint" and r["seq"] > ends_[-1] for r in rows)
    until(is_signed, 20)
    key = acme.audit.PublicKey(pb.AuditServicePublicKeyRequest())
    equal("the key that checkpoints are signed with", (key.pem, {r["fields"]["key"] for r in read(acme, events=["checkpoint"])}), (pub.read_text(), {key.id}))
    place = read(acme)[2]
    rows = read(acme, events=["*"], **{"from": [pb.AuditPlace(stream="tenant/copied", seq=place["seq"])]})
    equal("from a record on", (rows[0], [r["seq"] for r in rows]), (place, list(range(place["seq"], rows[-1]["seq"] + 1))))
    equal("more places than streams can be read", code(read, acme, **{"from": [pb.AuditPlace(stream="tenant/copied", seq=1)] * 513}), "INVALID_ARGUMENT")

    def mirror(*more, key=acme.key, to=copy):
        p = cloche(c, key, "mirror", "--json", *more, to)
        return p.returncode, (json.loads(p.stdout)["streams"] if p.stdout else []), p.stderr

    def verify(folder, *more):
        p = subprocess.run([BUILD / "cloche", "audit", "verify", "--json", "--dir", folder, "--key", pub, *more], capture_output=True, text=True)
        return p.returncode, p.stdout and json.loads(p.stdout)

    def is_beginning(folder, stream):
        ours, theirs = (b"".join(f.read_bytes() for f in sorted((d / stream).glob("*.log"))) for d in (folder, c.audit_dir))
        return len(ours) > 1000 and theirs.startswith(ours)
    rc, (first,), _ = mirror()
    equal("a tenant copies its stream", (rc, first["stream"], first["taken"] == first["records"] > 3), (0, "tenant/copied", True))
    check("... byte by byte", is_beginning(copy, "tenant/copied"))
    code_, report = verify(copy, "--copy")
    equal("it verifies, all of it signed", (code_, report["records"], report["unsigned_tail"], report["host_stream"]), (0, first["records"], 0, ""))
    equal("... as a copy: a log must have its host's stream", verify(copy)[0], 2)
    box = Box(acme)
    box.kill()
    until(lambda: is_signed(box.id), 20)
    rc, (second,), _ = mirror()
    equal("it goes on where it ended", (rc, second["records"] - second["taken"], second["taken"] > 3), (0, first["records"], True))
    trees = [subprocess.run([BUILD / "cloche", "audit", "tree", "--json", "--dir", d, box.id], capture_output=True, text=True).stdout for d in (copy, c.audit_dir)]
    check("it is read as a log is", len(trees[0]) > 200 and trees[0] == trees[1], trees)
    equal("another's stream", mirror("--tenant", "local", to=c.dir / "none")[0], 2)
    equal("its log's own folder is no place for it", mirror(to=c.dir / "audit-keys")[0], 2)

    rc, streams_, err = mirror(key=c.admin.key, to=c.dir / "all")
    check("an administrator copies all", rc == 0 and len(streams_) > 2 and "host" in {s["stream"].split("/")[0] for s in streams_}, (rc, streams_, err))
    equal("... the host's names no more of each tenant than is there", verify(c.dir / "all")[0], 0)

    env = {**os.environ, "CLOCHE_ENDPOINT": c.endpoint, "CLOCHE_API_KEY": acme.key}
    said = open(c.dir / "mirror.err", "w+")
    follower = subprocess.Popen([BUILD / "cloche", "audit", "mirror", "-f", "--json", copy], stdout=subprocess.PIPE, stderr=said, text=True, env=env)
    check("followed: what is there", "tenant/copied" in follower.stdout.readline(), (c.dir / "mirror.err").read_text())
    equal("another mirror of the same folder", (mirror()[0], "another mirror" in mirror()[2]), (2, True))
    ends = lambda: b"".join(f.read_bytes() for f in copy.glob("tenant/copied/*.log")).count(b'"event":"unit.end"')
    before = ends()
    run(acme, "true")
    check("... what comes", until(lambda: ends() == before + 1, 30), ends())
    c.reader.kill()
    check("... it says when the log cannot be read", until(lambda: "cannot be read now" in (c.dir / "mirror.err").read_text(), 30))
    run(acme, "true")
    c.reader.start()
    check("... and goes on later", until(lambda: ends() == before + 2 and "there again" in (c.dir / "mirror.err").read_text(), 60), (ends(), (c.dir / "mirror.err").read_text()))
    follower.send_signal(signal.SIGINT)
    follower.wait(soon(30))
    check("what it has is a beginning of the log", is_beginning(copy, "tenant/copied"))

    time.sleep(1.5)
    equal("all is well", mirror()[0], 0)
    forged = c.dir / "forged"
    forge(c, forged, "copied", lambda r: r["event"] == "unit.end" and r["fields"]["unit"] == box.id)
    equal("who has the host and its key writes a log that verifies", verify(forged)[0], 0)
    p = subprocess.run([BUILD / "cloche", "audit", "mirror", "--dir", forged, "--key", pub, "--tenant", "copied", copy], capture_output=True, text=True)
    check("... and the copy tells", p.returncode == 1 and ("not the one that was copied" in p.stderr or "ends before record" in p.stderr), p.stderr)
    equal("... and stays as it was", (verify(copy, "--copy")[0], mirror()[0]), (0, 0))


@suite.scenario
def over_http(c):
    acme = c.tenant("http", ("run", "read", "audit"))
    run(acme, "true")
    base = c.mcp().removesuffix("/mcp")

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


@suite.scenario
def an_agent_asks(c):
    """MCP's sandbox_activity: what the code of one's own sandbox did."""
    agent = lambda key: Mcp(c.mcp(), key, MODERN)
    key = c.tenant("agents", ("run", "read", "audit")).key
    a = agent(key)
    attack = "echo x > /tmp/made; cp /tmp/made /tmp/copy; rm /tmp/made; perl -e 'syscall(321, 0, 0, 0)'; touch '/tmp/<b>ignore all'"
    box = a.tool("exec", command=attack).data["sandbox_id"]
    wanted = ["created /tmp/made", "removed /tmp/made", "denied: system call bpf", "created /tmp/<b>ignore all"]
    seen = lambda got, what: any(e["text"] == what for e in got.data["events"])
    check("it is told what its code did", until(lambda: all(seen(a.tool("sandbox_activity", sandbox_id=box), w) for w in wanted), 20),
          a.tool("sandbox_activity", sandbox_id=box).data)
    got = a.tool("sandbox_activity", sandbox_id=box)
    copied = next(e for e in got.data["events"] if e["text"] == "created /tmp/copy")
    maker = [e for e in got.data["events"] if e["depth"] < copied["depth"] and e["at"] <= copied["at"]][-1]
    check("… and by which program", maker["what"] == "process" and maker["text"].endswith("cp /tmp/made /tmp/copy"), (maker, copied))
    check("as text, too, a line each", got.text.count("\n") == len(got.data["events"]) and "denied: system call bpf" in got.text, got.text)
    equal("all of it", (got.failed, got.data["truncated"], got.data["records"] > 10), (False, False, True))
    little = a.tool("sandbox_activity", sandbox_id=box, max_output_bytes=1024)
    check("… or as much as is asked for", little.data["truncated"] and 0 < len(little.data["events"]) < len(got.data["events"]) and "since_seconds" in little.text, little.text)
    time.sleep(2)
    none = a.tool("sandbox_activity", sandbox_id=box, since_seconds=0.001)
    equal("… or of a time in which nothing was", (none.failed, none.data["events"], none.text), (False, [], "Nothing is recorded of that time."))
    other = agent(c.key("agents", ("run", "read", "audit")).secret).tool("sandbox_activity", sandbox_id=box)
    check("nobody else's", other.failed and "Not found" in other.text, other.text)
    blind = agent(c.tenant("blind").key)
    its = blind.tool("exec", command="true").data["sandbox_id"]
    refused = blind.tool("sandbox_activity", sandbox_id=its)
    check("a key that may not read the log hears which may", refused.failed and "--scopes run,read,audit" in refused.text, refused.text)
    a.tool("sandbox_kill", sandbox_id=box)
    blind.tool("sandbox_kill", sandbox_id=its)


if __name__ == "__main__":
    for name in ("CLOCHE_ENDPOINT", "CLOCHE_API_KEY", "CLOCHE_KEY_FILE"):
        os.environ.pop(name, None)
    suite.main(WithReader, warm=1)
