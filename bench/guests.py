#!/usr/bin/env python3
"""bench/guests.py - what programs pay the system under them, each way to run them in turn, in one run.

usage: bench/guests.py [--build DIR] [--rounds N] [--rigs A,B,...]

  --build DIR    configured build folder (build: the preset release)
  --rounds N     how often each rig runs build/guest_bench (3); the samples are pooled
  --rigs A,B     of these, in this order (all that are possible):
                   host               in the template's root file system, by chroot
                   runsc              the same by gVisor, platform systrap; RUNSC names its binary
                   kvm/xenpv-shared, kvm/xenpv, qemu/tcg, kvm, qemu/kvm
                                      a sandbox of the template, one `cloche up --driver` each
Environment: CLOCHE_IMAGES (out/images) with the template `toolchain`, RUNSC.

As root.  The rigs are up together, so each has the same neighbours; only one of them works at a time.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[1]
IMAGES = pathlib.Path(os.environ.get("CLOCHE_IMAGES", REPO / "out" / "images")).resolve()
TEMPLATE = "toolchain"
FIGURES = {"getppid": "getppid", "fault": "page fault, 4 KiB anonymous", "memory": "8 MiB of new memory, a page of it", "fork_exec": "fork, exec and wait, /bin/true",
           "fork_exec_static": "fork, exec and wait, a static program", "pipes": "round trip of two pipes",
           "python": "python3 -c 'print(1)'", "gcc": "gcc -O2 of hello.c", "loop": "100,000,000 multiplications", "sha256_gzip": "sha256sum and gzip of 16 MiB"}
DRIVERS = ("kvm/xenpv-shared", "kvm/xenpv", "qemu/tcg", "kvm", "qemu/kvm")
DEFAULT = ("host", "runsc", "kvm/xenpv-shared", "kvm/xenpv", "qemu/tcg")


def out_of(*argv, **keywords):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)
    if done.returncode:
        sys.exit(f"guests: error: {' '.join(map(str, argv[:4]))} …: status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.stdout


# --- rigs: each is started once, and called for each round -----------------------------------------

class Host:
    """The program on the host's own kernel, in the template's files."""

    def __init__(self, work, program):
        self.root = work / "rootfs"
        if not self.root.exists():
            out_of("/usr/bin/fsck.erofs", f"--extract={self.root}", IMAGES / TEMPLATE / "current" / "rootfs.img")
            shutil.copy(program, self.root / "guest_bench")

    def run(self):
        inside = f'mount -t tmpfs none "{self.root}/tmp" && mount -t proc none "{self.root}/proc" && mount --bind /dev "{self.root}/dev" && exec chroot "{self.root}" /guest_bench'
        return out_of("unshare", "--mount", "--pid", "--fork", "sh", "-c", inside)

    def stop(self):
        pass


class Runsc(Host):
    """The same files in gVisor: no network, no cgroup, a tmpfs for /tmp."""

    def __init__(self, work, program):
        super().__init__(work, program)
        self.bundle, self.binary = work / "bundle", os.environ["RUNSC"]
        self.bundle.mkdir()
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}]
        (self.bundle / "config.json").write_text(json.dumps({
            "ociVersion": "1.0.0", "root": {"path": str(self.root), "readonly": True}, "hostname": "bench", "mounts": mounts,
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/guest_bench"], "cwd": "/", "env": ["PATH=/usr/bin:/bin"]},
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]}}))

    def run(self):
        return out_of(self.binary, f"--root={self.bundle}/state", "--platform=systrap", "--network=none", "--ignore-cgroups", "run",
                      f"--bundle={self.bundle}", f"bench-{os.getpid()}")

    def stop(self):  # what runsc leaves mounted
        subprocess.run(["umount", f"{self.bundle}/state/null-netns"], check=False)


class Cloche:
    """A sandbox of an instance of its own."""

    def __init__(self, work, build, program, driver):
        self.driver, self.cloche = driver, build / "cloche"
        here = work / driver.replace("/", "-")
        here.mkdir()
        self.env = {**os.environ, "CLOCHE_TEMPLATE_DIR": str(IMAGES), "CLOCHE_STATE_DIR": str(here / "state"), "CLOCHE_RUN_DIR": str(here / "run")}
        self.call("up", "--driver", driver, "--templates", TEMPLATE)
        self.box = self.call("sandbox", "create", TEMPLATE, "--ttl", "2h").strip()
        self.call("cp", program, f"{self.box}:/tmp/guest_bench")

    def call(self, *argv):
        return out_of(self.cloche, *argv, env=self.env)

    def run(self):
        return self.call("exec", "--timeout", "20m", self.box, "--", "/tmp/guest_bench")

    def stop(self):
        self.call("down")


def rigs(names, work, build, stack):
    program, ready = build / "guest_bench", {}
    for name in names:
        rig = Host(work, program) if name == "host" else Runsc(work, program) if name == "runsc" else Cloche(work, build, program, name)
        stack.callback(rig.stop)
        ready[name] = rig
        print(f"ready: {name}", flush=True)
    return ready


# --- figures ---------------------------------------------------------------------------------------

def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def in_words(us):
    return f"{us / 1000:,.0f} ms" if us >= 100000 else f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.3g} us"


def show(samples, names):
    """A row a figure: p50 / p99, and the p50's ratio to the host's and to emulation's."""
    print("\n| p50 / p99 (N) | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for figure, title in FIGURES.items():
        middle = {name: quantile(samples[name][figure], 0.5) for name in names}
        cells = []
        for name in names:
            values = samples[name][figure]
            ratios = [f"{middle[name] / middle[other]:.2f} {word}" for other, word in (("host", "host"), ("qemu/tcg", "TCG")) if other in middle and other != name]
            cells.append(f"{in_words(middle[name])} / {in_words(quantile(values, 0.99))} ({len(values)})" + (f"; {', '.join(ratios)}" if ratios else ""))
        print(f"| {title} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="The head of this file says more.")
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rigs", default=",".join(n for n in DEFAULT if n != "runsc" or "RUNSC" in os.environ))
    options = parser.parse_args()
    names = options.rigs.split(",")
    for name in names:
        if name not in ("host", "runsc", *DRIVERS):
            parser.error(f"no rig '{name}': host, runsc, {', '.join(DRIVERS)}")
    if "runsc" in names and "RUNSC" not in os.environ:
        parser.error("the rig runsc needs RUNSC=/path/to/runsc")
    if not (IMAGES / TEMPLATE / "current").exists():
        parser.error(f"no template {TEMPLATE} in {IMAGES} (images/build.sh {TEMPLATE} --out {IMAGES})")
    model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    number = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model\t"))
    print(f"host: {os.cpu_count()} x {model} (model {number}), load {' '.join(f'{x:.1f}' for x in os.getloadavg())}", flush=True)
    samples = {name: {figure: [] for figure in FIGURES} for name in names}
    with tempfile.TemporaryDirectory(prefix="cloche-guests.") as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o711)
        ready = rigs(names, pathlib.Path(folder), options.build.resolve(), stack)
        for number in range(options.rounds):
            for name, rig in ready.items():
                for line in rig.run().splitlines():
                    figure, value = line.split()
                    samples[name][figure].append(float(value))
                print(f"round {number + 1}: {name}", flush=True)
        show(samples, names)


if __name__ == "__main__":
    main()
