#!/usr/bin/env python3
"""Snapshots through MCP: what one session prepared others begin with, and whose they are."""
import datetime
import json
import subprocess
import time

from harness import BUILD, IMAGES, Suite, pb, skip, until
from mcp_client import LEGACY, MODERN, Mcp

if not (IMAGES / "python" / "current" / "manifest.json").exists():
    skip(f"no template python in {IMAGES}: images/build.sh python")
suite = Suite("mcp_snapshot")
check, equal = suite.check, suite.equal
NOBODY = "snp_" + "0" * 26


def session(c, key, era=LEGACY):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "python")
    a = Mcp(c.mcp_url, key, era)
    if era == LEGACY:
        a.initialize()
    return a


def prepared(a):
    return a.tool("run_code", code="x = 41\nopen('/tmp/note', 'w').write('kept')", timeout_seconds=60).data["sandbox_id"]


def look(a, box):
    """Its variable and its file."""
    return (a.tool("run_code", sandbox_id=box, code="x", timeout_seconds=60).data.get("result"), a.tool("file_read", sandbox_id=box, path="/tmp/note").data.get("content"))


def listed(a):
    return {s["snapshot_id"]: s.get("name") for s in a.tool("snapshot_list").data["snapshots"]}


def left(snapshot):
    """Seconds until it ends."""
    return datetime.datetime.fromisoformat(snapshot["expires"].replace("Z", "+00:00")).timestamp() - time.time()


def end(a, *boxes):
    for box in boxes:
        equal("it ends", a.tool("sandbox_kill", sandbox_id=box).data["killed"], True)


@suite.scenario
def others_begin_with_it(c):
    key = c.tenant("keeper").key
    a = session(c, key)
    box = prepared(a)
    a.tool("exec_start", sandbox_id=box, command="while :; do date +%s%N > /tmp/c; mv /tmp/c /tmp/count; sleep 0.3; done")
    until(lambda: not a.tool("file_read", path="/tmp/count").failed, 20)
    made = a.tool("snapshot_create", name="ready")
    snap = made.data
    equal("the session's own sandbox is kept", (made.failed, snap["sandbox_id"], snap["template"], snap["state"], snap["name"]), (False, box, "python", "ready", "ready"))
    check("with an id, a size and an end in 30 days", snap["snapshot_id"].startswith("snp_") and snap["image_bytes"] > 1 << 20 and abs(left(snap) - 30 * 86400) < 600, snap)
    check("the text says it, and how to go on", all(w in made.text for w in (snap["snapshot_id"], "name: ready", box, "MiB", snap["expires"], "sandbox_create with snapshot ready")), made.text)
    equal("the session goes on in its sandbox", (a.tool("run_code", code="x += 1; x").data["result"], a.tool("run_code", code="x").data["sandbox_id"]), ("42", box))
    end(a, box)
    a.close()

    b = session(c, key)
    rows = b.tool("snapshot_list").data["snapshots"]
    equal("another session lists it", [{k: v for k, v in r.items() if k != "created"} for r in rows], [{k: v for k, v in snap.items() if k != "created"}])
    check("… as text, too", all(w in b.tool("snapshot_list").text for w in ("1 snapshots", snap["snapshot_id"], "ready")))
    begun = b.tool("sandbox_create", snapshot="ready", ttl_seconds=600)
    one = begun.data["sandbox_id"]
    equal("and begins with it", (begun.failed, begun.data["state"], begun.data["template"], begun.data["forked_from"]), (False, "running", "python", snap["snapshot_id"]))
    check("… which is said as a template is", f"sandbox_id: {one} (snapshot ready; pass it to the other tools)" in begun.text, begun.text)
    equal("variable and file are there", look(b, one), ("41", "kept"))
    before = b.tool("file_read", sandbox_id=one, path="/tmp/count").data["content"]
    check("what ran in it runs", until(lambda: b.tool("file_read", sandbox_id=one, path="/tmp/count").data["content"] != before, 20), before)
    b.tool("run_code", sandbox_id=one, code="x = 1")
    modern = session(c, key, MODERN)
    two = modern.tool("sandbox_create", snapshot=snap["snapshot_id"]).data["sandbox_id"]
    equal("by its id, without a session; what another one did is not in it", look(modern, two), ("41", "kept"))
    equal("the list of sandboxes says what each began with", {s["sandbox_id"]: s["forked_from"] for s in b.tool("sandbox_list").data["sandboxes"]},
          {s: snap["snapshot_id"] for s in (one, two)})
    paused = b.tool("sandbox_pause", sandbox_id=two)
    equal("one that rests is kept as it rests", (paused.failed, b.tool("snapshot_create", sandbox_id=two, name="resting").data["sandbox_id"], b.tool("sandbox_list").data["sandboxes"][0]["state"]),
          (False, two, "paused"))
    three = b.tool("sandbox_create", snapshot="resting").data["sandbox_id"]
    equal("… and what begins with it runs", look(b, three), ("41", "kept"))
    b.tool("snapshot_delete", snapshot="resting")

    deleted = b.tool("snapshot_delete", snapshot="ready")
    equal("it is deleted by its name", (deleted.failed, deleted.data), (False, {"snapshot_id": snap["snapshot_id"], "deleted": True}))
    equal("then it is in no list", listed(b), {})
    for word in ("ready", snap["snapshot_id"]):
        for tool in ("sandbox_create", "snapshot_delete"):
            gone = b.tool(tool, snapshot=word)
            check(f"{tool}: one that was deleted is not found, and what helps is told", gone.failed and f"no snapshot '{word}'" in gone.text and "snapshot_list" in gone.text and
                  "template" in gone.text, gone.text)
    equal("what began with it goes on", look(b, one)[1], "kept")
    end(b, one, two, three)



