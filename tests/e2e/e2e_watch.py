#!/usr/bin/env python3
"""What user code does in its guest is in its tenant's audit stream: all of it, or counted."""
import os
import signal
import time

from e2e_kept import restart
from harness import BUILD, IS_SHARED, SECOND, Cluster, Suite, command, error_of, follow, pb, run, sha256, soon, until

suite = Suite("watch")
check, equal = suite.check, suite.equal


class Log:
    """The audit records of one unit, once its last count is there."""

    def __init__(self, c, unit, ended=True):
        def whole():
            self.rows = [r for r in c.audit_records() if r["stream"].startswith("tenant/") and r["fields"].get("unit") == unit]
            return not ended or any(r["event"] == "unit.end" for r in self.rows)
        until(whole, 20)

    def of(self, event):
        return [r["fields"] for r in self.rows if r["event"] == event]

    def at(self, event, **fields):
        """Place of the first such record."""
        for i, r in enumerate(self.rows):
            if r["event"] == event and all(r["fields"].get(k) == v for k, v in fields.items()):
                return i
        return None

    def guest(self):
        """Each once: what was told again may be there twice."""
        rows = {}
        for r in self.rows:
            if r["event"].startswith("guest.") and r["event"] != "guest.count":
                rows.setdefault(r["fields"]["number"], r)
        return list(rows.values())

    def sums_up(self):
        """Of its last count: nothing is unaccounted for."""
        last = [f for f in self.of("guest.count") if f["last"]]
        return len(last) == 1 and last[0]["seen"] == sum(last[0][k] for k in ("recorded", "over", "lost", "missing")) and \
            last[0]["recorded"] == len(self.guest()) and last[0]


class Box:
    def __init__(self, client, template="base"):
        self.client = client
        self.id = client.sandboxes.Create(pb.CreateRequest(template=template, ttl_ns=600 * SECOND), timeout=60).sandbox.id

    def put(self, path, text, mode=0o755):
        self.client.files.Write(iter([pb.WriteRequest(sandbox_id=self.id, path=path, mode=mode, data=text.encode(), commit=True)]))

    def begin(self, *argv, **kw):
        self.exec = self.client.execs.Start(pb.StartRequest(sandbox_id=self.id, command=command(*argv, **kw))).exec_id

    def finish(self, timeout=120):
        done = follow(self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.id, exec_id=self.exec), timeout=soon(timeout)))
        return bytes(done.out).decode()

    def run(self, *argv, **kw):
        self.begin(*argv, **kw)
        return self.finish()

    def end(self, c):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))
        return Log(c, self.id)


@suite.scenario
def a_job(c):
    job = run(c.admin, "/bin/sh", "-c", "cp /etc/hostname /tmp/copy; /bin/ls /tmp").job_id
    log = Log(c, job)
    programs = log.of("guest.exec")
    equal("its programs", [f["argv"] for f in programs],
          [["/bin/sh", "-c", "cp /etc/hostname /tmp/copy; /bin/ls /tmp"], ["cp", "/etc/hostname", "/tmp/copy"], ["/bin/ls", "/tmp"]])
    equal("and the file that it wrote", [(f["path"], f["created"], f["comm"]) for f in log.of("guest.write")], [("/tmp/copy", True, "cp")])
    equal("and the one that it read", [(f["path"], f["comm"]) for f in log.of("guest.read")], [("/etc/hostname", "cp")])
    equal("in their order", [(r["event"], r["fields"]["number"]) for r in log.guest()],
          [("guest.exec", 1), ("guest.exec", 2), ("guest.read", 3), ("guest.write", 4), ("guest.exec", 5)])
    equal("each says which exec it was", {f["exec"] for f in programs}, {f["exec"] for f in log.of("exec.end")})
    equal("whose child", [f["parent"] for f in programs[1:]], [programs[0]["pid"]] * 2)
    check("before the end of the exec", max(log.at("guest.exec"), log.at("guest.write")) < log.at("exec.end") < log.at("guest.count", last=True) < log.at("vm.end"))
    equal("with what a guest of this kind is worth", {r["assurance"] for r in log.guest()}, {"G0" if IS_SHARED else "G1"})
    equal("what the host says is worth more", {r["assurance"] for r in log.rows if not r["event"].startswith("guest.")}, {"H0"})
    check("and it adds up", log.sums_up(), log.of("guest.count"))
    begun, monitor = log.of("vm.start")[0], BUILD / "cloche-vmm"
    check("vm.start tells that it is watched", "unwatched" not in begun)
    equal("… and the very monitor, where that is ours", (begun.get("monitor_sha256"), bool(begun.get("monitor_build"))),
          (sha256(monitor.read_bytes()).hex(), True) if begun["driver"].startswith("kvm") else (None, False))


