#!/usr/bin/env python3
"""bench/files.py - what a small file costs a program in a sandbox: to write it, to write it anew, to delete it; and while a client
watches its folder.

usage: bench/files.py [BUILD_DIR [DRIVER...]]      (default: build kvm/xenpv-shared)
Environment: CLOCHE_IMAGES (out/images), a list with `:` between compares images, in turn; N files (2000), ROUNDS (5).

The loop is sh's own, so one program does it all; of each act the median of all rounds is printed, the least and the most.  A figure
of a loop that opens /dev/null as often stands first: what the loop itself costs.
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
N, ROUNDS = int(os.environ.get("N", "2000")), int(os.environ.get("ROUNDS", "5"))
EACH = f"i=0; while [ $i -lt {N} ]; do echo $i > %s; i=$((i + 1)); done"
ACTS = {"the loop, into /dev/null": EACH % "/dev/null", "written": EACH % "$i", "written anew": EACH % "$i", "deleted, by rm -rf": "rm -rf /home/user/d/*"}


class Instance:
    """One `cloche up`, and a sandbox of it."""

    def __init__(self, build, driver, images, folder):
        self.cloche = str(build / "cloche")
        self.env = {**os.environ, "CLOCHE_STATE_DIR": f"{folder}/state", "CLOCHE_RUN_DIR": f"{folder}/run", "CLOCHE_TEMPLATE_DIR": str(images)}
        self("up", "--driver", driver, "--templates", "base")
        self.box = self("sandbox", "create", "base", "--ttl", "20m").strip()
        self("exec", self.box, "--", "mkdir", "/home/user/d")

    def __call__(self, *args):
        return subprocess.run([self.cloche, *args], env=self.env, check=True, capture_output=True, text=True, timeout=600).stdout

    def watch(self):
        """Until the returned function is called, which gives the number of changes that were told."""
        p = subprocess.Popen([self.cloche, "watch", f"{self.box}:/home/user/d"], env=self.env, stdout=subprocess.PIPE, text=True)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(p.stdout))
        reader.start()
        time.sleep(1)

        def stop():
            time.sleep(1)
            p.terminate()
            p.wait()
            reader.join()
            if not lines:
                sys.exit("files: error: `cloche watch` told no change")
            return len(lines)
        return stop

    def sh(self, script):
        """Microseconds a file."""
        begin = time.monotonic()
        self("exec", self.box, "--", "sh", "-ec", f"cd /home/user/d; {script}")
        return (time.monotonic() - begin) * 1e6 / N

    def rounds(self):
        """Once: {act: microseconds}."""
        took = {}
        for watched in (False, True):
            stop = self.watch() if watched else None
            for what, script in ACTS.items():
                took[what + (", watched" if watched else "")] = self.sh(script)
                self("exec", self.box, "--", "sync")
            if stop:
                took["changes told, of all acts"] = stop()
        return took


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    images = [pathlib.Path(p).resolve() for p in os.environ.get("CLOCHE_IMAGES", str(REPO / "out/images")).split(":")]
    model = re.search(r"^model name.*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M).group(1)
    print(f"host: {os.cpu_count()} x {model}, load {os.getloadavg()[0]:.1f}; {N} files, {ROUNDS} rounds; us a file: median (least to most)")
    for driver in sys.argv[2:] or ["kvm/xenpv-shared"]:
        with tempfile.TemporaryDirectory(prefix="cloche-files-") as folder:
            os.chmod(folder, 0o711)  # for the users of the processes
            instances = []
            try:
                for n, path in enumerate(images):
                    (pathlib.Path(folder) / str(n)).mkdir(mode=0o711)
                    instances.append(Instance(build, driver, path, f"{folder}/{n}"))
                samples = [{} for _ in instances]
                for _ in range(ROUNDS):
                    for i, into in zip(instances, samples):
                        for what, us in i.rounds().items():
                            into.setdefault(what, []).append(us)
            finally:
                for i in instances:
                    i("down")
            for what in samples[0]:
                print(f"{driver}: {what:36} " + "    ".join(f"{statistics.median(s[what]):7.0f} ({min(s[what]):.0f} to {max(s[what]):.0f})" for s in samples))
    return 0


sys.exit(main())
