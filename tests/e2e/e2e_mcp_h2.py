#!/usr/bin/env python3
"""The gateway's port over HTTP/2: curl, h2load, h2spec, and raw frames that no good client sends."""
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

from h2_client import (CALM, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, NO_ERROR, PING, PROTOCOL, RST, SETTINGS, WINDOW, Raw,
                       block, frame)
from harness import BUILD, REPO, Process, Suite, pb, skip, until
from mcp_client import ACCEPT, Mcp

TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve()
if not (TOOLS / "bin/h2spec").exists() or not shutil.which("h2load"):
    skip(f"no h2spec in {TOOLS} (tools/test_tools.sh), or no h2load (apt install nghttp2-client)")
suite = Suite("mcp_h2")
check, equal = suite.check, suite.equal
DRAIN_S = 40


def agent(c, tenant, **limits):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "base", "--drain", f"{DRAIN_S}s")
    return Mcp(c.mcp_url, c.tenant(tenant, **limits).key)


def fields(a, headers):
    own = {"content-type": "application/json", "accept": ACCEPT, "authorization": f"Bearer {a.key}"}
    own.update({k.lower(): v for k, v in headers.items()})
    return {k: v for k, v in own.items() if v is not None}


class McpRaw(Raw):
    def __init__(self, a, window=1 << 20):
        self.a = a
        super().__init__(a.url.hostname, a.url.port, window)

    def post(self, stream, body, headers):
        self.head(stream, headers=fields(self.a, headers))
        self.send(frame(DATA, END_STREAM, stream, json.dumps(body).encode()))


def curl(a, method, params=None, *flags, url=None):
    body, headers = a.request(method, params)
    argv = ["curl", "-sS", "-i", "-N", "--max-time", "60", *flags, url or a.url.geturl(), "-d", json.dumps(body)]
    for name, value in fields(a, headers).items():
        argv += ["-H", f"{name}: {value}"]
    done = subprocess.run(argv, capture_output=True, text=True)
    head, _, text = done.stdout.replace("\r\n", "\n").partition("\n\n")
    return done.stderr + head, text


def running(c, key, sandbox, word):
    execs = c.client(key).execs.List(pb.ExecServiceListRequest(sandbox_id=sandbox)).execs
    return [e.id for e in execs if e.running and any(word in x for x in e.argv)]


@suite.scenario
def curl_speaks_it(c):
    a = agent(c, "curl")
    head, text = curl(a, "tools/list", None, "--http2-prior-knowledge")
    check("prior knowledge: a list of tools", head.startswith("HTTP/2 200") and len(json.loads(text)["result"]["tools"]) == 20, head)
    head, text = curl(a, "tools/call", {"name": "exec", "arguments": {"command": "echo one; sleep 3; echo two"}}, "--http2-prior-knowledge")
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    check("a call is an event stream", "text/event-stream" in head and head.startswith("HTTP/2 200"), head)
    equal("with its result at the end", events and events[-1]["result"]["structuredContent"]["stdout"], "one\ntwo\n")
    head, text = curl(a, "tools/list", None, "--http2")
    check("an offer to upgrade is answered in HTTP/1.1", head.startswith("HTTP/1.1 200") and "tools" in text, head)
    head, text = curl(a, "tools/list", None, "--http1.1")
    check("HTTP/1.1 stays", head.startswith("HTTP/1.1 200") and "tools" in text, head)


def certificate(c):
    key, cert = c.dir / "h2.key", c.dir / "h2.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key,
                    "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return key, cert


