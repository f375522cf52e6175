#!/usr/bin/env python3
"""Idempotency keys: whoever is told to ask again, or leaves before the answer, gets by the same key what it asked for; what it got, it gets once."""
import time

import pause
from made_up_worker import Cluster, pb, wpb
from harness import SECOND, Suite, code_of, error_of, spec, until

suite = Suite("keys")
check, equal = suite.check, suite.equal
ROOM = {"vcpu_milli": 64000, "memory_mib": 65536, "sandboxes": 32, "disk_mib": 65536}
pause.equal = equal


class Asked:
    """A Create by that key, under way: its sandbox, or its error."""

    def __init__(self, s, key="k", timeout=60, **kw):
        request = pb.CreateRequest(template="base", ttl_ns=300 * SECOND, idempotency_key=key, **kw)
        method = s.client.channel.unary_unary("/cloche.v1.SandboxService/Create", request_serializer=lambda m: m.SerializeToString(),
                                              response_deserializer=pb.CreateResponse.FromString)
        self.call = method.future(request, timeout=timeout, metadata=[("authorization", f"Bearer {s.client.key}")])

    def leave(self):
        self.call.cancel()

    def end(self):
        """(id, code, text)"""
        err = None if self.call.cancelled() else self.call.exception()
        return (self.call.result().sandbox.id if not err and not self.call.cancelled() else "", self.call.code().name, self.call.details() or "")


class Scene(pause.Scene):
    def __init__(self, c, name):
        super().__init__(c, name, **ROOM)

    def silent(self, is_silent=True):
        """What the worker is told to start it takes, and no more."""
        self.w.refuses = {"": "silence"} if is_silent else {}

    def asked(self, n=1):
        return until(lambda: len(self.w.assigned) >= n, 10)

    def made(self, key="k"):
        made, code, text = Asked(self, key).end()
        equal(f"it is made: {made}", (code, text), ("OK", ""))
        return made


@suite.scenario
def a_scheduler_dies_before_its_word_has_come_to_the_worker(c):
    with Scene(c, "died") as s:
        s.silent()
        first = Asked(s)
        check("the worker is asked", s.asked())
        s.w.disconnect()
        c.scheduler.kill()
        first.end()
        s.w.units.clear()  # it never heard of it
        s.silent(False)
        c.scheduler.start()
        c.await_answer()

        def seen():
            return code_of(error_of(s.client.sandboxes.List, pb.SandboxServiceListRequest()))
        check("its client has found the next one", until(lambda: seen() == "OK", 20))
        second = Asked(s)
        equal("… which knows what was asked before", [seen(), seen()], ["OK", "OK"])
        s.w.connect()
        equal("who waits is told to ask again", second.end()[1], "UNAVAILABLE")
        made = s.made()
        check("by the same key there is one", made != s.w.assigned[0].unit_id, made)
        equal("… once", s.made(), made)


@suite.scenario
def who_leaves_before_the_answer_has_made_nothing(c):
    with Scene(c, "left") as s:
        for turn, word in enumerate(("it ends soon", "it does not end yet")):
            s.silent()
            s.w.answers_ends = turn == 0
            begun = len(s.w.assigned)
            equal(f"{word}: the first gives up", Asked(s, key=word, timeout=1).end()[1], "DEADLINE_EXCEEDED")
            check("… and what it asked for is ended", until(lambda: len(s.w.ends) == turn + 1, 10), s.w.ends)
            s.silent(False)
            made = s.made(word)
            equal("asked again it is made", [a.unit_id for a in s.w.assigned[begun + 1:]], [made])
            equal("… once", s.made(word), made)
        s.w.answers_ends = True


@suite.scenario
def one_of_two_who_wait_leaves(c):
    with Scene(c, "two") as s:
        s.silent()
        one, two = Asked(s), Asked(s)
        check("the worker is asked, once", s.asked() and not until(lambda: len(s.w.assigned) > 1, 0.3))
        one.leave()
        time.sleep(0.3)
        s.w.start(s.w.assigned[0])
        equal("the other has it", two.end(), (s.w.assigned[0].unit_id, "OK", ""))
        equal("… and it is not ended", (until(lambda: s.w.ends, 0.3), len(s.w.assigned)), ([], 1))


@suite.scenario
def who_asks_again_and_leaves_ends_nothing(c):
    with Scene(c, "again") as s:
        made = s.made()
        for _ in range(40):
            Asked(s).leave()
        equal("it is there", (s.made(), list(s.w.ends)), (made, []))


@suite.scenario
def what_had_run_is_not_made_again(c):
    with Scene(c, "ran") as s:
        made = s.made()
        s.w.end(made, pb.OUTCOME_FAILED, pb.REASON_VM_DIED)
        check("it has ended", until(lambda: s.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=made)).sandbox.state == pb.UNIT_STATE_ENDED, 10))
        _, code, text = Asked(s).end()
        check("its key says so", code == "FAILED_PRECONDITION" and made in text, (code, text))
        equal("… and nothing was started", len(s.w.assigned), 1)


@suite.scenario
def a_worker_fails_to_start_it(c):
    with Scene(c, "fails") as s:
        s.w.refuses = {"": wpb.UnitEnded(result=pb.ExecResult(outcome=pb.OUTCOME_FAILED, reason=pb.REASON_START_FAILED, message="no memory"))}
        _, code, text = Asked(s).end()
        check("it is said", code == "UNAVAILABLE" and "no memory" in text, (code, text))
        equal("what made nothing binds the key to no body", Asked(s, labels=[pb.Label(key="other", value="body")]).end()[1], "UNAVAILABLE")
        s.silent(False)
        s.made()


@suite.scenario
def a_job_is_its_job_however_it_ended(c):
    with Scene(c, "job") as s:
        s.silent()
        request = pb.SubmitRequest(spec=spec("true"), idempotency_key="k")
        first = s.client.jobs.Submit(request, timeout=20).job_id
        check("the worker is asked", s.asked())
        s.client.jobs.Cancel(pb.CancelRequest(job_id=first), timeout=20)
        again = s.client.jobs.Submit(request, timeout=20)
        equal("the same", (again.job_id, again.replayed), (first, True))


if __name__ == "__main__":
    suite.main(cluster=Cluster)
