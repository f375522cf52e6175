#!/usr/bin/env python3
"""Sandboxes that begin as copies of others: what they have, what they share, and what may go wrong."""
import contextlib
import os
import random
import signal
import threading
import time

from box import COUNTER, Box, numbers, quota, refused
from harness import DRIVER, LONG, MIB, SECOND, Listener, Suite, command, error_of, in_parallel, pb, random_bytes, until

suite = Suite("fork")
check, equal = suite.check, suite.equal
SERVER = "import http.server; http.server.HTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
# Prints far more than anybody who does not listen gives credit for, and says in a file that it goes on.
TALKER = "l=$(head -c 3000 /dev/zero | tr '\\0' x); i=0; while :; do i=$((i+1)); echo $i > /tmp/talks; echo $l; [ $((i % 20)) != 0 ] || sleep 0.1; done"


LONG_S = 3600  # of commands that run through a scenario, also in an emulated machine


def said(box, *argv):
    return box.exec(*argv).out.decode().split()


def moves(box, path):
    """Does the number in that file still grow?"""
    first = said(box, "cat", path)
    return until(lambda: said(box, "cat", path) != first, 30)


@suite.scenario
def both_go_on(c):
    box = Box(c.admin, template="python", labels=[pb.Label(key="of", value="one")])
    box.python("import random; x = 41; random.seed(7)")
    listener = Listener(box.attach(box.start("sh", "-c", COUNTER, timeout=LONG_S)))
    talker = Listener(box.attach(box.start("sh", "-c", TALKER, timeout=LONG_S)))
    server = box.start("sh", "-c", f"cd /home/user && exec python3 -c \"{SERVER}\"", timeout=LONG_S)
    box.start("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /tmp/ticks; sleep 0.2; done", timeout=LONG_S)
    box.exec("sh", "-c", "echo kept > /home/user/file; dd if=/dev/urandom of=/home/user/noise bs=1M count=20 2>/dev/null")
    look = ("sh", "-c", "sha256sum /home/user/noise; cat /home/user/file /proc/sys/kernel/random/boot_id")
    before = box.exec(*look).out
    begin = time.monotonic()
    copy = box.fork()
    took = time.monotonic() - begin
    view = copy.get()
    check("the copy is a sandbox of its own, and says what it was", view.state == pb.UNIT_STATE_RUNNING and view.forked_from == box.id and copy.id != box.id, view)
    check("… as large as the first", view.resources.vcpus > 0 and view.resources.memory_mib > 0, view.resources)
    equal("… of its template, and without its labels", (view.template, list(view.labels)), ("python", []))
    equal("its files are there", copy.exec(*look).out, before)
    equal("its code context, too", (copy.python("x + 1"), box.python("x + 2")), ("42", "43"))
    check("a program runs on in both", moves(copy, "/tmp/ticks") and moves(box, "/tmp/ticks"))
    check("a command that speaks to nobody is not stopped by that", moves(copy, "/tmp/talks") and moves(box, "/tmp/talks"))
    fetch = ("python3", "-c", "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000/file').read().decode())")
    equal("a server serves in both", (said(copy, *fetch), said(box, *fetch)), (["kept"], ["kept"]))
    equal("no command of the first is one of the copy's", [e.id for e in copy.client.execs.List(pb.ExecServiceListRequest(sandbox_id=copy.id)).execs
                                                         if e.id in (server,)], [])
    names = said(box, "sh", "-c", "hostname; cat /etc/hostname /etc/machine-id"), said(copy, "sh", "-c", "hostname; cat /etc/hostname /etc/machine-id")
    check("each has a name of its own", [n[0] for n in names] == [b.id.replace("_", "-") for b in (box, copy)] and all(n[0] == n[1] for n in names), names)
    check("… and a machine id", names[0][2] != names[1][2], names)
    check("the kernel's random numbers differ", said(box, "sh", "-c", "head -c 16 /dev/urandom | od -An -tx8") != said(copy, "sh", "-c", "head -c 16 /dev/urandom | od -An -tx8"))
    check("those of the code contexts, too", box.python("random.random()") != copy.python("random.random()"))
    box.exec("sh", "-c", "echo first > /home/user/file")
    copy.exec("sh", "-c", "echo copy > /home/user/new; rm /home/user/noise")
    box.python("x = 1")
    equal("no file of one is changed by the other", (said(box, "cat", "/home/user/file"), said(copy, "cat", "/home/user/file"), said(box, "ls", "/home/user")),
          (["first"], ["kept"], ["file", "noise"]))
    equal("no variable", copy.python("x"), "41")
    check("the copy's clock is right", copy.clock_is_right(), copy.clock_error())
    got = numbers(listener)
    check("who follows a command of the first hears all of it, and nothing twice", until(lambda: len(numbers(listener)) > len(got) + 5, 20))
    got = numbers(listener)
    check("… and in order", got == list(range(len(got))), got[-20:])
    check("… also where much is said", all(len(line) == 3000 for line in talker.lines()[:-1]))
    check("… nor when it has said a lot", until(lambda: int((said(copy, "cat", "/tmp/talks") or [0])[0]) * 3000 > MIB, 60), said(copy, "cat", "/tmp/talks"))
    print(f"     forked in {1000 * took:.0f} ms")
    copy.pause()
    equal("a copy can be paused, and resumed", (copy.resume().was_paused, copy.python("x"), copy.exec("cat", "/home/user/file").out), (True, "41", b"kept\n"))
    box.kill()
    equal("it outlives the first", copy.python("x"), "41")
    again = copy.fork()
    for which, b in (("that was copied", copy), ("of a copy", again)):
        at = int((said(b, "cat", "/tmp/talks") or [0])[0])
        check(f"what nobody hears goes on in a copy {which}", until(lambda b=b, at=at: int((said(b, "cat", "/tmp/talks") or [0])[0]) * 3000 > at * 3000 + MIB, 60))
    copy.kill()
    equal("and can be copied itself", (again.python("x"), again.get().forked_from, said(again, "cat", "/home/user/file")), ("41", copy.id, ["kept"]))
    again.kill()
    rows = [r["fields"] for r in c.audit_records() if r.get("event") == "unit.admit" and r["fields"].get("fork_of")]
    equal("the audit log says what was made of what", [(r["fork_of"], r["unit"]) for r in rows[-2:]], [(box.id, copy.id), (copy.id, again.id)])
    sources = {r["fields"]["unit"]: r["fields"]["source"] for r in c.audit_records() if r.get("event") == "vm.start"}
    equal("… and how", (sources[copy.id], sources[again.id]), ("fork", "fork"))


