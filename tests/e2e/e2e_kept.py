#!/usr/bin/env python3
"""Paused sandboxes whose worker ends, in order or not: the next one goes on with them."""
import hashlib
import subprocess
import time

from box import Box, numbers, quota, refused
from harness import FACTOR, MIB, Cluster, Listener, Suite, command, follow, in_parallel, pb, soon, until

suite = Suite("kept")
check, equal = suite.check, suite.equal

COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.2; done"
TALK = "while :; do head -c 6000 /dev/zero; sleep 0.2; done"
COUNT_AND_ANSWER = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.2; done & while read -r line; do echo got $line >&2; done; kill $!; exit 7"


def files(c):
    """What is kept of paused sandboxes: files beside the records, records."""
    records = list((c.dir / "keys").glob("wrk_*/*"))
    return sorted(p.name for p in (c.worker.state_dir / "paused").iterdir()), sorted(p.name for p in records)


def restart(c, how):
    """Another worker in its place; it has told the scheduler what it has."""
    before = len(c.scheduler.events("WORKER_UP"))
    status = c.worker.stop() if how == "stop" else c.worker.kill()
    c.worker.start()
    until(lambda: len(c.scheduler.events("WORKER_UP")) > before, 60)
    if FACTOR > 1:  # where all is slow a worker that boots its templates may stand still, and its session breaks
        c.await_ready(300)
    return status


def count(box):
    return [int(n) for n in box.exec("cat", "/tmp/count").out.split()]


def listed(box):
    return {e.id: (e.running, e.result.exit_code) for e in box.client.execs.List(pb.ExecServiceListRequest(sandbox_id=box.id)).execs}


def tell(box, exec_id, text, eof=False):
    request = pb.ExecServiceWriteStdinRequest(sandbox_id=box.id, exec_id=exec_id, data=text, eof=eof)
    return box.client.execs.WriteStdin(iter([request]), timeout=soon(60)).bytes