@suite.scenario
def a_sandbox(c):
    box = Box(c.admin)
    box.put("/tmp/attack", "my $n = 'none'; syscall(165, $n, $n, $n, 0, 0); syscall(272, 0x10000000); syscall(321, 0, 0, 0); exec '/bin/sh', '/tmp/script'")
    box.put("/tmp/script", "#!/bin/sh\nexec /bin/true\n")
    box.run("perl", "/tmp/attack")
    first = box.exec
    box.put("/tmp/net", "use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0); connect($s, pack_sockaddr_in(80, inet_aton('169.254.169.254')));"
                        "socket(my $b, PF_INET, SOCK_STREAM, 0); bind($b, pack_sockaddr_in(8080, INADDR_ANY));")
    box.run("perl", "/tmp/net")
    box.put("/tmp/trace", "my $p = fork; sleep 30 if !$p; syscall(101, 16, $p, 0, 0); kill 9, $p")
    box.run("perl", "/tmp/trace")
    log = box.end(c)
    equal("what was refused", [f["call"] for f in log.of("guest.denied") if f["exec"] == first], ["mount", "unshare", "bpf"])
    equal("where it wanted to connect", [(f["address"], f["port"]) for f in log.of("guest.connect") if "address" in f], [("169.254.169.254", 80)])
    equal("what it bound", [(f["address"], f["port"]) for f in log.of("guest.bind")], [("0.0.0.0", 8080)])
    equal("whom it traced", len(log.of("guest.trace")), 1)
    check("the script and its interpreter", ["/bin/sh", "/tmp/script"] in [f["argv"] for f in log.of("guest.exec")], log.of("guest.exec"))
    check("and it adds up", log.sums_up(), log.of("guest.count"))


def calls_of(fields):
    return {name: int(n) for name, n in (c.split("=") for c in fields["calls"])}


def yields(n, then=""):
    return ["perl", "-e", f"syscall(24) for 1..{n}; {then}"]  # sched_yield, which nobody else calls