@suite.scenario
def many_at_once(c):
    box = Box(c.admin, template="python")
    listener = Listener(box.attach(box.start("sh", "-c", COUNTER)))
    box.python("plan = list(range(1000))")
    copies = in_parallel(lambda _: box.fork(), range(6))
    equal("six copies at once", len({b.id for b in copies}), 6)
    in_parallel(lambda b: b.python(f"plan.append('{b.id}')"), copies)
    equal("each has its own", in_parallel(lambda b: b.python("plan[1000:]"), copies), [f"['{b.id}']" for b in copies])
    equal("the first has what it had", box.python("len(plan)"), "1000")
    check("its commands go on", until(lambda: len(numbers(listener)) > 20, 20))
    got = numbers(listener)
    check("… and lost nothing by it", got == list(range(len(got))), got[-10:])
    in_parallel(lambda b: b.kill(), copies)
    box.kill()


@suite.scenario
def of_one_moment(c):
    box = Box(c.admin)
    copies = []

    def state_of_a_fork(**kw):
        copies.append(box.fork(**kw))
        return said(copies[-1], "cat", "/tmp/state")[0]

    def now(state):
        box.exec("sh", "-c", f"echo {state} > /tmp/state")
    now("one")
    equal("a moment is that of its first copy", state_of_a_fork(moment="m"), "one")
    now("two")
    equal("… also for those that come later", in_parallel(lambda _: state_of_a_fork(moment="m"), range(3)), ["one"] * 3)
    equal("without a word it is now", state_of_a_fork(), "two")
    equal("with another word, too", state_of_a_fork(moment="n"), "two")
    now("three")
    equal("… and stays so", state_of_a_fork(moment="n"), "two")
    code, text = refused(box.fork, moment="m")
    check("what is over does not come again", code == "UNAVAILABLE" and "is over" in text, (code, text))
    got = in_parallel(lambda _: state_of_a_fork(moment="p"), range(5))
    equal("five at once are of one moment", got, ["three"] * 5)
    equal("a word has 64 bytes at most", (refused(box.fork, moment="x" * 65)[0], refused(lambda: copies.append(box.fork(moment="x" * 64)))[0]),
          ("INVALID_ARGUMENT", "OK"))
    if LONG:
        time.sleep(31)
        code, text = refused(box.fork, moment="x" * 64)
        check("a moment lasts 30 s", code == "UNAVAILABLE" and "is over" in text, (code, text))
    in_parallel(lambda b: b.kill(), copies)
    box.kill()


