#!/usr/bin/env python3
"""Jobs: outcomes, stdin, terminals, time limits, lists, idempotency, resuming, leaving."""
import threading
import time

from harness import DRIVERS, IS_SHARED, SECOND, Suite, code_of, error_of, follow, grpc, in_parallel, pb, run, soon, spec, until

suite = Suite("basics")
check, equal = suite.check, suite.equal


def submit(client, *argv, key="", **kw):
    return client.jobs.Submit(pb.SubmitRequest(spec=spec(*argv, **kw), idempotency_key=key))


def watch(client, job_id, **kw):
    return follow(client.jobs.Watch(pb.WatchRequest(job_id=job_id, **kw)))


def get(client, job_id):
    return client.jobs.Get(pb.GetRequest(job_id=job_id)).job


def ended(client, job_id, seconds=30):
    until(lambda: get(client, job_id).state == pb.UNIT_STATE_ENDED, seconds)
    return get(client, job_id)


def stdin_requests(job_id, *pieces, eof=True):
    for i, piece in enumerate(pieces):
        yield pb.WriteStdinRequest(job_id=job_id if i == 0 else "", data=piece, eof=eof and i == len(pieces) - 1)


class Live:
    """A Run that is read by a thread, so that the test can act meanwhile."""

    def __init__(self, client, *argv, detach=False, **kw):
        self.stream = client.jobs.Run(pb.RunRequest(spec=spec(*argv, **kw), detach_on_disconnect=detach), timeout=60)
        from harness import Followed
        self.f, self.error = Followed(), None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        until(lambda: self.f.job_id or self.error, 10)

    def _read(self):
        try:
            for event in self.stream:
                self.f.take(event)
        except grpc.RpcError as err:
            self.error = err

    def sees(self, text, seconds=15):
        return until(lambda: text in self.f.out or not self.thread.is_alive() and text in self.f.out, seconds)

    def end(self, seconds=20):
        self.thread.join(seconds)
        return self.f


@suite.scenario
def outcomes(c):
    f = run(c.admin, "python3", "-c", "print(6*7)", template="python")
    check("python prints 42 and exits with 0", (f.outcome, f.result.exit_code, bytes(f.out)) == ("EXITED", 0, b"42\n"), f)
    check("a job's first attempt is announced as 1", f.attempts == [1], f)
    check("the end carries the head of the audit log", len(f.audit_head) > 0, f.audit_head)
    f = run(c.admin, "sh", "-c", "echo out; echo err >&2; exit 7")
    check("an exit code and both streams come through", (f.outcome, f.result.exit_code, bytes(f.out), bytes(f.err)) == ("EXITED", 7, b"out\n", b"err\n"), f)
    check("totals count both streams", (f.result.stdout.bytes, f.result.stderr.bytes) == (4, 4), f.result)
    f = run(c.admin, "sh", "-c", "kill -15 $$")
    check("a signal is told as such", (f.outcome, f.result.signal) == ("SIGNALED", 15), f)
    f = run(c.admin, "no-such-program")
    check("a missing program is NOT_FOUND with 127", (f.outcome, f.result.exit_code) == ("NOT_FOUND", 127), f)
    f = run(c.admin, "/etc/passwd")
    check("a file without x is NOT_EXECUTABLE with 126", (f.outcome, f.result.exit_code) == ("NOT_EXECUTABLE", 126), f)
    f = run(c.admin, "true", template="nothing")
    check("an unknown template ends FAILED with NO_TEMPLATE", (f.outcome, f.reason) == ("FAILED", "NO_TEMPLATE"), f)


@suite.scenario
def surroundings(c):
    f = run(c.admin, "sh", "-c", "echo $A-$B; pwd; id -u; id -un", env={"A": "1 2", "B": "x=y"}, cwd="/tmp")
    lines = f.out.decode().split("\n")
    check("environment and folder are as asked", lines[:2] == ["1 2-x=y", "/tmp"], f)
    check("the default user is not root", lines[2] != "0", f)
    f = run(c.admin, "sh", "-c", "pwd; echo $HOME; touch f && ls f", user="")
    check("the default folder is the user's home, and writable", (lambda t: t[0] == t[1] and t[2] == "f")(f.out.decode().split("\n")), f)
    f = run(c.admin, "id", "-u", user="root")
    check("user root is uid 0 inside", bytes(f.out) == b"0\n", f)
    f = run(c.admin, "true", cwd="/nowhere")
    check("a folder that is not there is said so", f.outcome in ("NOT_FOUND", "FAILED", "NOT_EXECUTABLE") and f.result.message, f)
    f = run(c.admin, "cat", stdin=False)
    check("without open_stdin stdin is empty", (f.outcome, bytes(f.out)) == ("EXITED", b""), f)


