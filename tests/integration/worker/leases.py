#!/usr/bin/env python3
"""Renewals whose answers come late: how long a worker lets a VM live, when the scheduler may have given its lease to another."""
import time

from made_up_scheduler import Scheduler, play, until, wpb
from harness import SECOND, Suite

suite = Suite("leases")
check = suite.check
SELF_KILL_S, LATE_S, SLACK_S = 14, 9, 7  # LATE_S is longer than the slack: what counts from the answer is seen


class Late(Scheduler):
    """Answers the questions of a worker at once, until it is silent: then when the test says so."""

    SELF_KILL_NS = SELF_KILL_S * SECOND

    def __init__(self):
        self.questions, self.ends, self.silent = [], {}, False
        super().__init__(name="leases")

    def _on_renew(self, m):
        if self.silent:
            self.questions.append(m)
        else:
            super()._on_renew(m)

    def _on_ended(self, m):
        self.ends[m.lease_id] = time.monotonic()
        super()._on_ended(m)

    def answer(self, question, *leases):
        self.send(renew_ack=wpb.RenewAck(lease_ids=leases, asked_ns=question.asked_ns))

    def lived(self, lease, since):
        """Seconds from a question to its end, by the one clock that both have."""
        return self.ends[lease] - since.asked_ns / SECOND


@suite.scenario
def a_lease_counts_from_the_question(s):
    late, twice = s.sandbox(), s.sandbox()
    s.silent = True
    if not until(lambda: s.questions, 10):
        raise RuntimeError("no renewal asks for them")
    first = s.questions[0]
    time.sleep(LATE_S)
    newest = s.questions[-1]
    s.answer(newest, twice)
    s.answer(first, late, twice)
    check("both live until then", not s.ends, s.ends)
    if not until(lambda: {late, twice} <= s.ends.keys(), SELF_KILL_S + LATE_S + SLACK_S):
        raise RuntimeError(f"they never end: {s.ends}")
    ends = {lease: s.ended[lease].result.message for lease in (late, twice)}
    check("each ends because its lease ran out", set(ends.values()) == {"its lease ran out"}, ends)
    check("what was renewed lives that long", s.lived(late, first) >= SELF_KILL_S, s.lived(late, first))
    check("… and no longer, however late the answer", s.lived(late, first) < SELF_KILL_S + SLACK_S, s.lived(late, first))
    check("the answer to an older question takes nothing back", s.lived(twice, newest) >= SELF_KILL_S, s.lived(twice, newest))


if __name__ == "__main__":
    play(suite, Late())