@suite.scenario
def what_it_costs(c):
    client = c.tenant("forking", sandboxes=2, vcpu_milli=2000, memory_mib=4096, disk_mib=8192)
    box = Box(client)
    one = quota(c, "forking")
    copy = box.fork(idempotency_key="one")
    two = quota(c, "forking")
    check("a copy holds as much as the first", all(two[d] == 2 * one[d] for d in ("sandboxes", "vcpu_milli", "memory_mib", "disk_mib")), (one, two))
    equal("the same key is the same copy", box.fork(idempotency_key="one").id, copy.id)
    code, text = refused(box.fork)
    check("over the quota there is none", code == "RESOURCE_EXHAUSTED" and "over its quota" in text, (code, text))
    equal("the first goes on", said(box, "echo", "on"), ["on"])
    copy.kill()
    check("when one has gone there is", until(lambda: not error_of(lambda: box.fork().kill()), 10))
    box.kill()
    check("nothing is held at the end", until(lambda: all(v == 0 for k, v in quota(c, "forking").items() if k not in ("cpu_ms", "egress_bytes")), 10), quota(c, "forking"))


@suite.scenario
def one_at_rest(c):
    """Prepared once, paused, and begun from as often as one likes."""
    box = Box(c.admin, template="python")
    box.python("x = 41")
    noise = box.exec("sh", "-c", "head -c 3000000 /dev/urandom | tee /home/user/noise | sha256sum").out
    counter = box.start("sh", "-c", COUNTER)
    box.pause()
    view = box.get()
    copies = in_parallel(lambda _: box.fork(ttl=300, moment="rest"), range(3)) + [box.fork(ttl=300)]
    for i, copy in enumerate(copies):
        equal(f"copy {i} has all that the first had", (copy.python("x"), copy.exec("sh", "-c", "sha256sum < /home/user/noise").out), ("41", noise))
        copy.python(f"x = {i}")
    names = {bytes(copy.exec("hostname").out) for copy in copies}
    equal("each is another", len(names), 4)
    equal("the first rests on", (box.state(), box.get().image_bytes, box.get().expires.unix_ns // SECOND), ("PAUSED", view.image_bytes, view.expires.unix_ns // SECOND))
    equal("each goes its way", [copy.python("x") for copy in copies], ["0", "1", "2", "3"])
    codes = [refused(box.resume)[0] for _ in range(1)] + in_parallel(lambda _: refused(lambda: box.fork().kill())[0], range(2))
    check("the first goes on as it was", until(lambda: refused(box.resume)[0] == "OK", 20) and box.python("x + 1") == "42", codes)
    equal("its commands, too", [e.running for e in c.admin.execs.List(pb.ExecServiceListRequest(sandbox_id=box.id)).execs if e.id == counter], [True])
    code, text = refused(box.fork, moment="rest")
    check("the moment of its rest is over then", code == "UNAVAILABLE" and "is over" in text, (code, text))
    in_parallel(lambda b: b.kill(), [box, *copies])


@suite.scenario
def what_cannot_be(c):
    box = Box(c.admin)
    fork = c.admin.sandboxes.Fork
    equal("more than 24 h of idling are too many", refused(fork, pb.ForkRequest(sandbox_id=box.id, ttl_ns=25 * 3600 * SECOND))[0], "INVALID_ARGUMENT")
    equal("another tenant has no such sandbox", refused(c.tenant("stranger").sandboxes.Fork, pb.ForkRequest(sandbox_id=box.id))[0], "NOT_FOUND")
    equal("who may only read makes none", refused(c.tenant("reader", scopes=("read",)).sandboxes.Fork, pb.ForkRequest(sandbox_id=box.id))[0], "PERMISSION_DENIED")
    job = c.admin.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(template="base", command=command("sleep", "5")))).job_id
    equal("a job is no sandbox", refused(fork, pb.ForkRequest(sandbox_id=job))[0], "NOT_FOUND")
    box.kill()
    equal("what has ended is not there", refused(box.fork)[0], "NOT_FOUND")


