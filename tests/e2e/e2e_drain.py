#!/usr/bin/env python3
"""A host that is emptied for maintenance: what runs in its sandboxes goes on on another one, what rests rests there."""
import os
import signal
import subprocess
import time

from box import Box
from harness import BUILD, MIB, Cluster, Suite, command, in_parallel, pb, soon, until

suite = Suite("drain")
check, equal = suite.check, suite.equal
COUNT = "i=0; while [ ! -e /tmp/enough ]; do echo $i; i=$((i + 1)); sleep 0.2; done; exit 7"
COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.2; done"
FIVE_MB = "head -c 5000000 /dev/urandom > data && sha256sum < data"
PAUSES = ("--pause-on-stop=yes",)


def count(box):
    return [int(n) for n in box.exec("cat", "/tmp/count").out.split()]


def is_whole(seen):
    return seen == list(range(len(seen)))


def cloche(c, *words):
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin_key}
    return subprocess.Popen([BUILD / "cloche", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def name_of(w):
    return (w.state_dir / "id").read_text().strip()


def drain(c, w, undo=False):
    return c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=name_of(w), undo=undo)).worker


def row(c, w):
    """What the scheduler says of it; None while it is not connected."""
    return next((r for r in c.admin.fleet.ListWorkers(pb.ListWorkersRequest()).workers if r.id == name_of(w)), None)


def files_of(c, w):
    """What a worker has of paused sandboxes; the memory of its templates is its own."""
    return sorted(p.name for p in [*(w.state_dir / "paused").glob("sbx_*"), *(c.dir / "keys").glob(f"{name_of(w)}/*")])


def is_on(w, box, state, seconds=60):
    def there():
        got = box.get()
        return (got.worker_id, pb.UnitState.Name(got.state)) == (name_of(w), f"UNIT_STATE_{state}")
    return until(there, seconds)


def moved_bytes(c, box):
    return [r["fields"]["bytes"] for r in c.audit_records() if r["event"] == "unit.move" and r["fields"]["unit"] == box.id]


