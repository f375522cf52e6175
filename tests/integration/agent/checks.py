#!/usr/bin/python3
"""The agent under QEMU: every feature, and what hostile code tries.

usage: checks.py IMAGE_DIR   (a folder with manifest.json, as DIR/base/current)
One VM serves most checks.  Exit 0 when all passed, 1 otherwise, 77 when this machine cannot run it.
"""
import hashlib
import os
import shutil
import sys
import time
import traceback

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


if len(sys.argv) != 2:
    sys.exit(__doc__)
if os.environ.get("CI") != "true" and os.environ.get("CLOCHE_LONG") != "1":
    skip("takes 140 s; runs with CI=true or CLOCHE_LONG=1")
IMAGE = sys.argv[1]
for tool in ("qemu-system-x86_64", "protoc"):
    if not shutil.which(tool):
        skip("%s is not installed" % tool)
if not os.path.exists(os.path.join(IMAGE, "manifest.json")):
    skip("no image at %s (images/build.sh base --out ...)" % IMAGE)
try:
    import google.protobuf  # noqa: F401
except ImportError:
    skip("python3-protobuf is not installed for " + sys.executable)

import dials  # noqa: E402
import holds  # noqa: E402
from guest import DATA_MAX, FACTOR, WINDOW, Ended, Guest, pb  # noqa: E402

USER, AS_ROOT = pb.GUEST_USER_USER, pb.GUEST_USER_ROOT
OPEN = pb.GUEST_SECCOMP_TIER_OPEN
OUT, ERR = pb.GUEST_CHANNEL_STDOUT, pb.GUEST_CHANNEL_STDERR


def exited(result, code=0):
    ended = result[0]
    assert ended.end == pb.GUEST_END_EXITED and ended.exit_code == code, (ended, result[1][-500:], result[2][-500:])
    return result[1].decode(errors="replace")


def expect(condition, *what):
    assert condition, what


# --- identity and environment --------------------------------------------------------------------
@check
def identity_sets_names_and_clock(g):
    out = exited(g.run("hostname; cat /etc/hostname /etc/machine-id; date +%s"))
    lines = out.split()
    expect(lines[0] == lines[1] == "sbx-test", out)
    expect(lines[2] == "0123456789abcdef" * 2, out)
    expect(abs(int(lines[3]) - time.time()) < 5 * FACTOR, out)


@check
def second_identity_applies(g):
    done = g.identify(hostname="sbx-second", wall_ns=1_900_000_000 * 10**9)
    expect(not done.error, done)
    out = exited(g.run("hostname; date +%s"))
    expect(out.split()[0] == "sbx-second" and abs(int(out.split()[1]) - 1_900_000_000) < 10 * FACTOR, out)
    expect(not g.identify().error)


@check
def the_clock_goes_by_the_workers_word(g):
    expect(not g.identify().error)
    for lag in (7200, -9000.5, 1800.25):
        (least, most), begin = g.clock(), time.monotonic()
        g.send(clock=pb.GuestClock(lag_ns=int(lag * 1e9)))
        (now_least, now_most), took = g.clock(), time.monotonic() - begin
        expect(least - lag - took < now_most and now_least < most - lag + took, lag, least, most, now_least, now_most)
    out = exited(g.run("date +%s"))
    expect(abs(int(out) - time.time()) < 10 * FACTOR, out)


@check
def a_little_is_slewed(g):
    expect(not g.identify().error)
    g.send(clock=pb.GuestClock(lag_ns=-90_000_000))
    out = exited(g.run("n=0 last=0; while [ $n -lt 40 ]; do now=$(date +%s%N); [ $now -gt $last ] || echo $last $now; last=$now; n=$((n+1)); done"))
    expect(out == "", "time went backwards", out)
    expect(not g.identify().error)


@check
def a_clock_that_cannot_be_is_refused(g):
    before = g.clock()
    for lag in (-2**63, 2**63 - 1):
        g.send(clock=pb.GuestClock(lag_ns=lag))
    after = g.clock()
    expect(abs(after[1] - before[1]) < 5 * FACTOR, before, after)


@check
def identity_without_entropy_is_refused(g):
    expect("entropy" in g.identify(entropy=b"short").error)
    expect(not g.identify().error)


@check
def identity_does_not_follow_links_of_user_code(g):
    exited(g.run("rm -f /etc/hostname && ln -s /victim /etc/hostname && echo old > /victim", user=AS_ROOT))
    expect(not g.identify(hostname="sbx-test").error)
    expect(exited(g.run("cat /victim /etc/hostname")) == "old\nsbx-test\n")
    # Nor what it opened once: the user's root may go on while identities come.
    exited(g.run("mv /etc/hostname /kept && ln -s /victim /etc/hostname", user=AS_ROOT))
    expect(not g.identify(hostname="sbx-other").error)
    expect(exited(g.run("cat /victim /kept /etc/hostname")) == "old\nsbx-test\nsbx-other\n")
    expect(not g.identify(hostname="sbx-test").error)


