#!/usr/bin/env python3
"""usage: lab_basics.py DRIVER [SCENARIO]

The drivers on KVM, qemu/kvm or kvm: what differs from emulation (clocks, randomness, restored processor state) and the shortest
whole path.  Prints its figures.  Runs where /dev/kvm has VMX or SVM: in tools/lab, or on such a host."""
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from clones import CLONES, differ  # noqa: E402
from e2e_sandboxes import Box  # noqa: E402
from harness import BUILD, Cluster, Suite, open_files, pb, random_bytes, run, soon, until  # noqa: E402

DRIVER = sys.argv[1]
suite = Suite("lab")
check, equal = suite.check, suite.equal


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


METRICS = free_port()


def metric(name):
    """Sum of all rows of a metric of the worker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=10) as answer:
        rows = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return sum(float(value) for row, value in rows if row.partition("{")[0] == name)


def figure(what, seconds):
    values = sorted(seconds)
    print(f"figure {what}: N={len(values)} p50 {statistics.median(values) * 1000:.0f} ms, least {values[0] * 1000:.0f}, "
          f"most {values[-1] * 1000:.0f}", flush=True)


def log_seconds(row):
    return time.mktime(time.strptime(row["ts"][:19], "%Y-%m-%dT%H:%M:%S")) + float(row["ts"][19:-1])


@suite.scenario
def driver(c):
    (started,) = c.worker.events("STARTED")
    equal("the driver is the one that was asked for", started["driver"], DRIVER)
    ready = c.worker.events("TEMPLATE_READY")
    check("the template's snapshot was made", len(ready) == 1, ready)
    figure("worker's start to snapshot (boot, warm-up, state)", [log_seconds(ready[0]) - log_seconds(started)])
    accelerated = [pid for pid in c.vms() if "anon_inode:kvm-vm" in open_files(pid)]
    check("every monitor has a VM of KVM's", c.vms() and accelerated == c.vms(), (accelerated, c.vms()))


@suite.scenario
def jail(c):
    """What cloche-vmm can still see and do; QEMU's jail has files in it."""
    if DRIVER != "kvm":
        return
    (pid,) = c.vms()[:1]
    proc = pathlib.Path(f"/proc/{pid}")
    fields = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    equal("the monitor's root is empty", os.listdir(proc / "root"), [])
    check("its uid is of no other VM and not root", int(fields["Uid"].split()[0]) >= c.uid_base, fields["Uid"])
    equal("it has no capability", int(fields["CapEff"], 16) | int(fields["CapPrm"], 16) | int(fields["CapInh"], 16), 0)
    filters = [(t / "status").read_text().split("Seccomp_filters:\t")[1].split("\n")[0] for t in (proc / "task").iterdir()]
    check("each thread has the worker's filter and its own", len(filters) >= 2 and set(filters) == {"2"}, filters)
    links = open_files(pid)
    check("of files it has its two disks, none by a path of its own, and not /dev/kvm",
          "/dev/kvm" not in links and len([x for x in links if x.startswith("/") and x != "/dev/null"]) == 2, links)


@suite.scenario
def command_line(c):
    env = {"PATH": os.environ["PATH"], "HOME": str(c.dir), "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin_key}

    def cli(*argv, stdin=b""):
        p = subprocess.run([BUILD / "cloche", *argv], env=env, input=stdin, capture_output=True, timeout=120)
        return p.returncode, p.stdout, p.stderr
    equal("`cloche run base -- echo hello` prints hello", cli("run", "base", "--", "echo", "hello")[:2], (0, b"hello\n"))
    equal("an exit code comes through", cli("run", "base", "--", "sh", "-c", "exit 7")[0], 7)
    equal("stdin reaches the program", cli("run", "base", "--", "tr", "a-z", "A-Z", stdin=b"hello\n")[:2], (0, b"HELLO\n"))
    code, out, err = cli("doctor")
    check("`cloche doctor` says that both drivers are possible", b"qemu/kvm" in out and b"driver kvm possible" in b" ".join(out.split()), (code, out, err))


@suite.scenario
def clones(c):
    figure("job in a clone, call to end, without its sleep", differ(suite, c, {"kvm-clock", "tsc"}))


@suite.scenario
def sandbox(c):
    begin = time.monotonic()
    box = Box(c.admin)
    created = time.monotonic() - begin
    equal("the sandbox says who runs it", box.get().driver, DRIVER)
    execs = []
    for i in range(5):
        begin = time.monotonic()
        f = box.exec("sh", "-c", f"echo {i}; exit {i}")
        execs.append(time.monotonic() - begin)
        check(f"exec {i} ends with its code", (bytes(f.out), f.result.exit_code) == (b"%d\n" % i, i), f)
    data = random_bytes(3_000_000)
    box.write("/tmp/there", data)
    f = box.exec("sh", "-c", "cp /tmp/there /tmp/back; sha256sum < /tmp/there | cut -c1-8")
    equal("a file of 3 MB comes back as it went", box.read("/tmp/back")[0], data)
    vm = c.vm_of(box.id)
    box.kill()
    check("after Kill the sandbox has ended", box.ends(20), box.get())
    check("… and its VM is gone", vm and until(lambda: vm not in c.vms(), 10), (vm, c.vms()))
    figure("create a sandbox", [created])
    figure("exec in a sandbox, start to end", execs)


@suite.scenario
def processor(c):
    f = run(c.admin, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i; nproc", resources=(2, 512, 0))
    check("two vCPUs count", bytes(f.out) == b"20000\n2\n", f)
    f = run(c.admin, "sh", "-c", "sleep 60", timeout=1.5)
    equal("a job over its time is ended", f.outcome, "TIMED_OUT")


@suite.scenario
def figures(c):
    claims, seconds = metric("cloche_vm_acquire_seconds_count"), metric("cloche_vm_acquire_seconds_sum")
    check("every claim was counted", claims >= CLONES, claims)
    print(f"figure claim, assignment to acknowledged identity: N={claims:.0f} mean {seconds / claims * 1000:.0f} ms", flush=True)


def main():
    c = Cluster("lab", templates="base", warm=1, worker_args=("--driver", DRIVER, "--metrics", f"127.0.0.1:{METRICS}"))
    only = sys.argv[2:]
    begin = time.monotonic()
    try:
        c.start()
        print(f"figure cluster ready after {time.monotonic() - begin:.1f} s", flush=True)
        suite.play(c, only)
    except Exception as err:  # noqa: BLE001
        check("the cluster starts", False, err)
    finally:
        suite.close(c)
    suite.finish()


main()
