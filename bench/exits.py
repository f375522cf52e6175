#!/usr/bin/env python3
"""bench/exits.py - why a guest is left, per exec, per start of a program and per idle second: differences of `cloche vm stats`.

usage: bench/exits.py [BUILD_DIR [DRIVER...]]      (default: build kvm/xenpv-shared kvm/xenpv)
Environment: CLOCHE_IMAGES (out/images), N execs and starts (20), IDLE seconds (20).
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

N, IDLE = int(os.environ.get("N", "20")), int(os.environ.get("IDLE", "20"))
TEMPLATE = "python"


class Instance:
    """One `cloche up` with one driver."""

    def __init__(self, build, driver, folder):
        self.cloche = str(build / "cloche")
        self.env = {**os.environ, "CLOCHE_STATE_DIR": f"{folder}/state", "CLOCHE_RUN_DIR": f"{folder}/run",
                    "CLOCHE_TEMPLATE_DIR": str(pathlib.Path(os.environ.get("CLOCHE_IMAGES", "out/images")).resolve())}
        self("up", "--driver", driver, "--templates", TEMPLATE)
        self.box = self("sandbox", "create", TEMPLATE, "--ttl", "10m").strip()

    def __call__(self, *args):
        return subprocess.run([self.cloche, *args], env=self.env, check=True, capture_output=True, text=True, timeout=600).stdout

    def counters(self):
        return json.loads(self("vm", "stats", "--json", self.box))["counters"]

    def exec(self, *argv):
        self("exec", self.box, "--", *argv)


def cost(c, what, n):
    """What each counter grew by, a unit of what was done n times."""
    before = c.counters()
    begin = time.monotonic()
    what()
    took = time.monotonic() - begin
    after = c.counters()
    return {name: (after[name] - before[name]) / n for name in after}, took


def starts(c, *argv):
    """One exec, in which a program starts N times."""
    return lambda: c.exec("sh", "-c", f'i=0; while [ $i -lt {N} ]; do i=$((i+1)); "$@"; done', "sh", *argv)


def times(c, *argv):
    return lambda: [c.exec(*argv) for _ in range(N)]


def measure(c):
    c.exec("python3", "-c", "pass")  # what is read from the disk once, is read
    yield (f"exec of `true`, {N} times", *cost(c, times(c, "true"), N))
    yield (f"start of /bin/true in one exec, {N} times", *cost(c, starts(c, "/bin/true"), N))
    yield (f"start of python3 -c pass in one exec, {N} times", *cost(c, starts(c, "python3", "-c", "pass"), N))
    yield (f"start of python3 -c 'import json, re' in one exec, {N} times", *cost(c, starts(c, "python3", "-c", "import json, re"), N))
    yield (f"idle, a second of {IDLE}", *cost(c, lambda: time.sleep(IDLE), IDLE))


def show(title, each, took):
    print(f"-- {title} ({took:.1f} s in all)")
    print(f"   {sum(v for k, v in each.items() if re.match('exits|kicks', k)):10.2f} exits to the monitor")
    for name, value in each.items():
        if value:
            print(f"   {value:10.2f} {name}")


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    model = re.search(r"^model name.*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M).group(1)
    print(f"host: {model}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for driver in sys.argv[2:] or ["kvm/xenpv-shared", "kvm/xenpv"]:
        with tempfile.TemporaryDirectory(prefix="cloche-exits-") as folder:
            os.chmod(folder, 0o711)  # for the users of the processes
            c = Instance(build, driver, folder)
            try:
                print(f"== {driver}")
                for row in measure(c):
                    show(*row)
            finally:
                c("down")
    return 0


sys.exit(main())