@check
def baseline_environment(g):
    out = exited(g.run("env", env={"EXTRA": "1", "HOME": "/tmp"}))
    env = dict(line.split("=", 1) for line in out.splitlines())
    expect(env["EXTRA"] == "1" and env["HOME"] == "/tmp" and env["USER"] == "user", env)
    expect(env["LANG"] == "C.UTF-8" and env["TMPDIR"].startswith("/tmp/exec-") and "/usr/bin" in env["PATH"], env)
    expect(set(env) <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TERM", "EXTRA", "PWD", "SHLVL", "_", "OLDPWD"}, env)


@check
def each_call_has_a_clean_slate(g):
    out = exited(g.run("ls /proc/self/fd | wc -l; ulimit -c; umask; id -u; pwd; ps -o sid= -p $$; grep -E 'SigBlk|SigIgn|NoNewPrivs|CapEff|CapBnd' /proc/self/status; cut -d' ' -f41 /proc/self/stat; cat /proc/self/oom_score_adj"))
    lines = out.split()
    expect(lines[:5] == ["4", "0", "0022", "1000", "/home/user"], lines)
    expect("CapEff:\t0000000000000000" in out and "CapBnd:\t0000000000000000" in out, out)
    expect("NoNewPrivs:\t1" in out and "SigBlk:\t0000000000000000" in out and "SigIgn:\t0000000000000000" in out, out)
    expect(lines[-2:] == ["0", "0"], lines)  # SCHED_OTHER, and no privilege before the OOM killer


@check
def tmpdir_is_fresh_and_removed(g):
    a = exited(g.run('mkdir -p $TMPDIR/a/b && echo x > $TMPDIR/a/b/c && stat -c %a $TMPDIR && echo $TMPDIR')).split()
    expect(a[0] == "700", a)
    for _ in range(50):
        left = exited(g.run("ls -d /tmp/exec-* | grep -v $TMPDIR || true"))
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(left)


# --- exec ----------------------------------------------------------------------------------------
@check
def stdio_is_carried(g):
    ended, out, err = g.run("cat; echo oops >&2; exit 7", stdin=b"hello\0world")
    expect((ended.end, ended.exit_code, out, err) == (pb.GUEST_END_EXITED, 7, b"hello\0world", b"oops\n"), ended, out, err)
    expect(ended.wall_ns > 0 and ended.cpu_ns > 0 and ended.peak_memory_bytes > 0, ended)


@check
def started_comes_first_and_ended_last(g):
    stream = g.start(["/bin/echo", "x"])
    kinds = []
    while not kinds or kinds[-1] != "exec_ended":
        kinds.append(g.take(stream).WhichOneof("body"))
    expect(kinds[0] == "exec_started" and set(kinds[1:-1]) == {"data"}, kinds)


@check
def stdout_can_be_opened_again(g):
    expect(exited(g.run("echo a > /dev/stdout; echo b > /proc/self/fd/1")) == "a\nb\n")


@check
def root_owns_the_tree_only(g):
    out = exited(g.run("id -u; touch /usr/bin/x && chown 1000:1000 /usr/bin/x && stat -c %u /usr/bin/x; "
                       "echo 1 > /proc/sys/kernel/panic || echo denied; echo x > /proc/sysrq-trigger || echo denied; "
                       "cat /proc/kcore || echo denied; mknod /tmp/n b 254 0 || echo denied; ls /sys/fs/cgroup | wc -l", user=AS_ROOT))
    expect(out.split() == ["0", "1000", "denied", "denied", "denied", "denied", "0"], out)


@check
def root_can_install_a_package(g):
    out = exited(g.run("cd $TMPDIR && mkdir -p p/DEBIAN p/usr/bin && printf 'Package: hi\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: x\\n' > p/DEBIAN/control"
                       " && printf '#!/bin/sh\\necho installed\\n' > p/usr/bin/hi && chmod 755 p/usr/bin/hi && dpkg-deb -b p p.deb >/dev/null && dpkg -i p.deb >/dev/null 2>&1 && hi", user=AS_ROOT, timeout=120))
    expect(out == "installed\n", out)


@check
def missing_command_is_127(g):
    ended, _, _ = g.run(["no-such-command"])
    expect((ended.end, ended.exit_code) == (pb.GUEST_END_NOT_FOUND, 127) and "No such file" in ended.error, ended)


@check
def unexecutable_command_is_126(g):
    ended, _, _ = g.run(["/etc/passwd"])
    expect((ended.end, ended.exit_code) == (pb.GUEST_END_NOT_EXECUTABLE, 126) and "denied" in ended.error, ended)


@check
def bad_requests_end_the_stream_only(g):
    for fields in ({"argv": []}, {"argv": ["/bin/true"], "cwd": "/no/such"}, {"argv": ["/bin/true"], "env": {"A=B": "x"}},
                   {"argv": ["/bin/true"], "user": 77}, {"argv": ["/bin/true"], "seccomp": 77}):
        stream = g.start(fields.pop("argv"), **fields)
        ended = g.finish(stream)[0]
        expect(ended.end == pb.GUEST_END_FAILED and ended.error, ended)


@check
def signals_reach_the_group(g):
    stream = g.start(["/bin/sh", "-c", "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.1; done"], no_stdin=True)
    while g.take(stream).WhichOneof("body") != "data":
        pass
    g.send(stream, signal=pb.GuestSignal(signal=10))
    ended, out, _ = g.finish(stream)
    expect(ended.exit_code == 3 and b"got" in out, ended, out)
    stream = g.start(["/bin/sleep", "100"], no_stdin=True)
    g.take(stream)
    g.send(stream, signal=pb.GuestSignal(signal=15))
    ended = g.finish(stream)[0]
    expect((ended.end, ended.signal) == (pb.GUEST_END_SIGNALED, 15), ended)


@check
def terminal_works(g):
    stream = g.start(["/bin/sh", "-c", "test -t 0 && test -t 1 && stty size; read x; echo got:$x; stty size; cat"],
                     pty=pb.GuestResize(rows=33, columns=101))
    seen = b""

    def until(word):
        nonlocal seen
        while word not in seen:
            frame = g.take(stream)
            if frame.WhichOneof("body") == "data":
                seen += frame.data.bytes
    until(b"33 101")
    g.send(stream, resize=pb.GuestResize(rows=10, columns=20))
    g.push(stream, b"abc\n", pb.GUEST_CHANNEL_STDIN, eof=False)
    until(b"got:abc")
    until(b"10 20")
    g.send(stream, data=pb.GuestData(channel=pb.GUEST_CHANNEL_STDIN, eof=True))
    expect(g.finish(stream)[0].exit_code == 0)
    stream = g.start(["/bin/cat"], pty=pb.GuestResize(rows=33, columns=101))
    g.take(stream)
    time.sleep(0.3)
    g.push(stream, b"\x03", pb.GUEST_CHANNEL_STDIN, eof=False)
    ended = g.finish(stream)[0]
    expect((ended.end, ended.signal) == (pb.GUEST_END_SIGNALED, 2), ended)


@check
def timeout_kills_everything(g):
    begin = time.monotonic()
    ended, _, _ = g.run("setsid sleep 100 & trap '' TERM INT HUP; sleep 100", timeout_ns=500_000_000)
    expect(ended.end == pb.GUEST_END_TIMED_OUT and time.monotonic() - begin < 10 * FACTOR, ended)


@check
def exec_ends_with_its_command(g):
    begin = time.monotonic()
    ended, out, _ = g.run("(setsid sh -c 'sleep 60; echo late' &) ; echo early")
    expect(ended.exit_code == 0 and out == b"early\n" and time.monotonic() - begin < 10 * FACTOR, ended, out)


@check
def reset_kills_and_frees(g):
    stream = g.start(["/bin/sh", "-c", "setsid sleep 1000 & sleep 1000"], no_stdin=True)
    g.take(stream)
    g.send(stream, reset=pb.GuestReset(reason="test"))
    for _ in range(100):
        g.send(stats_request=pb.GuestStatsRequest())
        stats = g.take(0).stats
        if stats.processes == 0:
            break
        time.sleep(0.05)
    expect(stats.processes == 0, stats)
    expect(stats.memory_total_bytes > 0 and stats.memory_available_bytes > 0 and stats.scratch_total_bytes > 0 and stats.uptime_ns > 0 and stats.cpu_ns > 0, stats)


@check
def stdin_over_its_cap_is_refused(g):
    stream = g.start(["/bin/cat"], stdin_max_bytes=1000)
    g.push(stream, b"x" * 1001, pb.GUEST_CHANNEL_STDIN)
    ended = g.finish(stream)[0]
    expect(ended.end == pb.GUEST_END_FAILED and "stdin" in ended.error, ended)


@check
def large_stdin_and_stdout_are_whole(g):
    data = os.urandom(1 << 20) * 4
    ended, out, _ = g.run(["/usr/bin/tee", "/dev/null"], stdin=data[:4 << 20], timeout=120)
    expect(hashlib.sha256(out).digest() == hashlib.sha256(data).digest(), len(out))


@check
def memory_hog_is_killed_alone(g):
    other = g.start(["/bin/cat"])
    g.take(other)
    hog = "perl -e 'push @all, \"x\" x (1048576 + $i++) while 1'"  # takes what there is at once: tail /dev/zero needs half a minute
    ended = g.run("exec " + hog, timeout=400)[0]
    expect((ended.end, ended.signal) == (pb.GUEST_END_OOM_KILLED, 9), ended)
    ended = g.run(hog + "; echo not reached", timeout=400)
    expect(ended[0].end == pb.GUEST_END_OOM_KILLED, ended)
    g.push(other, b"still here", pb.GUEST_CHANNEL_STDIN)
    expect(g.finish(other)[1] == b"still here")


@check
def many_at_once_and_the_65th_is_refused(g):
    streams = [g.start(["/bin/cat"]) for _ in range(64)]
    for stream in streams:
        expect(g.take(stream, 60).WhichOneof("body") == "exec_started")
    extra = g.start(["/bin/true"])
    expect("64 streams" in g.finish(extra)[0].error)
    for stream in streams:
        g.push(stream, b"%d" % stream, pb.GUEST_CHANNEL_STDIN)
    for stream in streams:
        ended, out, _ = g.finish(stream, 60)
        expect(ended.exit_code == 0 and out == b"%d" % stream, ended, out)


# --- hostile code --------------------------------------------------------------------------------
@check
def endless_output_without_credit_blocks_the_writer_only(g):
    stream = g.start(["/bin/sh", "-c", "yes"], auto=False, no_stdin=True)
    got = 0
    g.take(stream)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        if not g.pump(0.2):
            continue
    got = sum(len(f.data.bytes) for f in g.inbox.get(stream, []))
    expect(got == WINDOW, got)
    expect(g.ping() < 5 * FACTOR)
    g.send(stream, window=pb.GuestWindow(bytes=1000))
    time.sleep(0.3)
    g.ping()
    got = sum(len(f.data.bytes) for f in g.inbox.get(stream, []))
    expect(got == WINDOW + 1000, got)
    g.send(stream, reset=pb.GuestReset())
    expect(g.ping() < 5 * FACTOR)


@check
def fork_bomb_meets_the_pids_limit(g):
    stream = g.start(["/bin/bash", "-c", "b() { b | b & }; b; b; while :; do sleep 1; done"], no_stdin=True, timeout_ns=4_000_000_000)
    time.sleep(1.5)
    expect(g.ping(20) < 15 * FACTOR)
    ended = g.finish(stream, 90)[0]
    expect(ended.end == pb.GUEST_END_TIMED_OUT, ended)
    expect(exited(g.run("echo alive")) == "alive\n")


@check
def kill_minus_one_reaches_itself_only(g):
    other = g.start(["/bin/cat"])
    g.take(other)
    for who in (USER, AS_ROOT):
        g.run("kill -9 -1; kill -9 1; true", user=who)
    g.push(other, b"ok", pb.GUEST_CHANNEL_STDIN)
    expect(g.finish(other)[1] == b"ok")
    out = exited(g.run("ps -e -o pid= | wc -l; kill -9 1; echo $?", user=AS_ROOT))
    expect(int(out.split()[0]) < 8, out)


@check
def closed_fds_do_no_harm(g):
    ended = g.run("exec 0<&- 1>&- 2>&-; sleep 0.2; exit 5")[0]
    expect(ended.exit_code == 5, ended)


@check
def scratch_is_bounded(g):
    expect(not g.identify(scratch=32 << 20).error)
    ended, out, err = g.run("dd if=/dev/zero of=/home/user/big bs=1M count=100; rm /home/user/big", timeout=120)
    expect(b"No space left" in err, err)
    expect(not g.identify(scratch=100 << 20).error)


@check
def the_host_side_is_out_of_reach(g):
    out = exited(g.run("ls /dev/vport* /dev/vda /dev/dm-0 /dev/mapper 2>&1 | grep -vc 'No such' ; dmesg 2>&1 | head -1; chroot / /bin/true && echo chroot",
                       user=AS_ROOT))
    expect(out.split()[0] == "0" and "not permitted" in out, out)


@check
def sparse_signals_and_strange_frames_are_harmless(g):
    stream = g.start(["/bin/true"])
    g.finish(stream)
    g.send(stream, signal=pb.GuestSignal(signal=9))
    g.send(stream, window=pb.GuestWindow(bytes=5))
    g.send(stream, data=pb.GuestData(channel=pb.GUEST_CHANNEL_STDIN, bytes=b"late"))
    g.send(stream, reset=pb.GuestReset())
    expect(g.ping() < 5 * FACTOR)
    stream = g.start(["/bin/cat"], no_stdin=False)
    g.take(stream)
    for signo in (0, -1, 65, 1 << 30):
        g.send(stream, signal=pb.GuestSignal(signal=signo))
    g.push(stream, b"ok", pb.GUEST_CHANNEL_STDIN)
    expect(g.finish(stream)[1] == b"ok")


# --- cells ---------------------------------------------------------------------------------------
def cell(g, code, env=(), context="bash", timeout=60):
    """(ended, stdout)"""
    stream, out = g.open_stream(), b""
    g.auto_window.add(stream)
    g.send(stream, cell=pb.GuestCell(id=context, language=pb.GUEST_LANGUAGE_BASH, code=code, env=[pb.GuestEnv(name=k, value=v) for k, v in dict(env).items()]))
    while True:
        frame = g.take(stream, timeout)
        kind = frame.WhichOneof("body")
        if kind == "cell_ended":
            return frame.cell_ended, out
        if kind == "data" and frame.data.channel == OUT:
            out += frame.data.bytes


@check
def a_cell_has_variables_of_its_own(g):
    value = "q'$(x)`\\\n\tü "
    ended, out = cell(g, 'printf %s "$A"; A=mine', {"A": value})
    expect(ended.end == pb.GUEST_CELL_END_OK and out.decode() == value, ended, out)
    expect(cell(g, "echo ${A-unset}")[1] == b"unset\n")
    expect(cell(g, "echo ${#A}", {"A": "x" * (65536 - 11)})[1] == b"65525\n")


@check
def variables_that_cannot_be_refuse_the_cell_alone(g):
    begun = cell(g, "true")[0].execution_count
    for env, number in (({"": "1"}, 22), ({"A=B": "1"}, 22), ({"a.b": "1"}, 22), ({"A": "x" * (65536 - 10)}, 7)):
        ended = cell(g, "echo ran", env)[0]
        expect(ended.end == pb.GUEST_CELL_END_REFUSED and ended.error_number == number, ended)
    ended, out = cell(g, 'echo "$A"', {"A": "1"})
    expect(ended.execution_count == begun + 1 and out == b"1\n", ended, out)


# --- files ---------------------------------------------------------------------------------------
KIND = {name: getattr(pb, "GUEST_FILE_KIND_" + name) for name in ("READ", "WRITE", "LIST", "STAT", "MKDIR", "REMOVE", "RENAME")}


def file_op(g, kind, path, data=None, timeout=120, commit=True, **fields):
    """(final result, all entries, data)"""
    stream = g.open_stream()
    g.auto_window.add(stream)
    fields.setdefault("user", USER)
    g.send(stream, file_op=pb.GuestFileOp(kind=KIND[kind], path=path, **fields))
    if data is not None:
        g.push(stream, data, pb.GUEST_CHANNEL_FILE, eof=commit)
        if not commit:
            g.send(stream, reset=pb.GuestReset(reason="abort"))
            return None
    entries, chunks = [], []
    while True:
        frame = g.take(stream, timeout)
        if frame.WhichOneof("body") == "data":
            chunks.append(frame.data.bytes)
            continue
        entries += list(frame.file_result.entries)
        if not frame.file_result.more:
            return frame.file_result, entries, b"".join(chunks)


@check
def large_files_survive_both_ways(g):
    expect(not g.identify(scratch=150 << 20).error)
    data = os.urandom(1 << 20) * 64
    result, _, _ = file_op(g, "WRITE", "large", data, mode=0o640)
    expect(result.error_number == 0 and result.bytes == len(data), result)
    out = exited(g.run("sha256sum large; stat -c '%a %u' large", timeout=300)).split()
    expect(out[0] == hashlib.sha256(data).hexdigest() and out[2:] == ["640", "1000"], out)
    result, _, back = file_op(g, "READ", "/home/user/large")
    expect(result.error_number == 0 and result.bytes == result.size == len(data), result)
    expect(hashlib.sha256(back).digest() == hashlib.sha256(data).digest())
    expect(file_op(g, "REMOVE", "large")[0].error_number == 0)


@check
def ranges_and_empty_files(g):
    expect(file_op(g, "WRITE", "r", b"0123456789")[0].bytes == 10)
    result, _, data = file_op(g, "READ", "r", offset=3, length=4)
    expect(data == b"3456" and result.bytes == 4 and result.size == 10, result, data)
    expect(file_op(g, "READ", "r", offset=100)[2] == b"")
    expect(file_op(g, "WRITE", "empty", b"")[0].error_number == 0)
    result, _, data = file_op(g, "READ", "empty")
    expect(result.error_number == 0 and data == b"", result)


@check
def writes_replace_or_leave_no_trace(g):
    file_op(g, "WRITE", "keep", b"old")
    file_op(g, "WRITE", "keep", b"half", commit=False)
    time.sleep(0.5)
    expect(file_op(g, "READ", "keep")[2] == b"old")
    out = exited(g.run("ls -A /home/user"))
    expect(".cloche" not in out, out)
    expect(file_op(g, "WRITE", "keep", b"new")[0].error_number == 0 and file_op(g, "READ", "keep")[2] == b"new")


@check
def a_write_that_fails_says_why_though_all_data_had_come(g):
    for _ in range(100):
        result = file_op(g, "WRITE", "/usr/bin/evil", b"x")[0]
        expect(result.error_number == 13, result)


@check
def permissions_are_the_users(g):
    expect(file_op(g, "READ", "/etc/shadow")[0].error_number == 13)
    expect(file_op(g, "READ", "/etc/shadow", user=AS_ROOT)[0].error_number == 0)
    expect(file_op(g, "WRITE", "/usr/bin/evil", b"x")[0].error_number == 13)
    expect(file_op(g, "REMOVE", "/etc", recursive=True)[0].error_number in (1, 13, 39))
    expect(file_op(g, "WRITE", "/proc/sys/kernel/panic", b"1", user=AS_ROOT)[0].error_number != 0)
    expect(file_op(g, "READ", "/home")[0].error_number == 21)
    expect(file_op(g, "READ", "/dev/zero")[0].error_number == 22)
    expect(file_op(g, "READ", "/nope")[0].error_number == 2)
    exited(g.run("mkfifo fifo"))
    expect(file_op(g, "READ", "fifo")[0].error_number == 22)


@check
def folders_are_made_listed_and_removed(g):
    expect(file_op(g, "MKDIR", "d/e/f")[0].error_number == 2)
    expect(file_op(g, "MKDIR", "d/e/f", recursive=True, mode=0o700)[0].error_number == 0)
    expect(file_op(g, "MKDIR", "d")[0].error_number == 17)
    exited(g.run("cd d && seq -f 'n%05g' 1 2500 | xargs touch && ln -s /target link && printf x > \"$(printf 'bad\\377name')\"", timeout=120))
    result, entries, _ = file_op(g, "LIST", "d", limit=2000)
    names = [e.name for e in entries]
    expect(len(names) == 2000 and names == sorted(names), len(names))
    result, more, _ = file_op(g, "LIST", "d", limit=2000, after=names[-1])
    expect(len(more) == 503, len(more))
    both = {e.name: e for e in entries + more}
    expect(both["link"].type == pb.GUEST_FILE_TYPE_SYMLINK and both["link"].link_target == "/target")
    expect("bad\\xffname" in both and both["e"].type == pb.GUEST_FILE_TYPE_DIRECTORY and both["e"].mode == 0o700)
    expect(len(file_op(g, "LIST", "d")[1]) == 1000)
    entry = file_op(g, "STAT", "d/n00001")[1][0]
    expect((entry.name, entry.uid, entry.size, entry.type) == ("n00001", 1000, 0, pb.GUEST_FILE_TYPE_REGULAR), entry)
    expect(abs(entry.modified_ns / 1e9 - time.time()) < 600, entry)
    expect(file_op(g, "RENAME", "d", to="d2")[0].error_number == 0)
    expect(file_op(g, "REMOVE", "d2")[0].error_number == 39)
    expect(file_op(g, "REMOVE", "d2", recursive=True)[0].error_number == 0)
    expect(file_op(g, "STAT", "d2")[0].error_number == 2)
    expect(file_op(g, "REMOVE", "d2", recursive=True)[0].error_number == 2)


# --- system call filter --------------------------------------------------------------------------
ROWS = {  # call -> (number, arguments); the number of arguments does not matter, the filter is first
    "io_uring_setup": (425, [1, 0]), "io_uring_enter": (426, []), "io_uring_register": (427, []), "bpf": (321, []),
    "perf_event_open": (298, []), "userfaultfd": (323, [1]), "kexec_load": (246, []), "kexec_file_load": (320, []),
    "init_module": (175, []), "finit_module": (313, []), "delete_module": (176, []), "create_module": (174, []),
    "mount": (165, []), "umount2": (166, []), "pivot_root": (155, []), "move_mount": (429, []), "open_tree": (428, []),
    "fsopen": (430, []), "fsconfig": (431, []), "fsmount": (432, []), "fspick": (433, []), "mount_setattr": (442, []),
    "setns": (308, []), "unshare": (272, [0x10000000]), "clone3": (435, []), "keyctl": (250, []), "add_key": (248, []),
    "request_key": (249, []), "swapon": (167, []), "swapoff": (168, []), "reboot": (169, []), "acct": (163, []),
    "quotactl": (179, []), "quotactl_fd": (443, []), "open_by_handle_at": (304, []), "name_to_handle_at": (303, []),
    "settimeofday": (164, []), "clock_settime": (227, []), "clock_adjtime": (305, []), "adjtimex": (159, []),
    "iopl": (172, [3]), "ioperm": (173, [0, 1, 1]), "modify_ldt": (154, []), "nfsservctl": (180, []), "vhangup": (153, []),
    "lookup_dcookie": (212, []), "fanotify_init": (300, []), "syslog": (103, [3]), "sethostname": (170, []), "setdomainname": (171, []),
    "clone(NEWUSER)": (56, [0x10000000]), "clone(NEWNS)": (56, [0x20000]), "clone(NEWNET)": (56, [0x40000000]),
    "clone(NEWPID)": (56, [0x20000000]), "clone(NEWIPC)": (56, [0x8000000]), "clone(NEWUTS)": (56, [0x4000000]),
    "clone(NEWCGROUP)": (56, [0x2000000]), "socket(AF_PACKET)": (41, [17, 3, 0]), "socket(AF_ALG)": (41, [38, 5, 0]),
    "socket(AF_VSOCK)": (41, [40, 1, 0]), "ioctl(TIOCSTI)": (16, [0, 0x5412, 0]),
}
ENOSYS = {"io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"}


def syscall_program(calls):
    """A static ELF that makes each call and prints its errno as one byte; no compiler needed."""
    import struct as s
    code = b""
    for number, args in calls:
        values = (list(args) + [0] * 6)[:6]
        for reg, value in zip((b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8", b"\x49\xb9"), values):
            code += reg + s.pack("<Q", value)
        code += b"\xb8" + s.pack("<I", number) + b"\x0f\x05"          # mov eax, n; syscall
        code += b"\xf7\xd8\x88\x04\x24"                                # neg eax; mov [rsp], al
        code += b"\xbf\x01\0\0\0\x48\x89\xe6\xba\x01\0\0\0\xb8\x01\0\0\0\x0f\x05"  # write(1, rsp, 1)
    code += b"\x31\xff\xb8\xe7\0\0\0\x0f\x05"                          # exit_group(0)
    return elf(code)


def elf(code):
    import struct as s
    base = 0x400000
    head = s.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1" + b"\0" * 9, 2, 62, 1, base + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + s.pack("<IIQQQQQQ", 1, 5, 0, base, base, 120 + len(code), 120 + len(code), 4096) + code


@check
def each_row_of_the_standard_filter_refuses(g):
    names = list(ROWS)
    expect(file_op(g, "WRITE", "calls", syscall_program([ROWS[n] for n in names]), mode=0o755)[0].error_number == 0)
    for who in (USER, AS_ROOT):
        ended, out, err = g.run(["/home/user/calls"], user=who)
        expect(len(out) == len(names), ended, len(out), err)
        wrong = {n: e for n, e in zip(names, out) if e != (38 if n in ENOSYS else 1)}
        expect(not wrong, wrong)


@check
def the_open_tier_keeps_vsock_shut(g):
    calls = [ROWS["socket(AF_VSOCK)"], ROWS["userfaultfd"], (272, [0x10000000])]
    expect(file_op(g, "WRITE", "calls", syscall_program(calls), mode=0o755)[0].error_number == 0)
    out = g.run(["/home/user/calls"], seccomp=OPEN)[1]
    expect(out[0] == 1 and out[2] == 0, list(out))


# --- what user code does is told -----------------------------------------------------------------
def watched(g, run):
    """The events of what run() does, after an identity that asks for them; nothing of them may be lost."""
    g.events, g.seen = [], 0
    done = g.identify(watch=True)
    expect(done.watched and not done.unwatched, done)
    run()
    expect(g.lost == 0 and g.seen == len(g.events), g.seen, g.lost, len(g.events))
    expect(sorted(e.number for e in g.events) == list(range(1, g.seen + 1)), [e.number for e in g.events])
    return sorted(g.events, key=lambda e: e.number)


def of(events, kind):
    return [e for e in events if e.kind == getattr(pb, "GUEST_EVENT_KIND_" + kind)]


@check
def nothing_is_told_unasked(g):
    g.events = []
    g.identify()
    exited(g.run("/bin/true; : > /tmp/unasked"))
    g.ping()
    expect(not g.events, g.events)


@check
def programs_and_writes_are_told_before_the_end(g):
    stream = []

    def run():
        stream.append(g.start(["/bin/sh", "-c", "cp /etc/hostname /tmp/told; cat /tmp/told >> /tmp/told2; readlink -f /tmp/../bin/sh"], no_stdin=True))
        shell = exited(g.finish(stream[0])).strip()
        expect(g.seen > 0, "the exec has ended, and nothing was told")
        stream.append(shell)

    events = watched(g, run)
    programs = of(events, "EXEC")
    expect([list(e.argv) for e in programs] == [
        ["/bin/sh", "-c", "cp /etc/hostname /tmp/told; cat /tmp/told >> /tmp/told2; readlink -f /tmp/../bin/sh"],
        ["cp", "/etc/hostname", "/tmp/told"], ["cat", "/tmp/told"], ["readlink", "-f", "/tmp/../bin/sh"]], programs)
    expect(programs[0].path == stream[1], programs[0], stream)  # the file that runs, not the link
    expect(all(e.uid == 1000 and e.stream == stream[0] and not e.cut for e in events), events)
    expect(all(e.parent == programs[0].pid for e in programs[1:]), programs)
    made = [(e.path, e.created, e.comm) for e in of(events, "WRITE")]
    expect(made == [("/tmp/told", True, "cp"), ("/tmp/told2", True, "sh")], made)
    expect(len({e.at_ns for e in events}) == len(events) and [e.at_ns for e in events] == sorted(e.at_ns for e in events), events)


@check
def arguments_are_told_as_they_are_and_cut_where_they_are_long(g):
    events = watched(g, lambda: exited(g.run(["/bin/true", "", "a b", "\u00fc", "x" * 600, "never"])))
    argv = list(of(events, "EXEC")[0].argv)
    expect(argv[:4] == ["/bin/true", "", "a b", "\u00fc"] and set(argv[4]) == {"x"} and len(argv) == 5, argv)
    expect(of(events, "EXEC")[0].cut and sum(len(a.encode()) + 1 for a in argv) <= 513, events)
    events = watched(g, lambda: exited(g.run("printf '\\377' > /tmp/name; /bin/echo $(cat /tmp/name)")))
    expect(["/bin/echo", "\\xff"] in [list(e.argv) for e in of(events, "EXEC")], events)


@check
def a_long_path_is_told_by_its_end(g):
    deep = "/tmp/" + "/".join(["d" * 60] * 5)  # 310 bytes, and 255 are kept
    events = watched(g, lambda: exited(g.run("mkdir -p %s; cd %s; : > told; cp /bin/true hidden; ./hidden" % (deep, deep))))
    for event, name in ((of(events, "WRITE")[0], "/told"), (of(events, "EXEC")[-1], "/hidden")):
        expect(event.cut and len(event.path) == 255 and (deep + name).endswith(event.path), event)
    made = of(events, "EXEC")[1]
    expect(list(made.argv) == ["mkdir", "-p", deep] and not made.cut, events)


@check
def what_runs_without_a_file_is_told(g):
    script = ("my $fd = syscall(319, my $n = 'ghost', 0); open(my $in, '<', '/bin/true'); binmode $in; my $all = do { local $/; <$in> };"
              " open(my $out, '>&=', $fd); binmode $out; print $out $all; $out->flush(); exec {\"/proc/self/fd/$fd\"} 'innocent';")
    events = watched(g, lambda: exited(g.run(["perl", "-MIO::Handle", "-e", script])))
    expect([(e.path, list(e.argv)) for e in of(events, "EXEC")][-1] == ("/memfd:ghost (deleted)", ["innocent"]), events)


@check
def refused_system_calls_are_told(g):
    names = list(ROWS)
    expect(file_op(g, "WRITE", "calls", syscall_program([ROWS[n] for n in names]), mode=0o755)[0].error_number == 0)
    for who, uid in ((USER, 1000), (AS_ROOT, 0)):
        events = of(watched(g, lambda: g.run(["/home/user/calls"], user=who)), "DENIED")
        wanted = [n.split("(")[0] for n in names if n != "clone3"]
        expect([e.call for e in events] == wanted, [e.call for e in events], wanted)
        expect(all(e.uid == uid and e.comm == "calls" for e in events), events)
        expect([list(e.args) for e in events if e.call == "socket"] == [[17, 3, 0], [38, 5, 0], [40, 1, 0]], events)


@check
def where_sockets_go_is_told(g):
    script = ("use Socket; socket(my $a, PF_INET, SOCK_STREAM, 0); connect($a, pack_sockaddr_in(80, inet_aton('192.0.2.7')));"
              "socket(my $b, PF_INET, SOCK_DGRAM, 0); bind($b, pack_sockaddr_in(4444, INADDR_LOOPBACK));"
              "socket(my $c, PF_UNIX, SOCK_STREAM, 0); connect($c, pack_sockaddr_un('/tmp/no such'));"
              "connect($c, pack('S a*', 1, \"\\0hidden\")); print 1")
    events = watched(g, lambda: expect(exited(g.run(["perl", "-e", script])) == "1"))
    seen = [(e.kind, e.address, e.port, e.path) for e in events if e.kind != pb.GUEST_EVENT_KIND_EXEC]
    to, at = pb.GUEST_EVENT_KIND_CONNECT, pb.GUEST_EVENT_KIND_BIND
    expect(seen == [(to, "192.0.2.7", 80, ""), (at, "127.0.0.1", 4444, ""), (to, "", 0, "/tmp/no such"), (to, "", 0, "@hidden")], seen)


@check
def a_call_of_another_architecture_is_told_by_its_own_name(g):
    expect(file_op(g, "WRITE", "i386", elf(b"\xb8\x14\0\0\0\xcd\x80" + b"\x31\xff\xb8\xe7\0\0\0\x0f\x05"), mode=0o755)[0].error_number == 0)
    events = watched(g, lambda: g.run(["/home/user/i386"]))
    expect([e.call for e in of(events, "DENIED")] == ["i386:getpid"], events)


@check
def tracing_is_told(g):
    script = "my $p = fork; sleep 30 if !$p; syscall(101, 16, $p, 0, 0); print $p; kill 9, $p"
    events = watched(g, lambda: exited(g.run(["perl", "-e", script])))
    traced = of(events, "TRACE")
    expect(len(traced) == 1 and traced[0].target > traced[0].pid, events)


@check
def the_sensor_is_out_of_reach_of_the_users_root(g):
    """What is known to silence such sensors: the switch of ftrace, the BPF file system, tracefs, the agent itself."""
    attack = ("for f in kernel/ftrace_enabled net/core/bpf_jit_enable kernel/unprivileged_bpf_disabled kernel/seccomp/actions_logged; do"
              " cat /proc/sys/$f > /tmp/old 2> /dev/null || echo unreadable $f; echo 0 > /proc/sys/$f && echo WROTE $f; done;"
              "for d in /sys/fs/bpf /sys/kernel/tracing /sys/kernel/debug /sys/fs/cgroup; do [ -z \"$(ls -A $d 2> /dev/null)\" ] || echo THERE $d; done;"
              "mount -t tracefs none /mnt && echo MOUNTED; kill -9 1; kill -STOP 1; echo tried")
    events = watched(g, lambda: expect("tried" in (out := g.run(attack, user=AS_ROOT)[1].decode()) and not any(
        bad in out for bad in ("WROTE", "THERE", "MOUNTED")), out))
    expect(len(of(events, "EXEC")) > 5, events)
    after = watched(g, lambda: g.run(["/home/user/calls"]))
    expect(of(after, "EXEC") and len(of(after, "DENIED")) == len(ROWS) - 1, after)


@check
def each_identity_begins_anew(g):
    first = watched(g, lambda: exited(g.run("/bin/true; /bin/true")))
    second = watched(g, lambda: exited(g.run("/bin/true")))
    expect(len(of(first, "EXEC")) == 3 and len(of(second, "EXEC")) == 2 and second[0].number == 1, first, second)
    g.identify()  # and the checks that follow are not watched


def counted(g, run):
    """{stream: {call: times}} of what run() does, as it is told at the end of each exec."""
    g.events, g.seen = [], 0
    done = g.identify(watch=True, count_calls=True)
    expect(done.counted and not done.uncounted, done)
    run()
    expect(g.lost == 0 and g.seen == len(g.events), g.seen, g.lost, len(g.events))
    expect([e.number for e in sorted(g.events, key=lambda e: e.number)] == list(range(1, g.seen + 1)))
    told = of(g.events, "CALLS")
    expect(all(not e.uncounted for e in told), told)
    ends = {e.stream: {c.call: c.times for c in e.calls} for e in told if e.last}
    expect(len(ends) == sum(e.last for e in told), told)
    return ends


YIELD, GETUID, MOUNT = 24, 102, 165


def a_count(g, calls):
    """Of a program that makes these calls, a write() after each, and few others."""
    expect(file_op(g, "WRITE", "counts", syscall_program([(n, []) for n in calls]), mode=0o755)[0].error_number == 0)
    ends = counted(g, lambda: g.run(["/home/user/counts"]))
    expect(len(ends) == 1, ends)
    return next(iter(ends.values()))


@check
def every_system_call_is_counted_once(g):
    one = a_count(g, [YIELD] * 11)
    expect(one["sched_yield"] == 11 and one["execve"] == 1 and one["exit_group"] == 1, one)
    other = a_count(g, [YIELD] * 7 + [GETUID] * 3 + [MOUNT])
    differ = {n: other.get(n, 0) - one.get(n, 0) for n in {*one, *other} if other.get(n, 0) != one.get(n, 0)}
    expect(differ == {"sched_yield": -4, "getuid": 3}, one, other)  # mount() is refused


@check
def calls_are_counted_for_each_exec_by_itself(g):
    streams = {}

    def run():
        for i in range(1, 41):  # at once
            streams[g.start(["/bin/sh", "-c", "read x; exec perl -e 'syscall(24) for 1..%d'" % (100 * i)])] = 100 * i
        for stream in streams:
            g.send(stream, data=pb.GuestData(channel=pb.GUEST_CHANNEL_STDIN, bytes=b"go\n", eof=True))
        for stream in streams:
            exited(g.finish(stream, timeout=180))

    ends = counted(g, run)
    expect({s: c["sched_yield"] for s, c in ends.items()} == streams, ends)


@check
def calls_are_counted_where_that_is_asked_for(g):
    def yields(n, **identity):
        g.events, g.seen = [], 0
        done = g.identify(**identity)
        exited(g.run(["perl", "-e", "syscall(24) for 1..%d" % n]))
        return done, [{c.call: c.times for c in e.calls}["sched_yield"] for e in of(g.events, "CALLS")]

    done, told = yields(5, watch=True, count_calls=True)
    expect(done.counted and told == [5], done, told)
    done, told = yields(6, watch=True)
    expect(not done.counted and not done.uncounted and told == [] and g.events, done, told)
    done, told = yields(7, watch=True, count_calls=True)
    expect(done.counted and told == [7], done, told)
    done, told = yields(8, count_calls=True)
    expect(not done.counted and "watched" in done.uncounted and told == [], done, told)
    g.identify()  # and the checks that follow are not watched


@check
def foreign_architecture_is_killed(g):
    code = b"\xb8\x14\0\0\0\xcd\x80" + b"\x31\xff\xb8\xe7\0\0\0\x0f\x05"  # int 0x80: getpid
    for tier in (0, OPEN):
        expect(file_op(g, "WRITE", "i386", elf(code), mode=0o755)[0].error_number == 0)
        ended = g.run(["/home/user/i386"], seccomp=tier)[0]
        expect((ended.end, ended.signal) == (pb.GUEST_END_SIGNALED, 31), ended)


# --- broken protocol: each in a VM of its own ------------------------------------------------------
def powers_off(prepare):
    g = Guest(IMAGE)
    try:
        g.hello()
        prepare(g)
        expect(g.wait_gone(), "the VM is still there", g.console()[-300:])
    finally:
        g.kill()


def exec_before_identity(g):
    g.send(1, exec=pb.GuestExec(argv=["/bin/true"]))


def garbage(g):
    g.sock.sendall(b"\xff" * 4096)


def empty_body(g):
    g.send_raw(pb.GuestFrame(stream=0).SerializeToString() or b"\x08\x00")


def credit_overrun(g):
    g.identify()
    stream = g.start(["/bin/sleep", "100"])
    for _ in range(9):
        g.send(stream, data=pb.GuestData(channel=pb.GUEST_CHANNEL_STDIN, bytes=b"x" * DATA_MAX))


def frame_for_the_worker(g):
    g.send(pong=pb.GuestPong(token=1))


BROKEN = [exec_before_identity, garbage, empty_body, credit_overrun, frame_for_the_worker]


def a_flood_loses_only_its_own_kind_and_says_how_much():
    g = Guest(IMAGE, extra_append="cloche.sensor_us=60000000")  # the rings are looked at once a minute
    try:
        g.hello()
        expect(g.identify(watch=True).watched)
        script = "for my $i (1..8000) { open(my $f, '>', '/tmp/flood') or die } exec '/bin/echo', 'after'"
        exited(g.run(["perl", "-e", script], timeout=120))
        writes, programs = of(g.events, "WRITE"), of(g.events, "EXEC")
        print("      8000 files opened: %d told, %d lost" % (len(writes), g.lost))
        expect(g.lost > 0 and len(writes) + g.lost == 8000 and g.seen == len(g.events) + g.lost, len(writes), g.seen, g.lost)
        expect([list(e.argv)[0] for e in programs] == ["perl", "/bin/echo"], programs)
        numbers = {e.number for e in g.events}
        expect(len(numbers) == len(g.events) and max(numbers) <= g.seen, max(numbers), g.seen)
    finally:
        g.kill()


def clones_of_a_snapshot_differ():
    """The template is identified and warm; each clone gets an identity of its own."""
    seen = set()
    template = Guest(IMAGE)
    try:
        template.hello()
        template.identify(hostname="template")
        exited(template.run("echo warm > /home/user/warm"))
        path = os.path.join(template.dir, "state")
        template.snapshot(path)
        for n in range(2):
            clone = Guest(IMAGE, restore=path)
            clone.next_stream = template.next_stream
            try:
                expect(not clone.identify(hostname="clone-%d" % n, entropy=b"%032d" % n).error)
                out = exited(clone.run("hostname; cat /etc/hostname warm; head -c 16 /dev/urandom | od -An -tx1; date +%s")).split()
                expect(out[:3] == ["clone-%d" % n, "clone-%d" % n, "warm"] and abs(int(out[-1]) - time.time()) < 5 * FACTOR, out)
                seen.add(" ".join(out[3:-1]))
            finally:
                clone.kill()
    finally:
        template.kill()
    expect(len(seen) == 2, seen)


def started():
    guest = Guest(IMAGE)
    hello = guest.hello()
    print("hello after %.2f s: %s %s" % (guest.hello_seconds, hello.build, list(hello.features)))
    expect(hello.protocol_major == 1)
    expect("cell-env" in hello.features)
    expect(not guest.identify().error)
    return guest


def main():
    guest = started()
    failed, passed = [], 0
    try:
        work = [(f.__name__, lambda f=f: f(guest)) for f in CHECKS + dials.CHECKS + holds.CHECKS]
        work += [("power off: " + f.__name__, lambda f=f: powers_off(f)) for f in BROKEN + dials.BROKEN + holds.BROKEN]
        work += [(f.__name__, lambda f=f: f(IMAGE)) for f in dials.OWN + holds.OWN]
        work += [(f.__name__, f) for f in (a_flood_loses_only_its_own_kind_and_says_how_much, clones_of_a_snapshot_differ)]
        for name, run in work:
            begin = time.monotonic()
            try:
                run()
                passed += 1
                print("ok    %s (%.2f s)" % (name, time.monotonic() - begin), flush=True)
            except Exception as e:  # each check on its own: the next finds nothing of this one
                failed.append(name)
                print("FAIL  %s\n%s" % (name, guest.console()[-2000:] if isinstance(e, Ended) else traceback.format_exc()), flush=True)
                guest.kill()
                guest = started()
    finally:
        guest.kill()
    print("%d passed, %d failed%s" % (passed, len(failed), ": " + ", ".join(failed) if failed else ""))
    return 1 if failed else 0


sys.exit(main())
