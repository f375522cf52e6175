#!/usr/bin/env python3
"""Paused sandboxes whose images outlive their worker's process: what the scheduler and its books do while that is away."""
import signal
import threading
import time

import pause
from made_up_worker import Cluster, pb, until, wpb
from harness import MIB, SECOND, Suite, code_of, error_of
from pause import NO_ROOM, Box

suite = Suite("kept")
check, equal = suite.check, suite.equal
pause.equal = equal
TTL, DAY = 3, 24 * 3600
LONG = 2.5 * TTL  # nothing that needs renewals is left after that
PAUSED, RUNNING, ENDED = pb.UNIT_STATE_PAUSED, pb.UNIT_STATE_RUNNING, pb.UNIT_STATE_ENDED


def in_seconds(seconds):
    return time.time_ns() + int(seconds * SECOND)


def kept(m):
    return wpb.ExecAnswer(image_bytes=300 * MIB, kept=True, expires=pb.Time(unix_ns=time.time_ns() + m.pause.keep_ns))


class Scene(pause.Scene):
    """Its worker keeps what it pauses, unless `kept` says other, and renews its leases while it is connected."""

    def __init__(self, c, name, **limits):
        super().__init__(c, name, **{"vcpu_milli": 64000, "memory_mib": 65536, "sandboxes": 32, "disk_mib": 65536, **limits})
        self.w.answers["pause"] = kept
        self.w.keep_renewing(TTL / 10)

    def paused(self, **kw):
        box = Box(self.client)
        box.pause(**kw)
        return box

    def paused_and_not_kept(self):
        self.w.answers["pause"] = wpb.ExecAnswer(image_bytes=300 * MIB, expires=pb.Time(unix_ns=in_seconds(DAY)))
        box = self.paused()
        self.w.answers["pause"] = kept
        return box

    def breaks_off(self, kind, call, rests):
        """Its session breaks before it has answered, and it comes back with what it did."""
        before, self.w.answers[kind] = self.w.answers[kind], None
        n = len(self.w.asked_for(kind)) + 1
        thread = threading.Thread(target=lambda: error_of(call))
        thread.start()
        check(f"its worker is asked to {kind}", self.w.is_asked(kind, n))
        unit_id = self.w.asked_for(kind)[-1].unit_id
        self.w.rest(unit_id, rests, 300 * MIB, kept_until=in_seconds(DAY))
        self.w.disconnect()
        thread.join()
        self.w.answers[kind] = before
        self.w.connect()
        check("its worker says so", self.w.is_renewed())

    def is_ended(self, box, outcome, reason):
        check(f"{outcome.lower()}", box.is_in(ENDED, 30), box.get())
        equal("… for the reason", box.get().reason, reason)
        check("… as the log has it", self.has_event("unit.end", unit=box.id, outcome=outcome), self.events("unit.end"))


def refused_away(what, call):
    err = error_of(call)
    told = code_of(err) == "UNAVAILABLE" and "not connected" in err.details() and "when that is back" in err.details()
    check(f"{what} is refused, with cause and remedy", told, err)


@suite.scenario
def it_is_there_as_long_as_its_worker_is_away(c):
    with Scene(c, "away") as s:
        box, idle = s.paused(), s.asleep()
        rests, plain = s.held(), s.paused_and_not_kept()
        s.w.disconnect()
        left = time.monotonic()
        s.is_ended(plain, "FAILED", pb.REASON_WORKER_LOST)
        check("what is not kept held nothing on", until(lambda: s.held() == rests, 5), s.held())
        time.sleep(max(0, left + LONG - time.monotonic()))
        equal("what is kept is paused", (box.get().state, idle.get().state), (PAUSED, PAUSED))
        equal("List has it", {r.id for r in s.client.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes}, {box.id, idle.id})
        refused_away("Resume", box.resume)
        refused_away("a command", box.start)
        refused_away("a use that would wake it", idle.stat)
        refused_away("Extend", lambda: box.client.sandboxes.Extend(pb.ExtendRequest(sandbox_id=box.id, ttl_ns=60 * SECOND)))
        equal("nothing was taken for that", s.held(), rests)
        equal("… and it is as paused as before", (box.get().state, idle.get().state), (PAUSED, PAUSED))
        s.w.connect()
        equal("with its worker it is resumed", (box.resume().was_paused, box.get().state), (True, RUNNING))
        equal("… and woken by use", (idle.stat(), idle.get().state), ("made up", RUNNING))
        equal("they hold what they need", s.held().get("sandboxes"), 2)
        equal("the books show no drift", s.drift(), 0)
        s.w.disconnect()
        for lost in (box, idle):  # a day is more than any of these limits
            s.is_ended(lost, "FAILED", pb.REASON_WORKER_LOST)
        equal("nothing is held on", until(lambda: not s.held(), 5), True)
        equal("the books show no drift", s.drift(), 0)
        s.w.connect()
        check("the worker is told", until(lambda: not s.w.units, 10), s.w.units)