@suite.scenario
def how_often_each_call_was_made(c):
    counting = c.tenant("counting", count_calls=True)
    check("the limit is there again", c.admin.tenants.GetTenant(pb.GetTenantRequest(name="counting")).tenant.limits.count_calls)
    box = Box(counting)
    told = lambda of: [f for f in Log(c, box.id, ended=False).of("guest.calls") if f.get("exec") == of]
    box.run(*yields(1234))
    simple = box.exec
    box.run(*yields(100, "for (1..3) { if (!fork) { syscall(24) for 1..50; exit } } 1 while wait > 0; syscall(165, 0, 0, 0, 0, 0) for 1..9"))
    family = box.exec
    box.run("perl", "-e", "syscall(100000) for 1..7; syscall(24)")
    unknown = box.exec
    box.run(*yields(100000))
    many = box.exec
    box.begin(*yields(77, "sleep 1 until -e '/tmp/go'; syscall(24) for 1..5"))
    slow = box.exec
    until(lambda: told(slow), 30)
    counting.sandboxes.Pause(pb.PauseRequest(sandbox_id=box.id), timeout=soon(60))
    counting.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box.id), timeout=soon(60))
    copy = counting.sandboxes.Fork(pb.ForkRequest(sandbox_id=box.id), timeout=soon(60)).sandbox.id
    box.put("/tmp/go", "")
    box.finish()
    log = box.end(c)
    ends = {f["exec"]: f for f in log.of("guest.calls") if f["last"]}
    equal("one end for each exec", sorted(ends), sorted([simple, family, unknown, many, slow]))
    equal("as often as it was called", [calls_of(ends[e]).get("sched_yield") for e in (simple, family, unknown, many, slow)], [1234, 250, 1, 100000, 82])
    family_calls = calls_of(ends[family])
    equal("each fork once, and each end", (family_calls.get("clone"), family_calls.get("exit_group"), family_calls.get("execve", 0) > 0), (3, 4, True))
    equal("what the filter refuses is told as such, and not counted", (family_calls.get("mount"), len([f for f in log.of("guest.denied") if f["exec"] == family])), (None, 9))
    check("numbers that no kernel knows are others", calls_of(ends[unknown])["other"] >= 7, ends[unknown])
    first = [f for f in log.of("guest.calls") if f["exec"] == slow][0]
    equal("one that runs on is told meanwhile", (first["last"], calls_of(first)["sched_yield"]), (False, 77))
    check("total is the sum", all(f["total"] == sum(calls_of(f).values()) and f["uncounted"] == 0 for f in ends.values()), ends)
    check("before the end of its exec", log.at("guest.calls", exec=simple) < log.at("exec.end", exec=simple))
    equal("vm.start tells that they are counted", [f["calls"] for f in log.of("vm.start")], ["counted"])
    check("and it adds up", log.sums_up(), log.of("guest.count"))
    box.id = copy
    box.run(*yields(3))
    own, theirs = box.exec, box.end(c)
    equal("a copy counts anew", [calls_of(f).get("sched_yield") for f in theirs.of("guest.calls") if f.get("exec") == own], [3])
    check("also what it goes on with", all(calls_of(f).get("sched_yield", 0) in (0, 5) for f in theirs.of("guest.calls") if f.get("exec") != own), theirs.of("guest.calls"))
    check("a tenant whose calls are not counted has none", not Log(c, run(c.admin, *yields(5)).job_id).of("guest.calls"))


@suite.scenario
def how_often_code_calls(c):
    counting = c.tenant("counting-code", count_calls=True)
    box = Box(counting, "python")
    context = counting.codes.CreateContext(pb.CreateContextRequest(sandbox_id=box.id, language=pb.LANGUAGE_PYTHON), timeout=soon(60)).context.id
    script = "import os\nfor _ in range(%d): os.sched_yield()\n"
    for n in (40, 2):
        list(counting.codes.RunCode(pb.RunCodeRequest(sandbox_id=box.id, context_id=context, code=script % n), timeout=soon(60)))
    log = box.end(c)
    of = [f for f in log.of("guest.calls") if f.get("context") == context]
    equal("after each cell, since its interpreter began", [calls_of(f).get("sched_yield") for f in of][-2:], [40, 42])
    check("and it adds up", log.sums_up(), log.of("guest.count"))


@suite.scenario
def what_is_removed_and_moved(c):
    box, long = Box(c.admin), "n" * 250
    box.run("sh", "-c", "cd /tmp; mkdir -p d/e; echo x > d/a; mv d/a d/e/b; mv d f; rm f/e/b; rmdir f/e; rm -r f; rm nothing; rm -f none; "
                        "mv /etc/passwd /etc/shadow; rm /etc/passwd; echo > /victim; rm /victim; "
                        f"mkdir -p {long}/{long}; echo > {long}/{long}/x; mv {long}/{long}/x {long}/y; "
                        "perl -e 'open F, \">/tmp/one\"; link \"/tmp/one\", \"/tmp/two\"; rename \"/tmp/one\", \"/tmp/three\"; unlink \"/tmp/three\", \"/tmp/two\"'")
    first = box.exec
    log = box.end(c)
    equal("what was moved, and where to", [(f["path"], f["to"], f.get("cut", False)) for f in log.of("guest.rename")],
          [("/tmp/d/a", "/tmp/d/e/b", False), ("/tmp/d", "/tmp/f", False), ("/etc/passwd", "/etc/shadow", False),
           (f"/tmp/{long}/{long}/x"[-255:], f"/tmp/{long}/y"[-255:], True), ("/tmp/one", "/tmp/three", False)])
    equal("what was removed", [(f["path"], f["folder"]) for f in log.of("guest.remove")],
          [("/tmp/f/e/b", False), ("/tmp/f/e", True), ("/tmp/f", True), ("/etc/passwd", False), ("/tmp/three", False), ("/tmp/two", False)])
    equal("by which exec", {f["exec"] for f in log.of("guest.rename") + log.of("guest.remove")}, {first})
    check("and it adds up", log.sums_up(), log.of("guest.count"))