@suite.scenario
def its_functions_are_called(c):
    key = c.tenant("caller").key
    a = session(c, key)
    box = a.tool("run_code", code="""
import sys
calls = 0
def area(w, h=1): return {"area": w * h}
def count():
    global calls
    calls += 1
    print("counted"); print("so", file=sys.stderr)
    return [calls, "🏺"]
def wrong(): return [][1]
def wait():
    import time
    time.sleep(60)
def talk(n): print("x" * n)
""", timeout_seconds=60).data["sandbox_id"]
    a.tool("snapshot_create", sandbox_id=box, name="lib")
    end(a, box)
    got = a.tool("function_call", snapshot="lib", function="area", arguments=[6, 7])
    equal("a function is called by position", (got.failed, got.data["outcome"], got.data["result"], json.loads(got.text)), (False, "ok", {"area": 42}, {"area": 42}))
    equal("… and by name", a.tool("function_call", snapshot="lib", function="area", named_arguments={"h": 2, "w": 3}).data["result"], {"area": 6})
    got = a.tool("function_call", snapshot="lib", function="count")
    equal("… each time the first", [got.data["result"], a.tool("function_call", snapshot="lib", function="count").data["result"]], 2 * [[1, "🏺"]])
    equal("what it prints comes beside it", (got.data["stdout"], got.data["stderr"], "counted" in got.text), ("counted\n", "so\n", True))
    got = a.tool("function_call", snapshot="lib", function="wrong")
    check("what it raises is an error that tells", got.failed and got.data["error"]["name"] == "IndexError" and "in wrong" in got.text and "result" not in got.data, got.data)
    got = a.tool("function_call", snapshot="lib", function="wait", timeout_seconds=0.5)
    equal("so is its time limit", (got.failed, got.data["outcome"]), (True, "timed_out"))
    got = a.tool("function_call", snapshot="lib", function="talk", arguments=[100000])
    equal("what is cut is said to be", (got.data["stdout_truncated"], got.data["stdout_bytes_total"], len(got.data["stdout"]) < 40000), (True, 100001, True))
    for what, kw, why in (("an unknown function", {"function": "none"}, "not there"), ("both kinds of arguments", {"function": "area", "arguments": [1], "named_arguments": {}}, "one of them"),
                          ("no name", {"function": "a;b"}, "entry"), ("another's snapshot", {"snapshot": NOBODY, "function": "area"}, "no snapshot")):
        got = a.tool("function_call", **{"snapshot": "lib", **kw})
        check(f"{what} is refused", got.failed and why in got.text, got.text)
    other = session(c, c.key("caller", ("run", "read")).secret)
    check("another key of the tenant does not have it", other.tool("function_call", snapshot="lib", function="area", arguments=[1]).failed)
    equal("nothing is left", a.tool("sandbox_list").data["sandboxes"], [])
    a.tool("snapshot_delete", snapshot="lib")

