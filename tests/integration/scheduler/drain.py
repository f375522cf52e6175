#!/usr/bin/env python3
"""Workers that are drained: what the scheduler and its books do with what is on them, whatever the workers answer and whoever leaves in between."""
import concurrent.futures
import queue
import threading
import time

import pause
from made_up_worker import Cluster, Worker, grpc, pb, until, wpb
from harness import MIB, Suite, code_of, error_of
from pause import NO_ROOM, Box

suite = Suite("drain")
check, equal = suite.check, suite.equal
pause.equal = equal
A, B, C = ("wrk_" + 26 * letter for letter in "0bc")
PAUSED, RUNNING, ENDED = pb.UNIT_STATE_PAUSED, pb.UNIT_STATE_RUNNING, pb.UNIT_STATE_ENDED
PIECES = [b"x" * 60000] * 40
TEMPLATE = wpb.WorkerTemplate(name="base", driver="none")


class Mover(Worker):
    """It pauses, is drained, gives and takes; `breaks[what]` is called instead of what it does then."""

    def __init__(self, cluster, worker_id=A, minor=4, **load):
        self.breaks, self.staged, self.relays = {}, {}, []
        super().__init__(cluster, minor=minor, worker_id=worker_id, templates=load.pop("templates", [TEMPLATE]), **load)
        self.answers["pause"] = lambda m: wpb.ExecAnswer(image_bytes=300 * MIB, kept=True, expires=pb.Time(unix_ns=time.time_ns() + m.pause.keep_ns))
        self.answers["drain"] = self.drain

    def drain(self, m):
        self.load.draining, self.load.closed = not m.drain.undo, "" if m.drain.undo else "it is being drained"
        self.send(load=self.load)
        return wpb.ExecAnswer()

    def rest(self, unit_id, paused, *rest):
        super().rest(unit_id, paused, *rest)
        goes_on = [m.pause.goes_on for m in self.asked_for("pause") if m.unit_id == unit_id][-1:]
        self.units[unit_id].goes_on = paused and goes_on == [True]

    def _relay(self, m):
        what = m.WhichOneof("what")
        if what not in ("give", "take"):
            super()._relay(m)
            return
        out = queue.Queue()
        call = self.channel.stream_stream("/cloche.v1.WorkerService/Relay", request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=wpb.RelayResponse.FromString)(iter(out.get, None))

        def say(**kw):
            out.put(wpb.RelayRequest(**kw))
        say(relay_id=m.relay_id)
        self.relays.append(call)
        try:
            done = self.breaks[what](m, call, say) if what in self.breaks else getattr(self, f"_{what}")(m, call, say)
            if done:
                say(done=done)
            out.put(None)
            for _ in call:
                pass
        except grpc.RpcError:
            pass

    def _give(self, m, call, say):
        u = self.units.get(m.unit_id)
        if not u or not u.paused or (u.lease_id, u.fence) != (m.give.lease_id, m.give.fence):
            return wpb.RelayDone(code=5, message="no such unit here")
        say(move=wpb.MovePiece(record=u.SerializeToString()))
        for answer in call:
            for name in answer.missing.names:
                say(move=wpb.MovePiece(file=wpb.MoveFile(name=name, bytes=sum(map(len, PIECES)))))
                for i, piece in enumerate(PIECES):
                    say(move=wpb.MovePiece(data=wpb.MoveData(offset=i * len(piece), data=piece)))
            if answer.HasField("missing"):
                say(move=wpb.MovePiece(end=True))
            if answer.moved:
                self.units.pop(m.unit_id, None)
                return wpb.RelayDone()
        return None

    def _take(self, m, call, say):
        u, got = None, bytearray()
        for answer in call:
            what = answer.move.WhichOneof("what")
            if what == "record":
                u = wpb.RunningUnit.FromString(answer.move.record)
                u.lease_id, u.fence = m.take.assign.lease_id, m.take.assign.fence
                say(missing=wpb.MoveMissing(names=["image"]))
            got += answer.move.data.data
            if what == "end":
                equal("what is taken is what was given", bytes(got), b"".join(PIECES))
                self.staged[u.unit_id] = u
                say(taken=True)
            if answer.moved:
                self.units[u.unit_id] = self.staged.pop(u.unit_id)
                return wpb.RelayDone()
        return None


