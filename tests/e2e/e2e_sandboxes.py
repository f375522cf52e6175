#!/usr/bin/env python3
"""Sandboxes, the processes in them, and their files."""
import os
import signal
import time

import grpc

from harness import (DRIVERS, LONG, MIB, SECOND, Followed, Suite, code_of, command, error_of, follow, in_parallel, pb, random_bytes, sha256, spec, until)

suite = Suite("sandboxes")
check, equal = suite.check, suite.equal
PIECE = 1 * MIB


class Box:
    """One sandbox and what one does with it."""

    def __init__(self, client, ttl=60, template="base", **kw):
        self.client = client
        self.sandbox = client.sandboxes.Create(pb.CreateRequest(template=template, ttl_ns=int(ttl * SECOND), **kw), timeout=60).sandbox
        self.id = self.sandbox.id

    def get(self):
        return self.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=self.id)).sandbox

    def kill(self):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))

    def ends(self, seconds):
        return until(lambda: self.get().state == pb.UNIT_STATE_ENDED, seconds)

    def start(self, *argv, kill_on_disconnect=False, labels=(), **kw):
        r = pb.StartRequest(sandbox_id=self.id, command=command(*argv, **kw), kill_on_disconnect=kill_on_disconnect, labels=labels)
        return self.client.execs.Start(r).exec_id

    def attach(self, exec_id, **kw):
        return self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.id, exec_id=exec_id, **kw), timeout=60)

    def exec(self, *argv, **kw):
        return follow(self.attach(self.start(*argv, **kw)))

    def wait(self, exec_id, timeout=30):
        return self.client.execs.Wait(pb.WaitRequest(sandbox_id=self.id, exec_id=exec_id), timeout=timeout).result

    def list(self, **kw):
        return self.client.execs.List(pb.ExecServiceListRequest(sandbox_id=self.id, **kw))

    def stdin(self, exec_id, *pieces, eof=True):
        def requests():
            for i, piece in enumerate(pieces):
                ids = {"sandbox_id": self.id, "exec_id": exec_id} if i == 0 else {}
                yield pb.ExecServiceWriteStdinRequest(data=piece, eof=eof and i == len(pieces) - 1, **ids)
        return self.client.execs.WriteStdin(requests(), timeout=60)

    def write(self, path, data, commit=True, mode=0, user="", timeout=120):
        def requests():
            pieces = [data[i:i + PIECE] for i in range(0, len(data), PIECE)] or [b""]
            for i, piece in enumerate(pieces):
                first = {"sandbox_id": self.id, "path": path, "mode": mode, "user": user} if i == 0 else {}
                yield pb.WriteRequest(data=piece, commit=commit and i == len(pieces) - 1, **first)
        return self.client.files.Write(requests(), timeout=timeout)

    def read(self, path, **kw):
        pieces = list(self.client.files.Read(pb.ReadRequest(sandbox_id=self.id, path=path, **kw), timeout=120))
        return b"".join(p.data for p in pieces), max((p.size for p in pieces), default=0)

    def stat(self, path, **kw):
        return self.client.files.Stat(pb.StatRequest(sandbox_id=self.id, path=path, **kw)).file

    def mkdir(self, path, **kw):
        return self.client.files.MakeDir(pb.MakeDirRequest(sandbox_id=self.id, path=path, **kw))

    def remove(self, path, **kw):
        return self.client.files.Remove(pb.RemoveRequest(sandbox_id=self.id, path=path, **kw))

    def rename(self, a, b, **kw):
        return self.client.files.Rename(pb.RenameRequest(sandbox_id=self.id, to=b, **{"from": a}, **kw))

    def ls(self, path, **kw):
        return self.client.files.List(pb.FileServiceListRequest(sandbox_id=self.id, path=path, **kw))


