#!/usr/bin/env python3
"""--disk: a scratch disk of its own for each VM: larger than its memory, bounded, and gone with it."""
import glob
import os
import time

from harness import MIB, Suite, command, follow, in_parallel, pb, run, until

suite = Suite("scratch")
check, equal = suite.check, suite.equal
FILL = "yes 'not a zero' | head -c %dM > %s"  # the host keeps no zeros


def disk_of(c, unit_id):
    """The os.stat_result of the scratch disk that a unit's monitor has open."""
    pid = c.vm_of(unit_id)
    for n in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{n}"
        target = os.readlink(path)
        if target.startswith(str(c.worker.state_dir)) and "(deleted)" in target:
            return os.stat(path)
    return None


def used(st):
    return st.st_blocks * 512  # stat(2): whatever the file system's blocks are


def holders(disk):
    """Processes that have the disk open; it has no name, so its blocks are free when there are none."""
    found = []
    for fd in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            st = os.stat(fd)
        except OSError:
            continue  # closed since
        if (st.st_dev, st.st_ino) == disk:
            found.append(int(fd.split("/")[2]))
    return found


class Box:
    def __init__(self, c, disk=0, template="base"):
        request = pb.CreateRequest(template=template)
        request.resources.vcpus, request.resources.memory_mib, request.resources.disk_mib = 1, 256, disk
        self.c, self.id = c, c.admin.sandboxes.Create(request).sandbox.id

    def sh(self, script, timeout=60):
        e = self.c.admin.execs.Start(pb.StartRequest(sandbox_id=self.id, command=command("sh", "-c", script, timeout=timeout))).exec_id
        return follow(self.c.admin.execs.Attach(pb.AttachRequest(sandbox_id=self.id, exec_id=e), timeout=timeout + 10))

    def kicks(self):
        """How often its guest has asked something of its scratch disk; None where nobody counts."""
        stats = self.c.admin.sandboxes.Stats(pb.StatsRequest(unit_id=self.id)).stats
        return {n.name: n.value for n in stats.counters}.get("kicks.scratch")

    def end(self):
        self.c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))


def filled(c):
    """A sandbox with 100 MiB on its disk, and the disk's (device, inode)."""
    box = Box(c)
    box.sh(FILL % (100, "/tmp/f") + "; sync")
    st = disk_of(c, box.id)
    disk = st.st_dev, st.st_ino
    check("a filled disk takes its blocks, and its monitor holds it", used(st) > 95 * MIB and c.vm_of(box.id) in holders(disk), (st, holders(disk)))
    return box, disk


@suite.long_scenario
def more_than_memory(c):
    f = run(c.admin, "sh", "-c", "dd if=/dev/zero of=/tmp/f bs=1M count=300", timeout=120, resources=(1, 192, 512), timeout_rpc=150)
    check("300 MiB are written in a VM of 192 MiB", (f.outcome, f.result.exit_code) == ("EXITED", 0), f)
    box = Box(c)
    f = box.sh(FILL % (120, "/tmp/a") + "; cksum < /tmp/a > /tmp/sum; sync; "
               "[ \"$(cksum < /tmp/a)\" = \"$(cat /tmp/sum)\" ] && df -k / | tail -n 1")
    check("what is read again is what was written", f.result.exit_code == 0, f)
    st = disk_of(c, box.id)
    equal("the host has a file of exactly that size", st.st_size, 512 * MIB)
    check("which takes what was written", 120 * MIB <= used(st) < 150 * MIB, used(st) / MIB)
    f = box.sh("rm /tmp/a; sync; sleep 1; sync")
    check("what is deleted goes back to the host", until(lambda: used(disk_of(c, box.id)) < 40 * MIB, 10), disk_of(c, box.id))
    box.end()


