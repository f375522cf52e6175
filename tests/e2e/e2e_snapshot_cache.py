#!/usr/bin/env python3
"""A worker that comes later boots no template that an earlier one has booted; what it finds must be what was left, and its own."""
import os
import shutil
import sys

from box import Box
from harness import BUILD, Cluster, Suite, pb, run, until

suite = Suite("snapshot_cache")
check, equal = suite.check, suite.equal
OTHER_START = "01234567-89ab-cdef-0123-456789abcdef"  # of the host


def start_again(c, argv=()):
    """Its next worker, with other arguments behind its own; how each template's snapshot came about."""
    equal("the worker ends in order", c.worker.stop(), 0)
    seen = len(c.worker.events("TEMPLATE_READY"))
    before, c.worker.argv = c.worker.argv, [*c.worker.argv, *argv]
    up = len(c.scheduler.events("WORKER_UP"))
    c.worker.start()
    c.worker.argv = before
    until(lambda: len(c.scheduler.events("WORKER_UP")) > up, 60)
    c.await_ready(300)
    return {e["template"]: e["from"] for e in c.worker.events("TEMPLATE_READY")[seen:]}


def all_from(where):
    return {name: where for name in c.templates.split(",")}


def records(n=1):
    """Once there are so many: they are written beside the work."""
    until(lambda: len(named()) >= n, 60)
    return named()


def named():
    return sorted(p.name for p in FOLDER.glob("*") if len(p.name) == 64)


def record_of(name):
    record = pb.CachedSnapshot()
    record.ParseFromString((FOLDER / name).read_bytes())
    return record


def warnings(c):
    return [(e["event"], e.get("text")) for event in ("SNAPSHOT_BAD", "SNAPSHOT_NOT_CACHED", "POOL_FAILED") for e in c.worker.events(event)]


def works(c, template="base"):
    job = run(c.admin, "sh", "-c", "cat /etc/hostname; head -c 16 /dev/urandom | od -An -tx1", template=template)
    return bytes(job.out) if job.result.exit_code == 0 and len(job.out) > 48 else None


@suite.scenario
def a_later_worker_boots_nothing(c):
    equal("the first worker boots each", {e["template"]: e["from"] for e in c.worker.events("TEMPLATE_READY")}, all_from("boot"))
    equal("… and leaves a snapshot of each", len(records(2)), 2)
    equal("the folder and its files are nobody else's", {oct(p.stat().st_mode & 0o77) for p in [FOLDER, *FOLDER.iterdir()]}, {"0o0"})
    booted = max(int(e["took_ms"]) for e in c.worker.events("TEMPLATE_READY"))
    equal("the next one boots none", start_again(c), all_from("cache"))
    read = max(int(e["took_ms"]) for e in c.worker.events("TEMPLATE_READY")[2:])
    check("… which takes less long", read < booted, f"{read} ms, {booted} ms")
    both = [works(c, "python"), works(c, "python")]
    check("its clones work, each with a name and random numbers of its own", all(both) and both[0] != both[1], both)
    box = Box(c.admin, template="python")
    equal("code contexts are in it", [box.python("x = 41"), box.python("x + 1")], [None, "42"])
    equal("files are written where the snapshot's disk is", bytes(box.exec("sh", "-c", "echo kept > /tmp/file && sync && cat /tmp/file && df -k / | tail -1 | wc -w").out), b"kept\n6\n")
    box.kill()
    equal("nothing was said against it", warnings(c), [])


@suite.scenario
def what_rests_of_it_goes_on(c):
    box = Box(c.admin, template="python")
    box.python("x = 41")
    box.pause()
    equal("a worker comes", start_again(c), all_from("cache"))
    box.resume()
    equal("what was paused of the snapshot that was read goes on with the next worker", box.python("x + 1"), "42")
    twin = box.fork()
    equal("… and is copied", twin.python("x + 2"), "43")
    for b in (box, twin):
        b.kill()


def small(c):
    """A job in a size that nobody keeps."""
    return bytes(run(c.admin, "echo", "small", template="base", resources=(1, 160, 0)).out)


@suite.scenario
def another_size_is_another_one(c):
    only_base(c)
    equal("a size that nobody keeps works", small(c), b"small\n")
    equal("… and is left to later workers, too", len(records(2)), 2)
    seen = len(c.worker.events("TEMPLATE_READY"))
    start_again(c)
    equal("the next one reads it when it is asked for", small(c), b"small\n")
    equal("… instead of booting it", [e["from"] for e in c.worker.events("TEMPLATE_READY")[seen:] if e["memory_mib"] == "160"], ["cache"])


