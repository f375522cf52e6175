#!/usr/bin/env python3
"""A clone's cloche-vmm that was taken over tries what its main thread's filter allows, and what it does not.

The calls are made inside of live clones (inject.c).  What is allowed must not reach the template
that all clones are made from; all else must end that VM, and no other.
"""
import errno
import os
import signal

from common import await_cache, digests, fds, harness, inject, names, next_worker, probe

suite = harness.Suite("monitor-calls")
check, equal = suite.check, suite.equal
FORBIDDEN = {"getuid": (), "setuid": (0,), "openat": (-100, "=/", 0), "mmap": (0, 4096, 3, 0x22, -1, 0), "memfd_create": ("=own", 0),
             "fallocate": (0, 3, 0, 4096), "ptrace": (0, 0, 0, 0), "clone": (0, 0, 0, 0, 0)}


def clone_of(c):
    box = c.admin.sandboxes.Create(harness.pb.CreateRequest(template="base")).sandbox
    return box.id, c.vm_of(box.id)


def has_ended(c, box):
    get = harness.pb.SandboxServiceGetRequest(sandbox_id=box)
    return harness.until(lambda: c.admin.sandboxes.Get(get).sandbox.state == harness.pb.UNIT_STATE_ENDED, 10)


@suite.scenario
def what_is_allowed(c):
    check("the snapshot is stored", await_cache(c))
    before = digests(c)
    box, pid = clone_of(c)
    check("there is a snapshot, and a clone of it that runs", pid and len(before) >= 2, (pid, before))
    equal("it is our own monitor", os.path.basename(os.readlink(f"/proc/{pid}/exe")), "cloche-vmm")
    files = {**fds(pid, names(c)[0]), **fds(pid, names(c)[1]), **fds(pid, "rootfs.img")}
    check("it has files of the template open", files, os.listdir(f"/proc/{pid}/fd"))
    for fd, name in files.items():
        for call, args in (("pwrite64", (fd, "=poison", 6, 4096)), ("ftruncate", (fd, 4096))):
            got = inject(pid, call, *args)
            check(f"{call} to {name} is refused", -got in (errno.EPERM, errno.EBADF, errno.EINVAL, errno.EACCES), got)
    equal("the template is what it was", digests(c), before)
    exec_id = c.admin.execs.Start(harness.pb.StartRequest(sandbox_id=box, command=harness.command("echo", "alive"))).exec_id
    f = harness.follow(c.admin.execs.Attach(harness.pb.AttachRequest(sandbox_id=box, exec_id=exec_id), timeout=20))
    equal("the clone goes on as before", bytes(f.out), b"alive\n")
    c.admin.sandboxes.Kill(harness.pb.KillRequest(sandbox_id=box))


@suite.scenario
def what_is_allowed_of_the_cache(c):
    check("the next worker reads the snapshot", next_worker(c))
    what_is_allowed(c)


@suite.scenario
def what_is_not(c):
    bystander, other = clone_of(c)
    for call, args in FORBIDDEN.items():
        box, pid = clone_of(c)
        try:
            got = inject(pid, call, *args)
        except RuntimeError as err:
            got = str(err)
        check(f"{call} ends the VM (SIGSYS by its filter)", f"status {signal.SIGSYS:#x}" in str(got), got)
        check("… and its sandbox", has_ended(c, box))
    equal("another one has noticed nothing", c.vm_of(bystander), other)
    equal("and the next job runs", bytes(harness.run(c.admin, "echo", "clean").out), b"clean\n")
    c.admin.sandboxes.Kill(harness.pb.KillRequest(sandbox_id=bystander))


if __name__ == "__main__":
    if os.geteuid() != 0:
        harness.skip("needs root: ptrace into a process of another uid")
    driver = probe()["driver"]
    if driver.startswith("qemu/"):
        harness.skip(f"cloche-vmm runs nothing here: {driver}")
    suite.main(worker_args=("--driver", driver, "--snapshot-cache", ""))
