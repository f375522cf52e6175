#!/usr/bin/env python3
"""Snapshots of sandboxes: what begins with one has all that was there, whatever became of its sandbox, its worker or its scheduler."""
import signal
import time

from box import COUNTER, Box, numbers, quota, refused
from harness import MIB, SECOND, Listener, Suite, command, follow, in_parallel, pb, until

suite = Suite("snapshot")
check, equal = suite.check, suite.equal
LOOK = ("sh", "-c", "sha256sum /home/user/noise; cat /home/user/file /proc/sys/kernel/random/boot_id")


def begin(client, snapshot, **kw):
    return Box(client, template="", snapshot=snapshot, **kw)


def get(client, word):
    return client.snapshots.Get(pb.SnapshotServiceGetRequest(snapshot=word)).snapshot


def delete(client, word):
    client.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=word))


def listed(client, **kw):
    return client.snapshots.List(pb.SnapshotServiceListRequest(**kw)).snapshots


def run(client, snapshot, *argv, wait=0):
    """A job that begins with a snapshot: what it printed and how it ended."""
    spec = pb.JobSpec(snapshot=snapshot, command=command(*argv), max_queue_wait_ns=int(wait * SECOND))
    return follow(client.jobs.Run(pb.RunRequest(spec=spec), timeout=120))


def clear(*clients):
    """All that a scenario has left."""
    for client in clients:
        for box in client.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
            client.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
        for snapshot in listed(client):
            delete(client, snapshot.id)


def prepared(client, **kw):
    box = Box(client, template="python", **kw)
    box.exec("sh", "-c", "echo kept > /home/user/file; dd if=/dev/urandom of=/home/user/noise bs=1M count=20 2>/dev/null")
    box.python("x = 41")
    return box


def replace_worker(c, how):
    before = len(c.scheduler.events("WORKER_UP"))
    c.worker.stop() if how == "stop" else c.worker.kill()
    c.worker.start()
    until(lambda: len(c.scheduler.events("WORKER_UP")) > before, 60)
    c.await_ready(300)


