#!/usr/bin/env python3
"""The tool run_code: state between calls, results, tracebacks, interrupts, pictures."""
import json
import time

from harness import BUILD, IMAGES, Suite, pb, skip, until
from mcp_client import LEGACY, Mcp

if b"/cloche.v1.CodeService/RunCode" not in (BUILD / "cloche-scheduler").read_bytes():
    skip("this build's scheduler has no CodeService")
if not (IMAGES / "python" / "current" / "manifest.json").exists():
    skip(f"no template python in {IMAGES}")
suite = Suite("mcp_code")
check, equal = suite.check, suite.equal


def agent(c, tenant, era):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "python")
    a = Mcp(c.mcp_url, c.tenant(tenant).key, era)
    if era == LEGACY:
        a.initialize()
    return a


@suite.scenario
def state_is_kept(c):
    a = agent(c, "state", LEGACY)
    first = a.tool("run_code", code="import math\nx = 41\nprint('out')\nx + 1", timeout_seconds=60)
    equal("output and value come apart", (first.data["stdout"], first.data["result"], first.data["outcome"]), ("out\n", "42", "ok"))
    check("both are in the text", "out" in first.text and "42" in first.text)
    equal("a session remembers its variables", a.tool("run_code", code="x += 1; math.floor(x + .5)").data["result"], "42")
    bash = a.tool("run_code", language="bash", code="cd /tmp; A=5", timeout_seconds=60)
    check("bash too", not bash.failed and a.tool("run_code", language="bash", code="echo $PWD $A").data["stdout"] == "/tmp 5\n", bash.text)
    equal("a file of exec is there", (a.tool("exec", command="echo 7 > f").failed, a.tool("run_code", code="open('f').read()").data["result"]), (False, "'7\\n'"))


