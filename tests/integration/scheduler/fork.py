#!/usr/bin/env python3
"""Forks as the scheduler and its books do them: where they go, what they hold, and whatever their worker answers."""
import signal
import threading
import time

from made_up_worker import Cluster, Worker, pb, until, wpb
from harness import SECOND, Suite, code_of, error_of

suite = Suite("fork")
check, equal = suite.check, suite.equal
LIMITS = {"vcpu_milli": 64000, "memory_mib": 65536, "sandboxes": 16, "disk_mib": 65536}


def refused(call, *args, **kw):
    err = error_of(call, *args, **kw)
    return (code_of(err), err.details() if err else "")


class Scene:
    """A tenant of the scenario's own, and two workers: the first has the sandbox, the second has more room."""

    def __init__(self, c, name, first=None, **limits):
        self.c, self.name = c, name
        self.client = c.tenant(name, scopes=("run", "read"), **{**LIMITS, **limits})
        self.first = Worker(c, **{"slots": 8, "capacity_vcpu_milli": 8000, "capacity_memory_mib": 8192, **(first or {})})
        self.box = self.create()
        self.second = Worker(c, worker_id="wrk_" + 26 * "1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for w in (self.first, self.second):
            for unit_id in list(w.units):
                error_of(self.client.sandboxes.Kill, pb.KillRequest(sandbox_id=unit_id))
            until(lambda: not w.units, 5)
        equal(f"{self.name}: nothing is held at the end", until(lambda: not self.held(), 5) or self.held(), True)
        for w in (self.first, self.second):
            w.disconnect()

    def held(self):
        return self.c.held().get(self.name, {})

    def create(self, timeout=20, **kw):
        return self.client.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=300 * SECOND, **kw), timeout=timeout).sandbox.id

    def fork(self, timeout=20, **kw):
        return self.client.sandboxes.Fork(pb.ForkRequest(sandbox_id=self.box, **kw), timeout=timeout).sandbox

    def get(self, unit_id):
        return self.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=unit_id)).sandbox

    def kill(self, unit_id):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=unit_id), timeout=20)