class Scene(pause.Scene):
    def __init__(self, c, name, others=(B,), **kw):
        super().__init__(c, name, **{"vcpu_milli": 64000, "memory_mib": 65536, "sandboxes": 32, "disk_mib": 65536})
        self.w.disconnect()
        self.w = Mover(c, **kw)
        self.w.keep_renewing(1)
        self.others = []
        self.late = others

    def __enter__(self):
        return self

    def more(self):
        """The others come now: what was created before is not on them."""
        for worker_id in self.late:
            w = Mover(self.c, worker_id)
            w.keep_renewing(1)
            self.others.append(w)
        return self.others

    def __exit__(self, *exc):
        for w in self.others:
            for unit_id in list(w.units):
                error_of(self.client.sandboxes.Kill, pb.KillRequest(sandbox_id=unit_id))
            until(lambda: not w.units, 5)
        super().__exit__(*exc)
        for w in self.others:
            w.disconnect()

    def drain(self, worker_id=A, **kw):
        return self.c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=worker_id, **kw), timeout=20).worker

    def drain_slowly(self):
        """It gives nothing away before the event that is returned."""
        go = threading.Event()

        def give(m, call, say):
            go.wait(20)
            return Mover._give(self.w, m, call, say)
        self.w.breaks["give"] = give
        self.drain()
        return go

    def row(self, worker_id=A):
        return next((w for w in self.c.admin.fleet.ListWorkers(pb.ListWorkersRequest()).workers if w.id == worker_id), None)

    def is_at(self, box, w, state, seconds=10):
        return until(lambda: box.id in w.units and (box.get().worker_id, box.get().state) == (w.id, state), seconds)


@suite.scenario
def what_runs_goes_on_elsewhere_and_what_rests_rests_there(c):
    with Scene(c, "all") as s:
        runs, rests, idle = Box(s.client), Box(s.client), s.asleep()
        rests.pause()
        until(lambda: len(s.w.units) == 3, 5)
        held, fences = s.held(), {u.unit_id: u.fence for u in s.w.units.values()}
        equal("the row says what is there", (s.row().jobs, s.row().sandboxes, s.row().draining), (0, 3, False))
        b, = s.more()
        row = s.drain()
        equal("the answer says it", (row.id, row.draining, row.sandboxes), (A, True, 3))
        check("what ran runs on the other worker", s.is_at(runs, b, RUNNING), runs.get())
        check("what was paused is paused there", s.is_at(rests, b, PAUSED) and s.is_at(idle, b, PAUSED), (rests.get(), idle.get()))
        equal("nothing is left", (s.w.units, s.row().sandboxes, s.row().drain_trouble), ({}, 0, ""))
        equal("each has a lease of its own, with the fence that follows", {u.unit_id: u.fence for u in b.units.values()}, {k: v + 1 for k, v in fences.items()})
        equal("they hold what they held", s.held(), held)
        equal("the books show no drift", s.drift(), 0)
        check("its worker renews", b.is_renewed() and b.lost == [], b.lost)
        equal("it was paused for that, to go on", [(m.unit_id, m.pause.goes_on) for m in s.w.asked_for("pause")][-1], (runs.id, True))
        check("the log says so", s.has_event("unit.pause", unit=runs.id, by="drain") and s.has_event("unit.resume", unit=runs.id, by="worker"), s.events("unit.pause"))
        check("… and where each went", all(s.has_event("unit.move", unit=x.id, **{"from": A, "to": B}) for x in (runs, rests, idle)), s.events("unit.move"))
        equal("a use wakes the idle one there", (idle.stat(), idle.get().state), ("made up", RUNNING))
        equal("the paused one is resumed there", (rests.resume().was_paused, len(b.asked_for("resume"))), (True, 3))
        new = Box(s.client)
        check("new ones go elsewhere", new.id in b.units, b.units)
        check("undone, it takes work again", not s.drain(undo=True).draining and until(lambda: s.row().closed == "", 5), s.row())
        equal("and what was moved stays", len(b.units), 4)


