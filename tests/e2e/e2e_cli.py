#!/usr/bin/env python3
"""`cloche` itself, as people and scripts use it: up, run, sandboxes, tenants, audit, down - as root with the
users it makes, and as an ordinary user with neither subuids nor cgroups."""
import hashlib
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request

from harness import BUILD, DRIVER, DRIVERS, IMAGES, Suite, is_alive, is_long, skip, soon, until

suite = Suite("cli")
check, equal = suite.check, suite.equal
NOBODY_SPECIAL = 61234


class Instance:
    """One `cloche up` in folders of its own."""

    def __init__(self, uid=None):
        self.uid = uid
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cl-", dir="/tmp"))
        self.dir.chmod(0o755)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "CLOCHE_STATE_DIR": f"{self.dir}/s", "CLOCHE_RUN_DIR": f"{self.dir}/r",
                    "CLOCHE_TEMPLATE_DIR": str(IMAGES), "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", ""), "TERM": "xterm"}
        if uid is not None:
            os.chown(self.dir, uid, uid)

    def argv(self, *args):
        who = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"] if self.uid is not None else []
        return [*who, str(BUILD / "cloche"), *map(str, args)]

    def __call__(self, *args, stdin=b"", timeout=120, env=None):
        return subprocess.run(self.argv(*args), input=stdin, capture_output=True, timeout=soon(timeout), cwd=self.dir, env={**self.env, **(env or {})})

    def json(self, *args, **kw):
        p = self(*args, "--json", **kw)
        if p.returncode:
            raise RuntimeError(f"{args}: {p.returncode} {p.stderr.decode()}")
        return json.loads(p.stdout)

    def tails(self):
        """The last words of its processes, for a scenario that raised."""
        logs = sorted((self.dir / "s" / "log").glob("*.log"))
        return "\n".join(f"{log.name}: {line}" for log in logs for line in log.read_text(errors="replace").splitlines()[-5:])

    def open(self, *args, **kw):
        return subprocess.Popen(self.argv(*args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir, env=self.env, **kw)


def exits(sentence, p, code, out=None, err=None):
    ok = p.returncode == code and (out is None or p.stdout == out) and (err is None or err in p.stderr.decode())
    check(sentence, ok, p)


@suite.scenario
def templates_of_nobody(c):
    """Brought from elsewhere, without the key that signed them."""
    brought = c.dir / "brought"
    brought.mkdir()
    (brought / "base").symlink_to(IMAGES / "base")
    exits("templates without their signer's key are refused before anything starts",
          c("up", "--templates", "base", env={"CLOCHE_TEMPLATE_DIR": str(brought)}), 1, err="signing.pub")
    check("… and nothing runs", c("status").returncode != 0)


def put_rule(c, name, pattern="*marked*"):
    """The file that `up` is given."""
    text = {"rules": [{"name": name, "severity": "high", "event": "unit.admit", "where": {"argv": pattern}, "what": "w"}]}
    (c.dir / "rules.json").write_text(json.dumps(text))


@suite.scenario
def rules_that_are_none(c):
    put_rule(c, "Not a name")
    exits("rules that are none are refused before anything starts", c("up", "--rules", "rules.json"), 1, err="Not a name")
    if c.uid is None and os.geteuid() == 0:
        put_rule(c, "first-rule")
        (c.dir / "rules.json").chmod(0o600)
        exits("… and those that their reader cannot read", c("up", "--rules", "rules.json"), 1, err="cannot read")
        (c.dir / "rules.json").chmod(0o644)
    check("… and nothing runs", c("status").returncode != 0)


@suite.scenario
def comes_up(c):
    put_rule(c, "first-rule")
    p = c("up", "--templates", "base,python", "--rules", "rules.json")
    exits("up is ready", p, 0)
    exits("a second up does nothing", c("up"), 0)
    s = c.json("status")
    names = {one["name"]: one for one in s["processes"]}
    check("status names driver, endpoint and audit log", s["driver"] in DRIVERS and s["endpoints"]["grpc"].startswith("unix:") and os.path.isdir(s["audit_dir"]), s)
    check("… and where MCP and E2B's API are, on one port", s["endpoints"]["mcp"] == s["endpoints"]["e2b"] + "/mcp", s["endpoints"])
    equal("… and the processes", set(names), {"supervisor", "redis", "audit", "audit-reader", "scheduler", "worker", "gateway"})
    for name in ("audit", "scheduler", "worker"):
        with urllib.request.urlopen(names[name]["metrics"], timeout=soon(10)) as answer:
            text = answer.read().decode()
        check(f"{name} serves its metrics", f'cloche_build_info{{process="{name}"' in text and "process_open_fds" in text, text[:400])
    equal("the administrator's key is private", os.stat(f"{c.dir}/s/admin.key").st_mode & 0o777, 0o600)


@suite.scenario
def runs(c):
    exits("python prints 42", c("run", "python", "--", "python3", "-c", "print(6*7)"), 0, b"42\n")
    exits("stdin works", c("run", "base", "--", "tr", "a-z", "A-Z", stdin=b"hello\n"), 0, b"HELLO\n")
    exits("exit codes pass through", c("run", "base", "--", "sh", "-c", "exit 7"), 7)
    exits("signals are 128+n", c("run", "base", "--", "sh", "-c", "kill -9 $$"), 137)
    exits("a command that is missing is 127", c("run", "base", "--", "no-such-command"), 127)
    exits("one that cannot be executed is 126", c("run", "base", "--", "/etc"), 126)
    exits("the time limit is 124", c("run", "--timeout", "1s", "base", "--", "sleep", "30"), 124)
    exits("a refusal is 125, with its remedy", c("run", "nope", "--", "true"), 125, err="remedy:")
    exits("a wrong key is 125", c("run", "base", "--", "true", env={"CLOCHE_API_KEY": "clk_wrong"}), 125)
    p = c("run", "--env", "A=b c", "--workdir", "/usr", "base", "--", "sh", "-c", 'echo "$A" $PWD')
    exits("env and workdir arrive", p, 0, b"b c /usr\n")


@suite.scenario
def finds_what_the_rules_say(c):
    url = c.json("status")["endpoints"]["e2b"] + "/cloche.v1.AuditService/Findings"
    head = {"Authorization": f"Bearer {(c.dir / 's' / 'admin.key').read_text().strip()}", "Content-Type": "application/json"}

    def found():
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", head), timeout=soon(20)) as answer:
            return {f["name"] for f in json.load(answer).get("findings", [])}
    exits("a job", c("run", "base", "--", "echo", "marked"), 0, b"marked\n")
    check("is found by a rule of one's own", until(lambda: "first-rule" in found(), 20), found())
    put_rule(c, "second-rule")
    equal("a rule that changes counts at once", found() & {"first-rule", "second-rule"}, {"second-rule"})
    put_rule(c, "Not a name")
    check("a wrong one does not, those of before do", "second-rule" in found(), found())
    check("… and the log says what is wrong", "Not a name" in (c.dir / "s" / "log" / "audit-reader.log").read_text())


@suite.scenario
def has_a_terminal(c):
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(c.dir)
        os.execvpe(c.argv()[0], c.argv("run", "-it", "base", "--", "bash"), c.env)
    seen = b""

    def until_seen(word, seconds=60):
        nonlocal seen
        end = time.monotonic() + soon(seconds)
        while word not in seen and time.monotonic() < end:
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    seen += os.read(fd, 4096)
                except OSError:
                    return word in seen
        return word in seen

    until_seen(b"$ ")
    os.write(fd, b"tty; echo $((40 + 2))x\n")
    check("bash has a pty", until_seen(b"42x") and b"/dev/pts/" in seen, seen)
    os.write(fd, b"sh -c 'echo go$((1 + 1))on; exec sleep 1000'\n")
    check("a program has the foreground", until_seen(b"go2on"), seen)
    os.write(fd, b"\x03")
    os.write(fd, b"echo still $((1 + 1))here\n")
    check("Ctrl-C reaches the foreground process, not the shell", until_seen(b"still 2here"), seen)
    os.write(fd, b"exit 9\n")
    until_seen(b"\0never", 5)
    equal("its exit code is ours", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9)
    os.close(fd)


@suite.scenario
def detaches(c):
    p = c("run", "--detach", "base", "--", "sh", "-c", "echo one; sleep 1; echo two")
    job = p.stdout.decode().strip()
    check("--detach prints an id", p.returncode == 0 and job.startswith("job_"), p)
    exits("logs -f follows it to its end", c("logs", "-f", job), 0, b"one\ntwo\n")
    job = c("run", "--detach", "base", "--", "sleep", "100").stdout.decode().strip()
    check("ps lists it", any(job in json.dumps(row) for row in c.json("ps")), c("ps"))
    exits("kill ends it", c("kill", job), 0)
    live = c.open("run", "base", "--", "sh", "-c", "echo begun; sleep 100")
    check("output comes as it is made", live.stdout.readline() == b"begun\n")
    live.send_signal(signal.SIGINT)
    check("Ctrl-C cancels the job", live.wait(soon(60)) in (130, 137, 125), live.returncode)


@suite.scenario
def keeps_sandboxes(c):
    box = c.json("sandbox", "create", "python", "--ttl", "10m")
    box = box.get("id") or box.get("sandbox_id")
    exits("exec runs in it", c("exec", box, "--", "sh", "-c", "echo $((6*7)) > /tmp/n; cat /tmp/n"), 0, b"42\n")
    folder = c.dir / "in"
    (folder / "deep").mkdir(parents=True)
    data = os.urandom(3 << 20)
    (folder / "deep" / "data").write_bytes(data)
    if c.uid is not None:
        for path in (folder, folder / "deep", folder / "deep" / "data"):
            os.chown(path, c.uid, c.uid)
    deaf = c.open("exec", box, "--", "sh", "-c", "trap '' TERM; echo begun; sleep 100")
    check("a program that ignores SIGTERM runs", deaf.stdout.readline() == b"begun\n")
    deaf.send_signal(signal.SIGTERM)
    check("after a while exec says how to leave it", b"again" in deaf.stderr.readline() + deaf.stderr.readline())
    deaf.send_signal(signal.SIGTERM)
    equal("the second leaves", deaf.wait(soon(60)), 143)
    exits("cp -r takes a folder in", c("cp", "-r", folder, f"{box}:/tmp/"), 0)
    p = c("exec", box, "--", "sha256sum", "/tmp/in/deep/data")
    check("… intact", hashlib.sha256(data).hexdigest().encode() in p.stdout, p)
    exits("cp brings a file out", c("cp", f"{box}:/tmp/in/deep/data", "."), 0)
    check("… intact", (c.dir / "data").is_file() and (c.dir / "data").read_bytes() == data)
    watch = c.open("watch", "-r", "-n", "2", f"{box}:/tmp/in")
    equal("watch says when it watches", watch.stderr.readline(), b"cloche: watching\n")
    exits("something changes", c("exec", box, "--", "sh", "-c", "mkdir /tmp/in/new; rm /tmp/in/deep/data"), 0)
    out, _ = watch.communicate(timeout=soon(60))
    equal("… a line each, so many", (watch.returncode, [line.split() for line in out.decode().splitlines()]), (0, [["created", "new"], ["removed", "deep/data"]]))
    watch = c.open("watch", "--json", "-n", "1", f"{box}:/tmp/in")
    equal("… that, too", watch.stderr.readline(), b"cloche: watching\n")
    exits("something changes again", c("exec", box, "--", "touch", "/tmp/in/once"), 0)
    equal("… or as JSON", json.loads(watch.communicate(timeout=soon(60))[0]), {"change": "created", "path": "once", "size": 0})
    exits("a folder that is not there", c("watch", f"{box}:/none"), 1, err="No such file")
    exits("a folder of this machine", c("watch", "/tmp"), 1, err="SANDBOX:/path")
    stats = c.json("vm", "stats", box)
    driver = c.json("sandbox", "get", box)["driver"]
    equal("vm stats names the VM's driver", (stats["id"], stats["driver"], stats["cpu_ms"] > 0), (box, driver, True))
    has, out = driver.startswith("kvm"), c("vm", "stats", box).stdout.decode()
    check("… has counters, or says that there are none", stats["counters"]["kicks.vsock"] > 0 and stats["monitor_exits"] > 0 and "kicks.vsock" in out
          if has else stats["counters"] is None and stats["monitor_exits"] is None and "no counters: QEMU keeps none" in out, (stats, out))
    check("… those that are 0 only with --all", ("kicks.net" in out, "kicks.net" in c("vm", "stats", "--all", box).stdout.decode()) == (False, has), out)
    used = c.json("vm", "usage", box)
    row = used["samples"][-1]
    check("vm usage tells what it used", (used["id"], used["vcpus"]) == (box, 1) and sum(s["cpu_ms"] for s in used["samples"]) > 0 and
          0 < row["memory_used_bytes"] < row["memory_total_bytes"], used)
    out = c("vm", "usage", "-n", "1", box).stdout.decode().splitlines()
    check("… as a table", len(out) == 2 and out[0].split()[:4] == ["AT", "FOR", "CPU", "MEMORY"] and " MiB of " in out[1], out)
    is_on_top(c, box)
    rests(c, box)
    exits("rm ends it", c("rm", box), 0)
    exits("vm usage of what has ended fails", c("vm", "usage", box), 1, err="remedy:")
    exits("vm stats of what has ended fails, and says how to go on", c("vm", "stats", box), 1, err="remedy:")
    exits("… and so does that of nothing", c("vm", "stats"), 2, err="remedy: cloche vm stats --help")
    exits("then exec is refused", c("exec", box, "--", "true"), 125)


def is_on_top(c, box):
    calm = c("sandbox", "create", "base").stdout.decode().strip()
    job = c("run", "--detach", "base", "--", "sh", "-c", "while :; do :; done").stdout.decode().strip()
    def rows():
        return {u["id"]: u for u in c.json("top")["units"]}
    check("top has what runs", until(lambda: {box, calm, job} <= set(rows()), 60), rows())
    check("… what uses most first", until(lambda: c.json("top")["units"][0]["id"] == job, 60), c.json("top"))
    row = rows()[job]
    check("… with what it uses", (row["kind"], row["template"], row["vcpus"]) == ("job", "base", 1) and row["cpu_percent"] > 5 and
          0 < row["memory_used_bytes"] < row["memory_total_bytes"] and row["processes"] > 0 and rows()[calm]["cpu_percent"] < row["cpu_percent"], row)
    out = c("top", "-n", "1", "--sort", "cpu").stdout.decode().splitlines()
    check("… as a table, of one", " running: CPU " in out[0] and out[1].split()[:3] == ["ID", "TEMPLATE", "CPU"] and out[2].startswith(job) and
          out[3] == f"... and {int(out[0].split()[1]) - 1} more", out)
    one = c.json("top", "-n", "1")
    check("… and in JSON", len(one["units"]) == 1 and one["running"] >= 3, one)
    lines = subprocess.Popen(c.argv("top", "--json", "--interval", "100ms"), stdout=subprocess.PIPE, env=c.env)
    looks = [json.loads(lines.stdout.readline()) for _ in range(3)]
    lines.terminate()
    lines.wait(soon(60))
    check("… again and again, a line each", all(job in [u["id"] for u in one["units"]] for one in looks) and looks[0]["at"] < looks[1]["at"] < looks[2]["at"], looks)
    screen, end = pty.openpty()
    termios.tcsetwinsize(end, (4, 60))
    live = subprocess.Popen(c.argv("top", "--interval", "100ms"), stdin=subprocess.DEVNULL, stdout=end, env=c.env)
    os.close(end)
    text = b""
    while text.count(b"\x1b[H") < 4:
        text += os.read(screen, 65536)
    live.terminate()
    live.wait(soon(60))
    frame = text.split(b"\x1b[H")[2].decode().replace("\x1b[K", "").replace("\x1b[J", "").split("\r\n")
    check("on a terminal it draws over what stood there, no more than fits", len(frame) <= 5 and frame[2].startswith(job) and max(map(len, frame)) == 59 and
          frame[3].startswith("... and "), frame)
    exits("an order that there is not", c("top", "--sort", "name"), 1, err="cpu, memory, disk or processes")
    exits("they end", c("kill", job, calm), 0)
    check("… and are not there any more", until(lambda: not {job, calm} & set(rows()), 60), rows())


def rests(c, box):
    """A command that waits, a file and a sandbox that stand still and go on."""
    waits = c.open("exec", box, "--", "sh", "-c", "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo ended")
    check("a command runs", waits.stdout.readline() == b"begun\n")
    paused = c.json("sandbox", "pause", "--keep", "7d", box)
    check("pause answers when it rests, with what that takes", (paused["id"], paused["state"]) == (box, "paused") and paused["image_bytes"] > 1 << 20, paused)
    row = next(r for r in c.json("sandbox", "list") if r["id"] == box)
    equal("the list says so", (row["state"], row["image_bytes"], row["left"][-1]), ("paused", paused["image_bytes"], "d"))
    out = c("sandbox", "get", box).stdout.decode()
    check("… and get, with its size", "paused" in out and "iB" in next(line for line in out.splitlines() if line.startswith("image")), out)
    exits("a second pause is none", c("sandbox", "pause", box), 0)
    exits("exec is refused, and the way on is named", c("exec", box, "--", "true"), 125, err="remedy: cloche sandbox resume SANDBOX")
    check("the command stands still", waits.poll() is None)
    resumed = c.json("sandbox", "resume", box, "--ttl", "10m")
    equal("resume answers when it runs", (resumed["state"], resumed["was_paused"], resumed["image_bytes"]), ("running", True, 0))
    exits("its file is there", c("exec", box, "--", "cat", "/tmp/n"), 0, b"42\n")
    exits("what it waits for comes", c("exec", box, "--", "touch", "/tmp/go"), 0)
    equal("the command goes on where it was", (waits.stdout.read(), waits.wait(soon(60))), (b"ended\n", 0))
    equal("a second resume says that it ran", c.json("sandbox", "resume", box)["was_paused"], False)
    exits("another word for --on-idle is refused", c("sandbox", "create", "base", "--on-idle", "sleep"), 1, err="want end, pause or pause-until-resumed")
    idle = c.json("sandbox", "create", "base", "--ttl", "2s", "--on-idle", "pause")
    equal("one that pauses when idle says so", idle["on_idle"], "pause")
    end = time.monotonic() + soon(60)
    while c.json("sandbox", "get", idle["id"])["state"] == "running" and time.monotonic() < end:
        time.sleep(0.5)
    equal("… and does", c.json("sandbox", "get", idle["id"])["state"], "paused")
    exits("its next use wakes it", c("exec", idle["id"], "--", "echo", "awake"), 0, b"awake\n")
    exits("it can be ended", c("rm", idle["id"]), 0)
    sleeper = c.json("sandbox", "create", "base", "--on-idle", "pause-until-resumed")
    equal("one that is not to be woken by that says so", sleeper["on_idle"], "pause-until-resumed")
    exits("a paused one can be ended", c("sandbox", "pause", sleeper["id"]), 0)
    exits("… so", c("rm", sleeper["id"]), 0)


@suite.scenario
def forks_sandboxes(c):
    box = c.json("sandbox", "create", "base", "--label", "k=v")
    equal("one that is made anew is no copy", box["forked_from"], "")
    box = box["id"]
    exits("a file is written", c("exec", box, "--", "sh", "-c", "echo one > /tmp/n"), 0)
    p = c("sandbox", "fork", "-n", "2", box)
    copies = p.stdout.decode().split()
    check("fork prints an id a line", p.returncode == 0 and len({box, *copies}) == 3 and all(i.startswith("sbx_") for i in copies), p)
    for one in copies:
        exits("a copy has the file", c("exec", one, "--", "cat", "/tmp/n"), 0, b"one\n")
        row = c.json("sandbox", "get", one)
        equal("… runs, and tells of whom it is a copy", (row["state"], row["forked_from"], row["labels"]), ("running", box, {}))
    out = c("sandbox", "get", copies[0]).stdout.decode()
    check("… on a screen too", box in next(line for line in out.splitlines() if line.startswith("forked from")), out)
    exits("one changes it", c("exec", copies[0], "--", "sh", "-c", "echo two > /tmp/n; cat /tmp/n"), 0, b"two\n")
    for other in (box, copies[1]):
        exits("… and the others do not see that", c("exec", other, "--", "cat", "/tmp/n"), 0, b"one\n")
    third = c.json("sandbox", "fork", copies[0], "--ttl", "10m", "--label", "of=mine", "--idempotency-key", "third")
    equal("a copy can be copied, with labels of its own", (third["forked_from"], third["labels"]), (copies[0], {"of": "mine"}))
    exits("… as it is now", c("exec", third["id"], "--", "cat", "/tmp/n"), 0, b"two\n")
    again = c("sandbox", "fork", copies[0], "--ttl", "10m", "--label", "of=mine", "--idempotency-key", "third")
    exits("the same key is the same copy", again, 0, third["id"].encode() + b"\n")
    exits("none is no number of copies", c("sandbox", "fork", "-n", "0", box), 1, b"", err="--count: between 1 and 64")
    exits("nor are too many", c("sandbox", "fork", "-n", "65", box), 1, b"", err="--count: between 1 and 64")
    exits("all of them end", c("rm", box, *copies, third["id"]), 0)
    exits("of what has ended there is no copy", c("sandbox", "fork", box), 1, b"", err="remedy:")


@suite.scenario
def keeps_snapshots(c):
    box = c.json("sandbox", "create", "base")["id"]
    exits("a file is written", c("exec", box, "--", "sh", "-c", "echo one > /tmp/n"), 0)
    p = c("snapshot", "create", "--label", "k=v", box, "prepared")
    snap = p.stdout.decode().strip()
    check("snapshot create prints an id", p.returncode == 0 and snap.startswith("snp_"), p)
    row = c.json("snapshot", "get", "prepared")
    equal("get tells of it", (row["id"], row["state"], row["sandbox"], row["template"], row["labels"], row["network"]), (snap, "ready", box, "base", {"k": "v"}, []))
    out = c("snapshot", "list").stdout.decode()
    check("list has it, on a screen too", [r["name"] for r in c.json("snapshot", "list", box)] == ["prepared"] and snap in out and "ready" in out, out)
    exits("the sandbox ends", c("rm", box), 0)
    exits("a job begins with it", c("run", "--snapshot", "prepared", "--", "sh", "-c", "cat /tmp/n; exit 3"), 3, b"one\n")
    (c.dir / "up").mkdir()
    (c.dir / "up" / "more").write_text("two\n")
    exits("… with files of its own", c("run", "--snapshot", snap, "--upload", str(c.dir / "up"), "--", "sh", "-c", "cat /tmp/n more"), 0, b"one\ntwo\n")
    other = c.json("sandbox", "create", "--snapshot", "prepared", "--ttl", "10m")
    equal("a sandbox, too", (other["forked_from"], other["template"], other["vcpus"]), (snap, "base", row["vcpus"]))
    exits("… which has the file", c("exec", other["id"], "--", "cat", "/tmp/n"), 0, b"one\n")
    exits("a name that is taken is refused, with what helps", c("snapshot", "create", other["id"], "prepared"), 1, b"", err="remedy: delete that, ask for `replace`")
    exits("or replaced", c("snapshot", "create", "--replace", "--keep", "1h", other["id"], "prepared"), 0)
    new = c.json("snapshot", "get", "prepared")
    check("… and kept as long as was said", new["id"] != snap and new["left"].startswith("59 m"), new)
    exits("template and snapshot exclude each other", c("run", "base", "--snapshot", "prepared", "--", "true"), 125, b"", err="a template or a snapshot, not both")
    exits("one of them is needed", c("run", "--", "true"), 125, b"", err="no template is given")
    exits("what is not there is said", c("sandbox", "create", "--snapshot", "nobody"), 1, b"", err="no snapshot 'nobody'")
    exits("kill is not for it", c("kill", new["id"]), 1, err="cloche snapshot rm")
    exits("rm deletes it", c("snapshot", "rm", "prepared"), 0)
    exits("… and then it is not there", c("snapshot", "rm", "prepared"), 1, err="no snapshot 'prepared'")
    equal("list --all has what has ended", [r["state"] for r in c.json("snapshot", "list", "--all")], ["ended", "ended"])
    exits("what began with it stays until it is ended", c("rm", other["id"]), 0)


@suite.scenario
def forks_until_the_quota(c):
    exits("a tenant has room for two", c("tenant", "create", "twins", "--max-sandboxes", "2", "--rate", "100/s"), 0)
    env = {"CLOCHE_API_KEY": c.json("key", "create", "twins")["key"]}
    box = c.json("sandbox", "create", "base", env=env)["id"]
    p = c("sandbox", "fork", "--count", "3", "--json", box, env=env)
    rows = [json.loads(line) for line in p.stdout.splitlines()]
    equal("what was made before a refusal is printed and stays", [(r["forked_from"], c.json("sandbox", "get", r["id"], env=env)["state"]) for r in rows], [(box, "running")])
    exits("… and the refusal says how many they are", p, 1, err="made 1 of 3 forks: ")
    exits("both end", c("rm", box, rows[0]["id"], env=env), 0)


@suite.scenario
def has_tenants(c):
    exits("a tenant is made", c("tenant", "create", "acme", "--max-sandboxes", "1", "--max-file", "1KiB", "--rate", "100/s"), 0)
    made = c.json("key", "create", "acme")
    check("its key is shown once", made["tenant"] == "acme" and made["key"], made)
    as_acme = {"CLOCHE_API_KEY": made["key"]}
    exits("the key works", c("run", "base", "--", "echo", "hi", env=as_acme), 0, b"hi\n")
    exits("it cannot make tenants", c("tenant", "create", "evil", env=as_acme), 1, err="admin")
    box = c.json("sandbox", "create", "base", env=as_acme)
    (c.dir / "large").write_bytes(bytes(1025))
    exits("a file larger than it may have is refused", c("cp", "large", f"{box['id']}:/tmp/", env=as_acme), 1, err="file_bytes")
    p = c("sandbox", "create", "base", env=as_acme)
    exits("over the quota is refused", p, 1, err="remedy:")
    exits("another tenant's sandbox is not there", c("exec", box["id"], "--", "true", env={"CLOCHE_API_KEY": c.json("key", "create", "acme")["key"] + "x"}), 125)
    check("usage shows one sandbox", '"sandboxes"' in json.dumps(c.json("usage", "--tenant", "acme")), c("usage", "--tenant", "acme"))
    exits("its sandbox ends", c("rm", box["id"], env=as_acme), 0)
    keys = c.json("key", "list", "acme") if c("key", "list", "acme").returncode == 0 else c.json("key", "list")
    key_id = next(k["id"] for k in keys if made["key"].startswith(k["id"]) or k.get("tenant", "acme") == "acme")
    exits("a key is revoked", c("key", "revoke", key_id), 0)


@suite.scenario
def proves_it(c):
    exits("the audit log verifies", c("audit", "verify"), 0)
    head = c("audit", "head")
    exits("audit head prints the head", head, 0)
    check("audit query finds the runs", len(c("audit", "query", "--json").stdout) > 100)
    theirs = {"CLOCHE_API_KEY": c.json("key", "create", "acme", "--scopes", "audit")["key"]}
    got = c("audit", "query", "--json", env=theirs)
    equal("a tenant reads its own stream, by the service", (got.returncode, {json.loads(line)["stream"] for line in got.stdout.splitlines()}), (0, {"tenant/acme"}))
    p = c("doctor", "--json")
    check("doctor says what the host can do", p.returncode in (0, 1) and json.loads(p.stdout), p)
    host = json.loads(p.stdout)["host"]
    figures = [host["transition_ns"], host["page_fault_ns"]]
    check("… what KVM takes, or why that is not known", all(0 < ns < 10_000_000 for ns in figures) and host["cost_samples"] > 100
          and host["transition_by"] in ("SYSCALL", "CPUID") if host["kvm_node"] else figures == [0, 0] and host["costs_why"], host)
    out = c("doctor").stdout.decode()
    check("… in both ways of saying it", "kvm costs" in out and ("out of a guest and back" in out) == (figures[0] > 0), out)
    for word in ("up", "run", "sandbox", "cp", "audit", "doctor"):
        check(f"{word} --help teaches", len(c(word, "--help").stdout) > 200, word)


@suite.long_scenario
def status_says_why_it_is_not_ready(c):
    scheduler = next(one["pid"] for one in c.json("status")["processes"] if one["name"] == "scheduler")
    os.kill(scheduler, signal.SIGSTOP)
    try:
        s = c.json("status")
        check("status of a scheduler that stands still is not ready, and says why", s["running"] and not s["ready"] and s.get("why"), s)
        check("… on a screen too", b"not ready: " in c("status").stderr)
    finally:
        os.kill(scheduler, signal.SIGCONT)
    end = time.monotonic() + soon(60)
    while not (s := c.json("status"))["ready"] and time.monotonic() < end:
        time.sleep(0.2)
    check("… and is ready again when it goes on", s["ready"] and "why" not in s, s)


@suite.scenario
def goes_down(c):
    s = c.json("status")
    box = c("sandbox", "create", "base").stdout.decode().strip()
    exits("a file in a sandbox", c("exec", box, "--", "sh", "-c", "echo kept > /tmp/file"), 0)
    exits("that is paused", c("sandbox", "pause", box), 0)
    exits("and kept", c("snapshot", "create", box, "for-later"), 0)
    awake = c("sandbox", "create", "base").stdout.decode().strip()
    exits("a file in another", c("exec", awake, "--", "sh", "-c", "echo awake > /tmp/file"), 0)
    down = c("down")
    exits("down ends it", down, 0)
    check("… and says what waits", b"2 paused sandboxes wait for `cloche up`" in down.stderr and b"1 snapshot is kept for `cloche up`" in down.stderr, down.stderr)
    left = [one for one in s["processes"] if is_alive(one["pid"])]
    check("no process is left", not left, left)
    check("status says that it is down", c("status").returncode != 0)
    exits("the log still verifies, offline", c("audit", "verify", "--dir", s["audit_dir"]), 0)
    exits("it comes up again", c("up", "--templates", "base"), 0)
    exits("and works", c("run", "base", "--", "echo", "again"), 0, b"again\n")
    exits("what was paused goes on", c("sandbox", "resume", box), 0)
    exits("with all it had", c("exec", box, "--", "cat", "/tmp/file"), 0, b"kept\n")
    exits("what was kept is there", c("run", "--snapshot", "for-later", "--", "cat", "/tmp/file"), 0, b"kept\n")
    check("what ran goes on by itself", until(lambda: c.json("sandbox", "get", awake)["state"] == "running", 60))
    exits("… with all it had", c("exec", awake, "--", "cat", "/tmp/file"), 0, b"awake\n")
    exits("and goes down", c("down"), 0)


AS_ANYBODY = ["comes_up", "runs", "has_tenants", "goes_down"]  # where a user's own folders, sockets and rights matter


def main():
    if os.geteuid() != 0:
        skip("needs root, to be an ordinary user and itself")
    if not (IMAGES / "python").is_dir():
        skip(f"no images in {IMAGES}")
    users = [None]
    if DRIVER in ("auto", "qemu/tcg"):
        users.append(NOBODY_SPECIAL)
    else:
        print(f"left out: an ordinary user, who has no /dev/kvm, which {DRIVER} needs", flush=True)
    for uid in users:
        print(f"--- as {'root' if uid is None else 'an ordinary user'}", flush=True)
        c = Instance(uid)
        names = sys.argv[1:]
        if uid is not None and not names and not is_long():
            names = AS_ANYBODY
            print(f"left out: all but {', '.join(names)}: emulated that takes a minute; runs with CI=true or CLOCHE_LONG=1", flush=True)
        try:
            suite.play(c, names)
        finally:
            c("down")
            shutil.rmtree(c.dir, ignore_errors=True)
    suite.finish()


if __name__ == "__main__":
    main()
