#!/usr/bin/env python3
"""kill -9 (and SIGSTOP) of each process under load: nothing acknowledged is lost, nothing lives on."""
import collections
import os
import signal
import sys
import threading
import time
import traceback

from harness import (BUILD, FACTOR, Cluster, Followed, Suite, command, follow, grpc, in_parallel, only_in_ci, pb, run, soon, spec,
                     until)

suite = Suite("kills")
check, equal = suite.check, suite.equal
LEASE = tuple(f"{int(seconds * FACTOR)}s" for seconds in (6, 1, 4))
TTL = 6 * FACTOR


class Load:
    """Threads that submit short jobs and remember which were acknowledged."""

    def __init__(self, c, tenants=2, seconds=0.4, attempts=3):
        self.c, self.seconds, self.attempts = c, seconds, attempts
        self.acknowledged, self.refused, self.over = [], collections.Counter(), threading.Event()
        self.clients = [c.tenant(f"load{i}", rate_burst=10000, sandboxes=6) for i in range(tenants)]
        self.threads = [threading.Thread(target=self._submit, args=(t,), daemon=True) for t in self.clients]

    def __enter__(self):
        for t in self.threads:
            t.start()
        until(lambda: len(self.acknowledged) > 6, 20)
        return self

    def _submit(self, client):
        i = 0
        while not self.over.is_set():
            i += 1
            try:
                r = pb.SubmitRequest(spec=spec("sh", "-c", f"sleep {self.seconds}; echo done", attempts=self.attempts, wait=120), idempotency_key=f"k{i}")
                self.acknowledged.append((client, client.jobs.Submit(r, timeout=5).job_id))
            except grpc.RpcError as err:
                self.refused[err.code().name] += 1
                i -= 1
            time.sleep(0.15)

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join(soon(10))

    def jobs(self, seconds=60):
        """The jobs as they ended (or did not, within the time)."""
        end = time.monotonic() + soon(seconds)

        def get(pair):
            client, job_id = pair
            while True:
                try:
                    job = client.jobs.Get(pb.GetRequest(job_id=job_id), timeout=5).job
                    if job.state == pb.UNIT_STATE_ENDED or time.monotonic() > end:
                        return job
                except grpc.RpcError as err:
                    if err.code() == grpc.StatusCode.NOT_FOUND or time.monotonic() > end:
                        return None
                time.sleep(0.2)
        return in_parallel(get, self.acknowledged, 8)


def judge(c, load, name, may_fail=()):
    jobs = load.jobs()
    lost = [pair[1] for pair, job in zip(load.acknowledged, jobs) if not isinstance(job, pb.Job)]
    open_ = [j.id for j in jobs if isinstance(j, pb.Job) and j.state != pb.UNIT_STATE_ENDED]
    check(f"{name}: no acknowledged job is lost ({len(jobs)} jobs)", len(jobs) > 6 and not lost, lost)
    check(f"{name}: every one of them ends", not open_, [(j, c.admin and None) for j in open_])
    bad = [(pb.Outcome.Name(j.result.outcome), pb.Reason.Name(j.result.reason), j.result.message) for j in jobs
           if isinstance(j, pb.Job) and j.result.outcome != pb.OUTCOME_EXITED and pb.Reason.Name(j.result.reason) not in may_fail]
    check(f"{name}: they end well", not bad, collections.Counter(bad))
    ids = {job_id for _, job_id in load.acknowledged}
    twice = until(lambda: set(c.unit_ends(ids).values()) == {1}, 3) or {i: n for i, n in c.unit_ends(ids).items() if n != 1}
    check(f"{name}: each has exactly one end in the audit log", twice is True, twice)
    held = until(lambda: not c.held(), 20)
    check(f"{name}: every lease is given back", held, c.held())
    equal(f"{name}: the books show no drift", c.drift(), {})
    if load.refused:
        print(f"     {name}: meanwhile refused: {dict(load.refused)}")


def live_run(client, *argv, **kw):
    """A detached Run whose stream stays open; (stream, what it said so far)."""
    stream = client.jobs.Run(pb.RunRequest(spec=spec(*argv, **kw), detach_on_disconnect=True), timeout=60)
    f = Followed()
    while f.take(next(stream)) != "output":
        pass
    return stream, f