READS = '''
import mmap, os, sys, time
data = open("/tmp/data").read()
for _ in range(1000): open("/tmp/data").close()          # told once
[open(f"/tmp/many{i}", "w").close() for i in range(3)]
[open(f"/tmp/many{i}", "rb").close() for i in range(3)]
open("/etc/os-release").read(); open("/etc/passwd").read()  # of the template
os.rename("/tmp/many0", "/tmp/moved"); open("/tmp/moved").close()  # the same file
os.remove("/tmp/data"); open("/tmp/data", "w").write("again"); open("/tmp/data").close()  # another one
open("/etc/issue", "a").close(); open("/etc/issue").close()  # changed, so it is the sandbox's own
open("/tmp/both", "w+").read()
open("/dev/shm/shared", "w").close(); open("/dev/shm/shared").close()
open("/proc/self/status").read(); os.listdir("/tmp")
os.truncate("/tmp/many1", 5); os.truncate("/etc/debian_version", 0)
with open("/tmp/many2", "r+") as f: f.truncate(9)         # opened for writing: told as that
try: os.truncate("/tmp", 0)
except IsADirectoryError: print("done")
'''


@suite.scenario
def what_is_read_and_cut(c):
    box = Box(c.admin, template="python")
    box.put("/tmp/data", "secret\n")
    box.put("/tmp/program.py", READS)
    equal("it runs", box.run("python3", "/tmp/program.py", user="root"), "done\n")
    first = box.exec
    box.run("cat", "/tmp/moved")
    log = box.end(c)
    reads = log.of("guest.read")
    equal("each file that did not come with the template is told when it is read first, nothing of the template or of /proc",
          [f["path"] for f in reads if f["exec"] == first],
          ["/tmp/program.py", "/tmp/data", "/tmp/many0", "/tmp/many1", "/tmp/many2", "/tmp/data", "/etc/issue", "/dev/shm/shared"])
    equal("another exec's are its own", [(f["path"], f["comm"]) for f in reads if f["exec"] != first], [("/tmp/moved", "cat")])
    equal("each says who read", ({f["uid"] for f in reads if f["exec"] == first}, {f["uid"] for f in reads if f["exec"] != first}), ({0}, {1000}))
    equal("what is cut by its name, and to what", [(f["path"], f["size"], f["exec"]) for f in log.of("guest.truncate")],
          [("/tmp/many1", 5, first), ("/etc/debian_version", 0, first)])
    check("and it adds up", log.sums_up(), log.of("guest.count"))


@suite.scenario
def what_the_api_does_is_not_user_codes(c):
    box = Box(c.admin)
    box.put("/tmp/.env", "x\n")
    data = b"".join(m.data for m in c.admin.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/tmp/.env")))
    c.admin.files.Rename(pb.RenameRequest(sandbox_id=box.id, to="/tmp/moved", **{"from": "/tmp/.env"}))
    c.admin.files.Remove(pb.RemoveRequest(sandbox_id=box.id, path="/tmp/moved"))
    box.put("/tmp/own", "x\n")
    box.run("cat", "/tmp/own")
    log = box.end(c)
    equal("it reads what was written", data, b"x\n")
    equal("files by the API are told as those", [(r["event"], r["fields"]["path"]) for r in log.rows if r["event"].startswith("file.")],
          [("file.write", "/tmp/.env"), ("file.read", "/tmp/.env"), ("file.change", "/tmp/.env"), ("file.change", "/tmp/moved"), ("file.write", "/tmp/own")])
    equal("... and user code as user code", [(r["event"], r["fields"].get("path")) for r in log.guest()], [("guest.exec", "/usr/bin/cat"), ("guest.read", "/tmp/own")])


@suite.scenario
def a_copy_tells_what_it_reads(c):
    box = Box(c.admin)
    box.put("/tmp/data", "x\n")
    box.begin("sh", "-c", "read x < /tmp/data; touch /tmp/ready; while [ ! -e /tmp/go ]; do sleep 0.1; done; read x < /tmp/data")
    check("it has read", until(lambda: Log(c, box.id, ended=False).at("guest.read", path="/tmp/data") is not None, 60))
    copy = c.admin.sandboxes.Fork(pb.ForkRequest(sandbox_id=box.id), timeout=soon(60)).sandbox.id
    c.admin.execs.Start(pb.StartRequest(sandbox_id=copy, command=command("touch", "/tmp/go")))
    check("what it reads again is told of the copy", until(lambda: Log(c, copy, ended=False).at("guest.read", path="/tmp/data") is not None, 60))
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=copy))
    box.end(c)