@suite.scenario
def what_is_deleted_goes_back_together(c):
    """A question to the host about each file makes whoever deletes many wait as often."""
    box = Box(c)
    each = "cd /tmp/d; i=0; while [ $i -lt 1000 ]; do echo $i > $i; i=$((i+1)); done"
    box.sh(f"mkdir /tmp/d; {each}; sync")
    before = box.kicks()
    f = box.sh(f"{each}; cd /; rm -rf /tmp/d")
    check("files are written anew and deleted", f.result.exit_code == 0, f)
    after = box.kicks()
    if before is None:
        print("     the driver counts nothing: how often the host was asked is not known")
    else:
        check("the host is not asked about each", after - before < 300, (before, after))
    box.sh(FILL % (100, "/tmp/f") + "; sync; rm /tmp/f")
    copy = c.admin.sandboxes.Fork(pb.ForkRequest(sandbox_id=box.id), timeout=60).sandbox.id
    check("what was deleted is not copied", used(disk_of(c, box.id)) < 40 * MIB and used(disk_of(c, copy)) < 40 * MIB,
          [used(disk_of(c, i)) / MIB for i in (box.id, copy)])
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=copy))
    box.end()


@suite.scenario
def bounds(c):
    for disk in (64, 512, 700):
        box = Box(c, disk)
        f = box.sh("df -k / | tail -n 1")
        avail = int(f.out.split()[3]) // 1024 if f.out else 0
        check(f"--disk {disk}: about {disk} MiB are free", 0.95 * disk <= avail <= disk, (avail, f))
        f = box.sh(f"dd if=/dev/zero of=/tmp/f bs=1M count={disk * 2} 2>&1 | tail -n 4; stat -c %s /tmp/f; touch /tmp/more; echo x > /tmp/more; echo $?", timeout=120)
        lines = f.out.decode().split("\n")
        check(f"--disk {disk}: beyond it the guest hears ENOSPC", b"No space left" in f.out + f.err and lines[-2] != "0", f)
        size = [int(line) for line in lines if line.isdigit() and int(line) > MIB]
        check(f"--disk {disk}: after about that much", size and 0.95 * disk <= size[0] / MIB <= disk, (size, f))
        f = box.sh("rm /tmp/f; echo again > /tmp/more && cat /tmp/more")
        check(f"--disk {disk}: and freed space is usable again", bytes(f.out) == b"again\n", f)
        equal(f"--disk {disk}: the host's file is no larger than promised", disk_of(c, box.id).st_size, max(disk, 512) * MIB)
        box.end()


@suite.long_scenario
def many_files(c):
    f = run(c.admin, "sh", "-c", "mkdir /tmp/d; i=0; while [ $i -lt 12000 ]; do : > /tmp/d/$i; i=$((i+1)); done; ls /tmp/d | wc -l; df -i / | tail -n 1", timeout=120, timeout_rpc=150)
    check("12,000 small files fit", f.out.startswith(b"12000"), f)


@suite.long_scenario
def nothing_is_shared_or_left(c):
    def one(i):
        box = Box(c)
        f = box.sh(f"cat /tmp/secret 2>/dev/null; echo {i} > /tmp/secret; echo {i} > /home/user/x; sync; cat /tmp/secret")
        box.end()
        return bytes(f.out)
    equal("each starts empty, side by side and one after the other", in_parallel(one, range(6), 3), [b"%d\n" % i for i in range(6)])
    box, disk = filled(c)
    names = [name for _, _, names in os.walk(c.worker.state_dir) for name in names]
    check("a disk has no name in the folder", not any("scratch" in n or "disk" in n for n in names), names)
    box.end()
    check("when the VM ends its blocks are free at once", until(lambda: not holders(disk), 10), holders(disk))
    box, disk = filled(c)
    c.worker.kill()
    c.worker.start()
    check("also when its worker was killed", until(lambda: not holders(disk), 20), holders(disk))
    until(lambda: run(c.admin, "true", timeout_rpc=20).outcome == "EXITED", 30)


@suite.long_scenario
def latency(c):
    """Not a bound, a figure: claims with the template's disk, a smaller and a larger one."""
    for disk in (0, 64, 4096):
        until(lambda: c.warm_vms() >= 2, 20)
        took = []
        for _ in range(3):
            time.sleep(0.7)
            begin = time.monotonic()
            f = run(c.admin, "true", resources=(1, 256, disk))
            equal(f"--disk {disk or 512}: it runs", f.outcome, "EXITED")
            took.append(time.monotonic() - begin)
        print(f"     --disk {disk or 512}: run to its end, median {sorted(took)[1] * 1000:.0f} ms of {len(took)}")


if __name__ == "__main__":
    suite.main(worker_args=("--disk-reserve", "1MiB"))
