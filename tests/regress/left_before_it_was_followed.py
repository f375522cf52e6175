#!/usr/bin/env python3
"""A client of the gateway that left just when its command had begun did not end it: the gateway took back its wish to follow the command
before it had been sent, so the scheduler never heard of either.  The command ran to its time limit."""
import contextlib
import json
import os
import signal
import socket
import threading
import time

from harness import Suite, pb, until
from mcp_client import ACCEPT, Mcp

suite = Suite("left_before_it_was_followed")
check, equal = suite.check, suite.equal
LATE_S = 1


class LateAnswers:
    """To the scheduler at once; what it says comes a second later."""

    def __init__(self, path, target):
        self.target, self.listener = target, socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self.target)
                threading.Thread(target=self._relay, args=(near, far, 0), daemon=True).start()
                threading.Thread(target=self._relay, args=(far, near, LATE_S), daemon=True).start()

    @staticmethod
    def _relay(source, sink, wait_s):
        with contextlib.suppress(OSError):
            while source.recv(1, socket.MSG_PEEK):
                time.sleep(wait_s)
                sink.sendall(source.recv(1 << 20))
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


def execs(client, sandbox):
    return client.execs.List(pb.ExecServiceListRequest(sandbox_id=sandbox)).execs


def ask(agent, name, **arguments):
    """On a connection of its own, without waiting for the answer."""
    body, headers = agent.request("tools/call", {"name": name, "arguments": arguments})
    connection = agent.connect()
    connection.request("POST", agent.url.path, json.dumps(body), {
        **headers, "Content-Type": "application/json", "Accept": ACCEPT, "Authorization": f"Bearer {agent.key}"})
    return connection


def prepare(c, name):
    """An agent whose gateway hears late of all that the scheduler does, and a sandbox."""
    if not c.gateway:
        LateAnswers(f"{c.dir}/late.sock", f"{c.dir}/api.sock")
        c.mcp_url = c.add_gateway("--template", "base", "--scheduler", f"unix:{c.dir}/late.sock")
    agent = Mcp(c.mcp_url, c.tenant(name).key)
    return agent, c.client(agent.key), agent.tool("sandbox_create", template="base").data["sandbox_id"]


def is_killed(client, sandbox):
    check("its client leaves, and it ends", until(lambda: not execs(client, sandbox)[0].running, 20))
    (ended,) = execs(client, sandbox)
    equal("… killed", (ended.result.outcome, ended.result.signal), (pb.OUTCOME_SIGNALED, 9))
    client.sandboxes.Kill(pb.KillRequest(sandbox_id=sandbox))


@suite.scenario
def left_when_it_had_begun(c):
    agent, client, sandbox = prepare(c, "begun")
    connection = ask(agent, "exec", sandbox_id=sandbox, command="while :; do :; done", timeout_seconds=1000)
    check("the command begins", until(lambda: execs(client, sandbox), 20, every=0.01))
    c.gateway.signal(signal.SIGSTOP)  # it learns in one turn that the command has begun, and that its client has left
    time.sleep(2 * LATE_S)
    connection.close()
    c.gateway.signal(signal.SIGCONT)
    is_killed(client, sandbox)


@suite.scenario
def left_while_it_began(c):
    """One for the background, whose client never hears of its name."""
    agent, client, sandbox = prepare(c, "begins")
    connection = ask(agent, "exec_start", sandbox_id=sandbox, command="while :; do :; done", timeout_seconds=1000)
    check("the command begins", until(lambda: execs(client, sandbox), 20, every=0.01))
    connection.close()
    is_killed(client, sandbox)


if __name__ == "__main__":
    suite.main(templates="base", warm=1)
