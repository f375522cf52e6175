#!/usr/bin/env python3
"""Sandboxes that run when their worker is stopped: they go on with the next one."""
import os
import subprocess
import time

from box import Box, quota, refused
from harness import BUILD, Cluster, Suite, command, in_parallel, pb, soon, until

suite = Suite("stop")
check, equal = suite.check, suite.equal
PAUSES = ("--pause-on-stop=yes",)
COUNT = "i=0; while [ ! -e /tmp/enough ]; do echo $i; i=$((i + 1)); sleep 0.2; done; exit 7"
COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.2; done"


def records(c, name="wrk_*"):
    return sorted(p.name for p in (c.dir / "keys").glob(f"{name}/*"))


def count(box):
    return [int(n) for n in box.exec("cat", "/tmp/count").out.split()]


def cloche(c, *words):
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin_key}
    return subprocess.Popen([BUILD / "cloche", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def runs(box, seconds=60):
    return until(lambda: box.state() == "RUNNING", seconds)


def rests(c, box):
    """Who paused and resumed it, as the audit log has it."""
    kinds = ("unit.pause", "unit.resume")
    return [(r["event"], r["fields"]["by"]) for r in c.audit_records() if r["event"] in kinds and r["fields"]["unit"] == box.id]


@suite.scenario
def they_go_on(c):
    boxes = [Box(c.admin, template="python"), *(Box(c.admin) for _ in range(5))]
    asleep = Box(c.admin)
    equal("a variable", boxes[0].python("x = 41; x"), "41")
    for box in boxes:
        box.start("sh", "-c", COUNT_TO_FILE)
    check("all have begun", all(until(lambda: len(count(b)) > 5, 20) for b in boxes))
    followed = cloche(c, "exec", boxes[1].id, "--", "sh", "-c", COUNT)
    asleep.pause()
    for again in range(2):
        began = time.monotonic()
        equal("the worker ends in order", c.worker.stop(), 0)
        print(f"     {len(boxes)} sandboxes left in {time.monotonic() - began:.2f} s")
        equal("no cgroup of it stays", c.cgroup_roots(), [])
        equal("all rest", [b.state() for b in (*boxes, asleep)], ["PAUSED"] * 7)
        equal("each has a record", records(c), sorted(b.id for b in (*boxes, asleep)))
        code, text = refused(boxes[0].exec, "true")
        check("a call is told to try again", code == "UNAVAILABLE" and "not connected" in text, (code, text))
        if again:  # another scheduler, too, which has to hear first that they rest
            equal("the scheduler ends in order", c.scheduler.stop(), 0)
            c.scheduler.start()
            check("another one answers", c.await_answer(60))
        c.worker.start()
        check("all go on", all(runs(b) for b in boxes), [b.get() for b in boxes])
        equal("but the one that a client has paused", asleep.state(), "PAUSED")
        equal("the variable is there", boxes[0].python("x + 1"), "42")
        for box in boxes:
            seen = count(box)
            check("what ran runs on", until(lambda: len(count(box)) > len(seen) + 5, 20))
            seen = count(box)
            equal("… where it was, and once", seen, list(range(len(seen))))
        equal("whose worker did it is in the log", rests(c, boxes[1]), [("unit.pause", "worker"), ("unit.resume", "worker")] * (again + 1))
    boxes[1].exec("touch", "/tmp/enough")
    out, err = followed.communicate(timeout=soon(60))
    said = [int(n) for n in out.split()]
    check("who followed a command all the while hears its end", followed.returncode == 7, (followed.returncode, err))
    check("… and has missed nothing, and heard nothing twice", len(said) > 20 and said == list(range(len(said))), said[-20:])
    equal("no record is left but one", records(c), [asleep.id])
    asleep.resume()
    equal("that one goes on when it is asked to", asleep.exec("echo", "here").out, b"here\n")
    in_parallel(lambda b: b.kill(), (*boxes, asleep))
    check("their ends are as any other's", until(lambda: all(b.state() == "ENDED" for b in boxes), 20))
    check("and nothing of them is kept", until(lambda: records(c) == [], 10), records(c))


@suite.long_scenario
def who_may_not_go_on(_):
    """Its tenant used its room meanwhile, or wants it to rest; and jobs end."""
    c = Cluster("stop-quota", workers=2, worker_args=PAUSES, lease=("3s", "1s", "2s"))
    try:
        first, second = c.workers
        c.start()
        second.stop()
        tenant = c.tenant("full", sandboxes=2, vcpu_milli=2000, memory_mib=2048, disk_mib=8192)
        box, wanted = Box(tenant), Box(tenant)
        box.exec("sh", "-c", "echo here > /tmp/me")
        submit = pb.SubmitRequest(spec=pb.JobSpec(template="base", command=command("sleep", "600")))
        job = c.admin.jobs.Submit(submit).job_id
        status = lambda: c.admin.jobs.Get(pb.GetRequest(job_id=job)).job
        check("a job runs", until(lambda: status().state == pb.UNIT_STATE_RUNNING, 20))
        first.stop()
        second.start()
        check("what rests holds no room", until(lambda: quota(c, "full")["sandboxes"] == 0, 20), quota(c, "full"))
        check("a job has ended", until(lambda: status().state == pb.UNIT_STATE_ENDED, 20) and status().result.reason == pb.REASON_WORKER_LOST, status())
        wanted.pause()
        time.sleep(soon(5))
        equal("both rest longer than a lease", [box.state(), wanted.state()], ["PAUSED"] * 2)
        others = [Box(tenant), Box(tenant)]
        first.start()
        refusals = lambda: [r["fields"] for r in c.audit_records("full") if r["event"] == "quota.refused" and r["fields"].get("unit") == box.id]
        check("without room it rests on", until(refusals, 60) and box.state() == "PAUSED", refusals())
        time.sleep(3)
        equal("which is told once", len(refusals()), 1)
        others.pop().kill()
        check("with room it can be resumed", until(lambda: not refused(box.resume)[1], 20))
        equal("and is as it was", box.exec("cat", "/tmp/me").out, b"here\n")
        equal("whoever was asked to rest does", wanted.state(), "PAUSED")
        for b in (box, wanted, *others):
            b.kill()
    finally:
        suite.close(c)


if __name__ == "__main__":
    suite.main(templates="base,python", worker_args=PAUSES)
