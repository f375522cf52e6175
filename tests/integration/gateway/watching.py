#!/usr/bin/env python3
"""Folders that are watched by E2B's API: as a stream, and by watchers that are polled; and what becomes of those that nobody hears."""
import http.client
import json
import struct
import threading
import time

from made_up_scheduler import BOX, KEY, OTHER, grpc, pb, play
from harness import Suite, until

suite = Suite("gateway-watching")
check, equal = suite.check, suite.equal
CREATED, WRITTEN, REMOVED, MOVED, ATTRIBUTES = range(1, 6)
ALL = [(CREATED, "a"), (WRITTEN, "a"), (REMOVED, "ü"), (MOVED, "d/e"), (ATTRIBUTES, "a"), (99, "odd")]
TYPES = ["CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD", "UNSPECIFIED"]
EVENTS = [{"name": path, "type": f"EVENT_TYPE_{t}"} for (_, path), t in zip(ALL, TYPES)]
PLACES = 64  # of one key


def connection(w):
    return http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)


def fields(box=BOX, kind="application/json"):
    return {"X-API-Key": KEY, "E2b-Sandbox-Id": box, "Content-Type": kind}


def ask(w, method, box=BOX, **body):
    """(status, JSON)"""
    h = connection(w)
    h.request("POST", f"/filesystem.Filesystem/{method}", json.dumps(body), fields(box))
    r = h.getresponse()
    text = r.read().decode()
    h.close()
    return r.status, json.loads(text)


class Stream:
    """WatchDir."""

    def __init__(self, w, **more):
        n = len(w.s.watches)
        body = json.dumps({"path": "d", **more}).encode()
        self.h = connection(w)
        self.h.request("POST", "/filesystem.Filesystem/WatchDir", b"\0" + struct.pack(">I", len(body)) + body,
                       {**fields(kind="application/connect+json"), "Keepalive-Ping-Interval": "1"})
        check("the scheduler is asked", until(lambda: len(w.s.watches) > n, 10))
        self.asked = w.s.watches[-1]
        self.asked.tell()
        self.r = self.h.getresponse()

    def next(self):
        """(is the last, JSON)"""
        head = self.r.read(5)
        return head[0] == 2, json.loads(self.r.read(struct.unpack(">I", head[1:])[0]))

    def some(self):
        """The next that is no sign of life."""
        while (m := self.next())[1].get("keepalive") == {}:
            pass
        return m


def watcher(w, box=BOX):
    """A watcher that watches: (id, the scheduler's side of it)"""
    got, before = [], len(w.s.watches)
    t = threading.Thread(target=lambda: got.append(ask(w, "CreateWatcher", box, path="d")))
    t.start()
    check("the scheduler is asked", until(lambda: len(w.s.watches) > before, 10))
    w.s.watches[-1].tell()
    t.join(60)
    status, m = got[0]
    check("it watches", status == 200 and len(m.get("watcherId", "")) == 32, got)
    return m["watcherId"], w.s.watches[-1]


def events(w, watcher_id, n, seconds=10):
    """Until there are as many, or an error."""
    got, last = [], {}

    def enough():
        nonlocal last
        status, last = ask(w, "GetWatcherEvents", watcherId=watcher_id)
        got.extend(last.get("events", []))
        return status != 200 or len(got) >= n
    until(enough, seconds)
    return got, last.get("code")


@suite.scenario
def a_stream(w):
    s = Stream(w, recursive=True, includeEntry=True)
    q = s.asked.request
    equal("what is asked for", (q.sandbox_id, q.path, q.recursive, q.with_info, q.user), (BOX, "/home/user/d", True, True, "user"))
    equal("it says that it watches", s.some(), (False, {"start": {}}))
    s.asked.tell(*ALL)
    equal("each change", [s.some() for _ in ALL], [(False, {"filesystem": e}) for e in EVENTS])
    check("it shows that it lives", until(lambda: s.next() == (False, {"keepalive": {}}), 10))
    s.asked.queue.put(pb.FileServiceWatchResponse(changes=[pb.FileChange(kind=CREATED, path="x/y", info=pb.FileInfo(name="y", size=7, mode=0o640, type=pb.FILE_TYPE_REGULAR))]))
    entry = s.some()[1]["filesystem"]["entry"]
    equal("with what it is", (entry["path"], entry["size"], entry["permissions"], entry["type"]), ("/home/user/d/x/y", "7", "-rw-r-----", "FILE_TYPE_FILE"))
    s.asked.tell((CREATED, "late"), lost=True)
    last, m = s.some()
    check("changes that are missing end it", last and m["error"]["code"] == "resource_exhausted", m)
    check("… also at the scheduler", s.asked.over.wait(10))
    s = Stream(w)
    s.some()
    s.asked.fail(grpc.StatusCode.NOT_FOUND, "no such folder any more")
    last, m = s.some()
    check("so does a folder that goes", last and m["error"]["code"] == "not_found" and "any more" in m["error"]["message"], m)
    s = Stream(w)
    s.some()
    s.h.close()
    s.r.close()
    check("who leaves watches no more", s.asked.over.wait(30))


