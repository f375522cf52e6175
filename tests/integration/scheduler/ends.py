#!/usr/bin/env python3
"""The ends of units in the audit log, whoever dies while it is told of them, and what a later scheduler still knows of a unit that an earlier one started."""
import time

import pause
from made_up_worker import Cluster, pb, until
from harness import Suite, command
from pause import Box

suite = Suite("ends")
check, equal = suite.check, suite.equal
pause.equal = equal
ENDED, RUNNING = pb.UNIT_STATE_ENDED, pb.UNIT_STATE_RUNNING
ROOM = {"vcpu_milli": 64000, "memory_mib": 65536, "sandboxes": 32, "disk_mib": 65536}


class Scene(pause.Scene):
    def __init__(self, c, name):
        super().__init__(c, name, **ROOM)
        self.w.keep_renewing(1)

    def ends(self, box):
        """What the log has of it, as `recovered` or not."""
        return [e.get("recovered", 0) for e in self.events("unit.end") if e["unit"] == box.id]

    def die(self, meanwhile=lambda: None):
        """The scheduler, and then another one serves."""
        self.w.disconnect()
        self.c.scheduler.kill()
        meanwhile()
        self.c.scheduler.start()
        self.c.await_answer()
        self.w.connect()


@suite.scenario
def an_end_that_only_the_books_have_is_told_by_the_next_scheduler(c):
    with Scene(c, "books") as s:
        boxes = [Box(s.client) for _ in range(3)]
        c.audit.kill()  # what it is told now, its teller takes with him
        for box in boxes[:2]:
            s.w.end(box.id, pb.OUTCOME_FAILED, pb.REASON_VM_DIED)
        check("they have ended", all(box.is_in(ENDED, 10) for box in boxes[:2]), [box.get() for box in boxes])
        check("… and their worker need not say so again", until(lambda: len(s.w.acked) == 2, 10), s.w.acked)
        s.die(c.audit.start)
        check("the log has both, once, from the books", until(lambda: [s.ends(b) for b in boxes[:2]] == [[1], [1]], 20), s.events("unit.end"))
        end = next(e for e in s.events("unit.end") if e["unit"] == boxes[0].id)
        equal("… with outcome, reason and attempt", (end["outcome"], end["reason"], end["attempt"]), ("FAILED", "VM_DIED", 1))
        equal("none of one that goes on", (s.ends(boxes[2]), boxes[2].get().state), ([], RUNNING))
        time.sleep(1)
        s.die()
        time.sleep(1)
        equal("the next one but one has nothing to tell", [s.ends(b) for b in boxes], [[1], [1], []])


@suite.scenario
def an_end_that_the_log_has_is_not_told_again(c):
    with Scene(c, "once") as s:
        box, killed = Box(s.client), Box(s.client)
        s.w.end(box.id, pb.OUTCOME_FAILED, pb.REASON_VM_DIED)
        killed.kill()
        check("the log has them", until(lambda: s.ends(box) == s.ends(killed) == [0], 10), s.events("unit.end"))
        time.sleep(1)
        s.die()
        time.sleep(1)
        equal("once", (s.ends(box), s.ends(killed)), ([0], [0]))
        last = [Box(s.client) for _ in range(4)]
        for b in last:
            s.w.end(b.id, pb.OUTCOME_FAILED, pb.REASON_VM_DIED)
        check("four more", until(lambda: all(s.ends(b) == [0] for b in last), 10), s.events("unit.end"))
        s.w.disconnect()
        c.scheduler.stop()
        c.scheduler.start()
        c.await_answer()
        s.w.connect()
        time.sleep(1)
        equal("one that stops in order leaves none to be told again", [s.ends(b) for b in last], [[0]] * 4)


@suite.scenario
def when_the_books_are_away_they_hear_later(c):
    with Scene(c, "away") as s:
        boxes = [Box(s.client) for _ in range(3)]
        for box in boxes:
            s.w.end(box.id, pb.OUTCOME_FAILED, pb.REASON_VM_DIED)
        check("the log has them", until(lambda: all(s.ends(b) == [0] for b in boxes), 10), s.events("unit.end"))
        c.redis.kill()
        time.sleep(1)
        c.redis.start()
        c.await_answer()
        time.sleep(3)
        s.die()
        time.sleep(1)
        equal("nobody tells them again", [s.ends(b) for b in boxes], [[0]] * 3)


@suite.scenario
def a_later_scheduler_knows_what_runs_and_since_when(c):
    with Scene(c, "since") as s:
        box = Box(s.client)
        job = s.client.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(template="base", command=command("true")))).job_id

        def status():
            return s.client.jobs.Get(pb.GetRequest(job_id=job)).job
        check("both run", until(lambda: status().state == RUNNING, 10) and box.is_in(RUNNING), status())
        before, vms = status().started.unix_ns, {e["unit"]: e["vm"] for e in s.events("vm.start")}
        began = time.monotonic()
        time.sleep(2)
        s.die()
        check("it knows when the job began", abs(status().started.unix_ns - before) < 10**9, (status().started.unix_ns, before))
        for unit_id in (box.id, job):
            s.w.end(unit_id, pb.OUTCOME_FAILED, pb.REASON_VM_DIED)
        check("both end", box.is_in(ENDED, 10) and until(lambda: status().state == ENDED, 10), status())
        check("… as begun then", abs(status().started.unix_ns - before) < 10**9, (status().started.unix_ns, before))
        ends = until(lambda: (rows := {e["unit"]: e for e in s.events("vm.end")}) and len(rows) == 2 and rows, 10)
        equal("the log has the end of each VM that began", ends and {unit: e["vm"] for unit, e in ends.items()}, vms)
        lasted = (time.monotonic() - began) * 1000
        check("… and how long it was there", ends and all(1900 < e["wall_ms"] < lasted + 1000 for e in ends.values()), ends)
        equal("one end of each", (s.ends(box), len([e for e in s.events("unit.end") if e["unit"] == job])), ([0], 1))


if __name__ == "__main__":
    suite.main(cluster=Cluster)