@suite.scenario
def names(c):
    a = session(c, c.tenant("names").key)
    box = prepared(a)
    first = a.tool("snapshot_create", sandbox_id=box, name="state").data["snapshot_id"]
    a.tool("run_code", code="x = 42")
    taken = a.tool("snapshot_create", sandbox_id=box, name="state")
    check("a name that is taken is refused, and both ways out are told", taken.failed and "you have a snapshot 'state'" in taken.text and "another name" in taken.text and
          "replace true" in taken.text, taken.text)
    equal("… and nothing came of it", listed(a), {first: "state"})
    second = a.tool("snapshot_create", sandbox_id=box, name="state", replace=True)
    equal("unless it is to be replaced", (second.failed, second.data["name"], listed(a).get(first)), (False, "state", None))
    check("… and deleted", until(lambda: listed(a) == {second.data["snapshot_id"]: "state"}, 10), listed(a))
    copy = a.tool("sandbox_create", snapshot="state").data["sandbox_id"]
    equal("… by what is now", look(a, copy)[0], "42")
    bare = a.tool("snapshot_create", sandbox_id=copy)
    check("without a name it has an id, and the text says that", not bare.failed and "name" not in bare.data and f"with snapshot {bare.data['snapshot_id']} " in bare.text, bare.text)
    for bad in ("State", "-x", "snp_x", "a/b", "ä"):
        wrong = a.tool("snapshot_create", sandbox_id=box, name=bad)
        check(f"'{bad}' is no name, and what is one is told", wrong.failed and "a-z, 0-9" in wrong.text, wrong.text)
    for what, args in (("too long a name", {"name": "x" * 47}), ("no name", {"name": ""}), ("kept for too long", {"keep_seconds": 2592001}), ("another argument", {"tag": "x"})):
        wrong = a.tool("snapshot_create", sandbox_id=box, **args)
        check(f"{what}: a result that says which argument", wrong.failed and f"argument {list(args)[0]}" in wrong.text, wrong.text)
    equal("none of them was made", set(listed(a)), {second.data["snapshot_id"], bare.data["snapshot_id"]})
    short = a.tool("snapshot_create", sandbox_id=box, name="x" * 46, keep_seconds=4)
    check("it is kept as long as is said", not short.failed and short.data["name"] == "x" * 46 and left(short.data) < 5, short.text)
    check("… and then it is gone", until(lambda: short.data["snapshot_id"] not in listed(a), 30), listed(a))
    for word in ("state", bare.data["snapshot_id"]):
        equal("it is deleted", a.tool("snapshot_delete", snapshot=word).data["deleted"], True)
    end(a, box, copy)


