#!/usr/bin/env python3
"""What a sandbox or a job used, over time: CPU, memory, disk."""
import os
import pathlib
import signal
import threading
import time

from box import Box, refused
from harness import MIB, SECOND, Suite, pb, soon, spec, until

suite = Suite("usage")
check, equal = suite.check, suite.equal
SPIN = "while :; do :; done"


def usage(client, unit):
    return client.sandboxes.Usage(pb.UsageRequest(unit_id=unit), timeout=soon(60))


def last(client, unit):
    return usage(client, unit).samples[-1]


def busy(samples):
    """Of how much of a vCPU."""
    return sum(s.cpu_ns for s in samples) / max(sum(s.span_ns for s in samples), 1)


def host_cpu_ns(pid):
    """The CPU time of a process, as clock_getcpuclockid(3) finds it."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def cpu_of(c, box):
    """Its samples; and of its CPU time what the host's kernel says before, the samples, the kernel afterwards."""
    vm = c.vm_of(box.id)
    before = host_cpu_ns(vm)
    samples = usage(c.admin, box.id).samples
    return samples, (before, sum(s.cpu_ns for s in samples), host_cpu_ns(vm))


@suite.scenario
def what_it_does_is_seen(c):
    b = Box(c.admin, template="python", resources=pb.Resources(memory_mib=256, vcpus=1))
    begun = time.time()
    first = usage(c.admin, b.id)
    s = first.samples[-1]
    equal("it has as many vCPUs as it was given", first.vcpus, 1)
    check("there is a sample at once", len(first.samples) == 1 and abs(s.at.unix_ns / SECOND - begun) < soon(30), first)
    check("… of its memory", 100 * MIB < s.memory_total_bytes <= 256 * MIB and 0 < s.memory_used_bytes < s.memory_total_bytes, s)
    check("… its page cache", 0 < s.memory_cached_bytes < s.memory_total_bytes - s.memory_used_bytes, s)
    check("… its disk", 300 * MIB < s.scratch_total_bytes <= 512 * MIB and s.scratch_used_bytes < s.scratch_total_bytes, s)
    b.python("x = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n1")
    now = last(c.admin, b.id)
    check("64 MiB more are used", 60 * MIB < now.memory_used_bytes - s.memory_used_bytes < 100 * MIB, (s, now))
    b.python("del x")
    check("… and no longer", last(c.admin, b.id).memory_used_bytes < s.memory_used_bytes + 30 * MIB, s)
    equal("a file is written", b.exec("sh", "-c", "head -c 50000000 /dev/urandom > /tmp/big; sync").result.exit_code, 0)
    now = last(c.admin, b.id)
    check("… and seen on the disk", 45 * MIB < now.scratch_used_bytes - s.scratch_used_bytes < 60 * MIB, (s, now))
    samples, earlier = cpu_of(c, b)
    n = len(samples)
    spin = b.start("sh", "-c", SPIN)
    time.sleep(12)
    check("it computes", until(lambda: host_cpu_ns(c.vm_of(b.id)) > earlier[2] + 2 * SECOND, 20))
    samples, later = cpu_of(c, b)
    check("while it computes there is a sample each 5 s", len(samples) >= n + 2, (n, len(samples)))
    least, told, most = later[0] - earlier[2], later[1] - earlier[1], later[2] - earlier[0]
    check("… of what its VM took, as the host's kernel says", least <= told <= most, (least, told, most))
    check("… each begins where the last one ended", all(abs(z.at.unix_ns - a.at.unix_ns - z.span_ns) < SECOND / 10 for a, z in zip(samples, samples[1:])), samples)
    check("… and there are processes", samples[-1].processes > 0, samples[-1])
    c.admin.execs.Signal(pb.SignalRequest(sandbox_id=b.id, exec_id=spin, signal=9))
    b.wait(spin)
    time.sleep(3)
    usage(c.admin, b.id)
    time.sleep(16)
    samples = usage(c.admin, b.id).samples
    quiet = max(samples[-2:], key=lambda s: s.span_ns)
    check("one that does nothing is left in peace", quiet.span_ns > 9 * SECOND and busy([quiet]) < 0.1, samples[-3:])
    b.kill()
    code, text = refused(usage, c.admin, b.id)
    check("one that has ended has none", code in ("NOT_FOUND", "FAILED_PRECONDITION") and b.id in text, (code, text))


