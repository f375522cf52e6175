#!/usr/bin/env python3
"""Snapshots as the scheduler and its books do them: their names, what they hold, and whatever their worker answers."""
import signal
import threading
import time

from made_up_worker import Cluster, Worker, pb, until, wpb
from harness import MIB, SECOND, Suite, code_of, command, error_of

suite = Suite("snapshot")
check, equal = suite.check, suite.equal
LIMITS = {"vcpu_milli": 64000, "memory_mib": 65536, "sandboxes": 16, "disk_mib": 65536}


def refused(call, *args, **kw):
    err = error_of(call, *args, **kw)
    return (code_of(err), err.details() if err else "")


class Scene:
    """A tenant of the scenario's own with a sandbox on a worker of its own, which starts what it is told when the test says so."""

    def __init__(self, c, name, worker=None, **limits):
        self.c, self.name = c, name
        self.client = c.tenant(name, scopes=("run", "read"), **{**LIMITS, **limits})
        self.worker = Worker(c, **{"slots": 8, "capacity_vcpu_milli": 8000, "capacity_memory_mib": 8192, **(worker or {})})
        self.worker.keep_renewing(1)
        self.box = self.create(template="base")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.worker.refuses.clear()
        for m in self.client.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
            error_of(self.client.sandboxes.Kill, pb.KillRequest(sandbox_id=m.id))
        for m in self.listed():
            error_of(self.delete, m.id)
        equal(f"{self.name}: nothing is held at the end", until(lambda: not self.held(), 5) or self.held(), True)
        self.worker.disconnect()

    def held(self):
        return self.c.held().get(self.name, {})

    def create(self, timeout=20, **kw):
        return self.client.sandboxes.Create(pb.CreateRequest(ttl_ns=300 * SECOND, **kw), timeout=timeout).sandbox.id

    def keep(self, name="", timeout=20, **kw):
        return self.client.snapshots.Create(pb.SnapshotServiceCreateRequest(sandbox_id=self.box, name=name, **kw), timeout=timeout).snapshot

    def get(self, word):
        return self.client.snapshots.Get(pb.SnapshotServiceGetRequest(snapshot=word)).snapshot

    def delete(self, word):
        self.client.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=word), timeout=20)

    def listed(self, **kw):
        return self.client.snapshots.List(pb.SnapshotServiceListRequest(**kw)).snapshots

    def in_flight(self, *names, **kw):
        """Calls that keep the sandbox, and what their worker was told, none of it whole yet."""
        self.worker.refuses[self.box] = "silence"
        at, calls = len(self.worker.assigned), []
        for name in names:
            call = Call(self.keep, name, **kw)
            until(lambda: len(self.worker.assigned) > at + len(calls), 10)
            calls.append(call)
        self.worker.refuses.clear()
        return calls, self.worker.assigned[at:]


class Call(threading.Thread):
    def __init__(self, fn, *args, **kw):
        super().__init__(daemon=True)
        self.answer, self.error, self.run_it = None, None, lambda: fn(*args, **kw)
        self.start()

    def run(self):
        try:
            self.answer = self.run_it()
        except Exception as e:  # pylint: disable=broad-except
            self.error = e

    def outcome(self):
        self.join(20)
        return code_of(self.error) if self.error else "OK"


@suite.scenario
def what_it_holds(c):
    with Scene(c, "holds") as s:
        before = s.held()
        s.worker.image_bytes = 10 * MIB + 1
        snap = s.keep("ready", keep_ns=3600 * SECOND)
        assign = s.worker.assigned[-1]
        equal("its worker is told of what to make it, and for how long", (assign.kind, assign.fork_of, assign.ttl_ns), (wpb.UNIT_KIND_SNAPSHOT, s.box, 3600 * SECOND))
        first = s.worker.assigned[0]
        equal("… and how large it is", (assign.resources.vcpus, assign.resources.memory_mib), (first.resources.vcpus, first.resources.memory_mib))
        equal("it holds its image, and nothing else", {k: v - before.get(k, 0) for k, v in s.held().items() if v != before.get(k, 0)}, {"disk_mib": 11})
        other = s.create(snapshot="ready")
        made = s.worker.assigned[-1]
        equal("what begins with it is a copy of it", (made.kind, made.fork_of, made.template), (wpb.UNIT_KIND_SANDBOX, snap.id, "base"))
        equal("… with room of its own", s.held()["sandboxes"], 2)
        job = s.client.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(snapshot=snap.id, command=command("true")))).job_id
        check("a job, too", until(lambda: s.worker.assigned[-1].unit_id == job, 10) and s.worker.assigned[-1].fork_of == snap.id, s.worker.assigned[-1])
        s.worker.end(job, pb.OUTCOME_EXITED, pb.REASON_UNSPECIFIED)
        check("it says so", s.client.jobs.Get(pb.GetRequest(job_id=job)).job.spec.snapshot == snap.id)
        s.client.sandboxes.Kill(pb.KillRequest(sandbox_id=other))
        (worker,) = [w for w in c.admin.fleet.ListWorkers(pb.ListWorkersRequest()).workers if w.id == s.worker.id]
        equal("its worker has one", (worker.sandboxes, worker.snapshots), (1, 1))