@suite.scenario
def refusals(c):
    client = c.tenant("refused", sandboxes=2, disk_mib=1100)
    a = session(c, client.key)
    box = prepared(a)
    snap = a.tool("snapshot_create", name="small").data
    both = a.tool("sandbox_create", template="python", snapshot="small")
    check("a template and a snapshot: refused, and what to do", both.failed and "template and snapshot" in both.text and "one of them" in both.text, both.text)
    both = a.tool("sandbox_create", template="python", snapshot="nobody")
    check("… whether there is such a one or not", both.failed and "template and snapshot" in both.text, both.text)
    larger = a.tool("sandbox_create", snapshot="small", memory_mib=snap["memory_mib"] * 2)
    check("it is as large as it was", larger.failed and str(snap["memory_mib"]) in larger.text, larger.text)
    wired = a.tool("sandbox_create", snapshot="small", network=["public"])
    check("it has no network that its sandbox had not", wired.failed and "network" in wired.text, wired.text)
    for word in ("nobody", NOBODY, "no name", "x" * 64):
        none = a.tool("sandbox_create", snapshot=word)
        check(f"'{word[:10]}' is not found", none.failed and f"no snapshot '{word}'" in none.text and "snapshot_list" in none.text, none.text)
    modern = session(c, client.key, MODERN)
    lost = modern.tool("snapshot_create", name="lost")
    check("without a session a sandbox must be named", lost.failed and "argument sandbox_id" in lost.text, lost.text)
    equal("… and none is made for it", [s["sandbox_id"] for s in a.tool("sandbox_list").data["sandboxes"]], [box])
    reader = session(c, c.key("refused", scopes=("read",)).secret, MODERN)
    equal("who may only read may list", (reader.tool("snapshot_list").status, reader.tool("snapshot_create", sandbox_id=box).status, reader.tool("snapshot_delete", snapshot="small").status), (200, 403, 403))
    a.tool("exec", command="head -c 120000000 /dev/urandom > /dev/shm/x")
    full = [a.tool("snapshot_create") for _ in range(8)]
    refused = [f for f in full if f.failed]
    check("over the quota of disk: what, and what helps", refused and all("quota" in f.text and "disk" in f.text and "snapshot_delete" in f.text for f in refused), [f.text for f in full])
    for one in listed(a):
        a.tool("snapshot_delete", snapshot=one)
    check("deleting them helps", until(lambda: not a.tool("snapshot_create", name="again").failed, 20))
    a.tool("snapshot_delete", snapshot="again")
    end(a, box)
    ended = a.tool("snapshot_create", sandbox_id=box)
    check("of a sandbox that has ended there is none", ended.failed and "no live sandbox" in ended.text, ended.text)


@suite.scenario
def they_are_who_made_them_s(c):
    owner = c.tenant("owner")
    a = session(c, owner.key)
    box = prepared(a)
    mine = a.tool("snapshot_create", name="ready").data["snapshot_id"]
    known = owner.snapshots.Get(pb.SnapshotServiceGetRequest(snapshot=mine)).snapshot.name
    check("the scheduler's name has the owner in it", known.startswith("ready.") and len(known) == 22, known)
    for who, key in (("another tenant", c.tenant("stranger").key), ("another key of the tenant", c.key("owner").secret)):
        b = session(c, key)
        equal(f"{who} sees none", listed(b), {})
        for tool in ("sandbox_create", "snapshot_delete"):
            for word in ("ready", mine, known):
                theirs, none = b.tool(tool, snapshot=word), b.tool(tool, snapshot=NOBODY)
                check(f"{who}, {tool}: answered as one that never was", theirs.failed and theirs.text.replace(word, "ID") == none.text.replace(NOBODY, "ID"), (theirs.text, none.text))
        kept = b.tool("snapshot_create", sandbox_id=box, name="ready")
        check(f"{who} cannot keep its sandbox", kept.failed and "no live sandbox" in kept.text, kept.text)
        b.tool("run_code", code="x = 'theirs'", timeout_seconds=60)
        own = [b.tool("snapshot_create", name="ready", replace=replace) for replace in (False, True)]
        equal(f"{who} has the same name for one of their own, and may replace it", [o.data.get("name") for o in own], ["ready", "ready"])
        check(f"{who}: … which deletes the first one of those", until(lambda: listed(b) == {own[1].data["snapshot_id"]: "ready"}, 10), listed(b))
        begun = b.tool("sandbox_create", snapshot="ready").data["sandbox_id"]
        equal("… and begins with that", b.tool("run_code", sandbox_id=begun, code="x", timeout_seconds=60).data["result"], "'theirs'")
        equal("… and deletes that", b.tool("snapshot_delete", snapshot="ready").data["snapshot_id"], own[1].data["snapshot_id"])
        end(b, begun, own[0].data["sandbox_id"])
        b.close()
    equal("nothing was done to it", (listed(a), look(a, a.tool("sandbox_create", snapshot="ready").data["sandbox_id"])), ({mine: "ready"}, ("41", "kept")))

    other = session(c, c.key("owner").secret)
    for name, labels in (("closed", []), ("open", [pb.Label(key="mcp-shared", value="yes")])):
        owner.snapshots.Create(pb.SnapshotServiceCreateRequest(sandbox_id=box, name=name, labels=labels), timeout=120)
    closed = other.tool("sandbox_create", snapshot="closed")
    check("one that was made elsewhere is not seen", closed.failed and "no snapshot 'closed'" in closed.text and list(listed(other).values()) == ["open"], (closed.text, listed(other)))
    begun = other.tool("sandbox_create", snapshot="open").data["sandbox_id"]
    equal("unless it was made for all keys of its tenant", look(other, begun), ("41", "kept"))
    check("what begins with it is who made that's", a.tool("exec", sandbox_id=begun, command="id").failed)
    end(other, begun)
    for word in ("ready", "open"):
        equal("they are deleted", a.tool("snapshot_delete", snapshot=word).data["deleted"], True)
    owner.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot="closed"))
    end(a, *[s["sandbox_id"] for s in a.tool("sandbox_list").data["sandboxes"]])


