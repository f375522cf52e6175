#!/usr/bin/env python3
"""The gateway had one connection to the scheduler, which allows 100 calls at once: so many long ones, of one key or of several, and every
other client waited until one of them had ended."""
import json
import time

from harness import Suite, pb, until
from mcp_client import ACCEPT, Mcp

suite = Suite("many_calls_of_one_key")
check, equal = suite.check, suite.equal
CALLS, LONG_S, SOON_S = 120, 40, 20


@suite.scenario
def others_are_served(c):
    url = c.add_gateway("--template", "base")
    busy, calm = Mcp(url, c.tenant("busy").key), Mcp(url, c.tenant("calm").key)
    boxes = [busy.tool("sandbox_create", template="base").data["sandbox_id"] for _ in range(3)]
    calm.tool("sandbox_list")
    connections = []
    for n in range(CALLS):
        body, headers = busy.request("tools/call", {"name": "exec", "arguments": {
            "sandbox_id": boxes[n % len(boxes)], "command": f"sleep {LONG_S}", "timeout_seconds": LONG_S + 10}})
        connection = busy.connect()
        connection.request("POST", busy.url.path, json.dumps(body), {
            **headers, "Content-Type": "application/json", "Accept": ACCEPT, "Authorization": f"Bearer {busy.key}"})
        connections.append(connection)
    client = c.client(busy.key)
    running = lambda: sum(e.running for b in boxes for e in client.execs.List(pb.ExecServiceListRequest(sandbox_id=b, page_size=100)).execs)
    check("more commands run at once than a connection has calls", until(lambda: running() >= 101, SOON_S), running())
    begin = time.monotonic()
    answer = calm.tool("sandbox_list")
    took = time.monotonic() - begin
    check("another tenant is served meanwhile", not answer.failed and took < SOON_S, took)
    for connection in connections:
        connection.close()
    for b in boxes:
        client.sandboxes.Kill(pb.KillRequest(sandbox_id=b))


suite.main(templates="base", warm=3)
