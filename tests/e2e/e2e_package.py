#!/usr/bin/env python3
"""The Debian package on a host with systemd: installed, started, crashed, upgraded, removed; and the units of a fleet.

CLOCHE_PACKAGES names a folder with cloche_0.1.0_amd64.deb and cloche_0.1.1_amd64.deb for hosts that cannot make them (the lab).
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, DRIVER, IMAGES, MIB, Suite, has_image, read_text, sha256, skip, until
from systemd_host import TEMPLATES, USERS, SystemdHost

suite = Suite("package")
check, equal = suite.check, suite.equal
ONE_HOST = "cloche"
FLEET = ("cloche-audit", "cloche-audit-reader", "cloche-scheduler", "cloche-gateway", "cloche-worker")
UP = "--templates base --warm 1" + ("" if DRIVER == "auto" else f" --driver {DRIVER}")
READY = 180
MADE = os.environ.get("CLOCHE_PACKAGES")


class Host(SystemdHost):
    """What the scenarios share: the packages, and what the host did when something went wrong."""

    def __init__(self, packages):
        super().__init__()
        self.packages, self.sandbox = packages, ""

    def cloche(self, *words, **env):
        return self.run("cloche", *words, **env)

    def install(self, n):
        package = self.packages[n]
        shutil.copy(package, self.path("srv"))
        return self.run("dpkg", "-i", f"/srv/{package.name}", seconds=READY)

    def tails(self):
        return self.run("journalctl", "--no-pager", "-n", "60", "-o", "cat").stdout

    def configure(self, options, **env):
        env = {"CLOCHE_TEMPLATE_DIR": TEMPLATES, "CLOCHE_UP": options, **env}
        self.path("etc/default/cloche").write_text("".join(f'{k}="{v}"\n' for k, v in env.items()))

    def job(self, *argv, **env):
        done = self.cloche("run", "base", "--", *argv, **env)
        return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stdout}{done.stderr}"

    def in_box(self, *argv):
        done = self.cloche("exec", self.sandbox, "--", *argv)
        return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stdout}{done.stderr}"


def succeeds(sentence, done):
    return check(sentence, done.returncode == 0, f"{done.returncode}: {done.stdout[-1500:]} {done.stderr[-1500:]}")


def pack(folder, version):
    """cloche_VERSION_amd64.deb of the build folder."""
    if MADE:
        return pathlib.Path(MADE) / f"cloche_{version}_amd64.deb"
    done = subprocess.run(["cpack", "--config", str(BUILD / "CPackConfig.cmake"), "-B", str(folder), "-R", version,
                           "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=zstd"],  # xz takes five times as long
                          capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"})
    if done.returncode != 0:
        raise RuntimeError(f"cpack: {done.stdout}{done.stderr}")
    return folder / f"cloche_{version}_amd64.deb"


@suite.scenario
def what_is_in_it(host):
    first = host.packages[0]
    listed = subprocess.check_output(["dpkg-deb", "-c", str(first)], text=True)
    paths = {line.split()[5].lstrip(".") for line in listed.splitlines()}
    for path in ("/usr/bin/cloche", "/usr/bin/cloche-vmm", "/usr/share/cloche/images/build.sh", "/usr/share/cloche/proto/cloche/v1/job.proto",
                 "/usr/share/cloche/examples/scheduler.ini", "/usr/share/doc/cloche/docs/install.md",
                 "/usr/share/bash-completion/completions/cloche", "/etc/default/cloche", "/usr/share/cloche/images/store.sh", "/usr/lib/systemd/system/cloche-templates.timer",
                 *(f"/usr/lib/systemd/system/{u}.service" for u in (ONE_HOST, *FLEET, "cloche-templates"))):
        check(f"it has {path}", path in paths)
    check("it has no folder of a build", not any("/local/" in p or str(BUILD) in p for p in paths), sorted(paths))
    needs = subprocess.check_output(["dpkg-deb", "-f", str(first), "Depends", "Recommends"], text=True)
    check("it names the libraries that it needs, and what runs beside it", "libnghttp2-14" in needs and "redis-server" in needs, needs)
    if MADE:
        return
    again = pack(host.packages[0].parent / "again", "0.1.0")
    equal("made again it is the same", sha256(again.read_bytes()), sha256(first.read_bytes()))


@suite.scenario
def it_is_installed(host):
    succeeds("it installs", host.install(0))
    equal("its users are there", [u for u in USERS if host.run("id", u).returncode != 0], [])
    units = [f"{u}.service" for u in (ONE_HOST, *FLEET)]
    verified = host.run("systemd-analyze", "verify", *units, "cloche-templates.service", "cloche-templates.timer")
    ours = [line for line in (verified.stdout + verified.stderr).splitlines() if "cloche" in line]
    check("systemd finds nothing wrong with its units", verified.returncode == 0 and not ours, ours)
    for unit in ("cloche", "cloche-worker"):
        devices = host.show(f"{unit}.service", "DevicePolicy", "DeviceAllow", "PrivateDevices", "ProtectClock")  # the last has a filter of devices in some versions
        equal(f"nothing keeps {unit} from /dev/kvm", devices, {"DevicePolicy": "auto", "PrivateDevices": "no", "ProtectClock": "no"})
    equal("nothing is started unasked", [host.state(u) for u in units], ["inactive"] * len(units))
    check("the recipes are found where they were put", "recipe" in host.cloche("template", "build", "no-such-template").stderr,
          host.cloche("template", "build", "no-such-template").stderr)


@suite.scenario
def one_host_is_started(host):
    host.configure(UP)
    succeeds("it starts", host.run("systemctl", "enable", "--now", ONE_HOST, seconds=READY))
    shown = host.show(ONE_HOST, "ActiveState", "StatusText", "NRestarts")
    equal("systemd knows that it serves", (shown["ActiveState"], shown["StatusText"]), ("active", "serves at unix:/run/cloche/api.sock"))
    succeeds("`up` finds it running, and waits for its VMs", host.cloche("up", seconds=READY))
    equal("a job runs", host.job("echo", "hello"), "hello\n")
    owners = {name: {os.stat(f"/proc/{pid}").st_uid for pid in host.processes(name)} for name in ("cloche-scheduler", "cloche-gateway", "redis-")}
    uids = {u: int(host.run("id", "-u", u).stdout) for u in USERS}
    equal("each process is its own user's", owners, {"cloche-scheduler": {uids["cloche"]}, "cloche-gateway": {uids["cloche"]}, "redis-": {uids["cloche-redis"]}})
    log = host.path("var/lib/cloche/log/gateway.log")
    with open(log, "ab") as f:
        f.write(b"a long line\n" * (17 * MIB // 12))
    check("a log that has grown is cut", until(lambda: log.stat().st_size < MIB and log.with_suffix(".log.1").stat().st_size > 16 * MIB, 30), log.stat())
    second = host.cloche("up", "--foreground")
    check("a second supervisor says that there is one", second.returncode == 1 and "runs already" in second.stderr, second.stderr)
    made = host.cloche("sandbox", "create", "base", "--ttl", "1h")
    succeeds("a sandbox is made", made)
    host.sandbox = made.stdout.strip()
    equal("… which keeps a file", host.in_box("sh", "-c", "echo kept > /tmp/file; cat /tmp/file"), "kept\n")


@suite.scenario
def it_crashes(host):
    before = host.show(ONE_HOST, "MainPID")["MainPID"]
    host.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", ONE_HOST)
    check("systemd starts it again", until(lambda: host.state(ONE_HOST) == "active" and host.show(ONE_HOST, "MainPID")["MainPID"] not in ("0", before), 120),
          host.show(ONE_HOST, "ActiveState", "MainPID"))
    check("the sandbox is there", until(lambda: host.in_box("cat", "/tmp/file") == "kept\n", 60), host.in_box("cat", "/tmp/file"))


@suite.scenario
def it_is_upgraded(host):
    before = host.processes("cloche-scheduler")
    succeeds("a newer one installs", host.install(1))
    equal("what ran runs again", (host.state(ONE_HOST), host.processes("cloche-scheduler") != before), ("active", True))
    check("the sandbox goes on", until(lambda: host.in_box("cat", "/tmp/file") == "kept\n", 60), host.in_box("cat", "/tmp/file"))
    equal("its configuration stays", UP in read_text(host.path("etc/default/cloche")), True)


@suite.scenario
def it_is_told_something_wrong(host):
    host.configure("--listen nonsense")
    check("a start that fails says so", host.run("systemctl", "restart", ONE_HOST, seconds=READY).returncode != 0)
    journal = host.run("journalctl", "--no-pager", "-u", ONE_HOST, "-n", "30", "-o", "cat").stdout
    check("… and why, and what helps", "'nonsense' is not HOST:PORT" in journal and "remedy" in journal, journal)
    host.run("systemctl", "stop", ONE_HOST)
    host.configure(UP)
    succeeds("put right it starts", host.run("systemctl", "restart", ONE_HOST, seconds=READY))
    check("the sandbox goes on", until(lambda: host.in_box("cat", "/tmp/file") == "kept\n", 60), host.in_box("cat", "/tmp/file"))


@suite.scenario
def another_host_may_join(host):
    host.configure(f"{UP} --log-to-stderr --listen 0.0.0.0:7443 --worker-listen 0.0.0.0:7444")
    succeeds("it listens on all its addresses", host.run("systemctl", "restart", ONE_HOST, seconds=READY))
    succeeds("it has come up", host.cloche("up", seconds=READY))
    journal = lambda: host.run("journalctl", "--no-pager", "-u", ONE_HOST, "-o", "cat").stdout  # noqa: E731
    # Without a template in the folder that `up` knows it waits for no worker.
    check("its processes log to the journal when they are told to",
          until(lambda: all(f'"process":"{name}"' in journal() for name in ("scheduler", "worker", "gateway")), 60), journal()[-1000:])
    token = host.cloche("worker", "token").stdout.strip()
    there = {"CLOCHE_ENDPOINT": "127.0.0.1:7443", "CLOCHE_CA": "/var/lib/cloche/tls/ca.pem", "CLOCHE_STATE_DIR": "/tmp/there"}
    succeeds("a worker of another host is enrolled", host.cloche("worker", "enroll", token, "--config", "/tmp/there.ini", **there))
    said = host.path("tmp/there.ini").read_text()
    check("it is told an address that it can reach", "scheduler = 127.0.0.1:7444\n" in said, said)
    succeeds("cloche-worker takes what was written", host.run("cloche-worker", "--config", "/tmp/there.ini", "--check-config"))


@suite.scenario
def it_is_stopped(host):
    succeeds("it stops", host.run("systemctl", "disable", "--now", ONE_HOST, seconds=READY))
    equal("nothing of it runs", [n for n in ("cloche", "redis-") if host.processes(n)], [])
    equal("the audit log is whole", host.cloche("audit", "verify", "--dir", "/var/lib/cloche/audit").returncode, 0)


def make_certificates(host):
    """As docs/install.md has it."""
    script = host.path("tmp/certificates.sh")
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "install.md").read_text()
    block = next(b for b in text.split("\n\n") if "openssl rand" in b)
    script.write_text("set -e\nHOST=127.0.0.1\n" + "\n".join(line[4:] for line in block.splitlines()) + "\n")
    succeeds("the secrets of the guide are made", host.run("sh", "-e", "/tmp/certificates.sh"))


@suite.scenario
def a_fleet_is_set_up(host):
    host.run("find", "/var/lib/cloche", "/run/cloche", "-mindepth", "1", "-delete")
    host.run("systemd-tmpfiles", "--create", "cloche.conf")
    make_certificates(host)
    examples = host.path("usr/share/cloche/examples")
    for name in ("audit.ini", "audit-reader.ini", "scheduler.ini", "gateway.ini"):
        host.path(f"etc/cloche/{name}").write_text((examples / name).read_text().replace("HOST", "127.0.0.1").replace("NAME", "here"))
    password = host.run("cat", "/etc/cloche/redis-password").stdout.strip()
    host.path("etc/redis/redis.conf").write_text((examples / "redis.conf").read_text().replace("THE-PASSWORD", password))
    succeeds("Redis starts", host.run("systemctl", "restart", "redis-server"))
    units = FLEET[:-1]
    succeeds("all of them start", host.run("systemctl", "enable", "--now", *units))
    check("all run", until(lambda: [host.state(u) for u in units] == ["active"] * len(units), 60), [host.state(u) for u in units])
    check("the scheduler leads", until(lambda: host.show("cloche-scheduler", "StatusText")["StatusText"].startswith("leads"), 60),
          host.show("cloche-scheduler", "StatusText"))
    equal("the worker is not started before it is enrolled", host.run("systemctl", "start", "cloche-worker").returncode, 0)
    equal("… of which its unit has no configuration", host.state("cloche-worker"), "inactive")


CLIENT = {"CLOCHE_ENDPOINT": "127.0.0.1:7443", "CLOCHE_CA": "/etc/cloche/fleet/ca.pem", "CLOCHE_KEY_FILE": "/var/lib/cloche/scheduler/admin.key"}


@suite.scenario
def templates_are_pulled(host):
    """From a folder here, which a registry stands for in integration/images/store; as docs/templates.md has it."""
    if not shutil.which("skopeo"):
        print("left out: templates_are_pulled wants skopeo")
        return
    host.path("etc/default/cloche").write_text("")  # a host of a fleet says nothing there
    succeeds("a template goes to a store", host.cloche("template", "push", "base", "--to", "/srv/store", CLOCHE_TEMPLATE_DIR=TEMPLATES))
    succeeds("… and comes from it", host.cloche("template", "pull", "base", "--from", "/srv/store", "--key", f"{TEMPLATES}/signing.pub"))
    succeeds("a timer looks for a newer one", host.run("systemctl", "enable", "--now", "cloche-templates.timer"))
    succeeds("… or who is asked to", host.run("systemctl", "start", "cloche-templates.service", seconds=READY))
    journal = host.run("journalctl", "--no-pager", "-u", "cloche-templates", "-o", "cat").stdout
    check("… which finds none", "base: unchanged" in journal, journal)
    (host.path("var/lib/cloche/templates/base") / "current/manifest.json").write_text("spoiled")
    succeeds("it looks again", host.run("systemctl", "start", "cloche-templates.service", seconds=READY))
    journal = host.run("journalctl", "--no-pager", "-u", "cloche-templates", "-o", "cat").stdout
    check("what is not what the store has is replaced", "base: fetching" in journal, journal)


@suite.scenario
def a_worker_joins_it(host):
    token = host.cloche("worker", "token", **CLIENT).stdout.strip()
    host.path("etc/cloche/worker.ini").write_text("# of another\n")
    refused = host.cloche("worker", "enroll", token, "--config", "/etc/cloche/worker.ini", **CLIENT)
    check("a configuration that is there is not written over", refused.returncode == 1 and "is there already" in refused.stderr, refused.stderr)
    host.path("etc/cloche/worker.ini").unlink()
    enrolled = host.cloche("worker", "enroll", token, "--config", "/etc/cloche/worker.ini", **CLIENT)
    succeeds("… and has not spent the token", enrolled)
    check("it says what to do next", "systemctl enable --now cloche-worker" in enrolled.stdout, enrolled.stdout)
    config = host.path("etc/cloche/worker.ini")
    pulled = host.path("var/lib/cloche/templates/base").exists()
    more = {"templates": "base", "warm": 1} | ({} if pulled else {"template-dir": TEMPLATES, "template-key": f"{TEMPLATES}/signing.pub"}) | ({} if DRIVER == "auto" else {"driver": DRIVER})
    config.write_text(config.read_text() + "".join(f"{k} = {v}\n" for k, v in more.items()))
    succeeds("the worker starts", host.run("systemctl", "enable", "--now", "cloche-worker"))
    check("… and has work from the scheduler", until(lambda: "takes work from" in host.show("cloche-worker", "StatusText")["StatusText"], 60),
          host.show("cloche-worker", "StatusText"))
    check("a job runs", until(lambda: host.job("echo", "hello", **CLIENT) == "hello\n", READY), host.job("echo", "hello", **CLIENT))
    log = host.cloche("audit", "query", "--event", "unit.end", "--json", **CLIENT)
    check("its tenant can read of it", log.returncode == 0 and "unit.end" in log.stdout, log.stdout + log.stderr)


def made_in_fleet(host):
    box = host.cloche("sandbox", "create", "base", "--ttl", "1h", **CLIENT).stdout.strip()
    succeeds("a sandbox is made", host.cloche("exec", box, "--", "sh", "-c", "echo kept > /tmp/file", **CLIENT))
    return box


def kept_in_fleet(host, box):
    return host.cloche("exec", box, "--", "cat", "/tmp/file", **CLIENT).stdout


@suite.scenario
def its_worker_is_restarted(host):
    runs = made_in_fleet(host)
    succeeds("the worker is restarted", host.run("systemctl", "restart", "cloche-worker", seconds=READY))
    check("what ran goes on", until(lambda: kept_in_fleet(host, runs) == "kept\n", 60), kept_in_fleet(host, runs))
    rests = made_in_fleet(host)
    succeeds("one is paused", host.cloche("sandbox", "pause", rests, **CLIENT))
    host.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "cloche-worker")
    check("killed it is started again", until(lambda: host.show("cloche-worker", "NRestarts")["NRestarts"] == "1" and host.state("cloche-worker") == "active", 60),
          host.show("cloche-worker", "NRestarts", "ActiveState"))
    check("what rested goes on", until(lambda: host.cloche("sandbox", "resume", rests, **CLIENT).returncode == 0, 60))
    equal("… with its file", kept_in_fleet(host, rests), "kept\n")
    lost = host.cloche("sandbox", "get", runs, **CLIENT)
    check("what ran is told to be lost", "worker-lost" in lost.stdout, lost.stdout + lost.stderr)


@suite.scenario
def it_is_removed(host):
    succeeds("it is removed", host.run("dpkg", "-r", "cloche", seconds=READY))
    equal("nothing of it runs", host.processes("cloche"), [])
    check("no program stays", not host.path("usr/bin/cloche").exists())
    purged = host.run("dpkg", "-P", "cloche")
    check("what was kept is named", purged.returncode == 0 and "/var/lib/cloche stays" in purged.stdout, purged.stdout + purged.stderr)
    check("… and stays", host.path("var/lib/cloche/audit").is_dir())
    check("its configuration is gone", not host.path("etc/default/cloche").exists())


def main():
    if os.geteuid() != 0:
        skip("needs root, for a host of its own")
    tools = ("systemd-analyze", "redis-server") + (() if MADE else ("cpack", "dpkg-shlibdeps"))
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        skip(f"{', '.join(missing)} missing")
    if not has_image("base"):
        skip(f"no images in {IMAGES}")
    with tempfile.TemporaryDirectory(prefix="cloche-package.") as folder:
        folder = pathlib.Path(folder)
        packages = [pack(folder, version) for version in ("0.1.0", "0.1.1")]
        with Host(packages) as host:
            suite.play(host, sys.argv[1:])
    suite.finish()


if __name__ == "__main__":
    main()