@suite.scenario
def who_may_and_who_can(c):
    with Scene(c, "who", others=()) as s:
        equal("a tenant may not", code_of(error_of(s.client.fleet.DrainWorker, pb.DrainWorkerRequest(worker_id=A))), "PERMISSION_DENIED")
        err = error_of(s.drain, C)
        check("one that is not there cannot be", code_of(err) == "UNAVAILABLE" and "no worker" in err.details(), err)
        old = Mover(c, C, minor=3)
        err = error_of(s.drain, C)
        check("an older release cannot be", code_of(err) == "UNIMPLEMENTED" and "upgrade" in err.details(), err)
        old.disconnect()
        s.w.answers["drain"] = wpb.ExecAnswer(code=14, message="no space left on device")
        err = error_of(s.drain)
        check("one that cannot remember it is not", code_of(err) == "UNAVAILABLE" and "no space" in err.details() and not s.row().draining, err)
        s.w.answers["drain"] = s.w.drain
        box = Box(s.client)
        s.drain()
        check("without another worker it stays, and the row says why", until(lambda: "no other worker" in s.row().drain_trouble, 5), s.row())
        equal("… and was not paused for that", (s.w.asked_for("pause"), box.get().state), ([], RUNNING))
        misfits = [Mover(c, B, templates=[wpb.WorkerTemplate(name="base", driver="another")]), Mover(c, C, minor=3)]
        time.sleep(12)
        equal("nor with one of another driver, or of an older release", (s.w.asked_for("pause"), box.get().worker_id), ([], A))
        for w in misfits:
            w.disconnect()
        b = Mover(c, B)
        s.others.append(b)
        check("one that comes later gets it", s.is_at(box, b, RUNNING, 30), box.get())
        equal("… and nothing is in the way any more", s.row().drain_trouble, "")
        equal("the trouble is over", s.drain(undo=True).drain_trouble, "")


@suite.scenario
def a_worker_that_refuses_is_not_the_last(c):
    with Scene(c, "refused", others=(B, C)) as s:
        box = Box(s.client)
        b, c_ = s.more()
        b.breaks["take"] = c_.breaks["take"] = lambda m, call, say: wpb.RelayDone(code=14, message="another processor")
        s.drain()
        check("both are asked", until(lambda: b.opened and c_.opened, 10), (b.opened, c_.opened))
        check("it goes on where it was", until(lambda: s.w.asked_for("resume") and box.get().state == RUNNING, 10), box.get())
        check("the row says why", until(lambda: "another processor" in s.row().drain_trouble, 5), s.row())
        equal("it is not paused again soon", (time.sleep(4), len(s.w.asked_for("pause")))[1], 1)
        other = Box(s.client)
        check("new ones go to the others", other.id not in s.w.units, s.w.units)
        del c_.breaks["take"]
        rest = s.drain(undo=True) and Box(s.client)
        equal("undone, it stays", (rest.get().state, box.get().worker_id), (RUNNING, A))


