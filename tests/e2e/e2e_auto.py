#!/usr/bin/env python3
"""The driver `auto`: each tenant gets the first of the host's drivers that it accepts and that boots its template."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

from harness import BUILD, Cluster, Suite, pb, run

suite = Suite("auto")
check, equal = suite.check, suite.equal
PROBE = json.loads(subprocess.check_output([BUILD / "cloche-worker", "--probe"]))
DRIVERS = PROBE["drivers"].split(",")
ISOLATED, SHARED = (PROBE["driver"], pb.GUEST_SEPARATION_ISOLATED), ("kvm/xenpv", pb.GUEST_SEPARATION_SHARED)
FASTEST = SHARED if DRIVERS[0].endswith("-shared") else ISOLATED
LARGEST = 4, 4096, 0  # vCPUs and MiB of one unit: policy/limits.def


def who_ran(tenant, **kw):
    f = run(tenant, "cat", "/proc/version", **kw)
    job = tenant.jobs.Get(pb.GetRequest(job_id=f.job_id)).job
    check("… it is the same stock kernel", b"Debian" in f.out, f)
    return job.driver, job.guest_separation


@suite.scenario
def tenants(c):
    """One worker, side by side."""
    equal("a tenant that is shared-ok gets the fastest", who_ran(c.tenant("easy", separation="shared-ok")), FASTEST)
    equal("one that wants isolation gets it", who_ran(c.tenant("wary", separation="isolated")), ISOLATED)
    equal("… and the first one still has its own", who_ran(c.tenant("easy", separation="shared-ok")), FASTEST)


@suite.scenario
def sizes(c):
    equal("the fastest has room for the largest unit", who_ran(c.tenant("easy", separation="shared-ok"), resources=LARGEST, timeout_rpc=180), FASTEST)


@suite.scenario
def templates(c):
    rows = c.admin.templates.List(pb.TemplateServiceListRequest()).templates
    equal("a template is listed once, with the preferred driver", [(t.name, t.driver) for t in rows], [("base", FASTEST[0])])


@suite.scenario
def bad_lists(c):
    """Of a worker that never gets as far as its scheduler."""
    for drivers, words in (("nope", "unknown driver 'nope'"), ("qemu/tcg,", "unknown driver ''"), ("qemu/tcg,qemu/tcg", "at once")):
        with tempfile.TemporaryDirectory(prefix="cloche-e2e-auto-") as state:
            p = subprocess.run([BUILD / "cloche-worker", "--driver", drivers, "--state-dir", state, "--scheduler", f"unix:{state}/none.sock",
                                "--template-dir", state, "--template-key", f"{state}/none"], capture_output=True, text=True, timeout=60)
        check(f"--driver {drivers} is refused, and said why", p.returncode != 0 and words in p.stderr + p.stdout, (p.returncode, p.stderr))


def monitor_that_fails(folder):
    """It answers the probe as ours does, and boots nothing."""
    path = pathlib.Path(folder) / "cloche-vmm"
    path.write_text(f'#!/bin/sh\n[ "$1" = --probe ] && exec {BUILD}/cloche-vmm --probe\nexit 1\n')
    path.chmod(0o755)
    path.parent.chmod(0o755)
    return path


def falls_back(folder):
    """Where our own monitor boots nothing, QEMU does."""
    c = Cluster("auto-falls", templates="base", warm=1, worker_args=("--driver", "auto", "--vmm", monitor_that_fails(folder)))
    try:
        c.start()
        driver, separation = who_ran(c.admin)
        equal("a job runs by the next driver", (driver[:5], separation), ("qemu/", pb.GUEST_SEPARATION_ISOLATED))
        log = (c.dir / "log" / "worker0.log").read_text()
        check("… and the log says why", re.search(r"does not boot it: from now on by qemu/", log), log[-2000:])
    finally:
        suite.close(c)


if __name__ == "__main__":
    main = Cluster("auto", templates="base", warm=1, worker_args=("--driver", "auto"))
    try:
        main.start()
        suite.play(main)
    finally:
        suite.close(main)
    if FASTEST[0].startswith("kvm") and os.access("/dev/kvm", os.R_OK | os.W_OK):
        with tempfile.TemporaryDirectory(prefix="cloche-e2e-auto-") as folder:
            falls_back(folder)
    else:
        print("left out: the fall to QEMU (the fastest driver here is QEMU's)")
    suite.finish()