@suite.scenario
def a_watcher(w):
    name, asked = watcher(w)
    equal("nothing has changed", events(w, name, 0), ([], None))
    asked.tell(*ALL[:4])
    asked.tell(*ALL[4:])
    equal("each change, once", events(w, name, len(ALL)), (EVENTS, None))
    equal("… not again", events(w, name, 0), ([], None))
    for what, got in (("of another sandbox", ask(w, "GetWatcherEvents", OTHER, watcherId=name)), ("that does not exist", ask(w, "GetWatcherEvents", watcherId=32 * "0")),
                      ("without a name", ask(w, "RemoveWatcher")), ("a number", ask(w, "GetWatcherEvents", watcherId=1))):
        equal(f"a watcher {what} is none", (got[0], got[1]["code"]), (404, "not_found"))
    equal("it is stopped", ask(w, "RemoveWatcher", watcherId=name), (200, {}))
    check("… at the scheduler, too", asked.over.wait(10))
    equal("… and is none any more", ask(w, "RemoveWatcher", watcherId=name)[0], 404)


@suite.scenario
def one_that_ends(w):
    name, asked = watcher(w)
    asked.tell(*ALL)
    asked.fail(grpc.StatusCode.NOT_FOUND, "no such folder any more")
    equal("what was before its end is told first", events(w, name, len(ALL)), (EVENTS, None))
    equal("… then why", events(w, name, 1), ([], "not_found"))
    equal("… once", ask(w, "GetWatcherEvents", watcherId=name)[1]["message"].split(":")[0], "no such watcher")
    name, asked = watcher(w)
    asked.tell((CREATED, "a"), lost=True)
    equal("changes that are missing end it", events(w, name, 1), ([], "resource_exhausted"))
    for what, n, path in (("many", 4200, "f"), ("large", 300, "x" * 2000)):
        name, asked = watcher(w)
        asked.tell(*((CREATED, path) for _ in range(n)))
        check(f"too {what} end it, behind those that are kept", asked.over.wait(30))
        got, code = events(w, name, n + 1, 30)
        check("… which are told, and not more", code == "resource_exhausted" and 0 < len(got) < n, (len(got), code))


@suite.scenario
def one_that_is_none(w):
    status, m = ask(w, "CreateWatcher")
    equal("without a folder", (status, m["code"]), (400, "invalid_argument"))
    n = len(w.s.watches)
    got = []
    t = threading.Thread(target=lambda: got.append(ask(w, "CreateWatcher", path="none")))
    t.start()
    check("asked", until(lambda: len(w.s.watches) > n, 10))
    w.s.watches[-1].fail(grpc.StatusCode.NOT_FOUND, "none: No such file or directory")
    t.join(60)
    equal("a folder that is not there", (got[0][0], got[0][1]["code"]), (404, "not_found"))
    h = connection(w)
    h.request("POST", "/filesystem.Filesystem/CreateWatcher", json.dumps({"path": "d"}), fields())
    check("asked", until(lambda: len(w.s.watches) > n + 1, 10))
    h.close()
    check("who leaves before it is there has none", w.s.watches[-1].over.wait(30))


@suite.scenario
def as_many_as_there_are_places(w):
    made = [watcher(w) for _ in range(PLACES)]
    status, m = ask(w, "CreateWatcher", path="d")
    equal("one more is refused", (status, m["code"]), (429, "resource_exhausted"))
    equal("one is stopped", ask(w, "RemoveWatcher", watcherId=made[0][0]), (200, {}))
    made.append(watcher(w))
    for name, _ in made[1:-4]:
        ask(w, "RemoveWatcher", watcherId=name)
    check("all that were stopped are gone", all(a.over.wait(30) for _, a in made[1:-4]))
    time.sleep(0.2)  # four are there when the gateway is stopped


if __name__ == "__main__":
    play(suite)
