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
def nothing_is_kept(c):
    for name in c.tenant_names():
        boxes = c.client(c.key(name).secret).sandboxes
        for box in boxes.List(pb.SandboxServiceListRequest()).sandboxes:
            boxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(templates="python", warm=2)
