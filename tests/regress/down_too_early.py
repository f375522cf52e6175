#!/usr/bin/env python3
"""`cloche down` was back when the supervisor's lock was free, a little before its process had ended."""
import json

from harness import Suite, is_alive, is_long
from ups_side_by_side import Instance

suite = Suite("down_too_early")
TIMES = 20 if is_long() else 5


@suite.scenario
def no_process_is_left(_):
    one = Instance()
    left = []
    for _ in range(TIMES):
        one.open("up", "--warm", "0", "--templates", "base").communicate()
        pids = [p["pid"] for p in json.loads(one.open("status", "--json").communicate()[0])["processes"]]
        one.open("down").communicate()
        left += [pid for pid in pids if is_alive(pid)]
    suite.check(f"each time all of {len(pids)} processes were gone", not left and len(pids) == 7, left)
    one.end()


if __name__ == "__main__":
    suite.play(Instance)
    suite.finish()