@suite.scenario
def whatever_happened_before_it_is_kept(c):
    with Scene(c, "before") as s:
        def short(m):
            return wpb.ExecAnswer(image_bytes=300 * MIB, kept=True, expires=pb.Time(unix_ns=in_seconds(1)))
        boxes, gone = {}, {}
        boxes["resumed and paused again"] = box = s.paused()
        box.resume()
        box.pause()
        boxes["not resumed by its worker"] = box = s.paused()
        before, s.w.answers["resume"] = s.w.answers["resume"], NO_ROOM
        equal("its worker refuses", code_of(error_of(box.resume)), "UNAVAILABLE")
        s.w.answers["resume"] = before
        boxes["kept, as a renewal says"] = box = s.paused_and_not_kept()
        s.w.rest(box.id, True, 300 * MIB, kept_until=in_seconds(DAY))
        check("its worker says so", s.w.is_renewed())
        boxes["kept for longer, as a renewal says"] = box = Box(s.client)
        s.w.answers["pause"] = short
        box.pause()
        s.w.rest(box.id, True, 300 * MIB, kept_until=in_seconds(DAY))
        check("its worker says so", s.w.is_renewed())
        s.w.answers["pause"] = kept
        boxes["paused as its session broke"] = box = Box(s.client)
        s.breaks_off("pause", box.pause, True)
        boxes["not resumed as its session broke"] = box = s.paused()
        s.breaks_off("resume", box.resume, True)
        gone["resumed, and paused again without being kept"] = box = s.paused()
        box.resume()
        s.w.answers["pause"] = wpb.ExecAnswer(image_bytes=300 * MIB)
        box.pause()
        s.w.answers["pause"] = kept
        gone["resumed as its session broke"] = box = s.paused()
        s.breaks_off("resume", box.resume, False)
        check("… and running", box.is_in(RUNNING), box.get())
        for what, box in boxes.items():
            check(f"{what}: paused", box.is_in(PAUSED), box.get())
        s.w.answers["pause"] = short
        boxes["idle, then paused by a client for longer"] = box = s.asleep()
        s.w.answers["pause"] = kept
        s.w.renew = lambda: None  # it is its answer that counts
        box.pause()
        s.w.disconnect()
        del s.w.renew
        time.sleep(LONG)
        for what, box in boxes.items():
            equal(f"{what}: paused long after", box.get().state, PAUSED)
        for what, box in gone.items():
            check(f"{what}: ended", box.is_in(ENDED, 30), box.get())
        s.w.connect()
        for what, box in boxes.items():
            equal(f"{what}: resumed", error_of(box.resume), None)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def it_is_killed_at_once(c):
    with Scene(c, "killed") as s:
        box, plain, idle = s.paused(), s.paused_and_not_kept(), s.asleep()
        leases = {s.w.units[b.id].lease_id for b in (box, plain, idle)}
        check("the images hold disk", s.held().get("disk_mib", 0) >= 900, s.held())
        s.w.disconnect()
        for b in (box, plain, idle):
            b.kill()
            equal("it has ended when Kill answers", (b.get().state, b.get().reason), (ENDED, pb.REASON_REQUESTED))
            check("… as cancelled", s.has_event("unit.end", unit=b.id, outcome="CANCELLED"), s.events("unit.end"))
        equal("nothing is held any more", s.held(), {})
        equal("it cannot be resumed", code_of(error_of(box.resume)), "NOT_FOUND")
        s.w.connect()
        check("the worker that names them is told", until(lambda: not s.w.units, 10), s.w.units)
        equal("… that they are lost", set(s.w.lost), leases)
        check("… and its reports are acknowledged", until(lambda: leases <= set(s.w.acked), 10), s.w.acked)
        equal("each ended once", len(s.events("unit.end")), 3)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def what_its_worker_did_not_end_before_it_left_is_ended(c):
    with Scene(c, "not-heard") as s:
        first, second = s.paused(), s.paused()
        s.w._on_end = lambda m: s.w.ends.append(m)
        for n, box in enumerate((first, second), 1):
            equal("it is not ended yet", code_of(error_of(box.client.sandboxes.Kill, pb.KillRequest(sandbox_id=box.id), timeout=1)), "DEADLINE_EXCEEDED")
            check("its worker is told", until(lambda n=n: len(s.w.ends) == n, 5), s.w.ends)
            if box is first:
                s.w.disconnect()
                s.is_ended(first, "CANCELLED", pb.REASON_REQUESTED)
                s.w.connect()
        c.scheduler.kill()
        s.w.disconnect()
        c.scheduler.start()
        check("it answers", c.await_answer())
        s.is_ended(second, "CANCELLED", pb.REASON_REQUESTED)
        del s.w._on_end
        s.w.connect()


