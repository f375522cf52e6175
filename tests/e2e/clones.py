"""Jobs that are clones of one snapshot: they must share nothing that was random, and no clock may stand still."""
import time

from harness import run, soon

CLONES = 20
NAP = 0.5  # seconds that a timer in each clone sleeps
SCRIPT = (f"cat /proc/sys/kernel/random/uuid; date +%s.%N; a=$(cut -d' ' -f1 /proc/uptime); sleep {NAP}; "
          "b=$(cut -d' ' -f1 /proc/uptime); echo $a $b; cat /sys/devices/system/clocksource/clocksource0/current_clocksource")


def differ(suite, c, clocks):
    """Runs them one after the other; the seconds that each took besides its nap.  clocks: which sources of time are right."""
    words, skews, slept, sources, took = set(), [], [], set(), []
    for _ in range(CLONES):
        begin, wall = time.monotonic(), time.time()
        f = run(c.admin, "sh", "-c", SCRIPT)
        took.append(time.monotonic() - begin - NAP)
        lines = bytes(f.out).decode().split("\n")
        if not suite.check(f"clone {len(took)} runs to its end", f.outcome == "EXITED" and len(lines) == 5, f):
            return took
        words.add(lines[0])
        skews.append(float(lines[1]) - wall)
        slept.append(float(lines[2].split()[1]) - float(lines[2].split()[0]))
        sources.add(lines[3])
    suite.equal("each clone has a random number of its own", len(words), CLONES)
    suite.check("… and the right time", all(-0.5 < s < took[i] + 0.5 for i, s in enumerate(skews)), skews)
    suite.check("… and timers that end when they should", all(NAP - 0.05 <= s < NAP + soon(1) for s in slept), slept)
    suite.check("… by a clock of the processor", sources <= clocks, sources)
    print(f"figure clock source: {', '.join(sorted(sources))}")
    return took