@suite.scenario
def life(c):
    t = c.tenant("boxes")
    box = Box(t, labels=[pb.Label(key="role", value="a")])
    check("Create answers with a running sandbox", box.sandbox.state == pb.UNIT_STATE_RUNNING and box.id.startswith("sbx_"), box.sandbox)
    check("it knows its tenant, driver, worker and end", box.sandbox.tenant == "boxes" and box.sandbox.driver in DRIVERS
          and box.sandbox.worker_id and box.sandbox.expires.unix_ns > time.time_ns(), box.sandbox)
    other = Box(t, labels=[pb.Label(key="role", value="b")])
    rows = t.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes
    equal("List shows both, newest first", [r.id for r in rows], [other.id, box.id])
    rows = t.sandboxes.List(pb.SandboxServiceListRequest(labels=[pb.Label(key="role", value="a")])).sandboxes
    equal("labels filter", [r.id for r in rows], [box.id])
    page = t.sandboxes.List(pb.SandboxServiceListRequest(page_size=1))
    rest = t.sandboxes.List(pb.SandboxServiceListRequest(page_size=1, page_token=page.next_page_token))
    equal("pages go on where the last one ended", [page.sandboxes[0].id, rest.sandboxes[0].id], [other.id, box.id])
    other.kill()
    check("Kill ends it", other.ends(10), other.get())
    equal("… on request", other.get().reason, pb.REASON_REQUESTED)
    other.kill()
    check("Kill is idempotent", True)
    equal("an ended sandbox is not listed", len(t.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes), 1)
    equal("… unless asked for", len(t.sandboxes.List(pb.SandboxServiceListRequest(include_ended=True)).sandboxes), 2)
    expires = t.sandboxes.Extend(pb.ExtendRequest(sandbox_id=box.id, ttl_ns=600 * SECOND)).expires.unix_ns
    check("Extend moves the end", 595 < (expires - time.time_ns()) / SECOND < 605 and abs(box.get().expires.unix_ns - expires) < SECOND, (expires, box.get().expires))
    time.sleep(1.1)
    box.exec("true")
    check("use moves it too", until(lambda: box.get().expires.unix_ns > expires + SECOND, 20), (expires, box.get().expires))
    again = pb.CreateRequest(template="base", ttl_ns=60 * SECOND, idempotency_key="same")
    a, b = t.sandboxes.Create(again).sandbox, t.sandboxes.Create(again).sandbox
    equal("the same idempotency key answers the same sandbox", a.id, b.id)
    t.sandboxes.Kill(pb.KillRequest(sandbox_id=a.id))
    box.kill()