@suite.scenario
def others_begin_with_it(c):
    box = prepared(c.admin)
    listener = Listener(box.attach(box.start("sh", "-c", COUNTER, timeout=3600)))
    box.start("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /tmp/ticks; sleep 0.2; done", timeout=3600)
    before = box.exec(*LOOK).out
    used = quota(c, "local")
    at = time.monotonic()
    snap = box.snapshot("ready", labels=[pb.Label(key="k", value="v")])
    took = time.monotonic() - at
    now = quota(c, "local")
    print(f"     kept in {1000 * took:.0f} ms, {snap.image_bytes / MIB:.1f} MiB")
    view = box.get()
    check("it is whole", snap.state == pb.UNIT_STATE_PAUSED and snap.id.startswith("snp_") and snap.image_bytes > 0, snap)
    equal("… and says what it is of", (snap.name, snap.sandbox_id, snap.template, snap.driver, snap.guest_separation),
          ("ready", box.id, "python", view.driver, view.guest_separation))
    check("… and how large it is", snap.resources.vcpus > 0 and snap.resources.memory_mib > 0, snap.resources)
    check("… and that it is kept for 30 days", abs(snap.expires.unix_ns / SECOND - time.time() - 30 * 24 * 3600) < 600, snap.expires)
    equal("it holds no vCPU, memory or sandbox", {k: now[k] - used[k] for k in ("vcpu_milli", "memory_mib", "sandboxes")}, {"vcpu_milli": 0, "memory_mib": 0, "sandboxes": 0})
    check("… but its image as disk", now["disk_mib"] - used["disk_mib"] == -(-snap.image_bytes // MIB), (used, now))
    equal("Get finds it by either", [(s.id, s.name, s.state, s.image_bytes) for s in (get(c.admin, "ready"), get(c.admin, snap.id))], 2 * [(snap.id, "ready", snap.state, snap.image_bytes)])
    equal("List has it", [s.id for s in listed(c.admin)], [snap.id])
    equal("… by its label and its sandbox", ([s.id for s in listed(c.admin, labels=[pb.Label(key="k", value="v")], sandbox_id=box.id)], len(listed(c.admin, labels=[pb.Label(key="k", value="w")])),
                                             len(listed(c.admin, sandbox_id="sbx_" + 26 * "0"))), ([snap.id], 0, 0))
    equal("it is no sandbox", [s.id for s in c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes], [box.id])
    got = numbers(listener)
    check("the sandbox goes on", until(lambda: len(numbers(listener)) > len(got) + 5, 20))
    got = numbers(listener)
    check("… and lost nothing", got == list(range(len(got))), got[-20:])
    box.python("x = 1")
    box.exec("sh", "-c", "rm /home/user/noise")
    first, second = in_parallel(lambda _: begin(c.admin, "ready"), range(2))
    for which, b in (("one", first), ("another", second)):
        equal(f"{which} that begins with it has its files", b.exec(*LOOK).out, before)
        equal("… and its variables", b.python("x + 1"), "42")
    one, two = (int(first.exec("cat", "/tmp/ticks").out) for _ in range(2))
    check("what ran in it runs", until(lambda: int(first.exec("cat", "/tmp/ticks").out or b"0") > two, 20), (one, two))
    names = [bytes(b.exec("sh", "-c", "hostname; cat /etc/machine-id").out).split() for b in (box, first, second)]
    equal("each has a name of its own", ([n[0].decode() for n in names], len({n[1] for n in names})), ([b.id.replace("_", "-") for b in (box, first, second)], 3))
    equal("… and random numbers", len({bytes(b.exec("sh", "-c", "head -c 16 /dev/urandom | od -An -tx8").out) for b in (box, first, second)}), 3)
    check("its clock is right", first.clock_is_right(), first.clock_error())
    view = first.get()
    equal("it says what it began with", (view.forked_from, view.template, view.resources), (snap.id, "python", snap.resources))
    first.python("x = 2")
    box.kill()
    listener.join(20)
    third = begin(c.admin, snap.id)
    equal("it outlives its sandbox, and nothing that began with it changes it", (third.python("x"), third.exec(*LOOK).out), ("41", before))
    job = run(c.admin, "ready", "sh", "-c", "cat /home/user/file; echo job > /home/user/file; hostname")
    equal("a job may begin with it", (job.result.exit_code, job.out.split()[0]), (0, b"kept"))
    again = begin(c.admin, "ready").snapshot()
    equal("what began with it can be kept, too", begin(c.admin, again.id).python("x + 2"), "43")
    equal("… without a name", get(c.admin, again.id).name, "")
    delete(c.admin, "ready")
    delete(c.admin, snap.id)
    check("it can be deleted, by either, and twice by its id", refused(delete, c.admin, "ready")[0] == "NOT_FOUND" and refused(get, c.admin, "ready")[0] == "NOT_FOUND")
    ended = get(c.admin, snap.id)
    equal("then it has ended, and is forgotten in a day", (ended.state, ended.reason, [s.id for s in listed(c.admin, include_ended=True)]),
          (pb.UNIT_STATE_ENDED, pb.REASON_REQUESTED, [again.id, snap.id]))
    equal("nothing begins with it any more", (refused(begin, c.admin, "ready")[0], refused(begin, c.admin, snap.id)[0]), ("NOT_FOUND", "NOT_FOUND"))
    equal("what began with it stays", third.python("x"), "41")
    delete(c.admin, again.id)
    rows = [r["fields"] for r in c.audit_records() if r["event"] == "unit.admit" and r["fields"].get("kind") == "snapshot"]
    equal("the audit log says what was kept of what", [(r["unit"], r["fork_of"]) for r in rows[:1]], [(snap.id, box.id)])
    made = [r["fields"]["unit"] for r in c.audit_records() if r["event"] == "unit.admit" and r["fields"].get("fork_of") == snap.id]
    check("… and what began with it", {first.id, second.id, third.id} <= set(made) and len(made) == 5, made)
    clear(c.admin)


def spoil(path):
    """Change a byte of it; twice, and it is as it was."""
    with open(path, "r+b") as f:
        f.seek(path.stat().st_size // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 1]))


def kept_with_image(c):
    snap = prepared(c.admin).snapshot("ready")
    return next(c.worker.state_dir.glob(f"paused/{snap.id}.image"))


@suite.scenario
def several_after_each_other(c):
    """Its image is read once for all who come soon after each other."""
    image = kept_with_image(c)
    spoil(image)
    check("what cannot be read is nobody's beginning", refused(begin, c.admin, "ready")[0], "")
    spoil(image)
    first = begin(c.admin, "ready")
    equal("one begins with it", (first.python("x"), first.exec("cat", "/home/user/file").out), ("41", b"kept\n"))
    spoil(image)
    others = in_parallel(lambda _: begin(c.admin, "ready"), range(3))
    equal("others do, for whom it is loaded", [(b.python("x + 1"), b.exec("cat", "/home/user/file").out) for b in others], 3 * [("42", b"kept\n")])
    others[0].exec("sh", "-c", "echo changed > /home/user/file")
    equal("no disk is another's", [b.exec("cat", "/home/user/file").out for b in (*others[1:], begin(c.admin, "ready"))], 3 * [b"kept\n"])
    spoil(image)
    clear(c.admin)


@suite.long_scenario
def later(c):
    image = kept_with_image(c)
    begin(c.admin, "ready")
    spoil(image)
    time.sleep(32)
    check("after half a minute it is not loaded any more", refused(begin, c.admin, "ready")[0], "")
    spoil(image)
    equal("… and then it is again", begin(c.admin, "ready").python("x"), "41")
    clear(c.admin)


@suite.scenario
def names(c):
    box = Box(c.admin)
    box.exec("sh", "-c", "echo one > /tmp/state")
    one = box.snapshot("state")
    box.exec("sh", "-c", "echo two > /tmp/state")
    code, text = refused(box.snapshot, "state")
    check("a name that is taken is refused, and says what would help", code == "ALREADY_EXISTS" and one.id in text and "replace" in text, (code, text))
    two = box.snapshot("state", replace=True)
    equal("unless it is to be replaced", (get(c.admin, "state").id, begin(c.admin, "state").exec("cat", "/tmp/state").out), (two.id, b"two\n"))
    check("… whose name it was is gone", until(lambda: get(c.admin, one.id).state == pb.UNIT_STATE_ENDED, 10), get(c.admin, one.id))
    for bad in ("State", "-x", "snp_x", "x" * 64, "a/b", "ä"):
        equal(f"'{bad[:8]}' is no name", refused(box.snapshot, bad)[0], "INVALID_ARGUMENT")
    key = "once"
    same = [box.snapshot("idem", idempotency_key=key).id for _ in range(2)]
    equal("the same key is the same snapshot", same[0], same[1])
    code, text = refused(begin, c.admin, "nobody")
    check("what is not there is said", code == "NOT_FOUND" and "no snapshot 'nobody'" in text, (code, text))
    code, text = refused(c.admin.sandboxes.Create, pb.CreateRequest(template="base", snapshot="state"))
    check("template and snapshot exclude each other", code == "INVALID_ARGUMENT" and "not both" in text, (code, text))
    memory = two.resources.memory_mib
    code, text = refused(begin, c.admin, "state", resources=pb.Resources(memory_mib=memory * 2))
    check("it is as large as it was", code == "INVALID_ARGUMENT" and str(memory) in text, (code, text))
    check("its own size may be asked for", begin(c.admin, "state", resources=pb.Resources(memory_mib=memory)).state() == "RUNNING")
    code, text = refused(begin, c.admin, "state", network_grant=pb.NetworkGrant(allow=["public"]))
    check("it has no card that its sandbox had not", code == "FAILED_PRECONDITION" and "network" in text, (code, text))
    for call, request in ((c.admin.sandboxes.Resume, pb.ResumeRequest(sandbox_id=two.id)), (c.admin.sandboxes.Pause, pb.PauseRequest(sandbox_id=two.id)),
                          (c.admin.execs.Start, pb.StartRequest(sandbox_id=two.id, command=command("true")))):
        equal("nothing can be done in it", refused(call, request)[0], "NOT_FOUND")
    other = c.tenant("other")
    equal("another tenant has none of it", (refused(get, other, two.id)[0], refused(get, other, "state")[0], refused(begin, other, two.id)[0], len(listed(other))),
          ("NOT_FOUND", "NOT_FOUND", "NOT_FOUND", 0))
    theirs = Box(other)
    equal("… and may have the same name", theirs.snapshot("state").name, "state")
    equal("whoever reads may not keep", refused(c.tenant("reader", scopes=("read",)).snapshots.Create, pb.SnapshotServiceCreateRequest(sandbox_id=box.id))[0], "PERMISSION_DENIED")
    short = box.snapshot("short", keep_ns=3 * SECOND)
    check("it ends when nothing begins with it", until(lambda: get(c.admin, short.id).state == pb.UNIT_STATE_ENDED, 20) and get(c.admin, short.id).reason == pb.REASON_EXPIRED,
          get(c.admin, short.id))
    check("… and its name is free", box.snapshot("short").name == "short")
    clear(c.admin, other)


@suite.scenario
def of_one_that_rests(c):
    box = prepared(c.admin)
    before = box.exec(*LOOK).out
    box.pause()
    snap = box.snapshot("resting")
    equal("it rests on", box.state(), "PAUSED")
    copies = in_parallel(lambda _: begin(c.admin, "resting"), range(3))
    equal("it is as it rests", in_parallel(lambda b: (b.exec(*LOOK).out, b.python("x")), copies), [(before, "41")] * 3)
    box.resume()
    equal("… and goes on when it is asked to", (box.exec(*LOOK).out, box.python("x")), (before, "41"))
    copies[0].pause()
    equal("what began with it can be paused and resumed", (copies[0].resume().was_paused, copies[0].python("x")), (True, "41"))
    equal("… and forked", copies[0].fork().python("x"), "41")
    clear(c.admin)


@suite.scenario
def quotas(c):
    tight = c.tenant("tight", sandboxes=1, vcpu_milli=1000, memory_mib=4096, disk_mib=4096)
    box = Box(tight)
    box.exec("sh", "-c", "echo here > /tmp/state")
    snap = box.snapshot("kept")
    equal("with all sandboxes in use it can be kept", snap.state, pb.UNIT_STATE_PAUSED)
    equal("… but nothing begins with it", refused(begin, tight, "kept")[0], "RESOURCE_EXHAUSTED")
    box.kill()
    equal("… until one has ended", begin(tight, "kept").exec("cat", "/tmp/state").out, b"here\n")
    (box,) = tight.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes
    tight.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    job = run(tight, "kept", "cat", "/tmp/state")
    equal("a job begins with it", (bytes(job.out), job.result.exit_code), (b"here\n", 0))
    hold = Box(tight)
    waiting = [tight.jobs.Submit(pb.SubmitRequest(spec=pb.JobSpec(snapshot="kept", command=command("cat", "/tmp/state")))).job_id for _ in range(3)]
    time.sleep(1)
    states = {tight.jobs.Get(pb.GetRequest(job_id=j)).job.state for j in waiting}
    equal("jobs wait for quota", states, {pb.UNIT_STATE_QUEUED})
    hold.kill()
    equal("… and run then", [follow(tight.jobs.Watch(pb.WatchRequest(job_id=j), timeout=120)).result.exit_code for j in waiting], [0] * 3)
    full = c.tenant("full", sandboxes=4, vcpu_milli=4000, memory_mib=4096, disk_mib=513)
    box = Box(full)
    box.exec("sh", "-c", "head -c 20000000 /dev/urandom > /dev/shm/x")
    code, text = refused(box.snapshot, "large")
    check("without disk in the quota it is refused", code == "RESOURCE_EXHAUSTED" and "disk" in text, (code, text))
    check("… the sandbox runs on", box.exec("echo", "on").out == b"on\n")
    check("… and nothing is left of it", until(lambda: quota(c, "full")["disk_mib"] == 512, 20) and not listed(full), (quota(c, "full"), listed(full)))
    check("its name is free", refused(get, full, "large")[0] == "NOT_FOUND")
    delete(tight, "kept")
    check("a deleted one holds nothing", until(lambda: quota(c, "tight")["disk_mib"] == 0, 20), quota(c, "tight"))
    clear(full)


@suite.scenario
def over_restarts(c):
    box = prepared(c.admin)
    before = box.exec(*LOOK).out
    snap = box.snapshot("lasting")
    later = box.snapshot("replaced")
    newer = box.snapshot("replaced", replace=True)
    box.kill()
    for how in ("stop", "kill"):
        replace_worker(c, how)
        b = begin(c.admin, "lasting")
        equal(f"a worker that is started anew has it ({how})", (b.exec(*LOOK).out, b.python("x + 1")), (before, "42"))
        b.kill()
    c.scheduler.signal(signal.SIGKILL)
    c.scheduler.stop()
    c.scheduler.start()
    c.await_ready(300)
    same = get(c.admin, "lasting")
    equal("so has the next scheduler", (same.id, same.state, abs(same.image_bytes - snap.image_bytes) < MIB), (snap.id, pb.UNIT_STATE_PAUSED, True))
    equal("… which knows who is called what", (get(c.admin, "replaced").id, get(c.admin, later.id).state), (newer.id, pb.UNIT_STATE_ENDED))
    b = begin(c.admin, "lasting")
    equal("… and what begins with it is as before", (b.exec(*LOOK).out, b.python("x + 2")), (before, "43"))
    code, _ = refused(b.snapshot, "lasting")
    equal("… and that its name is taken", code, "ALREADY_EXISTS")
    worker = c.worker
    worker.kill()
    until(lambda: refused(begin, c.admin, "lasting")[0] == "UNAVAILABLE", 30)
    code, text = refused(begin, c.admin, "lasting")
    check("while its worker is away it says so", code == "UNAVAILABLE" and "is not connected" in text, (code, text))
    delete(c.admin, newer.id)
    equal("… and can be deleted all the same", get(c.admin, newer.id).state, pb.UNIT_STATE_ENDED)
    worker.start()
    c.await_ready(300)
    check("the worker drops that", until(lambda: not list((c.dir / "keys").glob(f"wrk_*/{newer.id}")), 30))
    check("… and has the other", until(lambda: refused(begin, c.admin, "lasting")[0] == "OK", 30))
    clear(c.admin)
    left = worker.state_dir / "paused"
    check("in the end no file is left of them", until(lambda: not list(left.glob("snp_*")), 20), sorted(left.iterdir()))


if __name__ == "__main__":
    suite.main(templates="base,python")