@suite.scenario
def one_tls_port_serves_both(c):
    key, cert = certificate(c)
    p = Process(c, "gateway-h2", [BUILD / "cloche-gateway", "--listen", "127.0.0.1:0", "--scheduler", f"unix:{c.dir}/api.sock",
                                  "--tls-cert", cert, "--tls-key", key, "--template", "base"]).start()
    check("it listens", until(lambda: p.events("LISTENING"), 20))
    port = int(p.events("LISTENING")[-1]["port"])
    a = Mcp(f"https://localhost:{port}/mcp", c.tenant("alpn").key)
    for flag, want in [("--http2", "HTTP/2 200"), ("--http1.1", "HTTP/1.1 200"), ("--no-alpn", "HTTP/1.1 200")]:
        head, text = curl(a, "tools/list", None, flag, "--cacert", str(cert))
        check(f"curl {flag}: {want}", head.startswith(want) and "tools" in text, head)
    head, text = curl(a, "tools/call", {"name": "exec", "arguments": {"command": "seq 300000; sleep 2", "max_output_bytes": 200000}},
                      "--http2", "--cacert", str(cert))
    check("an event stream over TLS", "text/event-stream" in head and '"exit_code":0' in text, head)
    for offer, want in [(["h2", "http/1.1"], "h2"), (["http/1.1", "h2"], "h2"), (["http/1.1"], "http/1.1"), (["spdy/3"], "refused")]:
        equal(f"ALPN {offer}: {want}", alpn(cert, port, offer), want)
    equal("h2spec over TLS", h2spec(port, EXPLAINED, "-t", "-k"), [])
    equal("it ends in order", p.stop(), 0)


def alpn(cert, port, offer):
    context = ssl.create_default_context(cafile=cert)
    context.set_alpn_protocols(offer)
    try:
        with context.wrap_socket(socket.create_connection(("localhost", port), timeout=20), server_hostname="localhost") as s:
            return s.selected_alpn_protocol()
    except (ssl.SSLError, ConnectionError):
        return "refused"


