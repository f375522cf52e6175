#!/usr/bin/env python3
"""What a worker tells for the audit log: a receipt once it is there, not before, one for all before it; and what is told again."""
import os
import signal
import time
import types

import pause
from cloche.v1 import guest_pb2, worker_pb2
from made_up_worker import Cluster, pb, until
from harness import Suite, free_port, metric
from pause import Box

suite = Suite("receipts")
check, equal = suite.check, suite.equal
pause.equal = equal
wpb = worker_pb2
RECEIPTS = 5
METRICS = free_port()


class Scene(pause.Scene):
    def __init__(self, c, name, minor=RECEIPTS):
        super().__init__(c, name, minor=minor)
        self.acks = []
        self.w._on_watched_ack = lambda m: self.acks.append(m.number)
        self.w.keep_renewing(1)

    def tell(self, box, number, *paths, again=False, tenant=None):
        """Of files written; their numbers are in their names."""
        events = [wpb.WatchedEvent(event=guest_pb2.GuestEvent(kind=guest_pb2.GUEST_EVENT_KIND_WRITE, number=int(p), path=p, comm="made up"))
                  for p in paths]
        self.w.send(watched=wpb.UnitWatched(tenant=tenant or self.name, unit_id=box.id, events=events, number=number, again=again))

    def written(self, box):
        return [(e["path"], e.get("again", False)) for e in self.events("guest.write") if e["unit"] == box.id]

    def has(self, *numbers, seconds=10):
        return until(lambda: self.acks == list(numbers), seconds) or self.acks


@suite.scenario
def a_receipt_means_that_it_is_written(c):
    with Scene(c, "written") as s:
        box = Box(s.client)
        s.tell(box, 1, "1", "2")
        equal("one message, one receipt", s.has(1), True)
        equal("… and its records are there", s.written(box), [("1", False), ("2", False)])
        os.kill(c.audit.pid, signal.SIGSTOP)
        try:
            s.tell(box, 2, "3")
            s.tell(box, 3)  # has nothing to be written, and waits for what is before it
            time.sleep(2)
            equal("none while the log stands still", s.acks, [1])
        finally:
            os.kill(c.audit.pid, signal.SIGCONT)
        check("they come when it goes on, the newest last", until(lambda: s.acks[-1] == 3, 10) and s.acks in ([1, 3], [1, 2, 3]), s.acks)
        equal("… and what they stand for is there", s.written(box)[2:], [("3", False)])
        s.acks.clear()
        s.w.send(exec_changed=wpb.ExecChanged(tenant=s.name, unit_id=box.id, exec_id="exec_1", result=pb.ExecResult(outcome=pb.OUTCOME_EXITED), number=4))
        equal("the end of an exec has one, too", s.has(4), True)
        equal("… and is there", [e["exec"] for e in s.events("exec.end") if e["unit"] == box.id], ["exec_1"])
        s.tell(box, 0, "4")
        time.sleep(1)
        equal("who wants none gets none", s.acks, [4])


@suite.scenario
def what_the_log_has_no_room_for_is_a_gap(c):
    """More ends of execs than the scheduler keeps for a log that stands still."""
    many = 18000
    with Scene(c, "gap") as s:
        box = Box(s.client)
        os.kill(c.audit.pid, signal.SIGSTOP)
        try:
            for i in range(1, many + 1):
                s.w.send(exec_changed=wpb.ExecChanged(tenant=s.name, unit_id=box.id, exec_id=f"exec_{i}", result=pb.ExecResult(outcome=pb.OUTCOME_EXITED), number=i))
            check("it keeps no more than it has room for", until(lambda: metric(METRICS, "cloche_audit_records_lost"), 30), "no record is lost")
            equal("no receipt while the log stands still", s.acks, [])
        finally:
            os.kill(c.audit.pid, signal.SIGCONT)
        check("when it goes on all have theirs", until(lambda: s.acks and s.acks[-1] == many, 30), s.acks[-3:])
        records = c.audit_records()
        told = {r["fields"]["exec"] for r in records if r["event"] == "exec.end" and r["fields"]["unit"] == box.id}
        lost = sum(r["fields"]["count"] for r in records if r["event"] == "gap")
        check("… some are in the log", 1000 < len(told) < many, len(told))
        check("… and the others are counted there as missing", many <= len(told) + lost < many + 100, (len(told), lost))


@suite.scenario
def of_what_is_not_recorded_too(c):
    with Scene(c, "left") as s:
        box = Box(s.client)
        s.tell(types.SimpleNamespace(id="sbx_01jzzzzzzzzzzzzzzzzzzzzzzz"), 1, "1")
        equal("of a unit that is not there", s.has(1), True)
        s.tell(box, 2, "1", tenant="nobody")
        equal("of another tenant's", s.has(1, 2), True)
        event = guest_pb2.GuestEvent(kind=99, number=1, path="x")
        s.w.send(watched=wpb.UnitWatched(tenant=s.name, unit_id=box.id, events=[wpb.WatchedEvent(event=event)], number=3))
        equal("of what the scheduler does not know", s.has(1, 2, 3), True)
        equal("none of it is in the log", s.written(box), [])


@suite.scenario
def the_next_scheduler_is_told_again(c):
    with Scene(c, "again") as s:
        box = Box(s.client)
        s.tell(box, 1, "1")
        equal("written", s.has(1), True)
        os.kill(c.audit.pid, signal.SIGSTOP)
        try:
            s.tell(box, 2, "2", "3")
            time.sleep(1)
        finally:
            s.w.disconnect()
            c.scheduler.kill()
            os.kill(c.audit.pid, signal.SIGCONT)
        c.scheduler.start()
        c.await_answer()
        s.acks.clear()
        s.w.connect()
        s.tell(box, 2, "2", "3", again=True)
        s.tell(box, 3, "4")
        check("it gives its receipts", until(lambda: s.acks and s.acks[-1] == 3, 20), s.acks)
        rows = s.written(box)
        equal("what was told again says so, and is there", ([r for r in rows if r[1]], rows[0], rows[-1]), ([("2", True), ("3", True)], ("1", False), ("4", False)))


@suite.scenario
def an_older_worker_gets_none(c):
    with Scene(c, "older", minor=4) as s:
        box = Box(s.client)
        s.tell(box, 1, "1")
        check("it is recorded", until(lambda: s.written(box), 10), s.written(box))
        equal("… and no more is said than it understands", (s.w.minor_agreed, s.acks), (4, []))


if __name__ == "__main__":
    suite.main(cluster=lambda name: Cluster(name, scheduler_args=("--metrics", f"127.0.0.1:{METRICS}")))
