#!/usr/bin/env python3
"""Sandboxes at rest: what is kept, what it costs while it rests, and what may go wrong."""
import contextlib
import os
import random
import signal
import threading
import time

from box import COUNTER, Box, numbers, quota, refused
from harness import DRIVER, LONG, MIB, SECOND, Listener, Suite, command, error_of, in_parallel, pb, random_bytes, rss_bytes, until

suite = Suite("pause")
check, equal = suite.check, suite.equal


@suite.scenario
def nothing_is_lost(c):
    box = Box(c.admin, template="python")
    equal("a variable", box.python("x = 41; x"), "41")
    counter = box.start("sh", "-c", COUNTER)
    listener = Listener(box.attach(counter))
    box.exec("sh", "-c", "echo kept > /tmp/file; dd if=/dev/urandom of=/home/user/noise bs=1M count=20 2>/dev/null; sync")
    before = box.exec("sh", "-c", "sha256sum /home/user/noise; cat /tmp/file; cat /proc/sys/kernel/random/boot_id; hostname")
    uptime = float(box.exec("cat", "/proc/uptime").out.split()[0])
    until(lambda: len(numbers(listener)) > 5, 10)
    vm = c.vm_of(box.id)
    taken = rss_bytes(vm)
    box.pause()
    at = len(numbers(listener))
    view = box.get()
    check("it is paused, and says what it takes of the disk", view.state == pb.UNIT_STATE_PAUSED and 0 < view.image_bytes < 64 * MIB or DRIVER.startswith("qemu"),
          f"{view.state} {view.image_bytes}")
    check("its VM's process is gone", not os.path.exists(f"/proc/{vm}") and c.vm_of(box.id) is None, vm)
    equal("it is in the list", [s.state for s in c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes if s.id == box.id], [pb.UNIT_STATE_PAUSED])
    time.sleep(2)
    check("its commands stand still", len(numbers(listener)) <= at + 1, (at, len(numbers(listener))))
    answer = box.resume()
    check("it runs again", answer.was_paused and answer.sandbox.state == pb.UNIT_STATE_RUNNING and answer.sandbox.image_bytes == 0, answer)
    until(lambda: len(numbers(listener)) > at + 10, 20)
    got = numbers(listener)
    check("who followed a command hears all of it, and nothing twice", got == list(range(len(got))) and len(got) > at + 10, got[-20:])
    equal("the variable is there", box.python("x + 1"), "42")
    after = box.exec("sh", "-c", "sha256sum /home/user/noise; cat /tmp/file; cat /proc/sys/kernel/random/boot_id; hostname")
    equal("files and identity are as they were", after.out, before.out)
    slept = float(box.exec("cat", "/proc/uptime").out.split()[0]) - uptime
    check("its wall clock is right", box.clock_is_right(), box.clock_error())
    print(f"     image {view.image_bytes / MIB:.1f} MiB of {taken / MIB:.0f} resident; uptime moved by {slept:.1f} s")
    equal("its exec is listed as running", [e.running for e in c.admin.execs.List(pb.ExecServiceListRequest(sandbox_id=box.id)).execs if e.id == counter], [True])
    box.kill()
    check("its end is as any other", until(lambda: box.get().state == pb.UNIT_STATE_ENDED, 10))


@suite.scenario
def again_and_again(c):
    box = Box(c.admin, template="python")
    box.python("total = 0")
    listener = Listener(box.attach(box.start("sh", "-c", COUNTER)))
    sizes, times = [], []
    for i in range(8):
        box.python(f"total += {i}")
        begin = time.monotonic()
        box.pause()
        middle = time.monotonic()
        sizes.append(box.get().image_bytes)
        box.resume()
        times.append((middle - begin, time.monotonic() - middle))
    equal("eight rests lose nothing", box.python("total"), "28")
    time.sleep(0.3)
    got = numbers(listener)
    check("… and repeat nothing", got == list(range(len(got))), got[-20:])
    check("the image does not grow without need", max(sizes) < 2 * sizes[0] + 16 * MIB, sizes)
    print("     pause/resume ms: " + " ".join(f"{1000 * p:.0f}/{1000 * r:.0f}" for p, r in times) + f"; last image {sizes[-1] / MIB:.1f} MiB")
    box.kill()


