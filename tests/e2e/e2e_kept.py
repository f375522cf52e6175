#!/usr/bin/env python3
"""Paused sandboxes whose worker ends, in order or not: the next one goes on with them."""
import time

from box import Box, quota, refused
from harness import FACTOR, MIB, Cluster, Suite, in_parallel, pb, soon, until

suite = Suite("kept")
check, equal = suite.check, suite.equal

COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.05; done"
TALK = "while :; do head -c 300 /dev/zero; sleep 0.01; done"


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


def goes_on(c, how, times):
    box = Box(c.admin, template="python")
    equal("a variable", box.python("x = 41; x"), "41")
    box.start("sh", "-c", COUNT_TO_FILE)
    box.start("sh", "-c", TALK)
    box.exec("sh", "-c", "dd if=/dev/urandom of=/home/user/noise bs=1M count=20 2>/dev/null; sync")
    identity = "sha256sum /home/user/noise; cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname"
    before = box.exec("sh", "-c", identity).out
    begun = box.start("sh", "-c", "read line; echo never")
    check("it has begun", until(lambda: len(count(box)) > 5, 10))
    box.pause()
    at = len(files(c)[1])
    for _ in range(times):
        status = restart(c, how)
        if how == "stop":
            equal("the worker ends in order", status, 0)
        equal("its sandbox is paused as before", box.state(), "PAUSED")
        equal("there is one record of it", (at, [n for n in files(c)[1] if n == box.id]), (at, [box.id]))
        answer = box.resume()
        check("it runs again", answer.was_paused and answer.sandbox.state == pb.UNIT_STATE_RUNNING, answer)
        equal("the variable is there", box.python("x + 1"), "42")
        equal("files and identity are as they were", box.exec("sh", "-c", identity).out, before)
        equal("no record is left", [n for n in files(c)[1] if n == box.id], [])
        seen = count(box)
        check("what ran runs on", until(lambda: len(count(box)) > len(seen) + 10, 20))
        seen = count(box)
        equal("… where it was, and once", seen, list(range(len(seen))))
        now = float(box.exec("date", "+%s.%N").out)
        check("its wall clock is right", abs(time.time() - now) < soon(0.3), time.time() - now)
        check("what was begun before has no output here", refused(box.wait, begun)[0] == "NOT_FOUND", refused(box.wait, begun))
        box.pause()
        box.resume()
        equal("it can be paused and resumed here", box.python("x + 2"), "43")
        box.pause()
    other = box.resume() and box.fork()
    equal("it can be forked", other.python("x + 3"), "44")
    other.kill()
    box.kill()
    check("its end is as any other", until(lambda: box.state() == "ENDED", 10))
    check("and nothing of it is kept", until(lambda: not [n for n in sum(files(c), []) if box.id in n], 10), files(c))


@suite.scenario
def a_worker_that_leaves(c):
    goes_on(c, "stop", 2)


@suite.scenario
def a_worker_that_dies(c):
    goes_on(c, "kill", 1)


@suite.scenario
def several(c):
    boxes = [Box(c.admin, template=t) for t in ("base", "python", "base", "python")]
    for i, box in enumerate(boxes):
        box.exec("sh", "-c", f"echo {i} > /tmp/me")
    awake = Box(c.admin)
    in_parallel(lambda b: b.pause(), boxes)
    kept, records = files(c)
    equal("each has a record", records, sorted(b.id for b in boxes))
    print(f"     {sum((c.worker.state_dir / 'paused' / n).stat().st_blocks * 512 for n in kept) / MIB:.0f} MiB in {len(kept)} files")
    restart(c, "kill")
    check("one that ran has ended", until(lambda: awake.state() == "ENDED", 60) and awake.get().reason == pb.REASON_WORKER_LOST, awake.get())
    equal("those at rest have not", [b.state() for b in boxes], ["PAUSED"] * 4)
    in_parallel(lambda b: b.resume(), boxes)
    equal("each wakes as itself", [b.exec("cat", "/tmp/me").out for b in boxes], [f"{i}\n".encode() for i in range(4)])
    equal("no record is left", files(c)[1], [])
    in_parallel(lambda b: b.kill(), boxes)
    restart(c, "stop")
    equal("and no file, once a worker begins", files(c), ([], []))


@suite.scenario
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


@suite.scenario
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
    box.kill()
    check("one that is killed at rest is erased at once", until(lambda: files(c)[1] == [] and not [n for n in files(c)[0] if box.id in n], 10), files(c))


@suite.scenario
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
    record.write_bytes(record.read_bytes()[:-7] + b"\xff" * 7)
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


@suite.scenario
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


@suite.scenario
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