class Talker:
    """A command that counts, and answers what it is told."""

    def __init__(self, box):
        self.box, self.told = box, b""
        self.id = box.start("sh", "-c", COUNT_AND_ANSWER, stdin=True)
        self.listener = self.follow()

    def follow(self, **kw):
        return Listener(self.box.attach(self.id, **kw))

    def answers(self, text):
        tell(self.box, self.id, text + b"\n")
        self.told += b"got " + text + b"\n"
        return until(lambda: bytes(self.listener.seen.err) == self.told, 20)

    def has_gone_on(self):
        """From its first byte, in another process: no line is missing, and none is there twice."""
        check("who followed it was cut off, and told of no end", until(lambda: not self.listener.is_alive(), 20) and self.listener.seen.result is None, self.listener.seen)
        before = len(numbers(self.listener))
        self.listener = self.follow()
        check("what it said before is there", until(lambda: len(numbers(self.listener)) >= before, 20), self.listener.seen)
        check("it hears what it is told", self.answers(f"line {before}".encode()), self.listener.seen)
        check("it talks on", until(lambda: len(numbers(self.listener)) > before + 10, 20), self.listener.seen)
        got = numbers(self.listener)
        check("… where it was, and once", got == list(range(len(got))) and self.listener.seen.gaps == 0, got[-20:])
        known = bytes(self.listener.seen.out)
        half = known[:len(known) // 2]
        rest = self.follow(stdout_offset=len(half), no_follow=True)
        check("from the middle, too", until(lambda: not rest.is_alive(), 20) and (half + bytes(rest.seen.out)).startswith(known), rest.seen)

    def ends(self):
        tell(self.box, self.id, b"", eof=True)
        result = self.box.wait(self.id)
        equal("its end comes, with its status", (result.outcome, result.exit_code), (pb.OUTCOME_EXITED, 7))
        check("to who follows it, too", until(lambda: not self.listener.is_alive(), 20) and self.listener.seen.result.exit_code == 7, self.listener.seen)
        got = numbers(self.listener)
        check("nothing of it is missing", got == list(range(len(got))) and bytes(self.listener.seen.err) == self.told, self.listener.seen)
        for name, data in (("stdout", self.listener.seen.out), ("stderr", self.listener.seen.err)):
            total = getattr(result, name)
            equal(f"{name} is digested from its first byte to its last", (total.bytes, total.sha256), (len(data), hashlib.sha256(data).digest()))


def check_ended(box, exec_id, before):
    """One that ended before is there as it was."""
    again = follow(box.attach(exec_id))
    equal("the output of one that has ended is there", (bytes(again.out), bytes(again.err)), (bytes(before.out), bytes(before.err)))
    equal("… with its end and its digest", again.result, before.result)
    equal("… which is right", again.result.stdout.sha256, hashlib.sha256(again.out).digest())


def ends_of(c, exec_id):
    return len([r for r in c.audit_records() if r.get("event") == "exec.end" and r["fields"]["exec"] == exec_id])


def goes_on(c, how, times):
    box = Box(c.admin, template="python")
    equal("a variable", box.python("x = 41; x"), "41")
    box.start("sh", "-c", COUNT_TO_FILE)
    box.start("sh", "-c", TALK)
    box.exec("sh", "-c", "dd if=/dev/urandom of=/home/user/noise bs=1M count=20 2>/dev/null; sync")
    identity = "sha256sum /home/user/noise; cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname"
    before = box.exec("sh", "-c", identity).out
    talker = Talker(box)
    ended = box.start("sh", "-c", "seq 30000; echo wrong >&2; exit 3", env={"TOKEN": "what-nobody-reads"})
    of_ended = follow(box.attach(ended))
    check("it has begun", until(lambda: len(count(box)) > 5 and len(numbers(talker.listener)) > 5, 10))
    box.pause()
    (record,) = (c.dir / "keys").glob(f"wrk_*/{box.id}")
    equal("environments are not written down", (ended.encode() in record.read_bytes(), b"what-nobody-reads" in record.read_bytes()), (True, False))
    has = listed(box)
    at = len(files(c)[1])
    for _ in range(times):
        status = restart(c, how)
        if how == "stop":
            equal("the worker ends in order", status, 0)
        equal("its sandbox is paused as before", box.state(), "PAUSED")
        equal("there is one record of it", (at, [n for n in files(c)[1] if n == box.id]), (at, [box.id]))
        equal("its commands are there", listed(box), has)
        check_ended(box, ended, of_ended)
        answer = box.resume()
        check("it runs again", answer.was_paused and answer.sandbox.state == pb.UNIT_STATE_RUNNING, answer)
        equal("the variable is there", box.python("x + 1"), "42")
        equal("files and identity are as they were", box.exec("sh", "-c", identity).out, before)
        equal("no record is left", [n for n in files(c)[1] if n == box.id], [])
        seen = count(box)
        check("what ran runs on", until(lambda: len(count(box)) > len(seen) + 10, 20))
        seen = count(box)
        equal("… where it was, and once", seen, list(range(len(seen))))
        check("its wall clock is right", box.clock_is_right(), box.clock_error())
        talker.has_gone_on()
        box.pause()
        box.resume()
        equal("it can be paused and resumed here", box.python("x + 2"), "43")
        check_ended(box, ended, of_ended)
        box.pause()
        has = listed(box)
    other = box.resume() and box.fork()
    equal("it can be forked", other.python("x + 3"), "44")
    other.kill()
    talker.ends()
    check("the audit log has each end once", until(lambda: ends_of(c, talker.id) == 1, 10) and ends_of(c, ended) == 1, (ends_of(c, talker.id), ends_of(c, ended)))
    box.kill()
    check("its end is as any other", until(lambda: box.state() == "ENDED", 10))
    check("and nothing of it is kept", until(lambda: not [n for n in sum(files(c), []) if box.id in n], 10), files(c))


@suite.scenario
def a_worker_that_leaves(c):
    goes_on(c, "stop", 2)


@suite.long_scenario
def a_worker_that_dies(c):
    goes_on(c, "kill", 1)


@suite.scenario
def several(c):
    boxes = [Box(c.admin, template=t) for t in ("base", "python", "base", "python")]
    for i, box in enumerate(boxes):
        box.exec("sh", "-c", f"echo {i} > /tmp/me")
    awake = Box(c.admin)
    bound = boxes[0].client.execs.Start(pb.StartRequest(sandbox_id=boxes[0].id, command=command("sleep", "600"), kill_on_disconnect=True)).exec_id
    client = Listener(boxes[0].attach(bound))
    time.sleep(0.2)
    in_parallel(lambda b: b.pause(), boxes)
    client.stream.cancel()  # while it rests
    time.sleep(0.5)
    kept, records = files(c)
    equal("each has a record", records, sorted(b.id for b in boxes))
    print(f"     {sum((c.worker.state_dir / 'paused' / n).stat().st_blocks * 512 for n in kept) / MIB:.0f} MiB in {len(kept)} files")
    restart(c, "kill")
    check("one that ran has ended", until(lambda: awake.state() == "ENDED", 60) and awake.get().reason == pb.REASON_WORKER_LOST, awake.get())
    equal("those at rest have not", [b.state() for b in boxes], ["PAUSED"] * 4)
    in_parallel(lambda b: b.resume(), boxes)
    equal("each wakes as itself", [b.exec("cat", "/tmp/me").out for b in boxes], [f"{i}\n".encode() for i in range(4)])
    equal("no record is left", files(c)[1], [])
    equal("a command whose client left meanwhile is killed", boxes[0].wait(bound).signal, 9)
    in_parallel(lambda b: b.kill(), boxes)
    restart(c, "stop")
    equal("and no file, once a worker begins", files(c), ([], []))


@suite.long_scenario
def one_to_begin_from(c):
    """It rests for good, and others are begun from it, whichever worker it is."""
    box = Box(c.admin, template="python")
    box.python("x = 41")
    box.exec("sh", "-c", "echo kept > /home/user/file")
    box.pause()
    for how in ("stop", "kill"):
        restart(c, how)
        copies = in_parallel(lambda _: box.fork(ttl=300), range(3))
        equal("each has all of it", [(b.python("x"), b.exec("cat", "/home/user/file").out) for b in copies], [("41", b"kept\n")] * 3)
        copies[0].python("x = 0")
        equal("it rests on", box.state(), "PAUSED")
        in_parallel(lambda b: b.kill(), copies)
    box.resume()
    equal("and goes on as it was", box.python("x + 1"), "42")
    box.kill()


@suite.long_scenario
def no_way_back(c):
    """What went on since is not brought back as it was before."""
    box = Box(c.admin)
    box.exec("true")
    box.pause()
    box.resume()
    box.exec("sh", "-c", "echo since > /tmp/file")
    restart(c, "kill")
    check("one that was resumed ends with its worker", until(lambda: box.state() == "ENDED", 60) and box.get().reason == pb.REASON_WORKER_LOST, box.get())
    equal("and nothing of it is kept", files(c), ([], []))
    box = Box(c.admin)
    box.pause()
    (record,) = (c.dir / "keys").glob(f"wrk_*/{box.id}")
    if subprocess.run(["chattr", "+i", record], capture_output=True).returncode == 0:
        check("one whose record cannot be removed does not go on", refused(box.resume)[0] == "INTERNAL" and box.state() == "PAUSED", box.get())
        subprocess.run(["chattr", "-i", record], check=True)
    else:
        print("left out: this file system has no immutable files")
    box.resume()
    equal("it goes on when it can", box.exec("echo", "here").out, b"here\n")
    box.pause()
    box.kill()
    check("one that is killed at rest is erased at once", until(lambda: files(c)[1] == [] and not [n for n in files(c)[0] if box.id in n], 10), files(c))


@suite.long_scenario
def it_ends_meanwhile(c):
    box = Box(c.admin)
    box.pause(keep=3)
    c.worker.stop()
    time.sleep(4)
    c.worker.start()
    check("a rest has an end, also while no worker is there", until(lambda: box.state() == "ENDED", 60) and box.get().reason == pb.REASON_EXPIRED, box.get())
    check("… and nothing of it is kept", until(lambda: files(c)[1] == [], 10), files(c))
    c.await_ready()


@suite.scenario
def spoiled(c):
    boxes = {what: Box(c.admin) for what in ("its image", "its record", "its memory", "nothing")}
    for box in boxes.values():
        box.exec("sh", "-c", "head -c 3000000 /dev/urandom > /dev/shm/noise; echo here > /tmp/me")
        box.pause()
    c.worker.stop()
    folder = c.worker.state_dir / "paused"
    image = folder / f"{boxes['its image'].id}.image"
    data = bytearray(image.read_bytes())
    data[len(data) // 2] ^= 1
    image.write_bytes(data)
    (record,) = (c.dir / "keys").glob(f"wrk_*/{boxes['its record'].id}")
    record.write_bytes(b"\xff" * 7 + record.read_bytes()[7:])
    (folder / f"{boxes['its memory'].id}.image").unlink()
    c.worker.start()
    for what in ("its memory", "its record"):
        box = boxes[what]
        check(f"without {what} it ends with its worker", until(lambda: box.state() == "ENDED", 60) and box.get().reason == pb.REASON_WORKER_LOST, box.get())
    check("and it is said why", {boxes["its memory"].id, boxes["its record"].id} == {r["unit"] for r in c.worker.events("UNIT_NOT_KEPT")}, c.worker.events("UNIT_NOT_KEPT"))
    code, text = refused(boxes["its image"].resume)
    equal("a bit that is other than it was is found", (code, boxes["its image"].state()), ("DATA_LOSS", "PAUSED"))
    boxes["nothing"].resume()
    equal("others go on", boxes["nothing"].exec("cat", "/tmp/me").out, b"here\n")
    boxes["its image"].kill()
    boxes["nothing"].kill()
    c.await_ready()


@suite.scenario
def a_record_half_written(c):
    """Its worker died before it gave the record its name: what is there beside the record is none."""
    box = Box(c.admin)
    box.exec("sh", "-c", "echo here > /tmp/me")
    box.pause()
    c.worker.stop()
    (record,) = (c.dir / "keys").glob(f"wrk_*/{box.id}")
    beside = record.with_name(record.name + ".tmp.4711")
    beside.write_bytes(record.read_bytes())
    c.worker.start()
    c.await_ready()
    equal("it is restored once", [r["unit"] for r in c.worker.events("UNIT_RESTORED")].count(box.id), 1)
    check("and what was not finished is gone", not beside.exists())
    box.resume()
    equal("it goes on", box.exec("cat", "/tmp/me").out, b"here\n")
    equal("no record is left", files(c)[1], [])
    box.kill()
    check("its end is as any other", until(lambda: box.state() == "ENDED", 10))
    c.await_ready()


def held(c):
    used = quota(c, "rests")
    return [used[k] for k in ("sandboxes", "vcpu_milli", "memory_mib", "disk_mib")]


@suite.long_scenario
def longer_than_its_lease(_):
    """A worker that is away for longer than leases last; in a cluster of its own."""
    c = Cluster("kept-lease", lease=("3s", "1s", "2s"))
    try:
        c.start()
        tenant = c.tenant("rests", sandboxes=4, vcpu_milli=4000, memory_mib=4096, disk_mib=8192)
        box = Box(tenant)
        box.exec("sh", "-c", "echo here > /tmp/me")
        full = held(c)
        box.pause()
        rests = held(c)
        c.worker.stop()
        time.sleep(8)
        equal("it is paused still", box.state(), "PAUSED")
        code, text = refused(box.resume)
        check("it cannot be resumed, and that says why", code == "UNAVAILABLE" and "not connected" in text, (code, text))
        equal("which costs nothing", held(c), rests)
        c.worker.start()
        check("it goes on when its worker is back", until(lambda: not refused(box.resume)[1], 60) and box.exec("cat", "/tmp/me").out == b"here\n")
        equal("and takes what it took", held(c), full)
        box.pause()
        c.worker.stop()
        box.kill()
        check("one whose worker is away can be killed", until(lambda: box.state() == "ENDED", 20), box.get())
        c.worker.start()
        check("… and its worker erases it", until(lambda: files(c)[1] == [], 60), files(c))
    finally:
        suite.close(c)


@suite.long_scenario
def switched_off(_):
    c = Cluster("kept-off", worker_args=("--paused-keys", "none"))
    try:
        c.start()
        for how in ("stop", "kill"):
            box = Box(c.admin)
            box.pause()
            restart(c, how)
            check("switched off, a rest ends with its worker", until(lambda: box.state() == "ENDED", 60) and box.get().reason == pb.REASON_WORKER_LOST, box.get())
        equal("and nothing is kept", list(c.worker.state_dir.glob("paused/*")), [])
    finally:
        suite.close(c)


if __name__ == "__main__":
    suite.main(templates="base,python")