@suite.scenario
def what_it_costs(c):
    client = c.tenant("resting", sandboxes=1, vcpu_milli=1000, memory_mib=4096, disk_mib=4096)
    box = Box(client)
    held = quota(c, "resting")
    box.pause()
    at_rest = quota(c, "resting")
    check("no vCPU, memory or sandbox is held at rest", all(at_rest[d] == 0 for d in ("vcpu_milli", "memory_mib", "sandboxes")), at_rest)
    check("… but its image, as disk", at_rest["disk_mib"] > held["disk_mib"], (held, at_rest))
    other = Box(client)
    code, text = refused(box.resume)
    equal("with another in its place it is not resumed", code, "RESOURCE_EXHAUSTED")
    equal("… and stays paused", box.state(), "PAUSED")
    other.kill()
    check("when that has gone it is", until(lambda: not error_of(box.resume), 10))
    equal("everything is held as before", {**quota(c, "resting"), "cpu_ms": 0}, {**held, "cpu_ms": 0})
    box.kill()
    check("its end gives all back", until(lambda: all(v == 0 for k, v in quota(c, "resting").items() if k not in ("cpu_ms", "egress_bytes")), 10), quota(c, "resting"))

    narrow = c.tenant("narrow", sandboxes=4, vcpu_milli=4000, memory_mib=4096, disk_mib=held["disk_mib"] or 1)
    box = Box(narrow)
    code, text = refused(box.pause)
    check("without room in the disk quota it is not paused", code == "RESOURCE_EXHAUSTED" and "disk" in text, (code, text))
    equal("… and runs on", (box.state(), box.exec("echo", "on").out), ("RUNNING", b"on\n"))
    box.kill()


@suite.scenario
def while_it_rests(c):
    box = Box(c.admin, template="python")
    counter = box.start("sh", "-c", COUNTER)
    box.pause()
    calls = {
        "a command": lambda: box.start("true"),
        "a signal": lambda: box.client.execs.Signal(pb.SignalRequest(sandbox_id=box.id, exec_id=counter, signal=15)),
        "a file": lambda: box.client.files.Stat(pb.StatRequest(sandbox_id=box.id, path="/tmp")),
        "reading": lambda: list(box.client.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/etc/passwd"))),
        "code": lambda: box.python("1"),
        "more time": lambda: box.client.sandboxes.Extend(pb.ExtendRequest(sandbox_id=box.id, ttl_ns=60 * SECOND)),
        "statistics": lambda: box.client.sandboxes.Stats(pb.StatsRequest(unit_id=box.id)),
    }
    for what, call in calls.items():
        code, text = refused(call)
        check(f"{what} is refused, with the remedy", code == "FAILED_PRECONDITION" and "is paused; resume it" in text, (code, text))
    equal("its commands can be listed", [e.id for e in box.client.execs.List(pb.ExecServiceListRequest(sandbox_id=box.id)).execs], [counter])
    equal("a second pause is answered", box.pause().state, pb.UNIT_STATE_PAUSED)
    answers = [box.resume(), box.resume(ttl=100)]
    equal("a second resume, too", [a.was_paused for a in answers], [True, False])
    equal("one that runs", refused(box.client.execs.Signal, pb.SignalRequest(sandbox_id=box.id, exec_id=counter, signal=15))[0], "OK")
    equal("hears its signal", box.wait(counter).signal, 15)
    box.pause()
    box.kill()
    equal("one at rest can be killed", box.state(), "ENDED")
    for verb in (box.pause, box.resume):
        check("what has ended is neither paused nor resumed", refused(verb)[0] in ("NOT_FOUND", "FAILED_PRECONDITION"), refused(verb))
    job = c.admin.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(template="base", command=command("sleep", "5")))).job_id
    check("a job is not paused", refused(c.admin.sandboxes.Pause, pb.PauseRequest(sandbox_id=job))[0] in ("NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION"))
    check("nor is what another tenant has", refused(c.tenant("stranger").sandboxes.Pause, pb.PauseRequest(sandbox_id=box.id))[0] == "NOT_FOUND")
    equal("30 days are the longest", refused(c.admin.sandboxes.Pause, pb.PauseRequest(sandbox_id=box.id, keep_ns=31 * 86400 * SECOND))[0], "INVALID_ARGUMENT")