@suite.scenario
def failures_teach(c):
    a = agent(c, "fail", LEGACY)
    a.tool("run_code", code="x = 1", timeout_seconds=60)
    bad = a.tool("run_code", code="def f():\n    return 1 / 0\nf()")
    check("an exception is a result with its traceback", bad.failed and bad.data["error"]["name"] == "ZeroDivisionError" and
          "line 2, in f" in bad.text, bad.text)
    equal("and changes nothing else", a.tool("run_code", code="x").data["result"], "1")
    slow = a.tool("run_code", code="while True: pass", timeout_seconds=1)
    check("an endless loop is interrupted, and how to have more is told", slow.failed and slow.data["timed_out"] and "timeout_seconds" in slow.text)
    equal("its variables stay", a.tool("run_code", code="x").data["result"], "1")
    for what, args in [("U+0000", {"code": "a\0"}), ("no code", {}), ("another language", {"code": "1", "language": "cobol"})]:
        wrong = a.tool("run_code", **args)
        check(f"{what}: a result that says so", wrong.failed and "argument" in wrong.text, wrong.text)
    modern = Mcp(c.mcp_url, a.key)
    made = modern.tool("run_code", code="y = 2", timeout_seconds=60).data
    body, headers = modern.request("tools/call", {"name": "run_code", "arguments": {"sandbox_id": made["sandbox_id"], "code": "import time\ntime.sleep(600)"}})
    connection = modern.connect()
    connection.request("POST", modern.url.path, json.dumps(body),
                       {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": f"Bearer {a.key}", **headers})
    time.sleep(2)
    connection.close()
    check("leaving the stream interrupts the cell, and its context goes on",
          until(lambda: modern.tool("run_code", sandbox_id=made["sandbox_id"], code="y").data.get("result") == "2", 15))


@suite.scenario
def a_pause_keeps_the_state(c):
    a = agent(c, "pause", LEGACY)
    box = a.tool("run_code", code="x = 41\nopen('/tmp/note', 'w').write('kept')", timeout_seconds=60).data["sandbox_id"]
    job = a.tool("exec_start", sandbox_id=box, command="while :; do date +%s%N > /tmp/c; mv /tmp/c /tmp/count; sleep 0.3; done").data["exec_id"]
    until(lambda: not a.tool("file_read", path="/tmp/count").failed, 20)
    paused = a.tool("sandbox_pause", sandbox_id=box, keep_seconds=3600)
    check("a pause is told, and how to go on", not paused.failed and paused.data["state"] == "paused" and paused.data["image_bytes"] > 1 << 20 and
          "sandbox_resume" in paused.text, paused.text)
    equal("it may be said twice", a.tool("sandbox_pause", sandbox_id=box).data["state"], "paused")
    row = next(s for s in a.tool("sandbox_list").data["sandboxes"] if s["sandbox_id"] == box)
    equal("the list shows it", (row["state"], row["image_bytes"]), ("paused", paused.data["image_bytes"]))
    for tool, args in (("run_code", {"code": "x"}), ("exec", {"command": "true"}), ("file_read", {"path": "/tmp/note"}), ("run_code", {"code": "x", "sandbox_id": box})):
        refused = a.tool(tool, **args)
        check(f"{tool} is refused, and what helps is named", refused.failed and "paused" in refused.text and "sandbox_resume" in refused.text, refused.text)
    resumed = a.tool("sandbox_resume", sandbox_id=box, ttl_seconds=600)
    equal("it goes on", (resumed.failed, resumed.data["state"], resumed.data["was_paused"]), (False, "running", True))
    equal("with the variables of the session", (a.tool("run_code", code="x + 1").data["result"], a.tool("run_code", code="x").data["fresh"]), ("42", False))
    equal("and its files", a.tool("file_read", path="/tmp/note").data["content"], "kept")
    before = a.tool("file_read", path="/tmp/count").data["content"]
    check("and its processes, that run", until(lambda: a.tool("file_read", path="/tmp/count").data["content"] != before, 10) and
          a.tool("exec_poll", sandbox_id=box, exec_id=job).data["running"])
    equal("resuming what runs changes nothing", a.tool("sandbox_resume", sandbox_id=box).data["was_paused"], False)
    none = a.tool("sandbox_pause", sandbox_id="sbx_" + "0" * 26)
    check("of one that never was", none.failed and "no live sandbox" in none.text, none.text)
    stranger = Mcp(c.mcp_url, c.tenant("stranger").key)
    for tool in ("sandbox_pause", "sandbox_resume"):
        theirs, unknown = stranger.tool(tool, sandbox_id=box), stranger.tool(tool, sandbox_id="sbx_" + "0" * 26)
        equal(f"{tool}: another's is answered like one that never was", theirs.text.replace(box, "ID"), unknown.text.replace("sbx_" + "0" * 26, "ID"))
    idle = a.tool("sandbox_create", template="python", ttl_seconds=2, on_idle="pause").data
    equal("one may be made to pause when idle", idle["on_idle"], "pause")
    check("and does", until(lambda: [s["state"] for s in a.tool("sandbox_list").data["sandboxes"] if s["sandbox_id"] == idle["sandbox_id"]] == ["paused"], 60))
    equal("its next use wakes it", a.tool("exec", sandbox_id=idle["sandbox_id"], command="echo awake").data["stdout"], "awake\n")
    a.tool("sandbox_pause", sandbox_id=idle["sandbox_id"])
    for one in (idle["sandbox_id"], box):
        equal("paused or not, it ends", a.tool("sandbox_kill", sandbox_id=one).data["killed"], True)


@suite.scenario
def a_fork_is_a_copy(c):
    a = agent(c, "fork", LEGACY)
    box = a.tool("run_code", code="x = 41\nopen('/tmp/note', 'w').write('kept')", timeout_seconds=60).data["sandbox_id"]
    made = a.tool("sandbox_fork", sandbox_id=box, ttl_seconds=600)
    copy = made.data["sandbox_id"]
    equal("a copy runs, and is told of whom it is one", (made.failed, made.data["state"], made.data["forked_from"], copy != box), (False, "running", box, True))
    check("… in the text too, with how to go on", copy in made.text and box in made.text and "pass it" in made.text, made.text)
    rows = {s["sandbox_id"]: s.get("forked_from") for s in a.tool("sandbox_list").data["sandboxes"]}
    equal("the list shows both", rows, {box: None, copy: box})
    equal("it has the variables", a.tool("run_code", sandbox_id=copy, code="x += 1; x").data["result"], "42")
    equal("and the files", a.tool("file_read", sandbox_id=copy, path="/tmp/note").data["content"], "kept")
    a.tool("file_write", sandbox_id=copy, path="/tmp/note", content="changed")
    equal("what the copy does the other does not see", (a.tool("run_code", code="x").data["result"], a.tool("file_read", path="/tmp/note").data["content"]), ("41", "kept"))
    equal("the session goes on in its own", a.tool("run_code", code="x").data["sandbox_id"], box)
    a.tool("sandbox_kill", sandbox_id=box)
    equal("the end of the one is not the other's", a.tool("run_code", sandbox_id=copy, code="x").data["result"], "42")
    gone = a.tool("sandbox_fork", sandbox_id=box)
    check("of one that has ended there is none", gone.failed and "no live sandbox" in gone.text, gone.text)
    stranger = Mcp(c.mcp_url, c.tenant("stranger").key)
    theirs = stranger.tool("sandbox_fork", sandbox_id=copy)
    equal("another's is answered like one that never was", theirs.text.replace(copy, "ID"), gone.text.replace(box, "ID"))
    equal("it ends", a.tool("sandbox_kill", sandbox_id=copy).data["killed"], True)


@suite.scenario
def nothing_is_kept(c):
    for name in c.tenant_names():
        boxes = c.client(c.key(name).secret).sandboxes
        for box in boxes.List(pb.SandboxServiceListRequest()).sandboxes:
            boxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(templates="python", warm=2)
