#!/usr/bin/env python3
"""Foreign tools at the scheduler's TCP endpoint, by reflection alone: `ghz` loads it, `buf curl` asks it; no call may fail."""
import json
import os
import pathlib
import subprocess
import sys

from e2e_two_workers import free_port
from harness import REPO, Cluster, Suite, only_in_ci, pb, skip, until

suite = Suite("load")
check, equal = suite.check, suite.equal
TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")) / "bin"


def ghz(c, method, body, n, at_once):
    """The report of n calls; the key goes as metadata."""
    done = subprocess.run([TOOLS / "ghz", "--insecure", "--call", f"cloche.v1.{method}", "-d", json.dumps(body), "-m", json.dumps({"authorization": f"Bearer {c.load_key}"}),
                           "-n", str(n), "-c", str(at_once), "--connections", "4", "--timeout", "30s", "-O", "json", f"127.0.0.1:{c.port}"],
                          capture_output=True, text=True, timeout=120, check=False)
    report = json.loads(done.stdout)
    print(f"     {method}: {report['count']} calls by {at_once}, {report['rps']:.0f}/s, mean {report['average'] / 1e6:.1f} ms, slowest {report['slowest'] / 1e6:.0f} ms")
    equal(f"{n} calls of {method} by {at_once} at once, no error", (report["statusCodeDistribution"], report.get("errorDistribution") or {}), ({"OK": n}, {}))
    return report


@suite.scenario
def reading(c):
    ghz(c, "TenantService/GetUsage", {"tenant": "load"}, 2000, 32)
    ghz(c, "JobService/List", {"page_size": 10}, 1000, 32)


@suite.scenario
def jobs(c):
    """Submitted far faster than they can run: each ends, once and well."""
    n = 60
    body = {"spec": {"template": "base", "command": {"argv": ["true"]}, "max_queue_wait_ns": 300 * 10**9}}
    ghz(c, "JobService/Submit", body, n, 16)

    def ended():
        rows = c.loader.jobs.List(pb.ListRequest(page_size=100)).jobs
        return rows if len(rows) == n and all(r.state == pb.UNIT_STATE_ENDED for r in rows) else None
    rows = until(ended, 120, 0.5) or []
    equal("every one of them ends well", [r.result.outcome for r in rows], [pb.OUTCOME_EXITED] * n)
    equal("and ran once", {r.attempt for r in rows}, {1})
    equal("under an id of its own", len({r.id for r in rows}), n)


@suite.scenario
def buf_curl(c):
    def curl(method, body, *flags, key=None):
        header = ["-H", f"authorization: Bearer {key or c.load_key}"]
        return subprocess.run([TOOLS / "buf", "curl", "--protocol", "grpc", "--http2-prior-knowledge", *header, *flags, "-d", json.dumps(body),
                               f"http://127.0.0.1:{c.port}/cloche.v1.{method}"], capture_output=True, text=True, timeout=60, check=False)
    p = curl("JobService/Run", {"spec": {"template": "base", "command": {"argv": ["echo", "42"]}}})
    check("a job's whole stream", p.returncode == 0 and '"accepted"' in p.stdout and "NDIK" in p.stdout and '"ended"' in p.stdout, p)
    p = curl("JobService/Get", {"jobId": "job_" + "0" * 26})
    check("an error with its code and remedy", p.returncode != 0 and "not_found" in p.stderr, p.stderr)
    p = curl("JobService/List", {}, key="clk_" + "0" * 16 + "_" + "0" * 64)
    check("a wrong key", p.returncode != 0 and "unauthenticated" in p.stderr, p.stderr)


if __name__ == "__main__":
    only_in_ci(30)
    for tool in ("ghz", "buf"):
        if not (TOOLS / tool).exists():
            skip(f"no {tool} in {TOOLS} (tools/test_tools.sh)")
    c = Cluster("load")
    c.port = free_port()
    c.scheduler.argv += ["--tcp", f"127.0.0.1:{c.port}"]
    try:
        c.start()
        c.loader = c.tenant("load", sandboxes=8)
        c.load_key = c.loader.key
        suite.play(c, sys.argv[1:])
    finally:
        suite.close(c)
    suite.finish()