@suite.scenario
def spoiled(c):
    only_base(c)
    for what, spoil in (("a byte", flip), ("its end", lambda path: os.truncate(path, path.stat().st_size - 1)), ("all of it", os.unlink)):
        files = [record_of(name).ram.name for name in records()]
        for name in files:
            spoil(FOLDER / name)
        seen = len(c.worker.events("SNAPSHOT_BAD"))
        equal(f"where {what} is missing or wrong the template is booted", start_again(c), all_from("boot"))
        check("… which is said", len(c.worker.events("SNAPSHOT_BAD")) > seen, warnings(c))
        check("… and works", works(c))
        check("what was no good is gone, and new ones are there", len(records()) == 1 and all((FOLDER / record_of(n).ram.name).exists() for n in named()) and
              not any((FOLDER / name).exists() for name in files), named())
    for name in records():
        (FOLDER / name).write_bytes((FOLDER / name).read_bytes()[:-20])
    equal("torn records are none", start_again(c), all_from("boot"))
    records()
    equal("… and new ones come in their place", start_again(c), all_from("cache"))


def flip(path):
    with open(path, "r+b") as f:
        f.seek(path.stat().st_size // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))


@suite.scenario
def no_clone_comes_up(c):
    """Of what is whole and yet wrong, as nobody but its owner can make it."""
    only_base(c)
    small(c)
    one, other = (record_of(n) for n in records(2))
    for mine, its in ((one, other), (other, one)):
        mixed = pb.CachedSnapshot()
        mixed.CopyFrom(mine)
        mixed.ram.CopyFrom(its.ram)
        (FOLDER / mine.key).write_bytes(mixed.SerializeToString())
    seen = len(c.worker.events("TEMPLATE_READY"))
    start_again(c)
    equal("a snapshot of another template is read, and then booted", [e["from"] for e in c.worker.events("TEMPLATE_READY")[seen:]], ["cache", "boot"])
    check("… for no clone comes up", any("no clone" in (text or "") for _, text in warnings(c)), warnings(c))
    check("… and works", works(c) and small(c))
    seen = len(warnings(c))
    equal("… and is read again", (start_again(c), small(c), warnings(c)[seen:]), (all_from("cache"), b"small\n", []))


@suite.scenario
def who_may_use_it(c):
    only_base(c)
    first = records()
    equal("a worker that does not let guests be watched boots", start_again(c, ["--guest-events=no"]), all_from("boot"))
    records(2)
    other = c.dir / "worker-of-another-build"
    shutil.copy(BUILD / "cloche-worker", other)
    with open(other, "ab") as f:
        f.write(b"\0")
    mine, c.worker.argv = c.worker.argv, [other, "--guard", BUILD / "cloche-guard", "--vmm", BUILD / "cloche-vmm", "--net", BUILD / "cloche-net", *c.worker.argv[1:]]
    equal("so does one of another build", start_again(c), all_from("boot"))
    c.worker.argv = mine
    equal("each has snapshots of its own", (len(records(3)), set(first) <= set(named())), (3, True))
    equal("one that was there before finds its own", start_again(c), all_from("cache"))
    equal("--snapshot-cache=none boots", start_again(c, ["--snapshot-cache", "none"]), all_from("boot"))


@suite.scenario
def whose_folder(c):
    open_to_all = c.dir / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    equal("a folder that others can write is not used", start_again(c, ["--snapshot-cache", open_to_all]), all_from("boot"))
    check("… which is said, with the reason", any("others can write" in (text or "") for _, text in warnings(c)), warnings(c))
    equal("… and nothing is left there", list(open_to_all.iterdir()), [])


@suite.scenario
def other_starts_of_the_host(c):
    for name in (OTHER_START, "somebody-elses"):
        (FOLDER.parent / name).mkdir()
        (FOLDER.parent / name / "file").write_text("x")
    start_again(c)
    equal("what an earlier start of the host left goes, and nothing else", sorted(p.name for p in FOLDER.parent.iterdir()), sorted([FOLDER.name, "somebody-elses"]))


def only_base(c):
    """A worker of one template, and nothing but its snapshot is there."""
    c.worker.stop()
    shutil.rmtree(FOLDER)
    c.templates = "base"
    c.worker.argv[c.worker.argv.index("--templates") + 1] = c.templates
    c.worker.start()
    c.await_ready(300)
    records()


if __name__ == "__main__":
    c = Cluster("snapshot_cache", templates="base,python", worker_args=("--snapshot-cache", ""))
    FOLDER = c.worker.state_dir / "snapshots" / open("/proc/sys/kernel/random/boot_id").read().strip()
    try:
        c.start()
        suite.play(c, sys.argv[1:])
    finally:
        suite.close(c)
    suite.finish()
