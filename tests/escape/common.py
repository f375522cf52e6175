"""What escape tests share: the harness of the end-to-end tests, changing one byte, and calls in another process."""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE.parent / "integration" / "agent"))

import harness  # noqa: E402


NR = {"pwrite64": 18, "mmap": 9, "fcntl": 72, "ftruncate": 77, "openat": 257, "fallocate": 285, "getuid": 102, "memfd_create": 319,
      "close": 3, "setuid": 105, "ptrace": 101, "clone": 56}


def inject(pid, call, *args):
    """What the call returned in that process; -errno as the kernel gives it."""
    done = subprocess.run([harness.BUILD / "escape_inject", str(pid), str(NR[call]), *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{call} in {pid}: {done.stderr.strip()}")
    return int(done.stdout)


def fds(pid, needle):
    found = {}
    for n in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{n}")
        except OSError:
            continue
        if needle in target:
            found[int(n)] = target
    return found


def names(c):
    """Of the memory files of its worker's snapshot, RAM and state, by how it came about."""
    return {"boot": ("cloche-ram", "cloche-state"), "cache": ("rest-memory", "rest-state")}[c.worker.events("TEMPLATE_READY")[-1]["from"]]


def await_cache(c):
    """The snapshot is left for later workers, and this one reads it no more."""
    return harness.until(lambda: [p for p in (c.worker.state_dir / "snapshots").rglob("*") if len(p.name) == 64], 60)


def next_worker(c):
    """One that reads the snapshot that the one before it left."""
    await_cache(c)
    c.worker.stop()
    seen = len(c.worker.events("TEMPLATE_READY"))
    c.worker.start()
    harness.until(lambda: len(c.worker.events("TEMPLATE_READY")) > seen, 120)
    c.await_ready()
    return names(c) == ("rest-memory", "rest-state")


def digests(c):
    """SHA-256 of the template's RAM and state, file by file, read through the worker's own fds; some are copies that are gone at once."""
    found = {}
    for needle in names(c):
        for n in fds(c.worker.pid, needle):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{c.worker.pid}/fd/{n}", "rb") as f:
                found[needle, os.fstat(f.fileno()).st_ino] = hashlib.file_digest(f, "sha256").hexdigest()
    return found


def probe():
    return json.loads(subprocess.check_output([harness.BUILD / "cloche-worker", "--probe"]))


def emulator():
    """QEMU's driver on this host."""
    return "qemu/kvm" if probe()["driver"] in ("kvm", "qemu/kvm") else "qemu/tcg"


def flip(path, offset):
    """Change one byte in place."""
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1]))


def copy_image(to, name="base"):
    """A private copy of one image, laid out as a template folder."""
    source = harness.IMAGES / name / "current"
    if not (source / "manifest.json").exists():
        harness.skip(f"no image {source}")
    target = pathlib.Path(to) / name / "current"
    shutil.copytree(source.resolve(), target)
    return target