@suite.scenario
def who_is_called_what(c):
    with Scene(c, "names") as s:
        (first, second), told = s.in_flight("x", "x")
        s.worker.start(told[1])
        equal("of two at once the first that is whole has the name", (second.outcome(), s.get("x").id), ("OK", told[1].unit_id))
        s.worker.start(told[0])
        equal("… and the other is refused", first.outcome(), "ALREADY_EXISTS")
        check("… and ended", until(lambda: s.get(told[0].unit_id).state == pb.UNIT_STATE_ENDED, 10))
        old = s.get("x").id
        (call,), (told,) = s.in_flight("x", replace=True)
        equal("one that replaces has no name until it is whole", s.get("x").id, old)
        s.worker.end(told.unit_id, pb.OUTCOME_FAILED, pb.REASON_START_FAILED, "its disk is full")
        equal("when it fails", call.outcome(), "UNAVAILABLE")
        equal("… all is as before", (s.get("x").id, s.get(old).state), (old, pb.UNIT_STATE_PAUSED))
        new = s.keep("x", replace=True)
        check("else the old one ends", s.get("x").id == new.id and until(lambda: s.get(old).state == pb.UNIT_STATE_ENDED, 10))
        equal("… and what ended has no name", s.get(old).name, "")
        s.worker.answers_ends = False
        gone = s.keep("z")
        away = Call(s.delete, gone.id)
        check("one that is to end is not called that any more", until(lambda: refused(s.get, "z")[0] == "NOT_FOUND", 10) and s.worker.units.get(gone.id))
        equal("… so another one may be", s.keep("z").name, "z")
        s.worker.answers_ends = True
        s.worker.end(gone.id, pb.OUTCOME_CANCELLED, pb.REASON_REQUESTED)
        equal("… and still is when that has ended", (away.outcome(), s.get("z").state), ("OK", pb.UNIT_STATE_PAUSED))
        third = s.keep("y")
        s.worker.end(third.id, pb.OUTCOME_FAILED, pb.REASON_WORKER_LOST, "gone")
        check("the name of one that is lost is free", until(lambda: refused(s.get, "y")[0] == "NOT_FOUND", 10))
        s.c.scheduler.signal(signal.SIGKILL)
        s.c.scheduler.stop()
        s.worker.disconnect()
        s.c.scheduler.start()
        s.c.await_answer()
        s.worker.connect()
        equal("the next scheduler knows it", s.get("x").id, new.id)
        check("… and where it is", until(lambda: refused(s.create, snapshot="x")[0] == "OK", 20))


@suite.scenario
def a_scheduler_that_dies_in_between(c):
    with Scene(c, "dies") as s:
        (call,), (told,) = s.in_flight("x")
        s.c.scheduler.signal(signal.SIGKILL)
        s.c.scheduler.stop()
        s.worker.disconnect()
        s.worker.rest(told.unit_id, True, MIB, kept_until=time.time_ns() + told.ttl_ns)
        equal("who asked is cut off", call.outcome(), "UNAVAILABLE")
        s.c.scheduler.start()
        s.c.await_answer()
        s.worker.connect()
        s.worker.send(started=wpb.UnitStarted(lease_id=told.lease_id, fence=told.fence, vm="vm", driver="none", rest=s.worker.units[told.unit_id]))
        check("what was made meanwhile is there, with its name", until(lambda: refused(s.get, "x")[0] == "OK", 20) and s.get("x").id == told.unit_id, s.listed())
        equal("… and holds what it takes", s.held().get("disk_mib"), 513)


