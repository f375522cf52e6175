"""Forks by E2B's Python SDKs, unmodified, for a tenant with room for four sandboxes.  One JSON line on stdout.

usage: e2b_fork_client.py TEMPLATE      (run by e2e_e2b.py with the tools' venv; E2B_* say where)
"""
import itertools
import json
import sys
import threading
import time

from e2b import RateLimitException, Sandbox, SandboxNotFoundException
from e2b_code_interpreter import Sandbox as CodeSandbox

COUNTER = "i=0; while :; do i=$((i + 1)); echo $i > /tmp/c; mv /tmp/c /tmp/count; sleep 0.3; done"


def raised(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as e:  # noqa: BLE001 - which one is the question
        return [type(e), str(e)]
    return [None, ""]


def moves(s):
    first, end = s.files.read("/tmp/count"), time.monotonic() + 30
    while time.monotonic() < end:
        if int(s.files.read("/tmp/count").strip() or 0) > int(first.strip() or 0):
            return True
        time.sleep(0.2)
    return False


def fork_while_it_changes(s):
    """The forks, and how often the state of the first was another until they were there."""
    done, rounds = threading.Event(), 0

    def change():
        nonlocal rounds
        for rounds in itertools.count(1):
            s.files.write("state", str(rounds))
            if done.is_set():
                return
    s.files.write("state", "0")
    thread = threading.Thread(target=change)
    thread.start()
    forks = s.fork(timeout=200, count=3)
    done.set()
    thread.join()
    return forks, rounds


def copies(s, out):
    s.run_code("x = 41")
    s.files.write("/home/user/file", "kept")
    s.commands.run(COUNTER, background=True, timeout=0)
    while not s.files.exists("/tmp/count"):
        time.sleep(0.1)
    forks, rounds = fork_while_it_changes(s)
    states = [f.files.read("state") for f in forks]
    out["moment"] = [len(set(states)), int(states[0]) < rounds]
    out["forks"] = [[type(f) is CodeSandbox for f in forks], len({f.sandbox_id for f in (s, *forks)})]
    out["has"] = [[f.files.read("file"), f.run_code("x + 1").text, moves(f)] for f in (s, *forks)]
    for i, f in enumerate(forks):
        f.files.write("/home/user/file", f"of {i}")
        f.run_code(f"x = {i}")
    s.files.write("new", "of the first")
    out["apart"] = [[f.files.read("file"), f.run_code("x").text, f.files.exists("new")] for f in (s, *forks)]
    info = [f.get_info() for f in (s, *forks)]
    out["info"] = [all(i.metadata == {"userId": "a b/ü"} for i in info), all(i.state.value == "running" for i in info),
                   all(100 < (i.end_at - i.started_at).total_seconds() < 260 for i in info[1:])]
    out["env"] = [f.commands.run("echo $OF_BOX").stdout for f in (s, forks[0])]
    out["connect"] = Sandbox.connect(forks[0].sandbox_id).files.read("file")
    return forks


def refusals(s, forks, out):
    out["full"] = [type(f) is RateLimitException for f in s.fork(count=2)]
    forks[0].kill()
    mixed = CodeSandbox.fork(s.sandbox_id, count=3, timeout=60)
    made = [f for f in mixed if isinstance(f, CodeSandbox)]
    out["mixed"] = [len(mixed), len(made), sum(type(f) is RateLimitException for f in mixed), [f.run_code("x").text for f in made]]
    for f in (*forks[1:], *made):
        f.kill()
    out["ended"] = raised(forks[0].fork)[0] is SandboxNotFoundException
    s.pause()
    resting, = s.fork(timeout=60)
    out["paused"] = [resting.run_code("x").text, resting.kill(), s.get_info().state.value]
    out["unknown"] = raised(Sandbox.fork, "sbx_00000000000000000000000000", count=2)[0] is SandboxNotFoundException
    s.connect(timeout=200)
    one, = s.fork()
    out["one"] = [one.run_code("x").text, (one.get_info().end_at - one.get_info().started_at).total_seconds() < 60, one.kill()]


def main(template):
    out = {}
    with CodeSandbox.create(template=template, timeout=300, metadata={"userId": "a b/ü"}, envs={"OF_BOX": "a"}) as s:
        refusals(s, copies(s, out), out)
    print(json.dumps(out))


main(sys.argv[1])
