"""Snapshots by E2B's Python SDKs, unmodified, for a tenant with room for four sandboxes.  One JSON line on stdout.

usage: e2b_snapshot_client.py TEMPLATE      (run by e2e_e2b.py with the tools' venv; E2B_* say where)
"""
import asyncio
import json
import sys
import time

from e2b import AsyncSandbox, Sandbox, SandboxNotFoundException
from e2b_code_interpreter import AsyncSandbox as AsyncCodeSandbox
from e2b_code_interpreter import Sandbox as CodeSandbox

COUNTER = "i=0; while :; do i=$((i + 1)); echo $i > /tmp/c; mv /tmp/c /tmp/count; sleep 0.3; done"


def raised(call, *args, **options):
    """What it says, and the status with it."""
    try:
        call(*args, **options)
    except Exception as e:  # noqa: BLE001 - which one is the question
        return [type(e).__name__, getattr(e, "status_code", None), str(e)]
    return [None, None, ""]


def moves(s):
    first, end = s.files.read("/tmp/count"), time.monotonic() + 30
    while time.monotonic() < end:
        if int(s.files.read("/tmp/count").strip() or 0) > int(first.strip() or 0):
            return True
        time.sleep(0.2)
    return False


def all_of(pages):
    found, n = [], 0
    while pages.has_next:
        found += pages.next_items()
        n += 1
    return [[i.snapshot_id, i.names] for i in found], n


def begins(s, out):
    """Two sandboxes begin with one moment of another."""
    s.run_code("x = 41")
    s.files.write("/home/user/file", "kept")
    s.commands.run(COUNTER, background=True, timeout=0)
    while not s.files.exists("/tmp/count"):
        time.sleep(0.1)
    snap = s.create_snapshot(name="ready.py")
    s.run_code("x = 1")
    s.files.write("/home/user/file", "later")
    first = CodeSandbox.create(snap.snapshot_id, timeout=200, metadata={"of": "new"}, envs={"OF_NEW": "b"})
    second = CodeSandbox.create("ready.py", timeout=200, lifecycle={"on_timeout": "pause"})
    out["made"] = [snap.snapshot_id.startswith("snp_"), snap.names]
    out["has"] = [[f.files.read("file"), f.run_code("x + 1").text, moves(f)] for f in (first, second)]
    out["goes_on"] = [s.files.read("file"), s.run_code("x").text, moves(s)]
    first.files.write("/home/user/file", "of the first")
    first.run_code("x = 2")
    out["apart"] = [[f.files.read("file"), f.run_code("x").text] for f in (first, second, s)]
    info, of = first.get_info(), s.get_info()
    out["info"] = [info.template_id == of.template_id, info.metadata, second.get_info().metadata, info.state.value,
                   150 < (info.end_at - info.started_at).total_seconds() < 260, second.get_info().lifecycle["on_timeout"]]
    out["env"] = first.commands.run("echo $OF_NEW-$OF_BOX-").stdout
    return snap, first, second


def lists(s, snap, first, out):
    of_copy = first.create_snapshot()
    mine, copys = [snap.snapshot_id, ["ready.py"]], [of_copy.snapshot_id, []]
    out["of_copy"] = of_copy.names
    out["listed"] = [all_of(s.list_snapshots())[0] == [mine], all_of(Sandbox.list_snapshots(sandbox_id=first.sandbox_id))[0] == [copys],
                     all_of(Sandbox.list_snapshots(limit=1)) == ([copys, mine], 2), all_of(Sandbox.list_snapshots(name="ready.py"))[0] == [mine],
                     all_of(Sandbox.list_snapshots(name="nobody"))[0], all_of(Sandbox.list_snapshots(sandbox_id="sbx_00000000000000000000000000"))[0]]
    return of_copy


def names(s, snap, out):
    """The name goes over to another one, and the one that had it is gone."""
    newer = s.create_snapshot(name="ready.py")
    with CodeSandbox.create("ready.py", timeout=60) as b:
        out["replaced"] = [newer.snapshot_id != snap.snapshot_id, newer.names, b.files.read("file"), b.run_code("x").text]
    out["was_replaced"] = raised(CodeSandbox.create, snap.snapshot_id)[:2]
    out["one_has_it"] = all_of(s.list_snapshots())[0] == [[newer.snapshot_id, ["ready.py"]]]
    out["bad_name"] = raised(s.create_snapshot, name="No Name")
    out["without_memory"] = raised(s.create_snapshot, mode="filesystem")
    full = s.create_snapshot(mode="full")
    out["full"] = [full.names, Sandbox.delete_snapshot(full.snapshot_id)]
    return newer


def ends(s, newer, of_copy, out):
    s.pause()
    resting = s.create_snapshot()
    out["paused"] = [s.get_info().state.value, s.kill()]
    for what, word in (("outlives", newer.snapshot_id), ("resting", resting.snapshot_id), ("copys", of_copy.snapshot_id)):
        with CodeSandbox.create(word, timeout=60) as b:
            out[what] = [b.files.read("file"), b.run_code("x").text]
    out["deleted"] = [Sandbox.delete_snapshot(w) for w in (newer.snapshot_id, newer.snapshot_id, "ready.py", resting.snapshot_id)]
    out["gone"] = [raised(CodeSandbox.create, w)[:2] for w in (newer.snapshot_id, "ready.py")]
    out["of_nothing"] = raised(Sandbox.create_snapshot, s.sandbox_id)[0] == SandboxNotFoundException.__name__


async def by_async(of_copy, out):
    s = await AsyncCodeSandbox.create(of_copy.snapshot_id, timeout=60)
    snap = await s.create_snapshot(name="ready-async")
    other = await AsyncCodeSandbox.create("ready-async", timeout=60)  # as a template may be called, too
    pages = s.list_snapshots()
    out["async"] = [await other.files.read("file"), (await other.run_code("x")).text,
                    [[i.snapshot_id, i.names] for i in await pages.next_items()] == [[snap.snapshot_id, ["ready-async"]]], pages.has_next]
    for b in (s, other):
        await b.kill()
    out["async_deleted"] = [await AsyncSandbox.delete_snapshot(i) for i in ("ready-async", snap.snapshot_id, of_copy.snapshot_id)]
    out["left"] = await AsyncSandbox.list_snapshots().next_items()


def main(template):
    out = {}
    with CodeSandbox.create(template=template, timeout=300, metadata={"userId": "a b/ü"}, envs={"OF_BOX": "a"}) as s:
        snap, first, second = begins(s, out)
        of_copy = lists(s, snap, first, out)
        for b in (first, second):
            b.kill()
        ends(s, names(s, snap, out), of_copy, out)
        asyncio.run(by_async(of_copy, out))
    print(json.dumps(out))


main(sys.argv[1])
