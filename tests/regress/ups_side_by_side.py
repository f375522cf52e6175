#!/usr/bin/env python3
"""Instances that came up at once chose the same free ports: each looked, then its processes bound.  And an `up` whose supervisor
failed could take the dying one for another's, wait three minutes and give a wrong reason."""
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile

from harness import BUILD, Suite, soon

suite = Suite("ups_side_by_side")
check, equal = suite.check, suite.equal
AT_ONCE = 5


class Instance:
    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cl-", dir="/tmp"))
        self.user = [] if os.geteuid() else ["setpriv", f"--reuid={random.randint(300000, 399999)}", "--regid=300000", "--clear-groups"]
        self.env = {"PATH": os.environ["PATH"], "CLOCHE_STATE_DIR": f"{self.dir}/s", "CLOCHE_RUN_DIR": f"{self.dir}/r",
                    "CLOCHE_TEMPLATE_DIR": f"{self.dir}/s/templates"}  # none is built
        self.dir.chmod(0o777)

    def open(self, *args):
        return subprocess.Popen([*self.user, BUILD / "cloche", *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    @staticmethod
    def tails():
        return ""

    def end(self):
        self.open("down").communicate(timeout=soon(60))
        shutil.rmtree(self.dir, ignore_errors=True)


def endpoints(instance):
    status = json.loads(instance.open("status", "--json").communicate(timeout=soon(60))[0])
    return [status["endpoints"]["mcp"], *(one["metrics"] for one in status["processes"] if one["metrics"])]


@suite.scenario
def all_come_up(_):
    instances = [Instance() for _ in range(AT_ONCE)]
    ups = [one.open("up", "--warm", "0", "--templates", "base") for one in instances]
    said = [up.communicate(timeout=soon(120))[1] for up in ups]
    for up, text in zip(ups, said):
        equal("up is ready beside the others", up.returncode, 0) or print(text)
    known = [at for one in instances for at in endpoints(one)]
    equal("each port is one instance's", len(set(known)), 5 * AT_ONCE)
    for one in instances:
        one.end()


@suite.scenario
def a_port_that_is_taken_is_the_reason(_):
    one = Instance()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        for option in ("--metrics", "--mcp"):
            up = one.open("up", "--warm", "0", "--templates", "base", option, address)
            text = up.communicate(timeout=soon(20))[1]
            check(f"up {option} fails and names the port", up.returncode == 1 and f"listen on '{address}'" in text and "in use" in text, text)
    one.end()


if __name__ == "__main__":
    suite.play(Instance)
    suite.finish()
