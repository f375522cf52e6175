#!/usr/bin/env python3
"""A worker that died while it made a VM left the VM to itself: the state file named the guardian only once
the guest ran.  With cgroups its successor found the VM by these; an ordinary user's VM lived on for a minute."""
import os
import random
import time

from harness import DRIVER, Suite, is_long, pb, read_text, skip, spec, until

suite = Suite("vm_outlives_its_worker")
check = suite.check
DELAYS_MS = (0, 2, 5, 10, 20, 40) if is_long() else (0, 10)


def guards(c):
    return set(read_text(f"/proc/{c.worker.pid}/task/{c.worker.pid}/children").split())


@suite.scenario
def killed_while_it_makes_one(c):
    for delay in DELAYS_MS:
        known = guards(c)
        c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("true")))  # takes the VM that is warm: soon the next is made
        made = until(lambda: guards(c) - known, 10, every=0.0005)
        time.sleep(delay / 1000)
        c.worker.kill()
        time.sleep(0.3)  # what was being started starts
        old = set(c.leftovers())
        c.worker.start()
        check(f"killed {delay} ms after a guardian was made, nothing of it is left",
              made and until(lambda: not old & set(c.leftovers()), 10), old & set(c.leftovers()))
        c.await_ready()


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("needs root to become an ordinary user")
    if DRIVER not in ("auto", "qemu/tcg"):
        skip(f"is about a user without /dev/kvm, which {DRIVER} needs")
    suite.main(templates="base", warm=1, user=random.randint(300000, 399999))
