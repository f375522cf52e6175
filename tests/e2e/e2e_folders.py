#!/usr/bin/env python3
"""Folders of a sandbox that are watched: what changes in them is told, whatever user code does there."""
import itertools
import threading
import time

from box import Box
from harness import Suite, code_of, pb, soon, until

suite = Suite("folders")
check, equal = suite.check, suite.equal
HOME = "/home/user"
NUMBERS = itertools.count()
CREATED, WRITTEN, REMOVED, MOVED, ATTRIBUTES = (getattr(pb, f"FILE_CHANGE_KIND_{k}") for k in ("CREATED", "WRITTEN", "REMOVED", "MOVED", "ATTRIBUTES"))


class Watch(threading.Thread):
    """A client that watches a folder."""

    def __init__(self, box, path=HOME, **kw):
        super().__init__(daemon=True)
        self.changes, self.lost, self.err, self.ready, self.held = [], False, None, threading.Event(), threading.Event()
        self.held.set()
        self.call = box.client.files.Watch(pb.FileServiceWatchRequest(sandbox_id=box.id, path=path, **kw), timeout=soon(300))
        self.start()
        self.is_there = self.ready.wait(soon(10))

    def run(self):
        try:
            for m in self.call:
                self.changes += m.changes
                self.lost |= m.lost
                self.ready.set()
                self.held.wait()
        except Exception as err:  # noqa: BLE001: grpc's own
            self.err = err
            self.ready.set()

    def seen(self):
        return [(c.kind, c.path) for c in self.changes]

    def has(self, *want, seconds=10):
        return until(lambda: all(w in self.seen() for w in want), seconds)

    def leave(self):
        self.call.cancel()
        self.join(soon(10))

    def ends(self, code, seconds=20):
        self.join(soon(seconds))
        return not self.is_alive() and self.err is not None and code_of(self.err) == code


def sh(box, script, **kw):
    r = box.exec("sh", "-ec", script, **kw)
    check(f"`{script[:60]}` runs", r.result.exit_code == 0, (r.result, r.err))


def watch_all(box):
    """As many as can be, and all that they are told; what was left behind of others takes a place of the agent's 64."""
    many = [Watch(box) for _ in range(16)]
    name = f"seen{next(NUMBERS)}"
    sh(box, f"touch {name}")
    check("16 are told", all(m.has((CREATED, name)) for m in many), [(m.err, m.seen()) for m in many])
    return many


@suite.scenario
def each_kind_of_change(c):
    box = Box(c.admin)
    w = Watch(box)
    equal("it watches, and nothing has changed", (w.is_there, w.err, w.changes), (True, None, []))
    sh(box, "echo 1 > a; mkdir d; echo 2 >> a; chmod 600 a; mv a b; rm b; echo x > d/deep; ln -s d l; rmdir d || true")
    check("all is told", w.has((CREATED, "a"), (CREATED, "d"), (WRITTEN, "a"), (ATTRIBUTES, "a"), (MOVED, "a"), (CREATED, "b"), (REMOVED, "b"), (CREATED, "l")), w.seen())
    order = [w.seen().index(e) for e in ((CREATED, "a"), (WRITTEN, "a"), (ATTRIBUTES, "a"), (MOVED, "a"), (CREATED, "b"), (REMOVED, "b"))]
    equal("… in order", order, sorted(order))
    check("… nothing of the folder below, and no file's state that was not asked for", not any(p.startswith("d/") for _, p in w.seen()) and not any(c.HasField("info") for c in w.changes), w.seen())
    before = len(w.changes)
    time.sleep(0.5)
    equal("nothing more", len(w.changes), before)
    w.leave()
    box.kill()


@suite.scenario
def folders_below_it(c):
    box = Box(c.admin)
    sh(box, "mkdir -p old/deep other; echo 1 > old/deep/f")
    w = Watch(box, recursive=True, with_info=True)
    sh(box, "echo 22 >> old/deep/f; mkdir -p new/a/b; echo 333 > new/a/b/c")
    check("what was there, and what is made", w.has((WRITTEN, "old/deep/f"), (CREATED, "new"), (CREATED, "new/a"), (CREATED, "new/a/b"), (CREATED, "new/a/b/c")), w.seen())
    sizes = {c.path: c.info.size for c in w.changes if c.HasField("info")}
    equal("… with what it is", (sizes.get("old/deep/f"), sizes.get("new/a/b/c") in (0, 4)), (5, True))
    types = {c.path: c.info.type for c in w.changes if c.HasField("info")}
    equal("… of each kind", (types.get("new/a"), types.get("old/deep/f")), (pb.FILE_TYPE_DIRECTORY, pb.FILE_TYPE_REGULAR))
    sh(box, "mv new moved; echo 4 > moved/a/b/d; rm moved/a/b/c")
    check("a folder that moves is watched at its new place", w.has((MOVED, "new"), (CREATED, "moved"), (CREATED, "moved/a/b/d"), (REMOVED, "moved/a/b/c")), w.seen())
    check("… what is gone has no state", not any(c.HasField("info") for c in w.changes if c.kind == REMOVED), w.changes[-4:])
    sh(box, "mkdir -p m0/in; touch $(seq -f 'm0/in/%g' 0 99); i=0; while [ $i -lt 100 ]; do mv m$i m$((i + 1)); i=$((i + 1)); rm m$i/in/$((i - 1)); done")
    check("what happens in a folder right after it moved is told at its place", w.has(*((REMOVED, f"m{i}/in/{i - 1}") for i in range(1, 101))),
          [p for k, p in w.seen() if k == REMOVED])
    sh(box, "mv moved /tmp/outside; echo 5 > /tmp/outside/a/e; touch other/end")
    check("one that leaves is not watched any more", w.has((MOVED, "moved"), (CREATED, "other/end")) and not any(p.endswith("a/e") for _, p in w.seen()), w.seen())
    sh(box, "ln -s /tmp/outside link; echo 6 > /tmp/outside/a/g; touch other/last; i=0; while [ $i -lt 300 ]; do mkdir -p t/$i/x; touch t/$i/x/f; i=$((i + 1)); done")
    check("links are not followed", w.has((CREATED, "link"), (CREATED, "other/last")) and not any(p.endswith("/g") for _, p in w.seen()), w.seen())
    check("none is missed of many that come fast", w.has(*((CREATED, f"t/{i}/x/f") for i in range(300)), seconds=30), len(w.changes))
    equal("nothing was lost", w.lost, False)
    before = len(w.changes)
    c.admin.files.Write(iter([pb.WriteRequest(sandbox_id=box.id, path="other/written", data=b"7", commit=True)]))
    sh(box, "touch other/seal")
    check("a file that is uploaded is there at once, whole", w.has((CREATED, "other/seal")) and w.seen()[before] == (CREATED, "other/written") and w.changes[before].info.size == 1, w.changes[before:])
    check("… and no other name of it was ever told", not any(".cloche" in p for _, p in w.seen()), w.seen()[before:])
    w.leave()
    box.kill()