@suite.scenario
def use_wakes_it(c):
    box = Box(c.admin, ttl=2, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
    box.exec("sh", "-c", "echo kept > /tmp/file")
    check("it is paused when it is idle", until(lambda: box.state() == "PAUSED", 30), box.state())
    copy = box.fork(ttl=300)
    equal("a fork wakes it, and the copy has all", said(copy, "cat", "/tmp/file"), ["kept"])
    equal("the copy does at idling what the first does", (copy.get().on_idle, copy.get().wake_on_use), (pb.IDLE_ACTION_PAUSE, True))
    copy.kill()
    box.kill()


@suite.scenario
def transfers_end_in_the_copy(c):
    """What is half done when it is copied is done in the first, and is nobody's in the copy."""
    box = Box(c.admin)
    data, half, go_on = random_bytes(2 * MIB), threading.Event(), threading.Event()

    def pieces():
        for i in range(0, len(data), 65536):
            if i == MIB:
                half.set()
                go_on.wait(60)
            yield pb.WriteRequest(sandbox_id=box.id, path="/tmp/data", data=data[i:i + 65536], commit=i + 65536 == len(data))
    done = []
    thread = threading.Thread(target=lambda: done.append(box.client.files.Write(pieces(), timeout=120).bytes), daemon=True)
    thread.start()
    half.wait(60)
    copy = box.fork()
    go_on.set()
    thread.join(60)
    equal("an upload to the first is whole", done, [len(data)])
    equal("… to the byte", b"".join(r.data for r in box.client.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/tmp/data"))), data)
    equal("in the copy there is none of it, not even half of it", said(copy, "sh", "-c", "ls -A /tmp | grep -v ^exec-"), [])
    copy.kill()
    box.kill()


@suite.scenario
def ended_on_the_way(c):
    """Killed, by hand or by the loss of its monitor, at any moment of a fork."""
    chance, left = random.Random(6), []
    for i in range(60 if LONG else 15):
        box, made = Box(c.admin), []
        threads = [threading.Thread(target=lambda b=box, to=made: error_of(lambda: to.append(b.fork(timeout=30))), daemon=True)
                   for _ in range(2)]
        for t in threads:
            t.start()
        time.sleep(chance.random() * 0.3)
        if i % 3 == 0:
            error_of(box.kill)
        elif i % 3 == 1:
            with contextlib.suppress(TypeError, OSError):
                os.kill(c.vm_of(box.id), signal.SIGKILL)
        else:
            for unit in c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
                if unit.forked_from == box.id:
                    error_of(c.admin.sandboxes.Kill, pb.KillRequest(sandbox_id=unit.id))
        for t in threads:
            t.join(60)
        for b in (*made, box):
            error_of(b.kill)
        if not until(lambda: all(b.state() == "ENDED" for b in (*made, box)), 20):
            left.append((i, [b.state() for b in (*made, box)]))
    equal("each ends", left, [])
    check("nothing of it is left", until(lambda: not c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes, 30))


@suite.scenario
def a_client_that_leaves(c):
    box = Box(c.admin)
    for i in range(12):
        error_of(box.fork, timeout=0.01 + 0.02 * (i % 4))
    check("a copy that nobody waited for ends", until(lambda: [s.id for s in c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes] == [box.id], 30))
    equal("the first goes on", said(box, "echo", "on"), ["on"])
    box.kill()


@suite.scenario
def a_worker_that_leaves(c):
    box = Box(c.admin)
    copy = box.fork()
    equal("a worker with a copy ends in order", c.worker.stop(), 0)
    c.worker.start()
    check("… and so do both", until(lambda: box.state() == copy.state() == "ENDED", 60), (box.state(), copy.state()))
    c.await_ready()


if __name__ == "__main__":
    suite.main(templates="base,python")