@suite.scenario
def a_worker_that_comes_back_without_it_has_lost_it(c):
    with Scene(c, "lost") as s:
        box, other = s.paused(), s.paused()
        s.w.disconnect()
        del s.w.units[box.id]
        s.w.connect()
        s.is_ended(box, "FAILED", pb.REASON_WORKER_LOST)
        equal("the other one is there", other.get().state, PAUSED)
        check("its disk is free", until(lambda: s.held().get("disk_mib", 0) < 900, 5), s.held())
        equal("… and goes on", other.resume().was_paused, True)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def a_worker_that_never_comes_back_loses_it_when_it_expires(c):
    with Scene(c, "never") as s:
        box, other = s.paused(keep_ns=2 * SECOND), s.paused()
        s.w.disconnect()
        s.is_ended(box, "FAILED", pb.REASON_WORKER_LOST)
        equal("one that does not expire yet is there", other.get().state, PAUSED)
        s.w.connect()


@suite.scenario
def a_scheduler_that_starts_again_knows_it(c):
    with Scene(c, "again") as s:
        box, other = s.paused(), s.paused()
        rests = s.held()
        s.w.disconnect()
        c.scheduler.kill()
        c.scheduler.start()
        check("it answers", c.await_answer())
        time.sleep(LONG)
        equal("it is paused", (box.get().state, other.get().state), (PAUSED, PAUSED))
        refused_away("Resume", box.resume)
        equal("it holds what it held", s.held(), rests)
        s.w.connect()
        check("its worker says that it is kept", s.w.is_renewed())
        s.w.answers["resume"] = NO_ROOM
        equal("its worker refuses", code_of(error_of(other.resume)), "UNAVAILABLE")
        s.w.answers["resume"] = wpb.ExecAnswer()
        s.w.disconnect()
        time.sleep(LONG)
        equal("it is paused, as long as that is away", (box.get().state, other.get().state), (PAUSED, PAUSED))
        other.kill()
        equal("it is killed as well", other.get().state, ENDED)
        s.w.connect()
        equal("it goes on", box.resume().was_paused, True)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def what_only_its_workers_stop_paused_goes_on(c):
    with Scene(c, "goeson") as s:
        box, wanted = s.paused(), s.paused()
        rests = s.held()
        s.w.disconnect()
        c.scheduler.kill()
        c.scheduler.start()
        check("it answers", c.await_answer())
        s.w.units[box.id].goes_on = True
        s.w.quiet = True
        s.w.connect()
        check("a new scheduler resumes it by its worker's first word", s.w.is_asked("resume") and box.is_in(RUNNING), box.get())
        check("… and it holds again what it needs", s.held() != rests and s.drift() == 0, s.held())
        check("… which the log has", s.has_event("unit.resume", unit=box.id, by="worker"), s.events("unit.resume"))
        equal("the other rests", wanted.get().state, PAUSED)
        s.w.quiet = False
        s.w.disconnect()
        equal("a client wants it to rest while its worker is away", error_of(wanted.pause), None)
        s.w.units[wanted.id].goes_on = True
        s.w.connect()
        check("its worker says that it goes on", s.w.is_renewed() and s.w.is_renewed())
        equal("but the client's word counts", (wanted.get().state, len(s.w.asked_for("resume"))), (PAUSED, 1))


@suite.long_scenario
def books_that_are_away_hear_of_its_end_later(c):
    with Scene(c, "later") as s:
        box = s.paused()
        c.redis.signal(signal.SIGSTOP)
        s.w.end(box.id, pb.OUTCOME_CANCELLED, pb.REASON_REQUESTED)  # said once
        time.sleep(20)  # a call of the books fails after 15 s
        c.redis.signal(signal.SIGCONT)
        check("the scheduler answers", c.await_answer())
        s.is_ended(box, "CANCELLED", pb.REASON_REQUESTED)
        equal("nothing is held any more", until(lambda: not s.held(), 5), True)


if __name__ == "__main__":
    suite.main(cluster=Cluster, lease=(f"{TTL}s", f"{TTL // 3}s", f"{TTL - 1}s"))