@suite.scenario
def what_cannot_be_watched(c):
    box = Box(c.admin)
    sh(box, "touch file")
    for path, kw, want in (("none", {}, "NOT_FOUND"), ("file", {}, "NOT_FOUND"), ("", {}, "INVALID_ARGUMENT"), ("/root", {}, "PERMISSION_DENIED"), (HOME, {"user": "nobody"}, "INVALID_ARGUMENT")):
        w = Watch(box, path, **kw)
        check(f"{path!r} {kw}: {want}", w.ends(want), w.err)
    sh(box, "mkdir gone")
    w = Watch(box, "gone")
    sh(box, "rmdir gone")
    check("a folder that goes away ends it", w.ends("NOT_FOUND"), w.err)
    many = watch_all(box)
    check("not more", Watch(box).ends("RESOURCE_EXHAUSTED"))
    for m in many:
        m.leave()
    box.kill()


@suite.scenario
def nothing_is_left_behind(c):
    box = Box(c.admin)
    for _ in range(5):
        for m in watch_all(box):
            m.leave()
    for _ in range(5):
        many = watch_all(box)
        box.pause()
        for m in many:
            m.leave()
        box.resume()
    watch_all(box)
    for _ in range(5):
        other = box.fork()
        box.kill()
        box = other
        watch_all(box)
    box.kill()


@suite.scenario
def it_ends_with_its_sandbox_and_keeps_none_awake(c):
    box = Box(c.admin)
    w = Watch(box)
    other = box.fork()
    sh(box, "touch after")
    check("it goes on after a copy was made", w.has((CREATED, "after")), (w.seen(), w.err))
    w2 = Watch(other, recursive=True)
    sh(other, "touch in-the-copy")
    check("a copy is watched anew", w2.has((CREATED, "in-the-copy")) and (CREATED, "in-the-copy") not in w.seen(), (w2.seen(), w2.err))
    box.pause()
    box.resume()
    sh(box, "touch again")
    check("it goes on after a rest", w.has((CREATED, "again")), (w.seen(), w.err))
    box.kill()
    check("so does its end", w.ends("UNAVAILABLE"), w.err)
    other.kill()
    idle = Box(c.admin, ttl=3)
    w = Watch(idle)
    check("it keeps no sandbox that is idle", until(lambda: idle.get().state == pb.UNIT_STATE_ENDED, 30) and w.ends("UNAVAILABLE"), (idle.get(), w.err))
    rests = Box(c.admin, ttl=2, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
    w = Watch(rests)
    check("… nor one that is to rest then", until(lambda: rests.state() == "PAUSED", 30), (rests.get(), w.err))
    w2 = Watch(rests)
    equal("to be watched wakes it", (w2.err, rests.state()), (None, "RUNNING"))
    sh(rests, "touch awake")
    check("… also for who has watched it before", w.has((CREATED, "awake")) and w2.has((CREATED, "awake")), (w.seen(), w.err))
    rests.kill()


@suite.scenario
def more_than_the_reader_takes(c):
    box = Box(c.admin)
    w = Watch(box)
    w.held.clear()
    sh(box, "touch first")
    sh(box, f"n={'x' * 200}; r=0; while [ $r -lt 2 ]; do i=0; while [ $i -lt 8000 ]; do echo > $n$i; i=$((i + 1)); done; r=$((r + 1)); done")
    sh(box, "touch last")
    w.held.set()
    check("what was lost is told as that, or nothing was", until(lambda: w.lost or (CREATED, "last") in w.seen(), 30), (len(w.changes), w.lost))
    made = [int(p[200:]) for k, p in w.seen() if k == CREATED and p.startswith("x")]
    check("what is told is in order, once", made == sorted(set(made)), made[:20])
    check("whoever misses some knows", w.lost or len(made) == 8000, (len(made), w.lost))
    print(f"     {len(w.changes)} changes told, {len(made)} of 8000 new files, lost: {w.lost}")
    sh(box, "touch afterwards")
    check("it goes on", w.has((CREATED, "afterwards"), seconds=30), len(w.changes))
    w.leave()
    box.kill()


if __name__ == "__main__":
    suite.main()