@suite.scenario
def whatever_the_worker_answers(c):
    with Scene(c, "answers", disk_mib=600) as s:
        for what, refusal, want in (
                ("refuses", wpb.AssignAnswer(refused="no room on the disk"), "no room on the disk"),
                ("refuses for good", wpb.AssignAnswer(refused="what is a snapshot", permanent=True), "what is a snapshot"),
                ("fails", wpb.UnitEnded(result=pb.ExecResult(outcome=pb.OUTCOME_FAILED, reason=pb.REASON_START_FAILED, message="its agent is older")), "its agent is older")):
            s.worker.refuses[s.box] = refusal
            at = len(s.worker.assigned)
            code, text = refused(s.keep, "x")
            check(f"a worker that {what} is heard", code == "UNAVAILABLE" and want in text, (code, text))
            equal("… and asked once", len(s.worker.assigned) - at, 1)
        s.worker.refuses[s.box] = "silence"
        equal("one that never answers is given up with the call", refused(s.keep, "x", timeout=1)[0], "DEADLINE_EXCEEDED")
        check("… and so is what it makes", until(lambda: len(s.worker.ends) == 1, 10))
        s.worker.refuses.clear()
        s.worker.image_bytes = 200 * MIB
        code, text = refused(s.keep, "x")
        check("what the quota has no room for is refused, and ends", code == "RESOURCE_EXHAUSTED" and "disk" in text and until(lambda: len(s.worker.ends) == 2, 10), (code, text))
        equal("… and its name is free", refused(s.get, "x")[0], "NOT_FOUND")
        s.worker.image_bytes = 10 * MIB
        equal("a smaller one is kept", s.keep("x").name, "x")
        s.worker.snapshots = False
        s.worker.disconnect()
        s.worker.connect()
        check("a worker that knows none is not asked", until(lambda: refused(s.keep)[0] == "UNIMPLEMENTED", 5))
        s.worker.snapshots = True
        s.worker.disconnect()
        s.worker.connect()
        until(lambda: refused(s.get, "x")[0] == "OK", 5)


@suite.scenario
def a_full_worker(c):
    with Scene(c, "full", worker={"slots": 1}) as s:
        s.keep("x")
        code, text = refused(s.create, snapshot="x")
        check("a worker without room for a VM keeps a sandbox, and starts none", code == "UNAVAILABLE" and "no room" in text, (code, text))
        s.worker.load.used_slots = 1
        s.worker.send(load=s.worker.load)
        late = Call(s.create, snapshot="x")
        time.sleep(0.3)
        s.client.sandboxes.Kill(pb.KillRequest(sandbox_id=s.box))
        s.worker.load.used_slots = 0
        s.worker.send(load=s.worker.load)
        equal("what it says of its room may be late by a moment", late.outcome(), "OK")
        s.box = late.answer
        s.worker.load.used_slots = 1
        s.worker.send(load=s.worker.load)
        job = s.client.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(snapshot="x", command=command("true")))).job_id
        time.sleep(1)
        equal("a job waits", s.client.jobs.Get(pb.GetRequest(job_id=job)).job.state, pb.UNIT_STATE_QUEUED)
        second = Worker(c, worker_id="wrk_" + 26 * "1")
        other = s.create(template="base")
        equal("… and holds up nobody", [a.unit_id for a in second.assigned], [other])
        s.client.sandboxes.Kill(pb.KillRequest(sandbox_id=s.box))
        s.worker.load.used_slots = 0
        s.worker.send(load=s.worker.load)
        check("… until there is room", until(lambda: s.worker.assigned[-1].unit_id == job, 10), s.worker.assigned[-1])
        s.worker.end(job, pb.OUTCOME_EXITED, pb.REASON_UNSPECIFIED)
        s.worker.load.used_slots = 1
        s.worker.send(load=s.worker.load)
        time.sleep(0.5)
        late = s.client.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(snapshot="x", command=command("true")))).job_id
        s.delete("x")
        check("one whose snapshot has ended ends, and says why",
              until(lambda: s.client.jobs.Get(pb.GetRequest(job_id=late)).job.state == pb.UNIT_STATE_ENDED, 10)
              and "has not got it" in s.client.jobs.Get(pb.GetRequest(job_id=late)).job.result.message, s.client.jobs.Get(pb.GetRequest(job_id=late)).job)
        s.client.sandboxes.Kill(pb.KillRequest(sandbox_id=other))
        second.disconnect()


if __name__ == "__main__":
    suite.main(cluster=Cluster)