@suite.scenario
def a_file_is_as_large_as_its_tenant_may_have(c):
    box = Box(c.tenant("transfers", file_bytes=MIB))
    data = os.urandom(MIB)
    equal("as much as may be goes in", box.write("/tmp/most", data).bytes, MIB)
    equal("… and out", box.read("/tmp/most"), (data, MIB))
    refused = error_of(box.write, "/tmp/most", data + b"x")
    check("a byte more is refused, and why", code_of(refused) == "RESOURCE_EXHAUSTED" and "at most 1048576 bytes" in refused.details() and "file_bytes" in refused.details(), refused)
    equal("… and the file is as it was", box.read("/tmp/most"), (data, MIB))
    box.exec("sh", "-c", "head -c 1048577 /dev/zero > /tmp/more")
    refused = error_of(box.read, "/tmp/more")
    check("nor does it come out", code_of(refused) == "RESOURCE_EXHAUSTED" and "file_bytes" in refused.details(), refused)
    equal("… but in parts", [len(box.read("/tmp/more", offset=at, length=n)[0]) for at, n in ((0, MIB), (1, 0), (MIB, 0), (MIB, MIB * 2))], [MIB, MIB, 1, 1])
    pieces, refused = [], None
    try:
        pieces += (p for p in box.client.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/proc/kallsyms"), timeout=60))
    except grpc.RpcError as e:
        refused = e
    check("what has no size ends behind as many", code_of(refused) == "RESOURCE_EXHAUSTED" and sum(len(p.data) for p in pieces) <= MIB, (refused, sum(len(p.data) for p in pieces)))
    equal("its exec goes on", box.exec("echo", "on").out, b"on\n")
    box.kill()
    equal("a tenant shows its limit", c.admin.tenants.GetTenant(pb.GetTenantRequest(name="transfers")).tenant.limits.file_bytes, MIB)
    equal("… which is what there is of it when none is given", c.admin.tenants.GetTenant(pb.GetTenantRequest(name="local")).tenant.limits.file_bytes, 16 << 30)


def stats_of(client, unit_id):
    return client.sandboxes.Stats(pb.StatsRequest(unit_id=unit_id)).stats


@suite.scenario
def counters(c):
    """What is counted of a VM: where its monitor counts, and for its own tenant only."""
    t, other = c.tenant("counted"), c.tenant("curious")
    box = Box(t, ttl=8)
    before = stats_of(t, box.id)
    has, names = box.sandbox.driver.startswith("kvm"), [n.name for n in before.counters]
    equal("its driver and kind are told", (before.driver, before.guest_separation), (box.sandbox.driver, box.sandbox.guest_separation))
    check("the host's figures are there", before.cpu_ns > 0 and before.memory_bytes > 0, before)
    equal("there are counters where the monitor counts, and none where it does not", (before.has_counters, len(names) > 20), (has, has))
    box.exec("cat", "/etc/os-release", "/proc/cpuinfo")
    old, new = ({n.name: n.value for n in s.counters} for s in (before, stats_of(t, box.id)))
    check("no counter goes back, none is negative or beyond what can be", all(old[n] <= new[n] < 2**53 for n in names), (old, new))
    if has:
        check("an exec is a kick of the channel at least, and an interrupt", new["kicks.vsock"] > old["kicks.vsock"] > 0
              and new["interrupts.vsock"] > old["interrupts.vsock"] > 0, (old, new))
        check("a card that is not there has nothing to count", new["kicks.net"] == new["exits.net"] == 0, new)
    for who, unit in ((other, box.id), (t, "sbx_01m00000000000000000000000"), (t, "job_01m00000000000000000000000"), (t, "x"), (t, "")):
        equal(f"nobody sees what is not its own: '{unit[:8]}'", code_of(error_of(stats_of, who, unit)), "NOT_FOUND")
    f = Followed()
    stream = t.jobs.Run(pb.RunRequest(spec=spec("sleep", "3")), timeout=60)
    for event in stream:
        if f.take(event) == "started":
            job = until(lambda: error_of(stats_of, t, f.job_id) is None and stats_of(t, f.job_id), 3)
            check("a job's VM has them, too", job and job.has_counters == has and job.driver in DRIVERS, job)
            equal("… for its tenant", code_of(error_of(stats_of, other, f.job_id)), "NOT_FOUND")
    equal("… until it has ended", (f.outcome, code_of(error_of(stats_of, t, f.job_id))), ("EXITED", "NOT_FOUND"))
    ended = until(lambda: error_of(stats_of, t, box.id) is not None, 16, every=0.5)
    check("looking does not keep a sandbox", ended and box.ends(5), box.get())


@suite.scenario
def counters_of_many_and_of_a_silent_one(c):
    box = Box(c.admin)
    answers = in_parallel(lambda _: stats_of(c.admin, box.id), list(range(50)))
    equal("fifty who ask at once are all answered", [type(a).__name__ for a in answers], ["VmStats"] * 50)
    pid = c.vm_of(box.id)
    os.kill(pid, signal.SIGSTOP)
    answers = in_parallel(lambda _: code_of(error_of(stats_of, c.admin, box.id)), list(range(3)))
    has = box.sandbox.driver.startswith("kvm")
    equal("a monitor that is silent is not waited for, and one that counts nothing not asked", answers, ["DEADLINE_EXCEEDED" if has else "OK"] * 3)
    os.kill(pid, signal.SIGCONT)
    equal("once it speaks again, it is heard", code_of(error_of(stats_of, c.admin, box.id)), "OK")
    equal("… and its guest is as it was", bytes(box.exec("echo", "hello").out), b"hello\n")
    os.kill(pid, signal.SIGSTOP)
    asking = in_parallel(lambda what: code_of(error_of(what)), [lambda: stats_of(c.admin, box.id), lambda: (time.sleep(0.5), box.kill())])
    check("who asks a VM that ends is told so", asking == (["UNAVAILABLE", "OK"] if has else ["OK", "OK"]), asking)


@suite.scenario
def expiry(c):
    box = Box(c.admin, ttl=2)
    begin = time.monotonic()
    exec_id = box.start("sleep", "3")
    equal("an exec that runs keeps the sandbox", (box.wait(exec_id).outcome, box.get().state), (pb.OUTCOME_EXITED, pb.UNIT_STATE_RUNNING))
    check("idle for its TTL it ends", box.ends(8) and time.monotonic() - begin > 4.5, time.monotonic() - begin)
    equal("… as EXPIRED", box.get().reason, pb.REASON_EXPIRED)
    err = error_of(box.start, "true")
    check("an exec in an ended sandbox is refused", code_of(err) in ("NOT_FOUND", "FAILED_PRECONDITION"), err)


@suite.scenario
def execs(c):
    box = Box(c.admin)
    f = box.exec("sh", "-c", "echo out; echo err >&2; exit 3")
    check("an exec's output and exit come through Attach", (bytes(f.out), bytes(f.err), f.outcome, f.result.exit_code) == (b"out\n", b"err\n", "EXITED", 3), f)
    f = box.exec("no-such-program")
    check("a missing program is NOT_FOUND with 127", (f.outcome, f.result.exit_code) == ("NOT_FOUND", 127), f)
    exec_id = box.start("cat", stdin=True)
    answer = box.stdin(exec_id, b"one ", b"two\n")
    f = follow(box.attach(exec_id))
    check("stdin comes out again", bytes(f.out) == b"one two\n" and answer.bytes == 8, f)
    f = follow(box.attach(exec_id, stdout_offset=4))
    check("Attach resumes from an offset", f.out == b"two\n", f)
    exec_id = box.start("sh", "-c", "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.1; done")
    stream, f = box.attach(exec_id), Followed()
    for event in stream:
        f.take(event)
        if b"ready" in f.out:
            break
    box.client.execs.Signal(pb.SignalRequest(sandbox_id=box.id, exec_id=exec_id, signal=10))
    for event in stream:
        f.take(event)
        if b"usr1" in f.out:
            break
    check("Signal reaches the process", b"usr1" in f.out, f)
    stream.cancel()
    rows = {e.id: e for e in box.list().execs}
    check("leaving Attach leaves the exec running", rows[exec_id].running, rows[exec_id])
    equal("List knows every exec", len(rows), 4)
    page = box.list(page_size=3)
    rest = box.list(page_size=3, page_token=page.next_page_token)
    equal("… in pages too", len(page.execs) + len(rest.execs), 4)
    box.client.execs.Signal(pb.SignalRequest(sandbox_id=box.id, exec_id=exec_id, signal=9))
    result = box.wait(exec_id)
    check("Wait answers with the end", (result.outcome, result.signal) == (pb.OUTCOME_SIGNALED, 9), result)
    check("Wait for an ended exec answers at once", box.wait(exec_id, 5).signal == 9)
    f = box.exec("sleep", "60", timeout=1)
    check("an exec has its own time limit", f.outcome == "TIMED_OUT", f)
    check("the sandbox lives on", box.get().state == pb.UNIT_STATE_RUNNING)
    exec_id = box.start("sh", "-c", "stty size; trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done", pty=(11, 22), stdin=True)
    stream, f = box.attach(exec_id), Followed()
    for event in stream:
        f.take(event)
        if b"ready" in f.out:
            box.client.execs.Resize(pb.ResizeRequest(sandbox_id=box.id, exec_id=exec_id, size=pb.Pty(rows=33, columns=44)))
            break
    for event in stream:
        f.take(event)
        if b"33 44" in f.out:
            break
    check("a terminal has its size and takes a new one", b"11 22" in f.out and b"33 44" in f.out, f)
    box.stdin(exec_id, b"\x03", eof=False)
    check("ctrl-C ends it", box.wait(exec_id).outcome in (pb.OUTCOME_SIGNALED, pb.OUTCOME_EXITED))
    unknown = "exec_" + "0" * 26
    equal("an unknown exec is NOT_FOUND to Attach", code_of(error_of(box.attach, unknown)), "NOT_FOUND")
    equal("… and to Signal", code_of(error_of(box.client.execs.Signal, pb.SignalRequest(sandbox_id=box.id, exec_id=unknown, signal=9))), "NOT_FOUND")
    equal("… and to Wait", code_of(error_of(box.wait, unknown)), "NOT_FOUND")
    box.kill()


@suite.scenario
def disconnects(c):
    box = Box(c.admin)
    bound, free = box.start("sleep", "60", kill_on_disconnect=True), box.start("sleep", "60", labels=[pb.Label(key="k", value="v")])
    equal("List knows an exec's labels", [[x.value for x in e.labels] for e in box.list().execs if e.id == free], [["v"]])
    streams = [box.attach(bound), box.attach(free)]
    time.sleep(0.5)
    for s in streams:
        s.cancel()
    gone = until(lambda: not {e.id: e.running for e in box.list().execs}[bound], 10)
    check("with kill_on_disconnect leaving Attach ends the exec", gone)
    check("without it the exec runs on", {e.id: e.running for e in box.list().execs}[free])
    box.kill()
    check("the end of a sandbox ends its execs", box.ends(10))


@suite.scenario
def files(c):
    box = Box(c.admin)
    answer = box.write("/tmp/a.txt", b"hello\n", mode=0o640)
    check("Write answers with size and digest", (answer.bytes, answer.sha256) == (6, sha256(b"hello\n")), answer)
    equal("Read gives it back with its size", box.read("/tmp/a.txt"), (b"hello\n", 6))
    s = box.stat("/tmp/a.txt")
    check("Stat tells type, size, mode and owner", (s.type, s.size, s.mode & 0o7777) == (pb.FILE_TYPE_REGULAR, 6, 0o640) and s.uid != 0 and abs(s.modified.unix_ns - time.time_ns()) < 60 * SECOND, s)
    equal("a range is read from its offset", box.read("/tmp/a.txt", offset=1, length=3)[0], b"ell")
    equal("a range over the end stops there", box.read("/tmp/a.txt", offset=4, length=100)[0], b"o\n")
    equal("an empty file is a file", (box.write("/tmp/empty", b"").bytes, box.read("/tmp/empty")[0]), (0, b""))
    box.write("relative.txt", b"home")
    f = box.exec("sh", "-c", "cat ~/relative.txt; stat -c %a /tmp/a.txt")
    equal("a relative path is in the user's home, and processes see the files", bytes(f.out), b"home640\n")
    box.write("/tmp/a.txt", b"new content\n")
    equal("Write replaces", box.read("/tmp/a.txt")[0], b"new content\n")
    err = error_of(box.write, "/tmp/a.txt", b"never", commit=False)
    check("without commit nothing changes", code_of(err) == "INVALID_ARGUMENT" and box.read("/tmp/a.txt")[0] == b"new content\n", err)
    box.mkdir("/tmp/d/e/f", parents=True)
    equal("MakeDir with parents makes all", box.stat("/tmp/d/e/f").type, pb.FILE_TYPE_DIRECTORY)
    equal("MakeDir of what is there is ALREADY_EXISTS", code_of(error_of(box.mkdir, "/tmp/d")), "ALREADY_EXISTS")
    for i in range(25):
        box.write(f"/tmp/d/f{i:02}", b"x")
    names, token = [], ""
    while True:
        page = box.ls("/tmp/d", page_size=10, page_token=token)
        names, token = names + [f.name for f in page.files], page.next_page_token
        if not token:
            break
    equal("List gives pages by name", names, ["e"] + [f"f{i:02}" for i in range(25)])
    box.rename("/tmp/d/f00", "/tmp/d/moved")
    check("Rename moves", box.stat("/tmp/d/moved").size == 1 and code_of(error_of(box.stat, "/tmp/d/f00")) == "NOT_FOUND")
    box.remove("/tmp/d/moved")
    equal("Remove removes", code_of(error_of(box.stat, "/tmp/d/moved")), "NOT_FOUND")
    check("Remove of a full folder is refused", error_of(box.remove, "/tmp/d") is not None)
    box.remove("/tmp/d", recursive=True)
    equal("… unless recursive", code_of(error_of(box.stat, "/tmp/d")), "NOT_FOUND")
    box.exec("ln", "-s", "/etc/passwd", "/tmp/link")
    s = box.stat("/tmp/link")
    check("a link is told as a link", s.type == pb.FILE_TYPE_SYMLINK and s.link_target == "/etc/passwd", s)
    equal("Read of what is not there is NOT_FOUND", code_of(error_of(box.read, "/tmp/nothing")), "NOT_FOUND")
    equal("Read of a folder is refused", code_of(error_of(box.read, "/tmp")) != "OK", True)
    equal("the user may not read what is root's", code_of(error_of(box.read, "/etc/shadow")), "PERMISSION_DENIED")
    equal("the user may not write what is root's", code_of(error_of(box.write, "/etc/evil", b"x")), "PERMISSION_DENIED")
    equal("an empty path is refused", code_of(error_of(box.stat, "")), "INVALID_ARGUMENT")
    equal("an unknown user is refused", code_of(error_of(box.stat, "/tmp", user="daemon")), "INVALID_ARGUMENT")
    box.kill()


@suite.scenario
def large_files(c):
    box = Box(c.admin)
    data = random_bytes(64 * MIB)
    begin = time.monotonic()
    answer = box.write("/tmp/large", data)
    there = time.monotonic()
    check("64 MiB arrive with the right digest", (answer.bytes, answer.sha256) == (len(data), sha256(data)), answer.bytes)
    back, size = box.read("/tmp/large")
    print(f"     64 MiB: {there - begin:.1f} s there, {time.monotonic() - there:.1f} s back")
    check("64 MiB come back intact", size == len(data) and back == data, (size, len(back)))
    f = box.exec("sha256sum", "/tmp/large")
    check("the guest has the same bytes", f.out.split()[0].decode() == sha256(data).hex(), f)

    def broken():
        yield pb.WriteRequest(sandbox_id=box.id, path="/tmp/large", data=b"y" * PIECE)
        yield pb.WriteRequest(data=b"y" * PIECE)
        time.sleep(1)
        raise RuntimeError("the client dies here")
    error_of(box.client.files.Write, broken(), timeout=20)
    time.sleep(1)
    equal("a write that was broken off changes nothing", box.stat("/tmp/large").size, len(data))
    names = [f.name for f in box.ls("/tmp").files]
    check("… and leaves nothing beside it", until(lambda: [f.name for f in box.ls("/tmp").files] == ["large"], 5), names)
    box.kill()


@suite.scenario
def many_commands_one_sandbox(c):
    box = Box(c.admin)
    n = 600 if LONG else 60
    codes = {box.exec("true").result.exit_code for _ in range(n)}
    equal(f"a sandbox outlives {n} commands", codes, {0})
    box.kill()


if __name__ == "__main__":
    suite.main(templates="base")