@suite.scenario
def a_rest_is_no_time(c):
    b = Box(c.admin)
    b.exec("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done")
    before = usage(c.admin, b.id)
    b.pause()
    equal("one that rests tells what it used before", usage(c.admin, b.id), before)
    equal("… and rests on", b.state(), "PAUSED")
    time.sleep(6)
    b.resume()
    after = usage(c.admin, b.id)
    equal("it goes on with that", after.samples[:len(before.samples) - 1], before.samples[:-1])
    check("… and the rest is not counted", sum(s.span_ns for s in after.samples) < after.samples[-1].at.unix_ns - before.samples[0].at.unix_ns +
          before.samples[0].span_ns - 5 * SECOND, after)
    other = b.fork()
    check("a copy begins with nothing", len(usage(c.admin, other.id).samples) <= 2 and last(c.admin, other.id).at.unix_ns > after.samples[-1].at.unix_ns)
    check("… and one that is copied goes on", usage(c.admin, b.id).samples[0] == after.samples[0] or len(after.samples) == 1)
    other.kill()
    b.kill()


def next_worker(c):
    up = len(c.scheduler.events("WORKER_UP"))
    equal("the worker ends in order", c.worker.stop(), 0)
    c.worker.start()
    until(lambda: len(c.scheduler.events("WORKER_UP")) > up, 60)
    c.await_ready(300)


@suite.scenario
def it_outlives_its_worker(c):
    runs, rests = Box(c.admin), Box(c.admin)
    for b in (runs, rests):
        usage(c.admin, b.id)
        b.exec("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done")
    before = {b: usage(c.admin, b.id).samples for b in (runs, rests)}
    rests.exec("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done")  # in no sample yet, or in one that was due
    rests.pause()
    at_rest = list(usage(c.admin, rests.id).samples)
    next_worker(c)
    equal("one that is paused tells after its worker's end what it used before", list(usage(c.admin, rests.id).samples), at_rest)
    rests.resume()
    check("one that ran goes on", until(lambda: runs.state() == "RUNNING", 60), runs.state())
    for b, what in ((runs, "ran"), (rests, "was paused")):
        samples, old = usage(c.admin, b.id).samples, before[b]
        equal(f"one that {what} goes on with what it had", list(samples[:len(old) - 1]), list(old[:-1]))
        check("… and has used more since", sum(s.cpu_ns for s in samples) > sum(s.cpu_ns for s in old), (samples, old))
    samples, old = usage(c.admin, rests.id).samples, before[rests]
    check("what was in no sample when it was paused is in the next", sum(s.cpu_ns for s in samples) > 1.5 * sum(s.cpu_ns for s in old), (samples, old))
    check("… and the time without a worker is in none", sum(s.span_ns for s in samples) < samples[-1].at.unix_ns - old[0].at.unix_ns + old[0].span_ns, samples)
    for b in (runs, rests):
        b.kill()


def stand_still(pid):
    """Stopped, and not only asked to: it could answer meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{pid}/task")
    until(lambda: all((t / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for t in threads.iterdir()), 20)


@suite.scenario
def a_guest_that_does_not_answer(c):
    b = Box(c.admin)
    before = usage(c.admin, b.id)
    vm = c.vm_of(b.id)
    stand_still(vm)
    begun = time.monotonic()
    equal("what there is of it is told all the same", usage(c.admin, b.id), before)
    check("… after a while", time.monotonic() - begun > 4)
    os.kill(vm, signal.SIGCONT)
    check("it answers again", until(lambda: last(c.admin, b.id).at.unix_ns > before.samples[-1].at.unix_ns, 20))
    stand_still(vm)
    late = threading.Thread(target=lambda: seen.append(refused(usage, c.admin, b.id)[0]))
    seen = []
    late.start()
    time.sleep(0.5)
    b.kill()
    late.join()
    equal("who asks while it ends hears that", seen[0] in ("NOT_FOUND", "FAILED_PRECONDITION"), True)


@suite.scenario
def jobs_too(c):
    job = c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sh", "-c", SPIN))).job_id
    check("a job that runs has samples", until(lambda: refused(usage, c.admin, job)[0] == "OK" and usage(c.admin, job).samples, 60))
    time.sleep(2)
    check("… of what it computes", last(c.admin, job).cpu_ns > 0 and usage(c.admin, job).vcpus > 0)
    c.admin.jobs.Cancel(pb.CancelRequest(job_id=job))


@suite.scenario
def who_may(c):
    b = Box(c.admin)
    other = c.tenant("other")
    equal("nobody else's", refused(usage, other, b.id)[0], "NOT_FOUND")
    equal("nothing", refused(usage, c.admin, "")[0], "NOT_FOUND")
    equal("no sandbox that there is", refused(usage, c.admin, "sbx_01jzzzzzzzzzzzzzzzzzzzzzzz")[0], "NOT_FOUND")
    b.kill()


if __name__ == "__main__":
    suite.main(templates="base,python", worker_args=("--pause-on-stop=yes",))
