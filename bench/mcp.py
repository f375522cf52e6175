#!/usr/bin/env python3
"""bench/mcp.py - MCP calls through the gateway: latency, the gateway's own share, calls a second.

usage: bench/mcp.py [--build DIR] [--images DIR] [--calls N]     (a release build; images as for tests/e2e)

 own share    a call that asks the scheduler nothing new (server/discover, known credential), over one connection,
              minus the same bytes through a bare socket echo
 exec         tools/call exec `true` in a live sandbox, against the same by gRPC directly
 run_code     tools/call run_code `1+1` in a live context (when the build has the code service)
 calls/s      64 connections of two client processes, everything on this machine: server/discover, which asks the
              scheduler nothing, and sandbox_list, which asks scheduler and Redis
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import socket
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
args.add_argument("--images", default=ROOT / "out/images", type=pathlib.Path)
args.add_argument("--calls", default=2000, type=int)
args = args.parse_args()
os.environ["CLOCHE_BUILD"], os.environ["CLOCHE_IMAGES"] = str(args.build.resolve()), str(args.images.resolve())
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import BUILD, IMAGES, Cluster, command, pb  # noqa: E402
from mcp_client import ACCEPT, Mcp  # noqa: E402


def show(name, seconds):
    s = sorted(seconds)
    p = [s[min(len(s) - 1, int(len(s) * q))] * 1e3 for q in (0.5, 0.9, 0.99)]
    print(f"{name:34} N={len(s):6}  p50 {p[0]:8.3f} ms  p90 {p[1]:8.3f} ms  p99 {p[2]:8.3f} ms", flush=True)
    return p[0]


def timed(fn, n):
    out = []
    for _ in range(n):
        t = time.perf_counter()
        fn()
        out.append(time.perf_counter() - t)
    return out


def request_bytes(m, method, params=None):
    body, headers = m.request(method, params)
    text = json.dumps(body)
    lines = [f"POST {m.url.path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Accept: {ACCEPT}",
             f"Authorization: Bearer {m.key}", f"Content-Length: {len(text)}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


def exchange(s, data):
    """Send and read one answer with a Content-Length."""
    s.sendall(data)
    got = s.recv(65536)
    while b"\r\n\r\n" not in got:
        got += s.recv(65536)
    head, _, rest = got.partition(b"\r\n\r\n")
    want = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(rest) < want:
        rest += s.recv(1 << 20)
    assert head.startswith(b"HTTP/1.1 200") and b'"isError":true' not in rest, rest[:600]


def echo_answer(size):
    """A server that answers every request with `size` bytes: what the sockets and this client cost."""
    listener = socket.create_server(("127.0.0.1", 0))
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size

    def serve():
        s, _ = listener.accept()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while s.recv(65536):
            s.sendall(answer)
    process = multiprocessing.Process(target=serve, daemon=True)
    process.start()
    return listener.getsockname()[1]


def connect(port):
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def load(port, data, connections, n):
    """Every connection has one request on its way."""
    socks = [connect(port) for _ in range(connections)]
    for _ in range(n):
        for s in socks:
            s.sendall(data)
        for s in socks:
            got = 0
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(65536)
            top, _, rest = head.partition(b"\r\n\r\n")
            want = int(top.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) - len(rest)
            while got < want:
                got += len(s.recv(1 << 20))


def own_share(c, m, port):
    data = request_bytes(m, "server/discover")
    answer = m.call("server/discover")
    gateway, bare = connect(port), connect(echo_answer(len(json.dumps(answer.body))))
    exchange(gateway, data)
    a = show("server/discover, credential known", timed(lambda: exchange(gateway, data), args.calls))
    b = show("  the same bytes, echoed", timed(lambda: exchange(bare, data), args.calls))
    print(f"{'  the gateway itself':34} {a - b:.3f} ms (p50)")
    crowd("calls/s by the gateway alone", port, data, args.calls // 10)
    noop = request_bytes(m, "tools/call", {"name": "sandbox_list", "arguments": {}})
    exchange(gateway, noop)
    show("tools/call sandbox_list (scheduler)", timed(lambda: exchange(gateway, noop), args.calls // 4))
    crowd("calls/s through the scheduler", port, noop, args.calls // 20)


def crowd(name, port, data, n):
    """64 connections of two client processes."""
    begin, processes = time.perf_counter(), [multiprocessing.Process(target=load, args=(port, data, 32, n)) for _ in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    took = time.perf_counter() - begin
    print(f"{name:34} N={64 * n:6}  {64 * n / took:.0f} a second, 64 connections", flush=True)


def execs(c, m, port):
    sandbox = m.tool("sandbox_create", template="base").data["sandbox_id"]
    client = c.client(m.key)

    def by_grpc():
        r = pb.StartRequest(sandbox_id=sandbox, command=command("true"))
        list(client.execs.Attach(pb.AttachRequest(sandbox_id=sandbox, exec_id=client.execs.Start(r).exec_id)))
    n = max(args.calls // 40, 20)
    s, data = connect(port), request_bytes(m, "tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "argv": ["true"]}})
    for _ in range(3):
        exchange(s, data)
    show("tools/call exec true", timed(lambda: exchange(s, data), n))
    show("  by gRPC (Start, Attach)", timed(by_grpc, n))


def cells(c, m, port):
    if b"/cloche.v1.CodeService/RunCode" not in (BUILD / "cloche-scheduler").read_bytes() or "python" not in c.templates:
        print("run_code: this build has no code service, or there is no template python")
        return
    sandbox = m.tool("sandbox_create", template="python").data["sandbox_id"]
    t = time.perf_counter()
    first = m.tool("run_code", sandbox_id=sandbox, code="1+1", timeout_seconds=120)
    assert not first.failed, first.text
    print(f"{'first run_code of a sandbox':34} N=     1  {(time.perf_counter() - t) * 1e3:.1f} ms")
    s, data = connect(port), request_bytes(m, "tools/call", {"name": "run_code", "arguments": {"sandbox_id": sandbox, "code": "1+1"}})
    show("tools/call run_code 1+1", timed(lambda: exchange(s, data), max(args.calls // 10, 50)))


def main():
    templates = "base,python" if (IMAGES / "python").exists() else "base"
    c = Cluster("bench-mcp", templates=templates, warm=1)
    try:
        c.start()
        url = c.add_gateway()
        c.admin.tenants.PutTenant(pb.PutTenantRequest(name="bench", limits=pb.TenantLimits(rate_interval_us=1, rate_burst=1000000)))
        m = Mcp(url, c.key("bench").secret)
        print(f"gateway RSS {rss(c.gateway.pid)} KiB at the start")
        for part in (own_share, execs, cells):
            part(c, m, m.url.port)
        print(f"gateway RSS {rss(c.gateway.pid)} KiB at the end")
        for box in m.tool("sandbox_list").data["sandboxes"]:
            m.tool("sandbox_kill", sandbox_id=box["sandbox_id"])
    finally:
        c.stop()
        c.remove_cgroups()


def rss(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4


if __name__ == "__main__":
    main()
