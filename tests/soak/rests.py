#!/usr/bin/env python3
"""tests/soak/rests.py - sandboxes that compute while they are paused and resumed, again and again.

usage: tests/soak/rests.py [CYCLES]      (default 200; CLOCHE_DRIVER, CLOCHE_BUILD and CLOCHE_IMAGES as of tests/e2e)

Each sandbox runs three programs whose every line of output is known: a chain of SHA-256 in Python, sums of floating point
in Python, and a counter that sleeps between two numbers.  It is paused at any moment, rests for up to a tenth of a second,
and is resumed.  At the end each line must have come once, in order and as it should be, and the clock must be right.
Exit status: 0 all of it is; 1 not.
"""
import hashlib
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import DRIVER, SECOND, Cluster, Listener, command, pb  # noqa: E402

CYCLES = int(sys.argv[1]) if len(sys.argv) > 1 else 200
BOXES = 2
CHAIN = ("import hashlib\nx = b''\nwhile True:\n for _ in range(2000): x = hashlib.sha256(x).digest()\n print(x.hex(), flush=True)\n")
FLOATS = ("import math\nx, n = 0.0, 0\nwhile True:\n for _ in range(20000):\n  n += 1\n  x += math.sin(n) / math.sqrt(n)\n print(repr(x), flush=True)\n")
COUNTER = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.02; done"


def chain():
    x = b""
    while True:
        for _ in range(2000):
            x = hashlib.sha256(x).digest()
        yield x.hex()


def counter():
    i = 0
    while True:
        yield str(i)
        i += 1


def program(client, box, *argv):
    spec = command(*argv, timeout=36000, cap=1 << 30)
    exec_id = client.execs.Start(pb.StartRequest(sandbox_id=box, command=spec)).exec_id
    return Listener(client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=exec_id), timeout=36000))


def cycles(client, box, seed, bad):
    chance = random.Random(seed)
    for n in range(CYCLES):
        time.sleep(chance.random() * 0.3)
        try:
            client.sandboxes.Pause(pb.PauseRequest(sandbox_id=box), timeout=120)
            time.sleep(chance.random() * 0.1)
            client.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box), timeout=120)
        except Exception as err:  # noqa: BLE001
            bad.append(f"{box}: cycle {n}: {err}")
            return


def check(name, got, want, least):
    for n, line in enumerate(got):
        if line != (right := next(want)):
            return [f"{name}: line {n} is {line!r}, not {right!r}"]
    print(f"     {name}: {len(got)} lines")
    return [] if len(got) >= least else [f"{name}: {len(got)} lines, fewer than {least}"]


def main():
    bad, begin = [], time.monotonic()
    c = Cluster("rests", templates="python")
    try:
        client = c.start().admin
        boxes = [client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=86400 * SECOND), timeout=120).sandbox.id for _ in range(BOXES)]
        programs = [(program(client, b, "python3", "-c", CHAIN), program(client, b, "python3", "-c", FLOATS), program(client, b, "sh", "-c", COUNTER)) for b in boxes]
        threads = [threading.Thread(target=cycles, args=(client, b, i, bad)) for i, b in enumerate(boxes)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        time.sleep(2)
        floats = [p[1].lines() for p in programs]
        for b, (hashes, _, numbers) in zip(boxes, programs):
            bad += check(f"{b} hashes", hashes.lines(), chain(), CYCLES // 10)
            bad += check(f"{b} counter", numbers.lines(), counter(), CYCLES // 4)
        least = min(map(len, floats))
        if len({tuple(f[:least]) for f in floats}) != 1 or least < CYCLES // 10:
            bad.append(f"sums of floating point differ between sandboxes, or are few: {least}")
        print(f"     floating point: {least} lines, the same in {BOXES} sandboxes")
        for b in boxes:
            client.sandboxes.Kill(pb.KillRequest(sandbox_id=b))
        bad += c.sanitizer_reports()
    finally:
        c.stop()
        c.remove_cgroups()
    for line in bad:
        print(f"FAIL {line}")
    print(f"rests: {DRIVER}: {BOXES} sandboxes, {CYCLES} rests each, {time.monotonic() - begin:.0f} s, {len(bad)} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
