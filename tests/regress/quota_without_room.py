#!/usr/bin/env python3
"""A Run over its tenant's quota waited for its deadline when no worker had room as it came: the quota
was looked at only once there was room, and by then the Run had been accepted."""
import time

from harness import Suite, code_of, error_of, pb, run, soon, spec, until

suite = Suite("quota_without_room")
SLOTS = 2


@suite.scenario
def refused_while_every_worker_is_full(c):
    tenant, other = c.tenant("over", sandboxes=1), c.tenant("other")
    box = tenant.sandboxes.Create(pb.CreateRequest(template="base")).sandbox
    job = other.jobs.Submit(pb.SubmitRequest(spec=spec("sleep", "60"))).job_id
    until(lambda: other.jobs.Get(pb.GetRequest(job_id=job)).job.state == pb.UNIT_STATE_RUNNING, 30)

    begin = time.monotonic()
    err = error_of(lambda: run(tenant, "true", timeout_rpc=20))
    suite.equal("a Run over its quota is refused though no worker has room", code_of(err), "RESOURCE_EXHAUSTED")
    suite.check("… at once", time.monotonic() - begin < soon(10), time.monotonic() - begin)

    err = error_of(lambda: run(other, "true", timeout_rpc=2))
    suite.equal("a Run within its quota waits for room", code_of(err), "DEADLINE_EXCEEDED")
    other.jobs.Cancel(pb.CancelRequest(job_id=job))
    tenant.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    suite.check("and runs when there is some", run(tenant, "true").outcome == "EXITED")


if __name__ == "__main__":
    suite.main(templates="base", slots=SLOTS)
