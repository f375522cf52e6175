#!/usr/bin/env python3
"""Tools under the names of ForeverVM, Microsandbox and E2B: the same sandboxes, the same owners."""
import base64
import json
import subprocess

from harness import BUILD, IMAGES, Suite, pb, skip, until
from mcp_client import LEGACY, Mcp

if not (IMAGES / "python" / "current" / "manifest.json").exists():
    skip(f"no template python in {IMAGES}: images/build.sh python")
suite = Suite("mcp_aliases")
check, equal = suite.check, suite.equal
NAMES = {"create-python-repl", "run-python-in-repl", "sandbox_start", "sandbox_stop", "sandbox_run_code", "sandbox_run_command",
         "sandbox_get_metrics"}
PICTURE = """
class Dot:
    def _repr_png_(self):
        import base64
        return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4z8AAAAACAAHiIbwzAAAAAElFTkSuQmCC')
Dot()
"""


def url_of(c):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "python", "--aliases")
    return c.mcp_url


def images(answer):
    return [i for i in answer.result["content"] if i["type"] == "image"]


@suite.scenario
def off_by_default(c):
    a = Mcp(url_of(c), c.tenant("names").key)
    tools = {t["name"]: t for t in a.call("tools/list").result["tools"]}
    check("with the switch they are listed, and each says what it wants", NAMES <= set(tools) and len(tools) == 20 + len(NAMES) and
          all(t["description"] and t["inputSchema"]["type"] == "object" for t in tools.values()), sorted(tools))
    env = {"CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": a.key, "PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "quarantine_size_mb=8"}
    lines = "".join(json.dumps({"jsonrpc": "2.0", "id": i, "method": m, "params": p}) + "\n" for i, m, p in [
        (1, "initialize", {"protocolVersion": LEGACY, "capabilities": {}}), (2, "tools/list", {})])
    for flag, want in (([], set()), (["--aliases"], NAMES)):
        out = subprocess.run([BUILD / "cloche", "mcp", *flag], input=lines, capture_output=True, text=True, env=env).stdout
        got = {t["name"] for t in json.loads(out.splitlines()[-1])["result"]["tools"]}
        equal(f"cloche mcp {' '.join(flag)}", got & NAMES, want)


@suite.scenario
def forevervm(c):
    a = Mcp(url_of(c), c.tenant("forever").key)
    made = a.tool("create-python-repl")
    repl = made.data["replId"]
    equal("a REPL is made", json.loads(made.text), {"replId": repl})
    first = a.tool("run-python-in-repl", replId=repl, pythonCode="x = 20\nprint('hi')\nx + 1")
    equal("output, result and replId", json.loads(first.text), {"output": "hi\n", "result": "21", "replId": repl})
    equal("its variables stay", a.tool("run-python-in-repl", replId=repl, pythonCode="x * 2").data["result"], "40")
    bad = a.tool("run-python-in-repl", replId=repl, pythonCode="1 / 0")
    check("an exception is in error", bad.failed and "ZeroDivisionError" in json.loads(bad.text)["error"], bad.text)
    lost = a.tool("run-python-in-repl", replId="sbx_" + "0" * 26, pythonCode="1")
    check("a REPL that is none: what to do", lost.failed and "no live sandbox" in lost.text, lost.text)
    check("a wrong argument: which", "replId" in a.tool("run-python-in-repl", pythonCode="1").text)
    a.tool("sandbox_kill", sandbox_id=repl)


@suite.scenario
def e2b(c):
    a = Mcp(url_of(c), c.tenant("e2b").key)
    made = a.tool("run_code", code="import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    text = json.loads(made.text)
    box = text.pop("sandbox_id")
    equal("results, logs, error", text, {"results": [{"text": "42", "is_main_result": True}], "error": None,
                                         "logs": {"stdout": ["out\n"], "stderr": ["err\n"]}})
    equal("ours are beside them", (made.data["outcome"], made.data["stdout"], made.data["sandbox_id"]), ("ok", "out\n", box))
    bad = a.tool("run_code", sandbox_id=box, code="{}['x']")
    error = json.loads(bad.text)["error"]
    equal("an exception", (bad.failed, error["name"], error["value"], set(error)), (True, "KeyError", "'x'", {"name", "value", "traceback"}))
    quiet = json.loads(a.tool("run_code", sandbox_id=box, code="y = 1").text)
    equal("nothing is nothing", (quiet["results"], quiet["logs"]), ([], {"stdout": [], "stderr": []}))
    dot = a.tool("run_code", sandbox_id=box, code=PICTURE)
    if images(dot):
        equal("a picture is named by its place in the content", json.loads(dot.text)["results"][0], {"png": 1, "is_main_result": False})
        check("and is there", base64.b64decode(dot.result["content"][1]["data"])[:4] == b"\x89PNG")
    else:
        print("     pictures: this template has no IPython")
    a.tool("sandbox_kill", sandbox_id=box)


@suite.scenario
def microsandbox(c):
    a = Mcp(url_of(c), c.tenant("micro").key)
    nowhere = a.tool("sandbox_run_code", sandbox="desk", code="1")
    check("a name that was not started: nothing is made for it", nowhere.failed and "'desk'" in nowhere.text and
          not a.tool("sandbox_list").data["sandboxes"], nowhere.text)
    made = a.tool("sandbox_start", sandbox="desk", config={"memory": 192})
    check("it is started", made.data.get("started") is True, made.text)
    box = made.data["sandbox_id"]
    equal("with what was asked for", a.tool("sandbox_list").data["sandboxes"][0].get("memory_mib"), 192)
    equal("started again it is the same", a.tool("sandbox_start", sandbox="desk").data, {"sandbox_id": box, "running": True, "started": False})
    equal("code by name, its state kept", [a.tool("sandbox_run_code", sandbox="desk", code=code).data["stdout"] for code in ("z = 5", "print(z)")], ["", "5\n"])
    equal("a program with arguments", a.tool("sandbox_run_command", sandbox="desk", command="echo", args=["a b", "$HOME"]).data["stdout"], "a b $HOME\n")
    line = a.tool("sandbox_run_command", sandbox=box, command="echo $((1 + 1)); exit 3")
    equal("a line, by id; its exit code", (line.data["stdout"], line.data["exit_code"], line.failed), ("2\n", 3, True))
    counted = a.tool("sandbox_get_metrics", sandbox="desk")
    check("metrics are the guest's", not counted.failed and counted.data["running"] and 0 < counted.data["memory_available_kib"] <
          counted.data["memory_total_kib"] <= 192 * 1024 and counted.data["disk_total_kib"] > 0, counted.text)
    other = a.tool("sandbox_start", sandbox="desk", namespace="work").data["sandbox_id"]
    check("another namespace is another sandbox", other != box)
    for who, key in (("another tenant", c.tenant("micro2").key), ("another key of the tenant", c.key("micro").secret)):
        b = Mcp(url_of(c), key)
        check(f"{who}: the name says nothing", "no live sandbox" in b.tool("sandbox_run_command", sandbox="desk", command="id").text)
        theirs = b.tool("sandbox_start", sandbox="desk").data["sandbox_id"]
        check(f"{who}: the same name is a sandbox of their own", theirs not in (box, other))
        b.tool("sandbox_stop", sandbox="desk")
    c.gateway.stop()
    a.close()
    a.url = Mcp(c.add_gateway("--template", "python", "--aliases"), "").url
    c.mcp_url = a.url.geturl()
    equal("a name outlives the gateway", a.tool("sandbox_run_code", sandbox="desk", code="print(z)").data.get("stdout"), "5\n")
    equal("it is stopped", a.tool("sandbox_stop", sandbox="desk").data, {"sandbox_id": box, "killed": True})
    check("then it is no more", "no live sandbox" in a.tool("sandbox_stop", sandbox="desk").text)
    again = a.tool("sandbox_start", sandbox="desk").data
    check("started again it is a new one", again.get("started") and again["sandbox_id"] != box, again)
    for space in ("default", "work"):
        check(f"the last ones end: {space}", a.tool("sandbox_stop", sandbox="desk", namespace=space).data.get("killed"))


@suite.scenario
def nothing_is_kept(c):
    for name in c.tenant_names():
        boxes = c.client(c.key(name).secret).sandboxes
        for box in boxes.List(pb.SandboxServiceListRequest()).sandboxes:
            boxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(templates="python", warm=2)