@suite.scenario
def many_streams_at_once(c):
    a = agent(c, "streams")
    raw = McpRaw(a)
    streams = list(range(1, 201, 2))
    for stream in streams:
        raw.post(stream, *a.request("tools/list"))
    equal("100 streams of one connection are answered", {raw.status(s) for s in streams}, {200})
    check("each to its end", until(lambda: all(raw.ended(s) for s in streams), 20))
    equal("with the tools", {len(json.loads(raw.text(s))["result"]["tools"]) for s in streams}, {20})
    sandbox = a.tool("sandbox_create", template="base").data["sandbox_id"]
    raw.post(201, *a.request("tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "command": "sleep 10; echo slow"}}))
    raw.post(203, *a.request("tools/list"))
    check("a slow one does not hold up others", until(lambda: raw.ended(203), 3) and not raw.ended(201))
    check("and comes", until(lambda: raw.ended(201), 20) and "slow" in raw.text(201), raw.text(201))
    raw.close()


@suite.scenario
def a_reset_cancels(c):
    a = agent(c, "reset")
    sandbox = a.tool("sandbox_create", template="base").data["sandbox_id"]
    raw = McpRaw(a)
    for stream, word in [(1, "spin"), (3, "keep")]:
        raw.post(stream, *a.request("tools/call", {"name": "exec", "arguments": {
            "sandbox_id": sandbox, "command": f"while :; do :; done # {word}"}}))
    check("both run", until(lambda: running(c, a.key, sandbox, "spin") and running(c, a.key, sandbox, "keep"), 15))
    raw.send(frame(RST, 0, 1, struct.pack(">I", CANCEL)))
    check("RST_STREAM ends its job", until(lambda: not running(c, a.key, sandbox, "spin"), 10))
    check("and no other", running(c, a.key, sandbox, "keep"))
    raw.post(5, *a.request("tools/list"))
    equal("the connection goes on", raw.status(5), 200)
    raw.close()
    check("its end cancels the rest", until(lambda: not running(c, a.key, sandbox, "keep"), 10))


@suite.scenario
def limits(c):
    a = agent(c, "h2limits")
    _, headers = a.request("tools/list")
    own = fields(a, headers)
    raw = McpRaw(a)
    stream = 1
    for what, status, extra, kw in [
            ("a length over 8 MiB", 413, [("content-length", str((8 << 20) + 1))], {}),
            ("a head over 16 KiB", 431, [("x", "y" * 9000), ("z", "y" * 8000)], {"flags": END_HEADERS}),
            ("over 100 fields", 431, [("x", "y")] * 101, {}),
            ("a field of ours twice", 400, [("mcp-name", "a"), ("mcp-name", "b")], {}),
            ("two credentials", 400, [("authorization", "Bearer x")], {}),
            ("a Host that differs", 400, [("host", "evil.example")], {}),
            ("another Origin", 403, [("origin", "http://evil.example")], {"flags": END_HEADERS | END_STREAM}),
            ("another path", 404, [], {"path": "/x", "flags": END_HEADERS | END_STREAM}),
            ("a path that is none", "reset", [], {"path": "x", "flags": END_HEADERS | END_STREAM}),
            ("a long path", 414, [], {"path": "/" + "x" * 300, "flags": END_HEADERS | END_STREAM}),
            ("GET", 405, [], {"method": "GET", "flags": END_HEADERS | END_STREAM})]:
        raw.head(stream, extra, headers=own, **kw)
        equal(f"{what}: {status}", raw.status(stream), status)
        stream += 2
    raw.head(stream, [("te", "gzip")], headers=own)
    equal("a field of a connection is reset", raw.status(stream), "reset")
    stream += 2
    raw.head(stream, headers=own)
    raw.upload(stream, (8 << 20) + 16384)
    equal("a body is refused when it passes 8 MiB", raw.status(stream), 413)
    check("and not before", raw.sent[stream] > 8 << 20, raw.sent)
    check("the rest is not wanted", until(lambda: raw.of(RST, stream) == [struct.pack(">I", NO_ERROR)], 10))
    raw.post(stream + 2, *a.request("tools/list"))
    equal("the connection goes on", raw.status(stream + 2), 200)
    raw.close()

    raw = McpRaw(a)
    for stream in (1, 3, 5):
        raw.head(stream, headers=own)
        raw.upload(stream, 6 << 20)
    equal("bodies of 16 MiB at once are too many for a connection", raw.status(5), 503)
    check("the others are not touched", not raw.of(HEADERS, 1) and not raw.of(HEADERS, 3))
    raw.send(frame(DATA, END_STREAM, 1, b"{}"))
    equal("and are answered", raw.status(1), 400)
    raw.close()

    raw = McpRaw(a)
    check("SETTINGS came, and were acknowledged", until(lambda: raw.of(SETTINGS, 0), 10))
    for stream in range(1, 201, 2):
        raw.head(stream, headers=own)
    time.sleep(1)
    check("100 streams at once are fine", not raw.over and not raw.goaway())
    raw.head(201, headers=own)
    check("one more ends the connection", until(lambda: raw.over and raw.goaway() == [PROTOCOL], 10), raw.goaway())
    raw.close()


@suite.long_scenario
def a_client_that_does_not_read(c):
    a = agent(c, "window")
    raw = McpRaw(a, window=0)
    raw.post(1, *a.request("tools/list"))
    equal("the head of an answer needs no window", raw.status(1), 200)
    time.sleep(1)
    equal("its body waits", raw.text(1), "")
    raw.send(frame(WINDOW, 0, 1, struct.pack(">I", 10)))
    check("and comes as far as the window goes", until(lambda: len(raw.text(1)) == 10, 10))
    raw.post(3, *a.request("tools/list"))
    raw.head(5, headers=fields(a, {}))
    check("a stream that takes nothing for 30 s is reset", until(lambda: raw.of(RST, 3) == [struct.pack(">I", CANCEL)], 45))
    check("so is a request that does not end", until(lambda: raw.of(RST, 5) == [struct.pack(">I", CANCEL)], 45))
    check("not the connection", not raw.over)
    raw.close()


@suite.scenario
def floods(c):
    a = agent(c, "floods")
    body, headers = a.request("tools/list")
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/mcp"), *fields(a, headers).items()]

    def resets():
        return b"".join(frame(HEADERS, END_HEADERS, s, block(head)) + frame(RST, 0, s, struct.pack(">I", CANCEL)) for s in range(1, 4001, 2))
    for what, data in [("resets", resets()), ("SETTINGS", frame(SETTINGS, 0, 0) * 2000), ("PING", frame(PING, 0, 0, b"12345678") * 10),
                       ("PRIORITY", frame(2, 0, 1, b"\0\0\0\0\1") * 2000),
                       ("CONTINUATION", frame(HEADERS, 0, 1, block(head)) + frame(CONTINUATION, 0, 1, b"") * 100),
                       ("empty DATA", frame(HEADERS, END_HEADERS, 1, block(head)) + frame(DATA, 0, 1) * 2000)]:
        raw = McpRaw(a)
        try:
            raw.send(data)
        except OSError:
            pass  # it went while we wrote
        check(f"a flood of {what}: ENHANCE_YOUR_CALM and the end", until(lambda raw=raw: raw.over and CALM in raw.goaway(), 20),
              (raw.over, raw.goaway()))
        raw.close()
        equal("others are served", a.call("tools/list").status, 200)


@suite.scenario
def load(c):
    a = agent(c, "load", rate_interval_us=1, rate_burst=100000)
    body, headers = a.request("tools/list")
    path = c.dir / "body.json"
    path.write_text(json.dumps(body))
    argv = ["h2load", "-n", "2000", "-c", "1", "-m", "50", "-d", str(path), a.url.geturl()]
    for name, value in fields(a, headers).items():
        argv += ["-H", f"{name}: {value}"]
    done = subprocess.run(argv, capture_output=True, text=True)
    print(*re.findall(r"^finished.*|^requests.*", done.stdout, re.M), sep="\n")
    check("h2load: 2000 requests, 50 streams at once, no error", "2000 succeeded, 0 failed, 0 errored" in done.stdout and "2000 2xx" in done.stdout,
          done.stdout + done.stderr)


EXPLAINED = {
    # nghttp2 1.52 ignores a HEADERS frame on a lower, never opened stream id, because it cannot
    # tell it from a late one on a stream that we reset (as in tests/integration/rpc/with_server.sh).
    "2: Sends stream identifier that is numerically smaller than previous",
}
# In plain text the same port speaks HTTP/1.1: what is no preface gets an answer in that (400).
EXPLAINED_PLAIN = EXPLAINED | {"2: Sends invalid connection preface"}


def h2spec(port, explained, *flags):
    """Failures that are not explained."""
    done = subprocess.run([TOOLS / "bin/h2spec", *flags, "-h", "localhost", "-p", str(port), "--path", "/mcp", "generic", "hpack", "http2"],
                          capture_output=True, text=True)
    total = re.findall(r"^\d+ tests,.*", done.stdout, re.M)
    print(*total, sep="\n")
    return sorted(set(re.findall(r"× (.*)", done.stdout)) - explained) if total else [done.stdout + done.stderr]


@suite.scenario
def the_specification(c):
    a = agent(c, "spec")
    equal("h2spec: generic, hpack, http2", h2spec(a.url.port, EXPLAINED_PLAIN), [])


@suite.scenario
def a_drain_in_two_steps(c):
    a = agent(c, "drain")
    sandbox = a.tool("sandbox_create", template="base").data["sandbox_id"]
    a.close()
    raw, idle = McpRaw(a), McpRaw(a)
    raw.post(1, *a.request("tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "command": "sleep 3; echo finished # last"}}))
    check("it runs", until(lambda: running(c, a.key, sandbox, "last"), 15))
    began = time.monotonic()
    code = c.gateway.stop(2 * DRAIN_S)
    took = time.monotonic() - began
    c.gateway = None
    equal("the gateway ends in order", code, 0)
    check("after the call, not after the limit", 1 < took < 0.9 * DRAIN_S, took)
    equal("GOAWAY came twice, without an error", (raw.goaway(), idle.goaway()), ([NO_ERROR] * 2, [NO_ERROR] * 2))
    ids = [struct.unpack(">I", p[:4])[0] for p in raw.of(GOAWAY, 0)]
    equal("first for all that may come, then for those that came", ids, [2**31 - 1, 1])
    check("what ran was answered to its end", raw.ended(1) and "finished" in raw.text(1), raw.text(1))


@suite.scenario
def nothing_is_left(c):
    for tenant in ("curl", "alpn", "streams", "reset", "drain"):
        boxes = c.client(c.key(tenant, scopes=("run", "read")).secret).sandboxes
        for box in boxes.List(pb.SandboxServiceListRequest()).sandboxes:
            boxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(warm=3)