@suite.scenario
def all_at_once(c):
    box = Box(c.admin)
    listener = Listener(box.attach(box.start("sh", "-c", COUNTER)))
    for round_ in range(3):
        codes = in_parallel(lambda _: refused(box.pause)[0], range(8))
        check("of many pauses at once one counts, and the others say so", "OK" in codes and set(codes) <= {"OK", "UNAVAILABLE", "FAILED_PRECONDITION", "ABORTED"}, codes)
        check("it is paused", until(lambda: box.state() == "PAUSED", 20), box.state())
        codes = in_parallel(lambda _: refused(box.resume)[0], range(8))
        check("of many resumes, too", "OK" in codes and set(codes) <= {"OK", "UNAVAILABLE", "FAILED_PRECONDITION", "ABORTED"}, codes)
        check("it runs", until(lambda: box.state() == "RUNNING", 20), box.state())
    boxes = [Box(c.admin) for _ in range(6)]
    for b in boxes:
        b.exec("sh", "-c", f"echo {b.id} > /tmp/me")
    in_parallel(lambda b: b.pause(), boxes)
    equal("six rest side by side", {b.state() for b in boxes}, {"PAUSED"})
    in_parallel(lambda b: b.resume(), boxes)
    equal("each wakes as itself", [b.exec("cat", "/tmp/me").out.decode().strip() for b in boxes], [b.id for b in boxes])
    in_parallel(lambda b: b.kill(), boxes)
    got = numbers(listener)
    check("a command lived through all of it", got == list(range(len(got))), got[-10:])
    box.kill()


@suite.scenario
def time_limits_stand_still(c):
    box = Box(c.admin)
    limited = box.start("sh", "-c", COUNTER, timeout=4)
    begin = time.monotonic()
    time.sleep(1)
    box.pause()
    time.sleep(6)
    box.resume()
    result = box.wait(limited)
    ran = time.monotonic() - begin
    check("a time limit does not run at rest", result.outcome == pb.OUTCOME_TIMED_OUT and ran > 8.5, (result, ran))
    box.kill()


@suite.scenario
def idle_ones_are_paused(c):
    box = Box(c.admin, ttl=2, on_idle=pb.IDLE_ACTION_PAUSE)
    equal("it says so", box.get().on_idle, pb.IDLE_ACTION_PAUSE)
    box.exec("sh", "-c", "echo kept > /tmp/file")
    check("an idle sandbox is paused instead of ended", until(lambda: box.state() == "PAUSED", 30), box.state())
    box.resume(ttl=300)
    equal("it goes on with all it had", box.exec("cat", "/tmp/file").out, b"kept\n")
    box.kill()
    ends = Box(c.admin, ttl=2, on_idle=pb.IDLE_ACTION_END)
    check("one that is to end does", until(lambda: ends.state() == "ENDED", 30), ends.state())
    short = Box(c.admin)
    expires = short.pause(keep=3).expires.unix_ns / SECOND
    check("a rest has an end", 0 < expires - time.time() < 4, expires - time.time())
    check("… and then the sandbox", until(lambda: short.state() == "ENDED", 30) and short.get().reason == pb.REASON_EXPIRED, short.get())
    rows = [r for r in c.audit_records() if r.get("event") in ("unit.pause", "unit.resume")]
    check("the audit log has each pause and resume", {"unit.pause", "unit.resume"} <= {r["event"] for r in rows}, len(rows))
    check("… and who wanted it", {r["fields"]["by"] for r in rows if r["event"] == "unit.pause"} >= {"idle"}, rows[:3])