@suite.scenario
def calls_wait_until_it_is_there(c):
    with Scene(c, "calls") as s:
        runs, rests = Box(s.client), Box(s.client)
        rests.pause()
        b, = s.more()
        go = s.drain_slowly()
        check("both are on their way", until(lambda: len(s.w.opened) == 2, 10), s.w.opened)
        pool = concurrent.futures.ThreadPoolExecutor(2)
        use, resume = pool.submit(runs.stat), pool.submit(lambda: rests.resume().sandbox.worker_id)
        equal("Pause is refused meanwhile", code_of(error_of(runs.pause)), "UNAVAILABLE")
        equal("they wait", (time.sleep(1), use.done(), resume.done())[1:], (False, False))
        go.set()
        equal("and are done there", (use.result(30), resume.result(30)), ("made up", B))
        equal("both run there", (s.is_at(runs, b, RUNNING), s.is_at(rests, b, RUNNING)), (True, True))
        s.drain(undo=True)


@suite.scenario
def a_giver_that_breaks_off_keeps_it(c):
    with Scene(c, "giver") as s:
        def left(m, call, say):
            say(move=wpb.MovePiece(record=s.w.units[m.unit_id].SerializeToString()))
            next(call)
            call.cancel()
        box = Box(s.client)
        b, = s.more()
        s.w.breaks["give"] = left
        s.drain()
        check("it goes on where it was", until(lambda: s.w.asked_for("resume") and box.get().state == RUNNING, 10), box.get())
        equal("the other one has nothing", (b.units, b.staged, box.get().worker_id), ({}, {}, A))
        equal("the books show no drift", s.drift(), 0)
        s.drain(undo=True)


@suite.scenario
def a_taker_that_breaks_off_when_all_is_done_has_it(c):
    with Scene(c, "taker") as s:
        box = Box(s.client)
        b, = s.more()

        def silent(m, call, say):
            for answer in call:
                what = answer.move.WhichOneof("what")
                if what == "record":
                    b.staged[m.unit_id] = u = wpb.RunningUnit.FromString(answer.move.record)
                    u.lease_id, u.fence = m.take.assign.lease_id, m.take.assign.fence
                    say(missing=wpb.MoveMissing())
                if what == "end":
                    say(taken=True)
                if answer.moved:
                    call.cancel()
        b.breaks["take"] = silent
        b.answers["resume"] = wpb.ExecAnswer(code=14, message="it does not know yet that it has it")
        s.drain()
        check("it is the one from then on", until(lambda: box.get().worker_id == B, 10), box.get())
        check("… and the other has nothing", until(lambda: not s.w.units, 5), s.w.units)
        check("what ran is not resumed before that knows", until(lambda: b.asked_for("resume"), 5) and box.get().state == PAUSED, box.get())
        b.answers["resume"] = wpb.ExecAnswer()
        b.units[box.id] = b.staged.pop(box.id)
        check("what ran goes on when it says so", s.is_at(box, b, RUNNING, 10), box.get())
        equal("its lease is not lost", (b.is_renewed(), b.lost), (True, []))
        equal("the books show no drift", s.drift(), 0)
        s.drain(undo=True)