def rest_of(c, stream, f):
    """Read on; when the stream breaks, Watch from where it was, as the CLI does."""
    try:
        for event in stream:
            f.take(event)
        return f
    except grpc.RpcError:
        pass
    c.await_answer()
    end = time.monotonic() + soon(40)
    while f.result is None and time.monotonic() < end:
        try:
            w = c.admin.jobs.Watch(pb.WatchRequest(job_id=f.job_id, attempt=f.attempts[-1], stdout_offset=len(f.out), stderr_offset=len(f.err)), timeout=30)
            for event in w:
                f.take(event)
        except grpc.RpcError:
            time.sleep(0.3)
    return f


@suite.scenario
def scheduler_killed(c):
    stream, f = live_run(c.admin, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.4; done")
    box = c.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=60 * 10**9)).sandbox
    with Load(c) as load:
        c.scheduler.kill()
        time.sleep(1)
        c.scheduler.start()
        check("scheduler: it serves again", c.await_answer())
        n = len(load.acknowledged)
        check("scheduler: … and takes jobs", until(lambda: len(load.acknowledged) > n + 3, 20))
    rest_of(c, stream, f)
    check("scheduler: a job that ran goes on, in its first attempt, with all its output",
          f.outcome == "EXITED" and set(f.attempts) == {1} and bytes(f.out) == b"".join(b"%d\n" % i for i in range(1, 9)), f)
    exec_id = c.admin.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command("echo", "still here"))).exec_id
    g = follow(c.admin.execs.Attach(pb.AttachRequest(sandbox_id=box.id, exec_id=exec_id), timeout=20))
    check("scheduler: a sandbox lives on", bytes(g.out) == b"still here\n", g)
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    judge(c, load, "scheduler")


@suite.scenario
def worker_killed(c):
    once = c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sleep", "30"))).job_id
    box = c.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=60 * 10**9)).sandbox
    with Load(c) as load:
        vms = c.vms()
        c.worker.kill()  # a monitor that notices it ends then, others live on
        time.sleep(0.5)
        left = [root / "vm-99999" for root in c.cgroup_roots()]  # as of a VM that ended just before it
        for path in left:
            path.mkdir()
        c.worker.start()
        swept = until(lambda: not set(vms) & set(c.vms()), 5)
        check("worker: its restart sweeps the VMs of before at once", vms and swept, (vms, c.vms()))
        gone = until(lambda: not [p for p in left if p.exists()], 10)
        check("worker: … and cgroups of which its state files know nothing", gone and (left or c.user), left)
        n = len(load.acknowledged)
        until(lambda: len(load.acknowledged) > n + 5, 10)
    judge(c, load, "worker")
    job = c.admin.jobs.Get(pb.GetRequest(job_id=once)).job
    check("worker: a job that may start once ends as WORKER_LOST", (job.state, job.result.reason) == (pb.UNIT_STATE_ENDED, pb.REASON_WORKER_LOST), job)
    sandbox = c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox
    check("worker: a sandbox is lost, and says so", (sandbox.state, sandbox.reason) == (pb.UNIT_STATE_ENDED, pb.REASON_WORKER_LOST), sandbox)


