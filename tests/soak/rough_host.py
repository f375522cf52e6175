#!/usr/bin/env python3
"""What a host does to its guests: it stops their monitors for a while, moves their threads from CPU to CPU, takes
pages away from under them, and lets NTP bend its clock.  Programs in them compute, sleep and end all the same.

usage: tests/soak/rough_host.py [DRIVER [SECONDS [SANDBOXES [VCPUS]]]]       (default: the worker's own choice, 120 2 2)

Each sandbox but the first has a shell a vCPU that sums numbers and compares; all have, over and over, a sleep that must take as long
as it says, and a command that is new.  Exit status 0: nothing was wrong.  Needs root; lets the host's clock run by up to 500 ppm faster or slower,
as NTP may, and sets that back.  Images: CLOCHE_IMAGES, template `base`; programs: CLOCHE_BUILD."""
import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
if {"-h", "--help"} & set(sys.argv[1:]):
    print(__doc__)
    sys.exit(0)
DRIVER, SECONDS, SANDBOXES, VCPUS = [*sys.argv[1:], *["", "120", "2", "2"][len(sys.argv) - 1:]]
del sys.argv[1:]  # the suite takes them for names of scenarios
if DRIVER.endswith("-shared"):
    os.environ["CLOCHE_DRIVER"] = DRIVER
from harness import SECOND, Suite, command, follow, pb, soon  # noqa: E402

suite = Suite("rough_host")
check = suite.check
PPM = 65536  # struct timex's frequency; 2^-16 ppm
SUM = "want=$((2000 * 1999 / 2)); while :; do s=0 i=0; while [ $i -lt 2000 ]; do s=$((s + i)) i=$((i + 1)); done; [ $s = $want ] || exit 3; done"
SLEEP_S, EARLY_S, LATE_S = 3, 0.05, 10
libc = ctypes.CDLL(None, use_errno=True)


class Timex(ctypes.Structure):
    _fields_ = [("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("rest", ctypes.c_long * 24)]


def adjust(**fields):
    timex = Timex(**fields)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return timex


def slew(frequency):
    """The host's clock runs so much faster than its counter says (adjtimex(2), ADJ_FREQUENCY)."""
    adjust(modes=2, freq=frequency)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(random.uniform(0.05, 0.9))
    os.kill(pid, signal.SIGCONT)


def move(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), random.sample(range(os.cpu_count()), random.randint(1, os.cpu_count())))


def take_pages(pid):
    """Cold, out, and in huge pages again (process_madvise(2)), where the kernel does that for others."""
    class Range(ctypes.Structure):
        _fields_ = [("at", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
    process_madvise, cold, out, collapse = 440, 20, 21, 25
    fd = os.pidfd_open(pid)
    for line in open(f"/proc/{pid}/maps"):
        start, end = (int(x, 16) for x in line.split()[0].split("-"))
        if end - start >= 4 << 20:
            for advice in (cold, out, collapse):
                libc.syscall(process_madvise, fd, ctypes.byref(Range(start, end - start)), 1, advice, 0)
    os.close(fd)


def compact(pid):
    pathlib.Path("/proc/sys/vm/compact_memory").write_text("1")


def bend(pid):
    slew(random.choice((-500, 0, 500)) * PPM)


ACTS = (stop, move, take_pages, compact, bend)


def torment(c, end, done):
    while time.monotonic() < end:
        for pid in c.vms():
            act = random.choice(ACTS)
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                act(pid)
                done[act.__name__] = done.get(act.__name__, 0) + 1
        time.sleep(0.2)


def start(client, box, *argv):
    return client.execs.Start(pb.StartRequest(sandbox_id=box, command=command(*argv)), timeout=soon(60)).exec_id


def end_of(client, box, exec_id, seconds):
    return follow(client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=exec_id), timeout=soon(seconds)))


def work(client, computes, end, seen):
    box = client.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=86400 * SECOND, resources=pb.Resources(vcpus=int(VCPUS))),
                                  timeout=soon(60)).sandbox.id
    sums = [start(client, box, "sh", "-c", SUM) for _ in range(int(VCPUS)) if computes]
    while time.monotonic() < end:
        begin = time.monotonic()
        sleeper = start(client, box, "sleep", str(SLEEP_S))
        echo = end_of(client, box, start(client, box, "echo", "here"), 60)
        end_of(client, box, sleeper, 60)
        seen.append(time.monotonic() - begin)
        if bytes(echo.out) != b"here\n":
            check("a new command is served", False, echo)
    for exec_id in sums:
        listed = [e for e in client.execs.List(pb.ExecServiceListRequest(sandbox_id=box)).execs if e.id == exec_id]
        check("a program that computes has computed all the time, and right", listed and listed[0].running, listed)
    client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))


@suite.scenario
def a_rough_host(c):
    client, end, done, seen = c.client(c.tenant("rough").key), time.monotonic() + float(SECONDS), {}, []
    before = adjust().freq
    with concurrent.futures.ThreadPoolExecutor() as pool:
        works = [pool.submit(work, client, n > 0, end, seen) for n in range(int(SANDBOXES))]
        try:
            torment(c, end, done)
        finally:
            slew(before)
    for w in works:
        w.result()
    check(f"sleeps of {SLEEP_S} s took {min(seen, default=0):.2f} to {max(seen, default=0):.2f} s", seen and min(seen) >= SLEEP_S - EARLY_S and max(seen) < SLEEP_S + soon(LATE_S))
    print(f"     {len(seen)} sleeps; done to the monitors: {done}", flush=True)


if __name__ == "__main__":
    suite.main(templates="base", warm=1, worker_args=("--driver", DRIVER) if DRIVER else ())