@suite.scenario
def a_host_is_emptied(c):
    first, second = c.workers
    second.stop()
    boxes = [Box(c.admin, template="python"), *(Box(c.admin) for _ in range(4))]
    asleep, idle = Box(c.admin), Box(c.admin, ttl=1, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
    equal("a variable", boxes[0].python("x = 41; x"), "41")
    sums = [box.exec("sh", "-c", FIVE_MB).out for box in (boxes[1], asleep)]
    for box in boxes:
        box.start("sh", "-c", COUNT_TO_FILE)
    check("all have begun", all(until(lambda: len(count(b)) > 5, 20) for b in boxes))
    followed = cloche(c, "exec", boxes[1].id, "--", "sh", "-c", COUNT)
    asleep.pause()
    job = c.admin.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(template="base", command=command("sh", "-c", "sleep 6; echo done")))).job_id
    second.start()
    check("the other host is there", until(lambda: row(c, second) and all(r.workers == 2 for r in c.template_rows().values()), 60), c.template_rows())
    for turn, (here, there) in enumerate(((first, second), (second, first))):
        began = time.monotonic()
        command_line = cloche(c, "worker", "drain", name_of(here))
        out, err = command_line.communicate(timeout=soon(180))
        print(f"     {len(boxes) + 2} sandboxes moved, and a job ended, in {time.monotonic() - began:.2f} s")
        check("the command ends when all is gone", command_line.returncode == 0 and "is empty" in out, (command_line.returncode, out))
        check("… and has said what was left", "left" in err, err)
        equal("the row says so", (row(c, here).draining, row(c, here).jobs, row(c, here).sandboxes, row(c, here).drain_trouble), (True, 0, 0, ""))
        check("what ran runs there", all(is_on(there, b, "RUNNING") for b in boxes), [b.get() for b in boxes])
        check("what was paused is paused there", is_on(there, asleep, "PAUSED") and is_on(there, idle, "PAUSED"), (asleep.get(), idle.get()))
        check("no file of them is left", until(lambda: not files_of(c, here), 10), files_of(c, here))
        equal("the variable is there", boxes[0].python("x + 1"), "42")
        for box in boxes:
            seen = count(box)
            check("what ran runs on", until(lambda: len(count(box)) > len(seen) + 5, 20))
            check("… where it was, and once", is_whole(count(box)), count(box)[-20:])
        equal("its files are the same", boxes[1].exec("sh", "-c", "sha256sum < data").out, sums[0])
        if turn == 0:
            status = c.admin.jobs.Get(pb.GetRequest(job_id=job)).job
            equal("the job came to its end", (status.state, status.result.outcome, status.worker_id), (pb.UNIT_STATE_ENDED, pb.OUTCOME_EXITED, name_of(here)))
            sent = sorted(moved_bytes(c, b)[0] for b in (*boxes[1:], asleep, idle))
            check("the memory of a snapshot goes there once", sent[-1] > sent[-2] + 30 * MIB, sent)
            print(f"     bytes sent of those of one snapshot: {sent}")
            equal("the host can be stopped", here.stop(), 0)
            here.start()
            check("it takes no work still", until(lambda: row(c, here) and row(c, here).draining, 60), row(c, here))
            new = Box(c.admin)
            equal("a new one is on the other", new.get().worker_id, name_of(there))
            new.kill()
            undo = cloche(c, "worker", "drain", "--undo", name_of(here))
            check("until that is undone", (undo.communicate(timeout=soon(60)), undo.returncode)[1] == 0 and not row(c, here).draining)
            check("its templates are ready again", until(lambda: all(r.workers == 2 for r in c.template_rows().values()), 60), c.template_rows())
    boxes[1].exec("touch", "/tmp/enough")
    out, err = followed.communicate(timeout=soon(60))
    said = [int(n) for n in out.split()]
    check("who followed a command all the while hears its end", followed.returncode == 7, (followed.returncode, err))
    check("… and has missed nothing, and heard nothing twice", len(said) > 20 and is_whole(said), said[-20:])
    asleep.resume()
    equal("the paused one is as it was", asleep.exec("sh", "-c", "sha256sum < data").out, sums[1])
    equal("a use wakes the idle one", idle.exec("echo", "awake").out, b"awake\n")
    copy = boxes[2].fork()
    check("a copy of one goes on, too", until(lambda: len(count(copy)) > 5, 20) and is_whole(count(copy)), count(copy)[-20:])
    in_parallel(lambda b: b.kill(), (*boxes, asleep, idle, copy))
    check("their ends are as any other's", until(lambda: all(b.state() == "ENDED" for b in boxes), 20))
    check("and nothing of them is kept", until(lambda: not files_of(c, first) and not files_of(c, second), 10), (files_of(c, first), files_of(c, second)))
    drain(c, second, undo=True)