@suite.scenario
def stdin(c):
    live = Live(c.admin, "tr", "a-z", "A-Z", stdin=True)
    answer = c.admin.jobs.WriteStdin(stdin_requests(live.f.job_id, b"hello ", b"world\n"), timeout=20)
    f = live.end()
    check("stdin comes out as stdout", (f.outcome, bytes(f.out)) == ("EXITED", b"HELLO WORLD\n"), f)
    equal("WriteStdin counts the bytes", answer.bytes, 12)
    live = Live(c.admin, "sh", "-c", "read a; echo got $a; read b; echo got $b", stdin=True)
    c.admin.jobs.WriteStdin(stdin_requests(live.f.job_id, b"one\n", eof=False), timeout=20)
    check("stdin stays open between two calls", live.sees(b"got one"), live.f)
    c.admin.jobs.WriteStdin(stdin_requests(live.f.job_id, b"two\n"), timeout=20)
    check("a second call goes on where the first ended", live.end() and bytes(live.f.out) == b"got one\ngot two\n", live.f)
    live = Live(c.admin, "wc", "-c", stdin=True)
    data = b"x" * 65536
    c.admin.jobs.WriteStdin(stdin_requests(live.f.job_id, *[data] * 64), timeout=60)
    check("4 MiB of stdin arrive in full", live.end(40).out.split() == [b"4194304"], live.f)


@suite.scenario
def terminal(c):
    live = Live(c.admin, "sh", "-c", "stty size; trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done", stdin=True, pty=(24, 80))
    check("a terminal has the size that was asked for", live.sees(b"24 80") and live.sees(b"ready"), live.f)
    c.admin.jobs.Control(pb.ControlRequest(job_id=live.f.job_id, resize=pb.Pty(rows=50, columns=132)))
    check("a resize reaches the program", live.sees(b"50 132"), live.f)
    c.admin.jobs.WriteStdin(stdin_requests(live.f.job_id, b"\x03", eof=False), timeout=20)
    f = live.end()
    check("ctrl-C through stdin interrupts it", f.outcome == "SIGNALED" and f.result.signal == 2 or f.outcome == "EXITED" and f.result.exit_code == 130, f)
    live = Live(c.admin, "sh", "-c", "echo ready; sleep 60", stdin=True)
    live.sees(b"ready")
    c.admin.jobs.Control(pb.ControlRequest(job_id=live.f.job_id, signal=10))
    f = live.end()
    check("Control sends a signal to the process group", (f.outcome, f.result.signal) == ("SIGNALED", 10), f)
    f = run(c.admin, "sh", "-c", "test -t 0 && test -t 1 && echo $TERM", pty=(10, 20))
    check("with a pty stdin and stdout are terminals", b"xterm-256color" in f.out, f)


@suite.scenario
def time_limits(c):
    begin = time.monotonic()
    f = run(c.admin, "sh", "-c", "echo begun; sleep 60", timeout=soon(1))
    check("a job over its time is TIMED_OUT", f.outcome == "TIMED_OUT" and bytes(f.out) == b"begun\n", f)
    check("… soon after its limit", time.monotonic() - begin < soon(8), time.monotonic() - begin)
    f = run(c.admin, "sh", "-c", "trap '' TERM INT HUP; (trap '' TERM; sleep 60) & sleep 60", timeout=1)
    check("ignoring signals does not help", f.outcome == "TIMED_OUT", f)
    err = error_of(c.admin.jobs.Run, pb.RunRequest(spec=spec("true", timeout=25 * 3600)))
    equal("more than 24 h is refused", code_of(err), "INVALID_ARGUMENT")