@suite.scenario
def its_own_worker_makes_it(c):
    with Scene(c, "own") as s:
        before = s.held()
        made = [s.fork(labels=[pb.Label(key="n", value="1")]), s.fork(ttl_ns=77 * SECOND)]
        asked = [a for a in s.first.assigned if a.fork_of]
        equal("each goes to the worker of the first, though another has more room", ([a.unit_id for a in asked], s.second.assigned), ([m.id for m in made], []))
        equal("… and it is told of what it is a copy", {a.fork_of for a in asked}, {s.box})
        first = s.first.assigned[0]
        equal("… as large as that", {(a.template, a.resources.vcpus, a.resources.memory_mib) for a in asked},
              {(first.template, first.resources.vcpus, first.resources.memory_mib)})
        equal("time to live: the first's, or as asked", [a.ttl_ns // SECOND for a in asked], [300, 77])
        equal("labels: as asked, or none", [[x.value for x in m.labels] for m in made], [["1"], []])
        equal("they are held as any other", {k: v for k, v in s.held().items() if k == "sandboxes"}, {"sandboxes": 3 * before["sandboxes"]})
        equal("who looks sees of what they are copies", [s.get(m.id).forked_from for m in made], [s.box, s.box])
        s.c.scheduler.signal(signal.SIGKILL)
        s.c.scheduler.stop()
        for w in (s.first, s.second):
            w.disconnect()
        s.c.scheduler.start()
        s.c.await_answer()
        for w in (s.first, s.second):
            w.connect()
        check("… also behind a new scheduler", until(lambda: not error_of(s.get, made[0].id), 20) and s.get(made[0].id).forked_from == s.box)
        s.kill(made[0].id)
        equal("a copy of a copy is one", s.client.sandboxes.Fork(pb.ForkRequest(sandbox_id=made[1].id), timeout=20).sandbox.forked_from, made[1].id)


@suite.scenario
def what_has_no_room_is_refused_at_once(c):
    with Scene(c, "full", first={"slots": 2}) as s:
        other = s.fork().id
        begin = time.monotonic()
        code, text = refused(s.fork)
        check("a worker without room makes none, and says so", code == "UNAVAILABLE" and "no room for a copy" in text, (code, text))
        check("… soon", time.monotonic() - begin < 10, time.monotonic() - begin)
        there = s.create()
        equal("nobody waits behind it", [a.unit_id for a in s.second.assigned], [there])
        s.kill(other)
        s.first.send(load=s.first.load)
        check("with room again it makes one", until(lambda: not error_of(s.fork), 10))
        s.first.load.closed = "it drains"
        s.first.send(load=s.first.load)
        check("one that takes nothing makes none", until(lambda: refused(s.fork)[0] == "UNAVAILABLE", 5))


@suite.scenario
def whatever_the_worker_answers(c):
    with Scene(c, "answers") as s:
        for what, refusal, want in (
                ("refuses", wpb.AssignAnswer(refused="no room on the disk"), "no room on the disk"),
                ("refuses for good", wpb.AssignAnswer(refused="what is a fork", permanent=True), "what is a fork"),
                ("fails", wpb.UnitEnded(result=pb.ExecResult(outcome=pb.OUTCOME_FAILED, reason=pb.REASON_START_FAILED, message="its agent is older")), "its agent is older")):
            s.first.refuses[s.box] = refusal
            at = len(s.first.assigned)
            code, text = refused(s.fork)
            check(f"a worker that {what} is heard", code == "UNAVAILABLE" and want in text, (code, text))
            equal("… and asked once", (len(s.first.assigned) - at, s.second.assigned), (1, []))
        s.first.refuses[s.box] = "silence"
        equal("one that never answers is given up with the call", refused(s.fork, timeout=1)[0], "DEADLINE_EXCEEDED")
        check("… and so is the copy", until(lambda: len(s.first.ends) == 1, 10))
        s.first.refuses.clear()
        check("the next is made", s.fork().forked_from == s.box)


@suite.scenario
def a_worker_that_is_older(c):
    with Scene(c, "older", first={"forks": False}) as s:
        equal("is not asked", (refused(s.fork)[0], len(s.first.assigned)), ("UNIMPLEMENTED", 1))


@suite.scenario
def the_same_key_is_the_same_copy(c):
    with Scene(c, "key") as s:
        ids = {s.fork(idempotency_key="k").id for _ in range(3)}
        equal("asked thrice, made once", (len(ids), len(s.first.assigned)), (1, 2))
        other = s.create()
        code, text = refused(s.client.sandboxes.Fork, pb.ForkRequest(sandbox_id=other, idempotency_key="k"))
        check("the key is not that of another's copy", code in ("ALREADY_EXISTS", "FAILED_PRECONDITION", "INVALID_ARGUMENT"), (code, text))
        s.kill(ids.pop())
        check("a copy that has ended is not made again", refused(s.fork, idempotency_key="k")[0] in ("FAILED_PRECONDITION", "NOT_FOUND"))


@suite.scenario
def the_first_ends_meanwhile(c):
    with Scene(c, "gone") as s:
        s.first.refuses[s.box] = "silence"
        codes = []
        thread = threading.Thread(target=lambda: codes.append(refused(s.fork, timeout=20)), daemon=True)
        thread.start()
        check("its worker is asked", until(lambda: len(s.first.assigned) == 2, 5))
        s.kill(s.box)
        s.first.end(s.first.assigned[1].unit_id, pb.OUTCOME_FAILED, pb.REASON_START_FAILED, "the sandbox ended")
        thread.join(20)
        check("that is told", codes and codes[0][0] == "UNAVAILABLE" and "ended" in codes[0][1], codes)
        equal("then there is nothing to copy", refused(s.fork)[0], "NOT_FOUND")


if __name__ == "__main__":
    suite.main(cluster=Cluster)