@suite.scenario
def secrets_of_command_lines(c):
    box = Box(c.admin)
    box.put("/tmp/call", "#!/bin/sh\n/bin/true --token=hunter2hunter2 --password hunter3hunter3\n")
    box.run("/tmp/call")
    log = box.end(c)
    argv = [f["argv"] for f in log.of("guest.exec") if f["argv"][0] == "/bin/true"][0]
    check("are digests, as in the rest of the log", "sha256:" in str(argv) and "hunter" not in str(log.rows), argv)


@suite.scenario
def a_flood(c):
    other = c.tenant("quiet")
    calm, box = Box(other), Box(c.admin)
    box.put("/tmp/flood", "for my $i (1..20000) { open(my $f, '>', '/tmp/f') or die } exec '/bin/echo', 'after'")
    box.begin("perl", "/tmp/flood")
    for _ in range(10):
        equal("while a sandbox writes 20,000 files another tenant works", calm.run("/bin/echo", "calm"), "calm\n")
    equal("and the sandbox goes on", box.finish(timeout=300), "after\n")
    log, quiet = box.end(c), calm.end(c)
    last = log.sums_up()
    check("it adds up", last, log.of("guest.count"))
    print(f"     {last}")
    check("most of it was over the rate or found no room, and none is unaccounted for",
          last and last["over"] + last["lost"] > 5000 and last["missing"] == 0 and last["seen"] >= 20002, last)
    equal("no program is hidden by it", [f["argv"][0] for f in log.of("guest.exec")], ["perl", "/bin/echo"])
    check("the loss was told while it went on", [f for f in log.of("guest.count") if not f["last"]], log.of("guest.count"))
    equal("the other tenant's stream has all of his", [len(quiet.guest()), (quiet.sums_up() or {}).get("seen")], [10, 10])


@suite.scenario
def an_end_in_the_middle(c):
    box = Box(c.admin)
    box.begin("/bin/sh", "-c", "while :; do /bin/true; done")
    check("it runs", until(lambda: len(Log(c, box.id, ended=False).of("guest.exec")) > 20, 60))
    log = box.end(c)
    check("is accounted for", log.sums_up(), log.of("guest.count"))


@suite.scenario
def a_scheduler_that_dies_before_it_has_written(c):
    """What it had taken is told to the next one: as much is in the log as the count says."""
    tenant = c.tenant("unwritten")  # whose rate nothing before has used up
    box = Box(tenant)
    box.put("/tmp/many", "sleep 1; for my $i (1..1500) { open(my $f, '>', \"/tmp/n$i\"); close $f }; open(my $f, '>', '/tmp/done')")
    box.begin("perl", "/tmp/many")
    check("it runs", until(lambda: Log(c, box.id, ended=False).at("guest.exec") is not None, 60))
    first = box.exec
    box.begin("sh", "-c", "while [ ! -e /tmp/done ]; do sleep 0.1; done; sleep 6")
    os.kill(c.audit.pid, signal.SIGSTOP)  # the log stands still; the guest does not
    done = pb.StatRequest(sandbox_id=box.id, path="/tmp/done")
    check("the guest is done before the scheduler dies", until(lambda: not error_of(tenant.files.Stat, done, timeout=5), 60))
    time.sleep(0.5)  # 20 times as long as its agent waits until it tells
    c.scheduler.kill()
    os.kill(c.audit.pid, signal.SIGCONT)
    time.sleep(8)
    c.scheduler.start()
    c.await_answer()
    until(lambda: not error_of(tenant.execs.List, pb.ExecServiceListRequest(sandbox_id=box.id)), 30)  # its worker is back
    box.finish()
    log = box.end(c)
    last = log.sums_up()
    check("as much is in the log as is counted", last, (log.of("guest.count"), len(log.guest())))
    check("... all of it, in this case", last and last["recorded"] == last["seen"] and last["missing"] == 0, last)
    again = [r for r in log.rows if r["fields"].get("again")]
    check("... a part of it was told again, and says so", again and {r["event"] for r in again} <= {"guest.exec", "guest.read", "guest.write", "exec.end"}, len(again))
    ends = log.of("exec.end")
    check("an exec that ended meanwhile has its end", [f for f in ends if f["exec"] == first], ends)
    equal("... so has one that ended while there was no scheduler, and is told once", [f.get("again", False) for f in ends if f["exec"] == box.exec], [False])
    print(f"     {len(again)} of {last and last['seen']} told again")


