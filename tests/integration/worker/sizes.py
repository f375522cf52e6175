#!/usr/bin/env python3
"""Sandboxes of odd sizes: what a tenant makes a worker do by asking for them."""
import os

from made_up_scheduler import Scheduler, harness, play
from harness import Suite

suite = Suite("sizes")
check = suite.check
N_SIZES = 14 if os.environ.get("CI") == "true" else 3  # 14 are more than a worker keeps (POOL_FLAVOURS)


def image_bytes(template):
    image = harness.IMAGES / template / "current"
    return sum((image / name).stat().st_size for name in ("vmlinux", "initrd", "rootfs.img", "scratch.img"))


def read_bytes(s):
    """What its worker has read so far; that of its children is counted in the io of the process."""
    pid = s.worker.child.pid
    rows = harness.read_text(f"/proc/{pid}/task/{pid}/io").splitlines()
    return int(dict(row.split(": ") for row in rows)["rchar"])


@suite.scenario
def an_image_is_read_once(s):
    s.end(s.sandbox())
    before = read_bytes(s)
    for i in range(N_SIZES):
        s.end(s.sandbox(memory_mib=272 + 16 * i))
    read = read_bytes(s) - before
    check("no file of the image was read again", read < image_bytes("base"), (read, image_bytes("base")))


if __name__ == "__main__":
    play(suite, Scheduler("--snapshot-cache", "none", name="sizes"))
