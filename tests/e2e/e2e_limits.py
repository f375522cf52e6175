#!/usr/bin/env python3
"""Many tenants at once: nobody is lost, turns are fair, and refusals come at once with their reasons."""
import collections
import json
import time

from harness import (SECOND, Suite, code_of, error_of, follow, in_parallel, pb, run, soon, spec, until)
from google.protobuf import any_pb2, duration_pb2

suite = Suite("limits")
check, equal = suite.check, suite.equal


def submit(client, *argv, **kw):
    return client.jobs.Submit(pb.SubmitRequest(spec=spec(*argv, **kw)), timeout=60).job_id


def get(client, job_id):
    return client.jobs.Get(pb.GetRequest(job_id=job_id), timeout=60).job


# google.rpc.Status and the two details that we look at, read without their .proto files.
def fields(data):
    """(number, value) of a message of length-delimited and varint fields."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 2:
            n = varint()
            yield tag >> 3, data[at:at + n]
            at += n
        else:
            yield tag >> 3, varint()


def details(err):
    """{type name: bytes} of grpc-status-details-bin."""
    for key, value in err.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            anys = [any_pb2.Any.FromString(v) for n, v in fields(value) if n == 3]
            return {a.type_url.rsplit("/", 1)[1]: a.value for a in anys}
    return {}


def retry_seconds(err):
    raw = details(err).get("google.rpc.RetryInfo", b"")
    for number, value in fields(raw):
        if number == 1:
            d = duration_pb2.Duration.FromString(value)
            return d.seconds + d.nanos / SECOND
    return None


def violations(err):
    """[(subject, description)] of QuotaFailure."""
    raw = details(err).get("google.rpc.QuotaFailure", b"")
    return [tuple(v.decode() for _, v in fields(value)) for number, value in fields(raw) if number == 1]


def refused_well(name, call, quota_word):
    begin = time.monotonic()
    err = error_of(call)
    took = time.monotonic() - begin
    check(f"{name} is RESOURCE_EXHAUSTED", code_of(err) == "RESOURCE_EXHAUSTED", err)
    if err is None:
        return
    check(f"{name} is refused at once", took < soon(1), took)
    check(f"{name} says when to try again", retry_seconds(err) is not None and 0 < retry_seconds(err) <= 3600, details(err))
    check(f"{name} says which limit it was", any(quota_word in " ".join(v) for v in violations(err)), (violations(err), details(err)))


@suite.scenario
def two_hundred_jobs(c):
    tenants = [c.tenant(f"many{i}", rate_burst=1000) for i in range(4)]
    todo = [(tenants[i % 4], i) for i in range(200)]
    begin = time.monotonic()
    ids = in_parallel(lambda p: submit(p[0], "sh", "-c", f"echo {p[1]}", wait=int(soon(300))), todo, 16)
    check("200 jobs of 4 tenants are accepted", all(isinstance(i, str) for i in ids), [i for i in ids if not isinstance(i, str)][:3])
    accepted = time.monotonic() - begin

    def follow_one(pair):
        (client, number), job_id = pair
        f = follow(client.jobs.Watch(pb.WatchRequest(job_id=job_id), timeout=soon(200)))
        return f.outcome == "EXITED" and bytes(f.out) == b"%d\n" % number and f.result.exit_code == 0, str(f)
    ends = in_parallel(follow_one, list(zip(todo, ids)), 8)
    bad = [e for e in ends if not (isinstance(e, tuple) and e[0])]
    check("all 200 end with their own output", not bad, bad[:3])
    print(f"     200 jobs: accepted in {accepted:.1f} s, all ended after {time.monotonic() - begin:.1f} s")
    starts = collections.Counter(get(p[0], i).attempt for p, i in zip(todo, ids))
    check("each was started once", set(starts) == {1}, (starts, [u["text"] for u in c.scheduler.events("JOB_REQUEUED")][:3]))
    fair, worst = fairness(c, {f"many{i}" for i in range(4)})
    check("while two tenants wait the numbers of their dispatches differ by 1 at most", fair, worst)


def unit_of(row):
    text = json.dumps(row)
    at = text.find('"job_')
    return text[at + 1:at + 31] if at >= 0 else None


def fairness(c, names):
    """Replay the log: JOB_ACCEPTED and JOB_DISPATCHED of the scheduler, in its order."""
    waiting, served = collections.Counter(), collections.Counter()
    base, worst = {}, 0
    for row in c.scheduler.events():
        t = row.get("tenant")
        if t not in names:
            continue
        if row["event"] == "JOB_ACCEPTED":
            waiting[t] += 1
        elif row["event"] == "JOB_DISPATCHED":
            waiting[t] -= 1
            served[t] += 1
        busy = frozenset(n for n in names if waiting[n] > 0)
        for a in names:
            for b in names:
                if a >= b:
                    continue
                pair = (a, b)
                if not {a, b} <= busy and pair not in base:
                    continue
                if not {a, b} <= busy:
                    del base[pair]
                    continue
                base.setdefault(pair, served[a] - served[b])
                worst = max(worst, abs(served[a] - served[b] - base[pair]))
    return worst <= 1, worst


@suite.scenario
def equal_turns(c):
    """Backlogs that stand before the first dispatch: strict alternation can be seen."""
    c.tenant("blocker", vcpu_milli=200000, memory_mib=65536, sandboxes=100)
    slots = 3
    blocker = c.tenant("blocker")
    held = [submit(blocker, "sleep", "60", wait=60) for _ in range(slots)]
    until(lambda: all(get(blocker, j).state == pb.UNIT_STATE_RUNNING for j in held), 20)
    a, b = c.tenant("fair-a", rate_burst=1000), c.tenant("fair-b", rate_burst=1000)
    ids = [(a, submit(a, "true", wait=100)) for _ in range(10)] + [(b, submit(b, "true", wait=100)) for _ in range(10)]
    check("lack of room is not lack of quota: they wait", all(get(t, j).state == pb.UNIT_STATE_QUEUED for t, j in ids[:3]))
    err = error_of(lambda: run(a, "true", timeout_rpc=2))
    equal("a Run without room waits too, up to its deadline", code_of(err), "DEADLINE_EXCEEDED")
    for j in held:
        blocker.jobs.Cancel(pb.CancelRequest(job_id=j))
    until(lambda: all(get(t, j).state == pb.UNIT_STATE_ENDED for t, j in ids), 60)
    check("all of both backlogs end well", all(get(t, j).result.outcome == pb.OUTCOME_EXITED for t, j in ids))
    order = [r["tenant"] for r in c.scheduler.events("JOB_DISPATCHED") if r.get("tenant") in ("fair-a", "fair-b")]
    lead = max(abs(order[:n].count("fair-a") - order[:n].count("fair-b")) for n in range(1, 20))
    check("two backlogs are served in turns", lead <= 1, (lead, order))


@suite.scenario
def refusals(c):
    t = c.tenant("rated", rate_interval_us=600_000_000, rate_burst=2)
    run(t, "true")
    run(t, "true")
    refused_well("a Run over the rate", lambda: run(t, "true"), "rate")
    refused_well("a Submit over the rate", lambda: submit(t, "true"), "rate")
    t = c.tenant("rated-soon", rate_interval_us=2_000_000, rate_burst=1)
    run(t, "true")
    time.sleep(2.2)
    check("after the time it works again", run(t, "true").outcome == "EXITED")

    t = c.tenant("queued", sandboxes=1, queue_max=2)
    first = submit(t, "sleep", "60")
    until(lambda: get(t, first).state == pb.UNIT_STATE_RUNNING, 20)
    waiting = [submit(t, "true") for _ in range(2)]
    refused_well("a Submit over the queue", lambda: submit(t, "true"), "queue")
    refused_well("a Run over the queue", lambda: run(t, "true"), "")
    t.jobs.Cancel(pb.CancelRequest(job_id=first))
    check("when the quota is free the queue runs", until(lambda: all(get(t, j).state == pb.UNIT_STATE_ENDED for j in waiting), 20)
          and all(get(t, j).result.outcome == pb.OUTCOME_EXITED for j in waiting))

    for name, limits, word in (("sandboxes", {"sandboxes": 1}, "sandboxes"), ("vcpus", {"vcpu_milli": 1000}, "vcpu"),
                               ("memory", {"memory_mib": 256}, "mem"), ("disk", {"disk_mib": 512}, "disk")):
        t = c.tenant(f"quota-{name}", **limits)
        box = t.sandboxes.Create(pb.CreateRequest(template="base")).sandbox
        refused_well(f"a Run over the quota of {name}", lambda: run(t, "true"), word)
        refused_well(f"a sandbox over the quota of {name}", lambda: t.sandboxes.Create(pb.CreateRequest(template="base")), word)
        waiting = submit(t, "echo", "later", wait=30)
        t.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
        check(f"{name}: a submitted job waits and runs when it is free", until(lambda: get(t, waiting).state == pb.UNIT_STATE_ENDED, 10)
              and get(t, waiting).result.outcome == pb.OUTCOME_EXITED, get(t, waiting))
        check(f"{name}: and the next Run is accepted", run(t, "true").outcome == "EXITED")
    t = c.tenant("small", memory_mib=128)
    err = error_of(lambda: run(t, "true", resources=(1, 256, 0)))
    check("what can never fit is refused with the limit's name", code_of(err) in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT") and "mem" in err.details(), err)
    t = c.tenant("deadline", sandboxes=1)
    first = submit(t, "sleep", "60")
    late = submit(t, "true", wait=1)
    check("a job that waits too long ends with QUEUE_DEADLINE", until(lambda: get(t, late).state == pb.UNIT_STATE_ENDED, 6)
          and get(t, late).result.reason == pb.REASON_QUEUE_DEADLINE, get(t, late))
    t.jobs.Cancel(pb.CancelRequest(job_id=first))
    logged = json.dumps(c.audit_records("tenant"))
    check("refusals are in the audit log", all(w in logged for w in ("rate.refused", "quota.refused", "queue.refused")))


@suite.scenario
def usage(c):
    t = c.tenant("uses", vcpu_milli=8000)
    box = t.sandboxes.Create(pb.CreateRequest(template="base", resources=pb.Resources(vcpus=2, memory_mib=512))).sandbox
    rows = {q.dimension: (q.used, q.limit) for q in c.usage("uses").quotas}
    equal("GetUsage shows what is held, and the limits", (rows["vcpu_milli"], rows["memory_mib"][0], rows["sandboxes"][0]), ((2000, 8000), 512, 1))
    t.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("… and nothing afterwards", until(lambda: not c.held(), 10), c.held())
    rows = {q.dimension: q.used for q in c.usage("uses").quotas}
    check("CPU time stays on the account", rows["cpu_ms"] > 0, rows)


if __name__ == "__main__":
    suite.main(templates="base", slots=3)