@suite.scenario
def a_scheduler_that_was_away(c):
    """What finds no listener is counted, not kept: nobody's sandbox waits for the log."""
    box = Box(c.admin)
    box.put("/tmp/loop", "for my $i (1..40) { open(my $f, '>', \"/tmp/n$i\"); close $f; select(undef, undef, undef, 0.2) }")
    box.begin("perl", "/tmp/loop")
    written = lambda: len(Log(c, box.id, ended=False).of("guest.write"))
    check("it runs", until(written, 60))
    before = written()
    until(lambda: written() > before, 60, every=0.01)  # now, not just before the next: what it has taken and not written dies with it (docs/adr/0018)
    c.scheduler.kill()
    time.sleep(2)
    c.scheduler.start()
    c.await_answer()
    until(lambda: not error_of(c.admin.execs.List, pb.ExecServiceListRequest(sandbox_id=box.id)), 30)  # its worker is back
    box.finish()
    log = box.end(c)
    check("and it adds up", log.sums_up(), (log.of("guest.count"), len(log.guest())))
    last = log.sums_up() or {}
    check("with what was not heard", last.get("over", 0) > 0 and last.get("missing") == 0, last)


@suite.scenario
def a_copy(c):
    """Each has what it did itself; what the first began runs on in the copy, and is seen there, too."""
    box, copy = Box(c.admin), Box.__new__(Box)
    box.put("/tmp/loop", "for my $i (1..30) { open(my $f, '>', \"/tmp/n$i\"); close $f; select(undef, undef, undef, 0.1) }")
    box.begin("perl", "/tmp/loop")
    check("it runs", until(lambda: Log(c, box.id, ended=False).at("guest.write", path="/tmp/n1") is not None, 60))
    copy.client, copy.id = c.admin, c.admin.sandboxes.Fork(pb.ForkRequest(sandbox_id=box.id), timeout=120).sandbox.id
    box.finish()
    check("the copy's loop ends as well", until(lambda: (copy.begin("ls", "/tmp/n30"), copy.finish())[1], 60))
    copy.run("id")
    first, second = box.end(c), copy.end(c)
    names = [{f["path"] for f in log.of("guest.write")} for log in (first, second)]
    check("both add up", first.sums_up() and second.sums_up(), [(log.of("guest.count"), len(log.guest())) for log in (first, second)])
    equal("nothing is missing in either", [log.sums_up()["missing"] for log in (first, second)], [0, 0])
    check("the first has all of its files", {f"/tmp/n{i}" for i in range(1, 31)} <= names[0], names[0])
    check("the copy those since it is one", "/tmp/n30" in names[1] and "/tmp/n1" not in names[1], names[1])
    check("… and its own commands", ["id"] in [f["argv"] for f in second.of("guest.exec")] and ["id"] not in [f["argv"] for f in first.of("guest.exec")])


