#!/usr/bin/env python3
"""A disk that fills: work is refused with a clear error before anything breaks, and freed space heals it."""
import contextlib
import ctypes
import os
import shutil
import tempfile

from harness import (MIB, Cluster, Suite, code_of, error_of, grpc, pb, run, skip, soon, spec, until)

suite = Suite("disk-full")
check, equal = suite.check, suite.equal
LIBC = ctypes.CDLL(None, use_errno=True)
SIZE, RESERVE = 96, 24
SMALL = (1, 256, 16)  # a scratch disk that the small disk has room for


@contextlib.contextmanager
def small_disk():
    path = tempfile.mkdtemp(prefix="cloche-e2e-disk.")
    if LIBC.mount(b"tmpfs", path.encode(), b"tmpfs", 0, f"size={SIZE}m,mode=755".encode()) != 0:
        os.rmdir(path)
        skip("no right to mount a tmpfs (needs root)")
    try:
        yield path
    finally:
        LIBC.umount2(path.encode(), 2)
        shutil.rmtree(path, ignore_errors=True)


def fill(path, leave_mib):
    left = os.statvfs(path)
    n = left.f_bavail * left.f_frsize - leave_mib * MIB
    with open(os.path.join(path, "ballast"), "wb") as f:
        for _ in range(n // MIB):
            f.write(bytes(MIB))


def free(path):
    os.unlink(os.path.join(path, "ballast"))


trouble = []  # what works() saw, the newest last


def works(c):
    try:
        f = run(c.admin, "true", timeout_rpc=soon(10), resources=SMALL)
    except grpc.RpcError as err:
        trouble.append(err)
        return False
    trouble.append(f)
    return f.outcome == "EXITED"


def worker_disk():
    with small_disk() as disk:
        c = Cluster("disk-worker", state_dir=disk, worker_args=("--disk-reserve", f"{RESERVE}MiB"))
        try:
            c.start()
            check("with room on the worker's disk a job runs", works(c), trouble[-1:])
            err = error_of(lambda: run(c.admin, "true", timeout_rpc=5, resources=(1, 256, SIZE)))
            refused = c.worker.events("UNIT_REFUSED")
            check("a scratch disk that could eat up the reserve is not given", err is not None and refused and "scratch disk" in refused[-1]["text"], (err, refused[-1:]))
            fill(disk, RESERVE // 2)
            closed = until(lambda: code_of(error_of(lambda: run(c.admin, "true", timeout_rpc=3, resources=SMALL))) != "OK", 15, 0.5)
            err = error_of(lambda: run(c.admin, "true", timeout_rpc=3, resources=SMALL))
            check("a nearly full worker takes no new work", closed and err is not None, err)
            waiting = c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("true", wait=60, resources=SMALL))).job_id
            check("a submitted job waits for another worker or for room", c.admin.jobs.Get(pb.GetRequest(job_id=waiting)).job.state == pb.UNIT_STATE_QUEUED)
            free(disk)
            check("freed space heals it without a restart", until(lambda: works(c), 20), trouble[-1:])
            check("… and the job that waited runs", until(lambda: c.admin.jobs.Get(pb.GetRequest(job_id=waiting)).job.result.outcome == pb.OUTCOME_EXITED, 10))
            f = run(c.admin, "sh", "-c", f"head -c {SIZE * 2 * MIB} /dev/zero; echo end >&2", cap=1024 * MIB, timeout_rpc=100, resources=SMALL)
            check("output that fills the disk under a running job is cut, and the job ends well", f.outcome == "EXITED" and f.result.stdout.bytes == SIZE * 2 * MIB
                  and f.result.stdout.truncated, f)
            check("the worker lives", c.worker.is_running())
        finally:
            suite.close(c)


def audit_disk():
    with small_disk() as disk:
        audit_dir = os.path.join(disk, "audit")
        c = Cluster("disk-audit", audit_dir=audit_dir, audit_args=("--disk_reserve", f"{RESERVE}MiB"))
        try:
            c.start()
            check("with room for the audit log a job runs", works(c), trouble[-1:])
            fill(disk, RESERVE // 2)
            refused = until(lambda: code_of(error_of(lambda: run(c.admin, "true", timeout_rpc=5))) == "UNAVAILABLE", 20, 0.5)
            err = error_of(c.admin.jobs.Submit, pb.SubmitRequest(spec=spec("true")), timeout=5)
            check("without room for the audit log nothing may change, and the error says why", refused and code_of(err) == "UNAVAILABLE" and "audit" in err.details(), err)
            check("reading goes on", error_of(c.admin.jobs.List, pb.ListRequest(), timeout=5) is None)
            check("the audit writer lives", c.audit.is_running())
            free(disk)
            check("freed space heals it without a restart", until(lambda: works(c), 20), trouble[-1:])
            check("what was held back is in the log now", until(lambda: c.verify_audit()[0] == 0, 5), c.verify_audit())
        finally:
            suite.close(c)


if __name__ == "__main__":
    worker_disk()
    audit_disk()
    suite.finish()