@suite.scenario
def snapshots_move(c):
    first, second = c.workers
    box = Box(c.admin, template="python")
    box.python("x = 41")
    total = box.exec("sh", "-c", FIVE_MB).out
    snap = box.snapshot("prepared")
    here, there = (first, second) if snap.worker_id == name_of(first) else (second, first)
    other = c.admin.snapshots.Get(pb.SnapshotServiceGetRequest(snapshot="prepared")).snapshot.image_bytes
    box.kill()
    equal("what is left there is one snapshot", (row(c, here).sandboxes, row(c, here).snapshots), (0, 1))
    command_line = cloche(c, "worker", "drain", name_of(here))
    out, err = command_line.communicate(timeout=soon(180))
    check("a host with snapshots can be emptied", command_line.returncode == 0 and "is empty" in out and "1 snapshot is left" in err, (command_line.returncode, out, err))
    moved = c.admin.snapshots.Get(pb.SnapshotServiceGetRequest(snapshot="prepared")).snapshot
    equal("it is on the other", (moved.id, moved.worker_id, moved.state), (snap.id, name_of(there), pb.UNIT_STATE_PAUSED))
    check("… and takes as much", abs(moved.image_bytes - other) < MIB, (other, moved.image_bytes))
    begun = [Box(c.admin, template="", snapshot="prepared") for _ in range(2)]
    equal("what begins with it begins there", {b.get().worker_id for b in begun}, {name_of(there)})
    equal("… with all that was in it", [(b.python("x + 1"), b.exec("sh", "-c", "sha256sum < data").out) for b in begun], [("42", total)] * 2)
    there.kill()
    there.start()
    check("its next worker has it", until(lambda: row(c, there) and row(c, there).snapshots == 1, 60), row(c, there))
    again = Box(c.admin, template="", snapshot="prepared")
    equal("… and it is as it was", again.python("x + 2"), "43")
    c.admin.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot="prepared"))
    again.kill()
    check("no file of it is left", until(lambda: not [*here.state_dir.glob("paused/snp_*"), *there.state_dir.glob("paused/snp_*")], 10))
    drain(c, here, undo=True)
    check("both take work again", until(lambda: all(r.workers == 2 for r in c.template_rows().values()), 60), c.template_rows())


def they_arrive(c, boxes, there, sums):
    check("all arrive", all(is_on(there, b, "PAUSED", 120) for b in boxes), ([str(row(c, w)) for w in c.workers], [b.get() for b in boxes]))
    for box, told in zip(boxes, sums):
        box.resume()
        equal("each is as it was", (box.exec("sh", "-c", "sha256sum < data").out, is_whole(count(box))), (told, True))
        box.kill()


def whoever_dies(c, die):
    """What rests on the first worker moves to the second, whatever `die` does when some are there."""
    first, second = c.workers
    boxes = []
    drain(c, second)
    for _ in range(4):
        boxes.append(Box(c.admin))
        boxes[-1].start("sh", "-c", COUNT_TO_FILE)
    sums = [b.exec("sh", "-c", FIVE_MB).out for b in boxes]
    equal("all are on one host", {b.get().worker_id for b in boxes}, {name_of(first)})
    in_parallel(lambda b: b.pause(), boxes)
    drain(c, second, undo=True)
    drain(c, first)
    check("some have moved", until(lambda: any(moved_bytes(c, b) for b in boxes), 60))
    die(first, second)
    check("both hosts are there", until(lambda: row(c, first) and row(c, second), 60))
    they_arrive(c, boxes, second, sums)
    drain(c, first, undo=True)
    check("nothing of them is kept", until(lambda: not files_of(c, first) and not files_of(c, second), 30), (files_of(c, first), files_of(c, second)))


def again(*processes):
    for p in processes:
        p.kill()
    for p in processes:
        p.start()


@suite.long_scenario
def whoever_takes_may_die(c):
    whoever_dies(c, lambda first, second: again(second))


@suite.long_scenario
def whoever_gives_may_die(c):
    whoever_dies(c, lambda first, second: again(first))


@suite.long_scenario
def the_scheduler_may_die(c):
    def die(first, second):
        again(c.scheduler)
        check("another one answers", c.await_answer(60))
    whoever_dies(c, die)


@suite.long_scenario
def all_may_die(c):
    def die(first, second):
        again(c.scheduler, first, second)
        check("another one answers", c.await_answer(60))
    whoever_dies(c, die)


@suite.long_scenario
def whoever_stands_still_is_waited_for(c):
    """Neither is a sandbox at two places, when one of them wakes after its lease."""
    def die(first, second):
        for w in (second, first):
            w.signal(signal.SIGSTOP)
            time.sleep(4)
            w.signal(signal.SIGCONT)
    whoever_dies(c, die)


if __name__ == "__main__":
    suite.main(workers=2, templates="base,python", worker_args=PAUSES, lease=("9s", "1s", "6s"))