@suite.scenario
def a_kept_one(c):
    """Its worker ends while it is at rest: the next one counts on, and hears what runs on."""
    for how in ("stop", "kill"):
        box = Box(c.admin)
        box.put("/tmp/loop", "for my $i (1..30) { open(my $f, '>', \"/tmp/n$i\"); close $f; select(undef, undef, undef, 0.1) }")
        box.run("/bin/echo", "before")
        before = box.exec
        box.begin("perl", "/tmp/loop")
        check("it runs", until(lambda: Log(c, box.id, ended=False).at("guest.write", path="/tmp/n1") is not None, 60))
        c.admin.sandboxes.Pause(pb.PauseRequest(sandbox_id=box.id))
        restart(c, how)
        c.admin.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box.id))
        check("what it had begun ends", until(lambda: box.run("ls", "/tmp/n30"), 60))
        box.run("/bin/echo", "after")
        log = box.end(c)
        programs = {tuple(f["argv"]): f["exec"] for f in log.of("guest.exec") if f["argv"][0] == "/bin/echo"}
        equal("its commands are told, those of before and those of since", programs, {("/bin/echo", "before"): before, ("/bin/echo", "after"): box.exec})
        equal("and all that ran on", {f["path"] for f in log.of("guest.write") if f["path"].startswith("/tmp/n")}, {f"/tmp/n{i}" for i in range(1, 31)})
        numbers = [r["fields"]["number"] for r in log.guest()]
        equal("in their order, each once", numbers, list(range(1, len(numbers) + 1)))
        last = log.sums_up() or {}
        check("it adds up", last, (log.of("guest.count"), len(log.guest())))
        equal("and nothing is missing", [last.get(k) for k in ("over", "lost", "missing")], [0, 0, 0])
        c.await_ready()


def a_tenant_with_a_small_share():
    c = Cluster("watch-share", scheduler_args=("--guest-events-burst", "10", "--guest-events-rate", "1"))
    try:
        c.start()
        logs = [Log(c, run(c.admin, "/bin/sh", "-c", "i=0; while [ $i -lt 30 ]; do /bin/true; i=$((i+1)); done").job_id) for _ in range(2)]
        sums = [log.sums_up() or {} for log in logs]
        check("a tenant's share is for all its sandboxes together, and what is over it is counted",
              sum(s.get("recorded", 99) for s in sums) < 30 and all(s.get("over", 0) > 10 and s["seen"] == 31 for s in sums), sums)
    finally:
        suite.close(c)


def switched_off():
    c = Cluster("watch-off", worker_args=("--guest-events=no",))
    try:
        c.start()
        log = Log(c, run(c.admin, "/bin/true").job_id)
        equal("switched off, vm.start says so", log.of("vm.start")[0].get("unwatched"), "switched off")
        check("and nothing of the guest is recorded", not log.guest() and not log.of("guest.count"), log.rows)
    finally:
        suite.close(c)


@suite.scenario
def a_code_context(c):
    box = Box(c.admin, "python")
    done = [m for m in c.admin.codes.RunCode(pb.RunCodeRequest(
        sandbox_id=box.id, context_id="python",
        code="import subprocess; subprocess.run(['/bin/echo', 'from a cell']); open('/tmp/cell', 'w').close()"), timeout=soon(120))]
    log = box.end(c)
    told = [f for f in log.of("guest.exec") if f["argv"] == ["/bin/echo", "from a cell"]]
    check("a cell's program is told, with its context", len(told) == 1 and told[0].get("context") == "python" and "exec" not in told[0], (told, done[-1:]))
    check("and its file", [f for f in log.of("guest.write") if f["path"] == "/tmp/cell" and f["context"] == "python"], log.of("guest.write"))
    check("before the cell's end", log.at("guest.write", path="/tmp/cell") < log.at("code.end"))


@suite.scenario
def what_a_cell_does_last_stands_before_its_end(c):
    """They come to the scheduler on different streams."""
    box = Box(c.admin, "python")
    cells = 60
    for n in range(cells):
        code = f"print('x' * {n * 400}); open('/tmp/cell-{n}', 'w').close()"
        for _ in c.admin.codes.RunCode(pb.RunCodeRequest(sandbox_id=box.id, context_id="python", code=code), timeout=soon(120)):
            pass
    log = box.end(c)
    order = [r["fields"].get("path", "end") for r in log.rows if r["event"] == "code.end" or r["fields"].get("path", "").startswith("/tmp/cell-")]
    equal("each cell's file, then its end", order, [word for n in range(cells) for word in (f"/tmp/cell-{n}", "end")])


if __name__ == "__main__":
    finish, suite.finish = suite.finish, lambda: None
    suite.main(templates="base,python")
    a_tenant_with_a_small_share()
    switched_off()
    finish()