@suite.scenario
def redis_killed(c):
    stream, f = live_run(c.admin, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.4; done")
    with Load(c) as load:
        c.redis.kill()
        time.sleep(1)
        c.redis.start()
        check("redis: the scheduler serves again", c.await_answer())
        n = len(load.acknowledged)
        check("redis: … and takes jobs", until(lambda: len(load.acknowledged) > n + 3, 20))
    rest_of(c, stream, f)
    check("redis: a job that ran goes on, with all its output", f.outcome == "EXITED" and bytes(f.out) == b"".join(b"%d\n" % i for i in range(1, 9)), f)
    judge(c, load, "redis")


@suite.scenario
def audit_killed(c):
    with Load(c) as load:
        for _ in range(3):
            c.audit.kill()
            time.sleep(0.4)
            c.audit.start()
            time.sleep(0.6)
        n = len(load.acknowledged)
        check("audit: jobs are taken again", until(lambda: len(load.acknowledged) > n + 3, 20))
    judge(c, load, "audit")
    status, text = c.verify_audit()
    check("audit: the log verifies while it is written", status in (0, 3), text)


@suite.scenario
def vm_killed(c):
    job = c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sleep", "60", attempts=1))).job_id
    until(lambda: c.admin.jobs.Get(pb.GetRequest(job_id=job)).job.state == pb.UNIT_STATE_RUNNING, 20)
    time.sleep(0.5)
    os.kill(c.vm_of(job), signal.SIGKILL)
    until(lambda: c.admin.jobs.Get(pb.GetRequest(job_id=job)).job.state == pb.UNIT_STATE_ENDED, 20)
    r = c.admin.jobs.Get(pb.GetRequest(job_id=job)).job.result
    check("a job whose VM is killed has failed, and says what the VM died of", r.reason == pb.REASON_VM_DIED and "died by signal 9" in r.message, r)
    c.await_ready()


@suite.scenario
def worker_never_comes_back(c):
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        jobs = [c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sleep", "60"))).job_id for _ in range(3)]
        until(lambda: all(c.admin.jobs.Get(pb.GetRequest(job_id=j)).job.state == pb.UNIT_STATE_RUNNING for j in jobs), 20)
        time.sleep(1.2)
        vms = c.vms()
        c.worker.signal(number)
        begin = time.monotonic()
        stale = c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("sh", "-c", "sleep 1; echo once", wait=120))).job_id
        check(f"a worker that is {name} had VMs", vms)
        gone = until(lambda: not c.vms(), TTL + 8)
        took = time.monotonic() - begin
        check(f"… and none lives longer than the lease and 2 s ({took:.1f} s)", gone and took <= TTL + 2 * FACTOR, took)
        ended = until(lambda: all(c.admin.jobs.Get(pb.GetRequest(job_id=j)).job.state == pb.UNIT_STATE_ENDED for j in jobs), TTL + 6)
        rows = [c.admin.jobs.Get(pb.GetRequest(job_id=j)).job.result for j in jobs]
        check(f"a worker that is {name}: its jobs end as WORKER_LOST", ended and all(r.reason == pb.REASON_WORKER_LOST for r in rows), rows)
        held = until(lambda: c.held().get("local", {}).get("sandboxes", 0) <= 1, 5)
        check(f"a worker that is {name}: the leases are given back, but that of the job that came later", held, c.held())
        if number == signal.SIGKILL:
            c.worker.child.wait()
            c.worker.start()
        else:
            c.worker.signal(signal.SIGCONT)
        f = None
        for _ in range(20):
            try:
                f = run(c.admin, "echo", "back", timeout_rpc=20)
                break
            except grpc.RpcError:
                time.sleep(0.5)
        check(f"a worker that was {name} works again", f is not None and bytes(f.out) == b"back\n", f)
        until(lambda: c.admin.jobs.Get(pb.GetRequest(job_id=stale)).job.state == pb.UNIT_STATE_ENDED, 30)
        job = c.admin.jobs.Get(pb.GetRequest(job_id=stale)).job
        taken = [e for e in c.worker.events("UNIT_ASSIGNED") if e["unit"] == stale]
        check(f"a job sent to a worker that is {name} is run once, later", job.result.outcome == pb.OUTCOME_EXITED and len(taken) == 1, (job, taken))
        c.await_ready()


def with_slow_disk():
    """Redis acknowledges what is on its disk only, also on a slow one."""
    env = {"LD_PRELOAD": str(BUILD / "e2e_slow_fsync.so"), "SLOW_FSYNC_MS": "300"}
    c = Cluster("slow", lease=LEASE, redis_env=env)
    try:
        c.start()
        with Load(c, attempts=3) as load:
            c.redis.kill()
            time.sleep(0.5)
            c.redis.start()
            check("slow disk: the scheduler serves again", c.await_answer(40))
            n = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > n + 3, 20)
        judge(c, load, "slow disk")
    except Exception as err:  # noqa: BLE001
        check("slow disk: the scenario runs to its end", False, f"{err}\n{traceback.format_exc()}\n{c.tails()}")
    suite.close(c)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "slow":
        with_slow_disk()
        suite.finish()
    only_in_ci(60)
    finish, suite.finish = suite.finish, lambda: None
    suite.main(lease=LEASE)
    if len(sys.argv) == 1:
        with_slow_disk()
    finish()