@suite.scenario
def use_wakes_it(c):
    box = Box(c.admin, ttl=2, template="python", on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
    data = random_bytes(3 * MIB)

    def write():
        pieces = [data[i:i + 65536] for i in range(0, len(data), 65536)]
        return box.client.files.Write(pb.WriteRequest(sandbox_id=box.id, path="/tmp/data", data=d, commit=i == len(pieces) - 1) for i, d in enumerate(pieces)).bytes

    def read():
        return b"".join(r.data for r in box.client.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/tmp/data")))

    def rests():
        return until(lambda: box.state() == "PAUSED", 30)
    equal("a variable", box.python("x = 41; x"), "41")
    for what, call, want in (("a file that is written", write, len(data)), ("one that is read", read, data), ("code", lambda: box.python("x + 1"), "42"),
                             ("a command", lambda: box.exec("echo", "on").out, b"on\n")):
        check("it is paused when it is idle", rests(), box.state())
        begin = time.monotonic()
        got = call()
        took = time.monotonic() - begin
        check(f"{what} wakes it, and is done as ever", got == want, len(got) if isinstance(got, bytes) else got)
        print(f"     {what}: {1000 * took:.0f} ms")
    check("it rests again", rests(), box.state())
    got = in_parallel(lambda i: box.exec("echo", str(i)).out, range(8))
    equal("many at once all go on", got, [f"{i}\n".encode() for i in range(8)])
    check("it rests again", rests(), box.state())
    c.scheduler.kill()
    c.scheduler.start()
    c.await_answer()
    check("a new scheduler wakes it, too", until(lambda: not error_of(box.python, "x"), 30) and box.python("x") == "41")
    check("it rests again", rests(), box.state())
    box.client.sandboxes.Extend(pb.ExtendRequest(sandbox_id=box.id, ttl_ns=300 * SECOND))
    equal("more time wakes it", box.state(), "RUNNING")
    box.pause()
    check("what was paused is not woken by use", "resume it" in refused(box.start, "true")[1], refused(box.start, "true"))
    rows = [r["fields"] for r in c.audit_records() if r.get("event") == "unit.resume" and r["fields"]["unit"] == box.id]
    check("the audit log says who woke it", len(rows) == 7 and {r["by"] for r in rows} == {c.admin.key.split("_")[1]}, rows)
    box.kill()


@suite.scenario
def a_scheduler_that_dies(c):
    box = Box(c.admin, template="python")
    box.python("x = 5")
    box.pause()
    c.scheduler.kill()
    c.scheduler.start()
    c.await_answer()
    check("a new scheduler knows that it rests", until(lambda: not error_of(box.get) and box.state() == "PAUSED", 30))
    check("… and resumes it", until(lambda: not error_of(box.resume), 30) and box.python("x") == "5")
    for delay in (0.0, 0.02, 0.05):
        thread = threading.Thread(target=lambda: error_of(box.pause, timeout=20), daemon=True)
        thread.start()
        time.sleep(delay)
        c.scheduler.kill()
        c.scheduler.start()
        c.await_answer()
        thread.join(30)
        check(f"killed {1000 * delay:.0f} ms into a pause: both agree again",
              until(lambda: not error_of(box.get) and box.state() in ("PAUSED", "RUNNING"), 30), error_of(box.get) or box.state())
        check("… and it can be resumed", until(lambda: not error_of(box.resume), 30))
        check("… with all it had", until(lambda: not error_of(box.python, "x") and box.python("x") == "5", 30), error_of(box.python, "x") or box.python("x"))
    box.kill()


@suite.scenario
def a_monitor_that_dies(c):
    box = Box(c.admin)
    box.exec("true")
    box.pause()
    box.resume()
    os.kill(c.vm_of(box.id), signal.SIGKILL)
    check("a VM that dies after a rest is told as any other", until(lambda: box.state() == "ENDED", 20) and box.get().reason == pb.REASON_VM_DIED, box.get())


@suite.scenario
def ended_on_the_way(c):
    """Killed, by hand or by the loss of its monitor, at any moment of a pause or a resume."""
    chance = random.Random(5)
    left = []
    for i in range(60 if LONG else 18):
        box = Box(c.admin)
        thread = threading.Thread(target=lambda b=box: error_of(b.pause), daemon=True)
        thread.start()
        time.sleep(chance.random() * 0.25)
        if i % 3 == 0:
            error_of(box.kill)
        elif i % 3 == 1:
            with contextlib.suppress(TypeError, OSError):
                os.kill(c.vm_of(box.id), signal.SIGKILL)
            thread.join(30)
            error_of(box.resume)
            error_of(box.kill)
        else:
            thread.join(30)
            threading.Thread(target=lambda b=box: error_of(b.resume), daemon=True).start()
            time.sleep(chance.random() * 0.12)
            error_of(box.kill)
        if not until(lambda: box.state() == "ENDED", 10):
            left.append((i, box.state()))
    equal("each ends", left, [])


if __name__ == "__main__":
    suite.main(templates="base,python")