@suite.scenario
def a_giver_that_does_not_hear_finds_out_by_its_lease(c):
    with Scene(c, "deaf") as s:
        box = Box(s.client)
        box.pause()
        b, = s.more()

        def deaf(m, call, say):
            say(move=wpb.MovePiece(record=s.w.units[m.unit_id].SerializeToString()))
            for answer in call:
                if answer.HasField("missing"):
                    for name in answer.missing.names:
                        say(move=wpb.MovePiece(file=wpb.MoveFile(name=name, bytes=2400000)))
                        for i, piece in enumerate(PIECES):
                            say(move=wpb.MovePiece(data=wpb.MoveData(offset=i * len(piece), data=piece)))
                    say(move=wpb.MovePiece(end=True))
                if answer.moved:
                    call.cancel()
        s.w.breaks["give"] = deaf
        s.drain()
        check("it is on the other worker", s.is_at(box, b, PAUSED), box.get())
        check("its renewal says that it is lost", until(lambda: s.w.lost, 10), s.w.lost)
        check("… and its word on the end changes nothing", until(lambda: s.w.acked, 10) and box.get().state == PAUSED, box.get())
        equal("it is resumed there", (box.resume().was_paused, len(b.asked_for("resume"))), (True, 1))
        for w, exec_id in ((s.w, "exec_a"), (b, "exec_b")):
            w.send(exec_changed=wpb.ExecChanged(tenant=s.name, unit_id=box.id, exec_id=exec_id, result=pb.ExecResult(outcome=pb.OUTCOME_EXITED)))
        check("its commands end when the worker that has it says so", until(lambda: s.has_event("exec.end", exec="exec_b"), 10))
        equal("… and not by the other's word", s.has_event("exec.end", exec="exec_a"), False)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def one_that_is_killed_on_its_way_ends(c):
    with Scene(c, "killed") as s:
        boxes = [Box(s.client), Box(s.client)]
        boxes[1].pause()
        b, = s.more()
        go = s.drain_slowly()
        check("both are on their way", until(lambda: len(s.w.opened) == 2, 10), s.w.opened)
        for box in boxes:
            box.kill()
        go.set()
        check("they end", all(box.is_in(ENDED, 10) for box in boxes), [box.get() for box in boxes])
        equal("nothing is anywhere", (s.w.units, b.units), ({}, {}))
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def a_drain_goes_on_after_a_restart_of_the_scheduler(c):
    with Scene(c, "again") as s:
        boxes = [Box(s.client) for _ in range(4)]
        boxes[0].pause()
        s.drain()
        check("there is nobody to take them", until(lambda: s.row().drain_trouble, 5), s.row())
        s.w.disconnect()
        c.scheduler.kill()
        c.scheduler.start()
        c.await_answer()
        s.w.connect()
        b, = s.more()
        check("the next scheduler goes on with it", all(s.is_at(box, b, RUNNING if box is not boxes[0] else PAUSED, 30) for box in boxes),
              ([str(box.get()) for box in boxes], list(b.units), s.w.lost, b.lost, s.row()))
        equal("nothing is left", (s.w.units, s.row().sandboxes), ({}, 0))
        s.drain(undo=True)


@suite.scenario
def what_there_is_no_room_for_waits(c):
    with Scene(c, "room", others=()) as s:
        runs, rests = Box(s.client), Box(s.client)
        rests.pause()
        b = Mover(c, B, slots=1, used_slots=1)
        b.keep_renewing(1)
        s.others.append(b)
        s.drain()
        check("a paused one needs none", s.is_at(rests, b, PAUSED), rests.get())
        check("one that runs waits for it", "has room for it" in until(lambda: s.row().drain_trouble, 5), s.row())
        equal("… and runs", (runs.get().state, runs.get().worker_id), (RUNNING, A))
        b.answers["resume"] = NO_ROOM
        b.load.slots = 2
        b.send(load=b.load)
        check("with room it moves", until(lambda: runs.get().worker_id == B, 30), runs.get())
        check("one that the other has no room for after all rests there", until(lambda: len(b.asked_for("resume")) > 1, 10) and runs.get().state == PAUSED, runs.get())
        b.answers["resume"] = wpb.ExecAnswer()
        check("… and goes on as soon as there is", s.is_at(runs, b, RUNNING), runs.get())
        s.drain(undo=True)


@suite.scenario
def a_place_that_comes_is_taken_at_once(c):
    """Not when the next try would be, 10 s after the last one."""
    with Scene(c, "place", others=()) as s:
        runs = Box(s.client)
        s.drain()
        check("there is no place", until(lambda: s.row().drain_trouble, 10), s.row())
        b = Mover(c, B, closed="it is not ready yet")
        b.keep_renewing(1)
        s.others.append(b)
        check("a worker that takes nothing is none", not s.is_at(runs, b, RUNNING, 1), runs.get())
        b.load.closed = ""
        b.send(load=b.load)
        check("once it takes work it has it", s.is_at(runs, b, RUNNING, 8), runs.get())
        s.drain(undo=True)


if __name__ == "__main__":
    suite.main(cluster=Cluster)