@suite.scenario
def over_stdio(c):
    """A process of its own, whose secret no gateway knows, has what another one of the same key made."""
    key = c.tenant("local").key
    env = {"CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": key, "PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "quarantine_size_mb=8"}

    def process(*calls):
        """The results of these calls, one after the other, of one process."""
        p = subprocess.Popen([str(BUILD / "cloche"), "mcp", "--template", "python"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)

        def ask(number, method, params):
            p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
            p.stdin.flush()
            return json.loads(p.stdout.readline())["result"]
        ask(0, "initialize", {"protocolVersion": LEGACY, "capabilities": {}})
        results = [ask(i, "tools/call", {"name": name, "arguments": args})["structuredContent"] for i, (name, args) in enumerate(calls, 1)]
        p.stdin.close()
        equal("it ends with its stdin", p.wait(20), 0)
        return results
    made, kept = process(("run_code", {"code": "x = 41\nopen('/tmp/note', 'w').write('kept')"}), ("snapshot_create", {"name": "ready"}))
    equal("its own sandbox is kept", (kept["sandbox_id"], kept["name"]), (made["sandbox_id"], "ready"))
    seen, begun = process(("snapshot_list", {}), ("sandbox_create", {"snapshot": "ready"}))
    equal("the next one lists it", [s["snapshot_id"] for s in seen["snapshots"]], [kept["snapshot_id"]])
    a = session(c, key)
    equal("… and begins with it, in a sandbox that stays", look(a, begun["sandbox_id"]), ("41", "kept"))
    equal("so does the gateway, by the same name", (listed(a), look(a, a.tool("sandbox_create", snapshot="ready").data["sandbox_id"])), ({kept["snapshot_id"]: "ready"}, ("41", "kept")))
    end(a, *[s["sandbox_id"] for s in a.tool("sandbox_list").data["sandboxes"]])
    (deleted,) = process(("snapshot_delete", {"snapshot": "ready"}))
    equal("it is deleted", (deleted["snapshot_id"], listed(a)), (kept["snapshot_id"], {}))


@suite.scenario
def nothing_is_kept(c):
    for name in c.tenant_names():
        client = c.client(c.key(name).secret)
        equal(f"{name}: no snapshot is left", list(client.snapshots.List(pb.SnapshotServiceListRequest()).snapshots), [])
        for box in client.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
            client.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(templates="python", warm=2)
