#!/usr/bin/env python3
"""A clone's QEMU that was taken over tries to write what all clones are made from.

The calls are made inside of a live clone's QEMU (inject.c): with its uid, namespaces, fds,
capabilities and seccomp filter.  What would work is shown first, with a memory file of its own.
monitor_calls does the same to cloche-vmm, whose filter leaves it next to nothing to try.
"""
import errno
import os
import signal

from common import await_cache, digests, emulator, fds, harness, inject, names, next_worker

suite = harness.Suite("template-write")
check, equal = suite.check, suite.equal
O_RDWR, PROT_RW, MAP_SHARED, F_ADD_SEALS, F_GET_SEALS = 2, 3, 1, 1033, 1034
PUNCH_HOLE = 3  # with FALLOC_FL_KEEP_SIZE


def denied(what, got, *errors):
    check(f"{what} is refused: {' or '.join(errno.errorcode[e] for e in errors)}", -got in errors, got)


def try_all(pid, fd, name):
    """Every way to change a file that a process has open."""
    denied(f"pwrite to {name}", inject(pid, "pwrite64", fd, "=poison", 6, 4096), errno.EPERM, errno.EBADF)
    denied(f"a shared writable mapping of {name}", inject(pid, "mmap", 0, 4096, PROT_RW, MAP_SHARED, fd, 0), errno.EPERM, errno.EACCES)
    denied(f"punching a hole into {name}", inject(pid, "fallocate", fd, PUNCH_HOLE, 0, 4096), errno.EPERM, errno.EBADF)
    denied(f"cutting {name}", inject(pid, "ftruncate", fd, 4096), errno.EPERM, errno.EINVAL, errno.EBADF)


def the_act_itself_works(c, pid):
    uid = inject(pid, "getuid")
    check("the calls are made with the uid of the VM", uid == os.stat(f"/proc/{pid}").st_uid and (os.geteuid() != 0 or uid >= c.uid_base), uid)
    own = inject(pid, "memfd_create", "=own", 2)
    equal("(a memory file of its own can be written so)", inject(pid, "pwrite64", own, "=poison", 6, 0), 6)
    equal("(and mapped)", inject(pid, "mmap", 0, 4096, PROT_RW, MAP_SHARED, own, 0) > 0, True)
    inject(pid, "close", own)


@suite.scenario
def of_a_boot(c):
    check("the snapshot is stored", await_cache(c))
    play(c)


@suite.scenario
def of_the_cache(c):
    check("the next worker reads the snapshot", next_worker(c))
    play(c)


def play(c):
    before = digests(c)
    box = c.admin.sandboxes.Create(harness.pb.CreateRequest(template="base")).sandbox
    pid = c.vm_of(box.id)
    check("there is a snapshot, and a clone of it that runs", pid and len(before) >= 2, (pid, before))
    the_act_itself_works(c, pid)

    ram, state = (fds(pid, name) for name in names(c))
    check("the clone has the template's RAM open", ram, os.listdir(f"/proc/{pid}/fd"))
    for fd in ram:
        try_all(pid, fd, "the template's RAM")
        equal("the RAM's seals are complete", inject(pid, "fcntl", fd, F_GET_SEALS) & 0xF, 0xF)
        denied("taking seals over", inject(pid, "fcntl", fd, F_ADD_SEALS, 0), errno.EPERM)
    for fd in [*ram, *state]:
        again = inject(pid, "openat", -100, f"=/proc/self/fd/{fd}", O_RDWR)
        if again >= 0:
            try_all(pid, again, f"the file behind fd {fd}, opened anew for writing,")
            inject(pid, "close", again)
        else:
            denied(f"opening fd {fd} anew for writing", again, errno.EACCES, errno.ENOENT, errno.EPERM)
    for fd in fds(pid, "rootfs.img"):
        denied("pwrite to the root file system", inject(pid, "pwrite64", fd, "=poison", 6, 0), errno.EBADF)
        denied("opening the root file system for writing", inject(pid, "openat", -100, f"=/proc/self/fd/{fd}", O_RDWR), errno.EACCES, errno.EROFS, errno.ENOENT)

    equal("the template is what it was", digests(c), before)
    f = harness.run(c.admin, "echo", "clean")
    equal("the next clone is", bytes(f.out), b"clean\n")
    exec_id = c.admin.execs.Start(harness.pb.StartRequest(sandbox_id=box.id, command=harness.command("echo", "alive"))).exec_id
    f = harness.follow(c.admin.execs.Attach(harness.pb.AttachRequest(sandbox_id=box.id, exec_id=exec_id), timeout=20))
    equal("the clone goes on as before: the calls disturbed nothing else", bytes(f.out), b"alive\n")

    try:
        got = inject(pid, "setuid", 0)
    except RuntimeError as err:
        got = str(err)
    check("becoming root ends the VM (SIGSYS by its seccomp filter)", f"status {signal.SIGSYS:#x}" in str(got), got)
    state = harness.until(lambda: c.admin.sandboxes.Get(harness.pb.SandboxServiceGetRequest(sandbox_id=box.id)).sandbox.state == harness.pb.UNIT_STATE_ENDED, 10)
    check("the worker notices and ends the sandbox", state)


if __name__ == "__main__":
    if os.geteuid() != 0:
        harness.skip("needs root: ptrace into a process of another uid")
    suite.main(worker_args=("--driver", emulator(), "--snapshot-cache", ""))
