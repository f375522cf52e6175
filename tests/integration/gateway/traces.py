#!/usr/bin/env python3
"""The trace that a request belongs to: on which of its gRPC calls it arrives, through each front door, and what is no trace."""
import http.client
import json
import os
import struct
import subprocess
import threading

from made_up_scheduler import BOX, BUILD, KEY, play
from harness import Suite, until

suite = Suite("gateway-traces")
check, equal = suite.check, suite.equal
A, B, C = (f"00-{c}bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" for c in "abc")
LATER = "cc" + A[2:] + "-more"  # of a version that is to come
BAD = {"another form": A[:-1], "capitals": A.upper(), "no trace at all": "00-" + 32 * "0" + A[35:], "nothing": "", "two": f"{A}, {B}"}
KILL = "SandboxService/Kill"


def post(w, path, body, *headers):
    """The status."""
    h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    h.putrequest("POST", path)
    for name, value in (("Content-Length", str(len(data))), *headers):
        h.putheader(name, value)
    h.endheaders(data)
    r = h.getresponse()
    r.read()
    h.close()
    return r.status


def traces(*values):
    return [("Traceparent", v) for v in values]


def heard(w):
    """Since it was last asked: {method: the traces that came with it}."""
    got = {method.removeprefix("/cloche.v1."): [v for k, v in metadata if k == "traceparent"] for method, metadata in w.s.heard}
    w.s.heard.clear()
    return got


def web(w, *headers):
    return post(w, "/cloche.v1." + KILL, {"sandboxId": BOX}, ("Authorization", f"Bearer {KEY}"), ("Content-Type", "application/json"), *headers)


def e2b(w, *headers):
    return post(w, "/v2/sandboxes", {"templateID": "base"}, ("X-API-Key", KEY), *headers)


def call(trace=None):
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    if trace is not None:
        meta["traceparent"] = trace
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sandbox_create", "arguments": {}, "_meta": meta}}


def mcp(w, *headers, meta=None):
    return post(w, "/mcp", call(meta), ("Authorization", f"Bearer {KEY}"), ("Content-Type", "application/json"),
                ("Accept", "application/json, text/event-stream"), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"),
                ("Mcp-Name", "sandbox_create"), *headers)


DOORS = {"plain HTTP": (web, 200, {KILL}), "E2B": (e2b, 201, {"SandboxService/Create", "PortService/CreateLink"}), "MCP": (mcp, 200, {"SandboxService/Create"})}


def through(w, door, *headers):
    """The traces of the calls that every request makes there."""
    ask, want, methods = DOORS[door]
    w.s.heard.clear()
    equal(f"{door}: it is served", ask(w, *headers), want)
    got = heard(w)
    check(f"{door}: by the calls that are meant", methods <= set(got), got)
    return [got.get(m) for m in sorted(methods)], len(methods)


@suite.scenario
def by_the_header(w):
    for door in DOORS:
        for what, header, want in (("as it came", A, A), ("as we write it, when it is of a later version", LATER, "00" + A[2:])):
            got, n = through(w, door, *traces(header))
            equal(f"{door}: {what}", got, [[want]] * n)


@suite.scenario
def what_is_none_is_not_passed_on(w):
    for door in DOORS:
        for what, headers in {"no header": [], **{what: traces(v) for what, v in BAD.items()}, "twice": traces(A, B), "twice the same": traces(A, A),
                              "three times": traces(A, A, B)}.items():
            got, n = through(w, door, *headers)
            equal(f"{door}, {what}: nothing is", got, [[]] * n)


@suite.scenario
def mcp_knows_who_asks_in_it(w):
    key = until(lambda: mcp(w, *traces(A)) == 200 and (got := heard(w)).get("TenantService/WhoAmI") and got, 10)
    equal("the first call has the header's", key, {"TenantService/WhoAmI": [A], "SandboxService/Create": [A]})


@suite.scenario
def mcp_by_meta(w):
    for what, meta, headers, want in (("alone", A, [], [A]), ("before the header", A, traces(B), [A]), ("before two headers", A, traces(B, C), [A]),
                                      ("that is none: the header's", "x", traces(B), [B]), ("that is no text: the header's", 7, traces(B), [B]),
                                      ("that is none, alone", A.upper(), [], [])):
        w.s.heard.clear()
        equal(f"{what}: it is served", mcp(w, *headers, meta=meta), 200)
        equal(what, heard(w).get("SandboxService/Create"), want)


@suite.scenario
def a_watcher_of_e2b(w):
    w.s.heard.clear()
    n = len(w.s.watches)
    got = []
    t = threading.Thread(target=lambda: got.append(post(w, "/filesystem.Filesystem/CreateWatcher", {"path": "d"}, ("X-API-Key", KEY),
                                                        ("E2b-Sandbox-Id", BOX), ("Content-Type", "application/json"), *traces(A))))
    t.start()
    check("the scheduler is asked", until(lambda: len(w.s.watches) > n, 10))
    w.s.watches[-1].tell()
    t.join()
    equal("it is made", got, [200])
    equal("in the trace of who made it", heard(w).get("FileService/Watch"), [A])


@suite.scenario
def a_stream_of_e2b(w):
    body = json.dumps({"path": "d"}).encode()
    w.s.heard.clear()
    h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
    h.request("POST", "/filesystem.Filesystem/WatchDir", b"\0" + struct.pack(">I", len(body)) + body,
              {"X-API-Key": KEY, "E2b-Sandbox-Id": BOX, "Content-Type": "application/connect+json", "traceparent": A})
    check("the scheduler is asked", until(lambda: w.s.heard, 10))
    h.close()
    equal("in its trace", heard(w).get("FileService/Watch"), [A])


def cloche(w, *words, trace=None, text=""):
    """(exit status, what it says) of a command that was started in a trace."""
    env = {k: v for k, v in os.environ.items() if k != "TRACEPARENT"}
    env.update(CLOCHE_ENDPOINT=w.s.target, CLOCHE_API_KEY=KEY, CLOCHE_STATE_DIR=str(w.dir / "state"), CLOCHE_RUN_DIR=str(w.dir / "run"))
    if trace is not None:
        env["TRACEPARENT"] = trace
    p = subprocess.run([BUILD / "cloche", *words], env=env, input=text, capture_output=True, text=True, timeout=60, check=False)
    return p.returncode, p.stdout + p.stderr


@suite.scenario
def by_the_environment(w):
    for what, trace, want in (("a trace", A, [A]), ("none", None, []), *((f"no trace, {k}", v, []) for k, v in BAD.items())):
        w.s.heard.clear()
        equal(f"{what}: the command works", cloche(w, "sandbox", "kill", BOX, trace=trace)[0], 0)
        equal(f"{what}: what the scheduler hears", heard(w).get(KILL), want)


@suite.scenario
def mcp_on_stdio(w):
    for what, trace, meta, want in (("by _meta", None, A, [A]), ("by the environment", B, None, [B]), ("_meta comes before it, and alone", B, A, [A]),
                                    ("_meta that is none does not", B, "x", [B]), ("neither", None, None, [])):
        w.s.heard.clear()
        status, text = cloche(w, "mcp", trace=trace, text=json.dumps(call(meta)) + "\n")
        check(f"{what}: it is answered", status == 0 and '"isError":false' in text, (status, text))
        equal(what, {m: v for m, v in heard(w).items() if m != KILL}, {"TenantService/WhoAmI": want, "SandboxService/Create": want})


if __name__ == "__main__":
    play(suite)
