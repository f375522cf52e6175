#!/usr/bin/env python3
"""A unit that started between two sessions of its worker was never known to run: Create waited until the
sandbox's time to live had passed, and a job would have been tried again though its code had run."""
import queue
import signal
import threading
import time

from harness import Suite, pb, until

suite = Suite("start_told_to_nobody")
check, equal = suite.check, suite.equal
STILL_S = 11  # a worker that stood still for so long leaves its session
TTL_S = 120
ATTEMPTS = 10


def create(c, answers):
    try:
        answers.put(c.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=TTL_S * 10**9)).sandbox)
    except Exception as err:  # noqa: BLE001
        answers.put(err)


def stop_before_it_starts(c):
    """A Create under way whose unit the worker has, and has not started: the worker stands still."""
    for attempt in range(1, ATTEMPTS + 1):
        answers = queue.Queue()
        threading.Thread(target=create, args=(c, answers), daemon=True).start()
        until(lambda n=attempt: len(c.worker.events("UNIT_ASSIGNED")) >= n, 10, every=0.001)
        c.worker.signal(signal.SIGSTOP)
        if len(c.worker.events("UNIT_STARTED")) < attempt:
            return answers
        c.worker.signal(signal.SIGCONT)  # it was faster than we
        c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=answers.get().id))
        c.await_ready()
    return None


@suite.scenario
def started_while_the_worker_was_away(c):
    answers = stop_before_it_starts(c)
    if not check(f"once in {ATTEMPTS} times the worker stands still in time", answers):
        return
    before = len(c.worker.events("UNIT_STARTED"))
    time.sleep(STILL_S)
    c.worker.signal(signal.SIGCONT)
    check("it left its session", until(lambda: any("stood still" in e.get("text", "") for e in c.worker.events("DISCONNECTED")), 10))
    answered = until(lambda: not answers.empty(), 8)
    equal("Create answers that it runs, long before its end", getattr(answers.get(), "state", None) if answered else "no answer", pb.UNIT_STATE_RUNNING)
    (box,) = c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes
    starts = [r for r in c.audit_records() if r.get("event") == "unit.start"]
    equal("the audit log has one start of it", len(starts), before + 1)
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))


if __name__ == "__main__":
    suite.main(templates="base", warm=1)
