#!/usr/bin/env python3
"""Two schedulers of different groups on one Redis, each with a worker and clients of its own.

One set of tenants, keys, limits and books; every job is run once, by the scheduler that admitted it, and its end
is known to both.  Those of one group stand by for each other (e2e/standby); one of another group does not take
over the jobs of one that died: they go on when it is started again, which is the last scenario.
"""
import collections
import json
import time

from harness import BUILD, Cluster, Process, Suite, code_of, error_of, in_parallel, only_in_ci, pb, run, spec, until

suite = Suite("two-schedulers")
check, equal = suite.check, suite.equal


def job(client, job_id):
    return client.jobs.Get(pb.GetRequest(job_id=job_id)).job


def audited(c, event, ids):
    """{unit: how many records of that event}"""
    rows = [json.dumps(r) for r in c.audit_records()]
    return {i: sum(f'"{event}"' in r and i in r for r in rows) for i in ids}


@suite.scenario
def both_work(c):
    results = in_parallel(lambda i: run(c.ends[i % 2], "echo", str(i), timeout_rpc=60), range(24), 8)
    good = [f for i, f in enumerate(results) if getattr(f, "outcome", "") == "EXITED" and bytes(f.out) == b"%d\n" % i]
    equal("jobs of both ends end with their own output", len(good), 24)
    ids = [f.job_id for f in good]
    check("each ended once, as both ends tell", all(job(e, i).result.outcome == pb.OUTCOME_EXITED for e in c.ends for i in ids))
    until(lambda: set(audited(c, "unit.end", ids).values()) == {1}, 5)
    equal("and was started and ended once, as the audit log tells", [set(audited(c, event, ids).values()) for event in ("unit.start", "unit.end")], [{1}, {1}])
    workers = collections.Counter(job(c.admin, i).worker_id for i in ids)
    equal("each by a worker of the end that took it", len(workers), 2)


@suite.scenario
def one_set_of_books(c):
    client = c.tenant("shared", sandboxes=2)
    other = c.client(client.key, target=c.targets[1])
    boxes = [end.sandboxes.Create(pb.CreateRequest(template="base")).sandbox.id for end in (client, other)]
    err = error_of(lambda: run(other, "true", timeout_rpc=10))
    equal("a quota is one quota at both ends", code_of(err), "RESOURCE_EXHAUSTED")
    for end, box in zip((client, other), boxes):
        end.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
    check("and what one gives back the other can use", until(lambda: code_of(error_of(lambda: run(other, "true", timeout_rpc=10))) == "OK", 10, 0.3))
    c.admin.tenants.RevokeKey(pb.RevokeKeyRequest(key_id=client.key.split("_")[1]))
    check("a key revoked at one end is refused at the other within a second or so",
          until(lambda: code_of(error_of(other.jobs.List, pb.ListRequest())) == "UNAUTHENTICATED", 3))


@suite.scenario
def one_dies(c):
    """… and comes back: nothing that it acknowledged is lost; the other end does not notice."""
    ids = [c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sh", "-c", "sleep 1; echo hi", wait=300, attempts=3))).job_id for _ in range(8)]
    time.sleep(1)
    c.scheduler.kill()
    f = [run(c.ends[1], "echo", "still", timeout_rpc=20) for _ in range(3)]
    check("the other end works on", all(bytes(x.out) == b"still\n" for x in f), [str(x) for x in f])
    c.scheduler.start()
    ended = until(lambda: all(job(c.ends[1], i).state == pb.UNIT_STATE_ENDED for i in ids), 60, 0.5)
    equal("after its start every job ends well", (bool(ended), {job(c.ends[1], i).result.outcome for i in ids}), (True, {pb.OUTCOME_EXITED}))


if __name__ == "__main__":
    only_in_ci(60)
    c = Cluster("two-schedulers", lease=("10s", "1s", "6s"), slots=4)
    d = c.dir
    c.targets = [f"unix:{d}/api.sock", f"unix:{d}/api-b.sock"]
    second = Process(c, "scheduler-b", [BUILD / "cloche-scheduler", "--listen", c.targets[1], "--worker-listen", f"unix:{d}/worker-b.sock",
                                        "--redis", f"unix:{d}/redis.sock", "--audit-socket", d / "audit.sock", "--pepper-file", d / "sched" / "pepper", "--lead-group", "b",
                                        *c._lease_args()])
    worker = c.add_worker(f"unix:{d}/worker-b.sock")
    c.workers.remove(worker)  # started after its scheduler
    c.processes = lambda: [c.redis, c.audit, c.scheduler, second, *c.workers, worker]
    try:
        c.start()
        second.start()
        c.await_socket("worker-b.sock")
        worker.start()
        c.ends = [c.admin, c.client(target=c.targets[1])]
        until(lambda: worker.events("TEMPLATE_READY"), 30)
        suite.play(c)
    finally:
        statuses = [worker.stop(), second.stop()]
        equal("the second scheduler and its worker end in order", statuses, [0, 0])
        suite.close(c)
    suite.finish()