@suite.scenario
def submit_get_list(c):
    t = c.tenant("lists")
    ids = [submit(t, "sh", "-c", f"echo {i}", labels={"n": str(i), "odd": str(i % 2)}).job_id for i in range(7)]
    jobs = [ended(t, i) for i in ids]
    check("submitted jobs end by themselves", all(j.result.outcome == pb.OUTCOME_EXITED for j in jobs), [j.result.outcome for j in jobs])
    j = jobs[3]
    check("Get tells who, what and when", j.tenant == "lists" and j.spec.command.argv[2] == "echo 3" and j.created.unix_ns <= j.started.unix_ns <= j.ended.unix_ns
          and j.worker_id.startswith("wrk_") and j.driver in DRIVERS, j)
    equal("the guest's separation is told", j.guest_separation, pb.GUEST_SEPARATION_SHARED if IS_SHARED else pb.GUEST_SEPARATION_ISOLATED)
    f = watch(t, ids[3])
    check("Watch of an ended job gives its output and its end", (bytes(f.out), f.outcome) == (b"3\n", "EXITED"), f)
    rows = t.jobs.List(pb.ListRequest(labels=[pb.Label(key="odd", value="1")])).jobs
    equal("labels filter", sorted(r.id for r in rows), sorted(ids[1::2]))
    rows = t.jobs.List(pb.ListRequest(labels=[pb.Label(key="odd", value="1"), pb.Label(key="n", value="2")])).jobs
    equal("all labels must match", len(rows), 0)
    seen, token, pages = [], "", 0
    while pages < 10:
        page = t.jobs.List(pb.ListRequest(page_size=3, page_token=token))
        seen, token, pages = seen + [r.id for r in page.jobs], page.next_page_token, pages + 1
        if not token:
            break
    equal("pages show every job once, newest first", seen, ids[::-1])
    equal("states filter", len(t.jobs.List(pb.ListRequest(state=pb.UNIT_STATE_QUEUED)).jobs), 0)
    equal("a page that is too large is refused", code_of(error_of(t.jobs.List, pb.ListRequest(page_size=1001))), "INVALID_ARGUMENT")
    equal("another tenant sees none of them", len(c.tenant("lists-b").jobs.List(pb.ListRequest()).jobs), 0)


@suite.scenario
def cancel(c):
    live = Live(c.admin, "sh", "-c", "echo begun; sleep 60")
    live.sees(b"begun")
    c.admin.jobs.Cancel(pb.CancelRequest(job_id=live.f.job_id))
    f = live.end()
    check("Cancel ends a running job as CANCELLED", (f.outcome, f.reason) == ("CANCELLED", "REQUESTED"), f)
    c.admin.jobs.Cancel(pb.CancelRequest(job_id=live.f.job_id))
    check("Cancel is idempotent", True)
    job = get(c.admin, live.f.job_id)
    check("Get agrees, and keeps the wish", job.result.outcome == pb.OUTCOME_CANCELLED and job.cancel_requested, job)
    equal("Cancel of an unknown job is NOT_FOUND", code_of(error_of(c.admin.jobs.Cancel, pb.CancelRequest(job_id="job_" + "0" * 26))), "NOT_FOUND")
    t = c.tenant("waits", sandboxes=1)
    first = submit(t, "sleep", "60").job_id
    second = submit(t, "true").job_id
    until(lambda: get(t, first).state == pb.UNIT_STATE_RUNNING, 20)
    check("over quota a submitted job waits", get(t, second).state == pb.UNIT_STATE_QUEUED, get(t, second))
    t.jobs.Cancel(pb.CancelRequest(job_id=second))
    check("a queued job can be cancelled", ended(t, second).result.outcome == pb.OUTCOME_CANCELLED)
    t.jobs.Cancel(pb.CancelRequest(job_id=first))
    check("… and the running one", ended(t, first).result.outcome == pb.OUTCOME_CANCELLED)


@suite.scenario
def idempotency(c):
    a = submit(c.admin, "echo", "once", key="key-1")
    b = submit(c.admin, "echo", "once", key="key-1")
    check("the same key and body answer the same job", a.job_id == b.job_id and b.replayed and not a.replayed, (a, b))
    equal("the same key with another body is ALREADY_EXISTS", code_of(error_of(submit, c.admin, "echo", "twice", key="key-1")), "ALREADY_EXISTS")
    f = run(c.admin, "echo", "run once", key="key-2")
    g = run(c.admin, "echo", "run once", key="key-2")
    check("Run with the same key follows the first job again", f.job_id == g.job_id and f.out == g.out == b"run once\n" and g.outcome == "EXITED", (str(f), str(g)))
    t = c.tenant("idem-b")
    check("keys of tenants do not meet", submit(t, "echo", "other", key="key-1").job_id != a.job_id)
    ended(c.admin, a.job_id)


@suite.scenario
def resume(c):
    live = Live(c.admin, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo line $i; echo err $i >&2; sleep 0.2; done", detach=True)
    live.sees(b"line 2")
    live.stream.cancel()
    live.end()
    have, have_err = bytes(live.f.out), bytes(live.f.err)
    f = watch(c.admin, live.f.job_id, attempt=1, stdout_offset=len(have), stderr_offset=len(have_err))
    f.gaps = 0
    want = b"".join(b"line %d\n" % i for i in range(1, 9))
    check("a job that may be left goes on", f.outcome == "EXITED", f)
    check("Watch resumes where the stream broke", have + bytes(f.out) == want, (have, f))
    check("… on stderr too", have_err + bytes(f.err) == want.replace(b"line", b"err"), (have_err, f))
    f = watch(c.admin, live.f.job_id, attempt=1, stdout_offset=len(want), stderr_offset=0)
    check("offsets at the end give no output", bytes(f.out) == b"" and f.outcome == "EXITED", f)
    live = Live(c.admin, "sh", "-c", "echo begun; sleep 60", detach=True)
    live.sees(b"begun")
    f = watch(c.admin, live.f.job_id, no_follow=True)
    check("no_follow ends with what is there", bytes(f.out) == b"begun\n" and f.result is None, f)
    c.admin.jobs.Cancel(pb.CancelRequest(job_id=live.f.job_id))


@suite.scenario
def leaving(c):
    live = Live(c.admin, "sh", "-c", "echo begun; sleep 60")
    live.sees(b"begun")
    live.stream.cancel()
    job = ended(c.admin, live.f.job_id, 10)
    check("leaving Run cancels the job", job.result.outcome == pb.OUTCOME_CANCELLED, job)
    live = Live(c.admin, "sh", "-c", "echo begun; sleep 1.5; echo done", detach=True)
    live.sees(b"begun")
    live.stream.cancel()
    job = ended(c.admin, live.f.job_id, 10)
    check("… unless it asked to be left", job.result.outcome == pb.OUTCOME_EXITED, job)
    err = error_of(c.admin.jobs.Run, pb.RunRequest(spec=spec("sleep", "60")), timeout=1.5)
    equal("a Run over its deadline ends with DEADLINE_EXCEEDED", code_of(err), "DEADLINE_EXCEEDED")
    check("a place with a lease is free again", until(lambda: not c.held(), 10), c.held())


@suite.scenario
def large_commands(c):
    f = run(c.admin, "sh", "-c", "env | wc -l", env={f"A{i}": "x" for i in range(3000)})
    check("3,000 variables arrive", f.outcome == "EXITED" and int(f.out) >= 3000, f)
    f = run(c.admin, "sh", "-c", "echo $#", "sh", *["x" * 100] * 9000)
    check("900 KiB of arguments arrive", bytes(f.out) == b"9000\n", f)
    f = run(c.admin, "sh", "-c", "echo $#", "sh", *["x"] * 60000)
    check("60,000 arguments arrive", bytes(f.out) == b"60000\n", f)


@suite.scenario
def faults_of_files(c):
    """8 MiB of a mapped file take 128 page faults by the kernel's default, 32 by the template's cloche.fault_around."""
    program = """
import mmap, os, resource
size = 8 << 20
open("/tmp/f", "wb").write(b"x" * size)
pages = mmap.mmap(os.open("/tmp/f", os.O_RDONLY), size, prot=mmap.PROT_READ)
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
sum(pages[at] for at in range(0, size, 4096))
print(faults() - before)
"""
    f = run(c.admin, "python3", "-c", program, template="python")
    check("a page fault maps 256 KiB of a file", f.out.strip().isdigit() and 1 < int(f.out) < 64, f)


@suite.scenario
def templates(c):
    rows = c.template_rows()
    check("templates are listed with their keys", "python" in rows and len(rows["python"].snapshot_key) == 64 and len(rows["base"].verity_root) == 64, rows)
    one = c.admin.templates.Get(pb.TemplateServiceGetRequest(name="base")).template
    equal("Get gives the same", one.snapshot_key, rows["base"].snapshot_key)
    sizes = [(("sh", "-c", "nproc; grep MemTotal /proc/meminfo"), "base", (2, 513, 0)),  # no multiple of a large page
             (("python3", "-c", "print(len(b'a' * (200 << 20)))"), "python", (1, 449, 0)),
             (("true",), "base", (1, 48, 0))]  # which takes 20 s to be sure of
    f, all_of_it, too_little = in_parallel(lambda s: run(c.admin, *s[0], template=s[1], resources=s[2], timeout_rpc=300), sizes)
    check("vCPUs and memory are as asked", f.out.startswith(b"2\n") and 400_000 < int(f.out.split()[2]) < 540_000, f)
    equal("all of it can be used", (all_of_it.outcome, bytes(all_of_it.out)), ("EXITED", b"209715200\n"))
    f = too_little
    check("too little is said to be too little", f.outcome == "FAILED" and "does not boot with 48 MiB of memory, its default is 256" in str(f), f)


if __name__ == "__main__":
    assert SECOND
    suite.main(templates="base,python", warm=2)
