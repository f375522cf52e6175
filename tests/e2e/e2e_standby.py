#!/usr/bin/env python3
"""Schedulers that stand by: when the one that leads ends, dies or stands still the next one leads, and nothing that runs, waits or rests notices."""
import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

from box import Box
from e2e_two_workers import make_ca, make_certificate, worker_args
from harness import (BUILD, FACTOR, PATIENT, SECOND, Client, Cluster, Followed, Process, Suite, code_of, command, error_of, free_port, grpc, is_long,
                     in_parallel, is_long, pb, soon, spec, until)
from mcp_client import Mcp

suite = Suite("standby")
check, equal = suite.check, suite.equal
COUNT = "i=0; while [ ! -e /tmp/enough ]; do echo $i; i=$((i + 1)); sleep 0.2; done; echo $i > /tmp/said; exit 7"
COUNT_150 = "i=0; while [ $i -lt 150 ]; do echo $i; i=$((i + 1)); sleep 0.05; done; exit 8"
COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.2; done"
FIVE_MB = "head -c 5000000 /dev/urandom > data && sha256sum < data"
TTL = 5  # of the lead, as is the default
NEVER = ("--lead-ttl", "60s")  # whoever leads long before has not waited for it


def cloche(c, *words, endpoint=None, key=None):
    env = {**os.environ, "CLOCHE_ENDPOINT": endpoint or c.endpoint, "CLOCHE_API_KEY": key or c.admin_key}
    return subprocess.Popen([BUILD / "cloche", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(c, *words, **kw):
    """(exit status, stdout, stderr) of a command that ends."""
    p = cloche(c, *words, **kw)
    out, err = p.communicate(timeout=soon(60))
    return p.returncode, out, err


def again(call, *args, seconds=60, **kw):
    """A call by a client that asks again when it is told to."""
    end = time.monotonic() + soon(seconds)
    while True:
        try:
            return call(*args, **kw)
        except grpc.RpcError as err:
            if code_of(err) != "UNAVAILABLE" or time.monotonic() > end:
                raise
        time.sleep(0.1)


def whole(seen):
    return seen == list(range(len(seen)))


def epoch(s):
    """Of its last term."""
    rows = s.events("LEADS")
    return int(rows[-1]["epoch"]) if rows else 0


def workers_up(c):
    return len(again(c.admin.fleet.ListWorkers, pb.ListWorkersRequest(), timeout=60).workers)


def pair(c):
    """(who leads, who stands by), with all workers at the former; whoever has ended is started first."""
    for s in c.schedulers:
        if not s.is_running():
            s.start()
    ok = until(lambda: sorted(str(s.leads()) for s in c.schedulers) == ["False", "True"], 20)
    check("one leads and one stands by", ok, [s.leads() for s in c.schedulers])
    lead = c.leader()
    check("it has the workers", until(lambda: workers_up(c) == len(c.workers), 30), workers_up(c))
    return lead, next(s for s in c.schedulers if s is not lead)


def anew(c, extra=(), apart=False):
    """pair() of processes with these options."""
    for s in reversed(c.schedulers):
        s.stop()  # and resign: nobody sees the death of one in another namespace
    for s in c.schedulers:
        s.extra, s.apart = extra, apart
        s.start()
        until(lambda: s.leads() is not None, 20)
    return pair(c)


def is_refused(address):
    """Nobody listens there."""
    family, where = (socket.AF_UNIX, address[5:]) if address.startswith("unix:") else (socket.AF_INET, ("127.0.0.1", int(address.split(":")[1])))
    with socket.socket(family) as s:
        s.settimeout(soon(5))
        try:
            s.connect(where)
        except ConnectionRefusedError:
            return True
        return False


def addresses(s):
    return [s.api, s.worker_api, f"127.0.0.1:{s.tcp}"]


def rows_of_schedulers(c, **kw):
    status, out, err = said(c, "scheduler", "list", "--json", **kw)
    if status:
        raise RuntimeError(f"scheduler list: {status} {err}")
    rows = json.loads(out)
    return rows["schedulers"] if isinstance(rows, dict) else rows


class Work:
    """What runs, waits and rests meanwhile, and what is said of it afterwards."""

    def __init__(self, c, tenant):
        self.c, self.client = c, c.tenant(tenant, sandboxes=2)
        self.boxes = [Box(c.admin) for _ in range(3)]
        for box in self.boxes:
            box.start("sh", "-c", COUNT_TO_FILE)
        self.asleep = Box(c.admin)
        self.sum = self.asleep.exec("sh", "-c", FIVE_MB).out
        self.asleep.pause()
        self.followed = cloche(c, "exec", self.boxes[0].id, "--", "sh", "-c", COUNT)
        self.command = cloche(c, "run", "base", "--", "sh", "-c", COUNT_150)
        self.jobs = [self.client.jobs.Submit(pb.SubmitRequest(spec=spec("sh", "-c", "sleep 3; echo done", attempts=1, wait=300))).job_id for _ in range(6)]
        check("all have begun", until(lambda: all(len(self.count(b)) > 5 for b in self.boxes), 20))
        check("jobs run, and jobs wait", until(lambda: set(self.states()) >= {"RUNNING", "QUEUED"}, 20), self.states())

    def job(self, job_id):
        return again(self.client.jobs.Get, pb.GetRequest(job_id=job_id)).job

    def states(self):
        return [pb.UnitState.Name(self.job(j).state).removeprefix("UNIT_STATE_") for j in self.jobs]

    @staticmethod
    def count(box):
        return [int(n) for n in again(box.exec, "cat", "/tmp/count").out.split()]

    def judge(self, besides=()):
        """All of it goes on, or has come to its end, once; other tenants than `besides` hold nothing afterwards."""
        for box in self.boxes:
            seen = self.count(box)
            check("what ran runs on", until(lambda: len(self.count(box)) > len(seen) + 5, 20))
            check("… where it was, and once", whole(self.count(box)), self.count(box)[-20:])
        again(self.boxes[0].exec, "touch", "/tmp/enough")
        for what, process, status in (("a command of a sandbox", self.followed, 7), ("a job", self.command, 8)):
            out, err = process.communicate(timeout=soon(60))
            equal(f"who followed {what} hears its end", (process.returncode, err if process.returncode != status else ""), (status, ""))
            numbers, said_there = [int(n) for n in out.split()], 150 if status == 8 else int(again(self.boxes[0].exec, "cat", "/tmp/said").out)
            check("… and has missed nothing, and heard nothing twice", len(numbers) == said_there and whole(numbers), (said_there, numbers))
        check("the jobs that ran and those that waited end", until(lambda: set(self.states()) == {"ENDED"}, 60), self.states())
        results = [self.job(j) for j in self.jobs]
        check("… well, in their first attempt", all((r.result.outcome, r.attempt) == (pb.OUTCOME_EXITED, 1) for r in results), results)
        once = until(lambda: set(self.c.unit_ends(self.jobs).values()) == {1}, 10)
        check("… once, as the audit log tells", once, self.c.unit_ends(self.jobs))
        again(self.asleep.resume)
        equal("the paused one is as it was", again(self.asleep.exec, "sh", "-c", "sha256sum < data").out, self.sum)
        for box in (*self.boxes, self.asleep):
            box.kill()
        check("every lease is given back", until(lambda: not set(self.c.held()) - set(besides), 20), self.c.held())
        equal("the books show no drift", self.c.drift(), {})


def takes_over(heir, before, seconds=10):
    """How long it takes that this one leads, from here, in a term that follows; None when it does not."""
    began = time.monotonic()
    leads = until(lambda: heir.leads() and epoch(heir) > before, seconds, 0.01)
    took = time.monotonic() - began
    check("the one that stood by leads, in a term of its own", leads, (heir.leads(), epoch(heir), before))
    return took


# --- one leads -------------------------------------------------------------------------------------

@suite.scenario
def one_leads(c):
    lead, other = pair(c)
    equal("who leads listens", [is_refused(a) for a in addresses(lead)], [False] * 3)
    equal("who stands by refuses each connection", [is_refused(a) for a in addresses(other)], [True] * 3)
    check("both say so in their logs", lead.events("LEADS") and other.events("STANDS_BY") and not other.events("LEADS"), other.events())
    rows = rows_of_schedulers(c)
    equal("the list has both, and who leads", sorted(bool(r.get("leads")) for r in rows), [False, True])
    own = next(r for r in rows if r.get("leads"))
    equal("… as its log tells", own["id"], lead.events("LEADS")[-1]["scheduler"])
    check("each has an id, a host, a build and an address", all(r.get(k) for r in rows for k in ("id", "host", "build", "address")), rows)
    status, out, _ = said(c, "scheduler", "list")
    check("people can read it", status == 0 and all(r["id"] in out for r in rows), out)
    status, _, err = said(c, "scheduler", "list", key=c.key("local", ("run", "read")).secret)
    check("it is for administrators", status != 0 and "scope" in err.lower(), (status, err))
    for order in (c.schedulers, reversed(c.schedulers)):
        endpoint = ",".join(s.api for s in order)
        equal("the list of addresses may have any order", said(c, "run", "base", "--", "echo", "hi", endpoint=endpoint)[:2], (0, "hi\n"))
    status, _, err = said(c, "ps", endpoint=other.api)
    check("who asks only the one that stands by is refused", status != 0 and err, (status, err))
    equal("who stands by can be stopped", other.stop(), 0)
    check("it is not in the list then", until(lambda: len(rows_of_schedulers(c)) == 1, 30), rows_of_schedulers(c))
    other.start()
    check("and when it is back it stands by", until(lambda: len(rows_of_schedulers(c)) == 2 and other.leads() is False, 20), rows_of_schedulers(c))


# --- the leader goes -------------------------------------------------------------------------------

@suite.scenario
def the_leader_is_killed(c):
    """On one host its death is seen, however long its time is."""
    lead, other = anew(c, NEVER)
    work, before = Work(c, "killed"), epoch(lead)
    lead.kill()
    print(f"     the next one leads after {takes_over(other, before):.2f} s")
    work.judge()
    lead.start()
    check("the old one stands by when it is back", until(lambda: lead.leads() is False and lead.events("STANDS_BY"), 20), lead.events("STANDS_BY"))
    equal("… and the other leads still", other.leads(), True)
    before = epoch(other)
    other.kill()
    other.start()
    until(lambda: c.leader(), 20)
    check("who is started anew at once may lead again, or the other does, in a new term", max(epoch(other), epoch(lead)) > before)
    pair(c)


@suite.long_scenario
def a_leader_elsewhere_is_killed(c):
    """Nobody sees the death of one on another host: its time has to run out."""
    lead, other = anew(c, apart=True)
    work, before = Work(c, "elsewhere"), epoch(lead)
    lead.kill()
    took = takes_over(other, before, TTL + 5)
    check(f"not before its time is over ({took:.2f} s)", took > TTL * 2 / 3 - 1, took)
    work.judge()
    pair(c)


def label(word):
    return pb.Label(key="mark", value=word)


def stand_still(c, seconds):
    lead, other = anew(c)
    work, before = Work(c, "still"), epoch(lead)
    victim, direct = Box(c.tenant("victim")), c.client(target=lead.api)
    mark = lambda word: {"labels": {"mark": word}}
    listed = lambda word: [j.id for j in c.admin.jobs.List(pb.ListRequest(labels=[label(word)])).jobs]
    equal("a client is connected to it", code_of(error_of(direct.tenants.GetUsage, pb.GetUsageRequest(tenant="local"))), "OK")
    ups, began = len(other.events("WORKER_UP")), time.monotonic()
    lead.signal(signal.SIGSTOP)
    with_key = pb.SubmitRequest(spec=spec("echo", "twice?", wait=120, **mark("with-key")), idempotency_key="standing-still")
    kill = pb.KillRequest(sandbox_id=victim.id)
    calls = [(direct.jobs.Submit, with_key),
             (direct.jobs.Submit, pb.SubmitRequest(spec=spec("echo", "never", wait=120, **mark("no-key")))),
             (direct.tenants.PutTenant, pb.PutTenantRequest(name="ghost", limits=pb.TenantLimits(sandboxes=1))),
             (direct.sandboxes.Create, pb.CreateRequest(template="base", labels=[label("ghost")])),
             (direct.sandboxes.Kill, kill)]
    sent = []
    sender = threading.Thread(target=lambda: sent.extend(in_parallel(lambda pair: code_of(error_of(pair[0], pair[1], timeout=300)), calls)))
    sender.start()
    took = takes_over(other, before, TTL + 5)
    check(f"not before its time is over ({took:.2f} s)", took > TTL * 2 / 3 - 1, took)
    came = lambda: len(other.events("WORKER_UP")) - ups
    check("the workers leave the silent one", until(lambda: came() >= len(c.workers), 15), came())
    print(f"     the workers are at the new one after {time.monotonic() - began:.2f} s")
    equal("a stock client finds the new one, too", workers_up(c), len(c.workers))
    print(f"     … a stock client after {time.monotonic() - began:.2f} s")
    status, out, err = said(c, "run", "base", "--", "echo", "hi")
    equal("a client with a list, the silent one first or last, comes through", (status, out), (0, "hi\n"))
    equal("… in any order", said(c, "run", "base", "--", "echo", "hi", endpoint=f"{lead.api},{other.api}")[:2], (0, "hi\n"))
    job = again(c.admin.jobs.Submit, with_key).job_id
    while time.monotonic() < began + seconds * FACTOR:
        time.sleep(0.5)
    work.judge(besides=("victim",))
    lead.signal(signal.SIGCONT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        lead.child.wait(soon(20))
    equal("when it wakes it ends", lead.child.poll(), 1)
    check("… because it was deposed, as it says", lead.events("DEPOSED"), lead.events()[-5:])
    sender.join(soon(30))
    check("what it was asked failed", len(sent) == len(calls) and "OK" not in sent, sent)
    equal("the job that both were asked for is one", listed("with-key"), [job])
    check("… and ended once", until(lambda: c.unit_ends([job])[job] == 1, 20), c.unit_ends([job]))
    equal("what only the old one was asked for is not there", (listed("no-key"), "ghost" in c.tenant_names()), ([], False))
    boxes = c.admin.sandboxes.List(pb.SandboxServiceListRequest(labels=[label("ghost")], include_ended=True)).sandboxes
    equal("… nor a sandbox", len(boxes), 0)
    equal("what it was to kill lives", victim.exec("echo", "alive").out, b"alive\n")
    victim.kill()
    lead.start()
    check("it stands by when it is started anew", until(lambda: lead.leads() is False, 20))
    equal("… and the other leads still", other.leads(), True)
    pair(c)


@suite.long_scenario
def the_leader_stands_still(c):
    stand_still(c, 12)


@suite.long_scenario
def the_leader_stands_still_for_longer_than_a_lease(c):
    stand_still(c, 35)


@suite.scenario
def the_leader_is_stopped(c):
    """A rolling upgrade."""
    anew(c, NEVER)
    for turn in range(2):
        lead, other = pair(c)
        work, before = Work(c, f"upgrade{turn}"), epoch(lead)
        answers, over = collections.Counter(), threading.Event()

        def ask(client):
            while not over.is_set():
                answers[code_of(error_of(client.jobs.List, pb.ListRequest(page_size=1), timeout=60))] += 1
                time.sleep(0.02)
        askers = [threading.Thread(target=ask, args=(c.client(),)) for _ in range(2)]
        for t in askers:
            t.start()
        began = time.monotonic()
        equal("it ends in order", lead.stop(), 0)
        took = time.monotonic() - began
        check(f"… and does not wait for those who attach again elsewhere, and for workers ({took:.2f} s)", took < 6, took)
        print(f"     the next one leads {takes_over(other, before):.2f} s later")
        asked = sum(answers.values())
        until(lambda: sum(answers.values()) > asked + 20, 20)
        over.set()
        for t in askers:
            t.join(soon(60))
        equal("no call of a client that is told to retry has failed", set(answers), {"OK"})
        lead.start()
        work.judge()
    anew(c)


# --- back and forth --------------------------------------------------------------------------------

class Load(threading.Thread):
    """A client that makes, uses and ends sandboxes, or runs jobs, all the while, and asks again when it is told to."""

    def __init__(self, c, n, kind):
        super().__init__(daemon=True)
        self.c, self.n, self.work, self.over = c, n, {"box": self.box, "job": self.job}[kind], threading.Event()
        self.client = c.client(c.tenant(f"load{n}", rate_burst=100000, sandboxes=8).key)
        self.units, self.wrong, self.good = [], [], 0
        self.start()

    def run(self):
        turn = 0
        while not self.over.is_set():
            turn += 1
            try:
                out = self.work(f"{self.n}-{turn}")
                good = out == f"{self.n}-{turn}\n".encode()
            except Exception as err:  # noqa: BLE001
                good, out = False, traceback.format_exc() if not isinstance(err, grpc.RpcError) else f"{code_of(err)}: {err.details()}"
            self.good += good
            if not good:
                self.wrong.append((self.n, turn, out))

    def heard(self, stream_of):
        """All of a stream, from where it broke whenever it breaks."""
        f = Followed()

        def once():
            for event in stream_of(f):
                f.take(event)
        again(once)
        return bytes(f.out)

    def box(self, word):
        request = pb.CreateRequest(template="base", ttl_ns=300 * SECOND, idempotency_key=word)
        box = again(self.client.sandboxes.Create, request).sandbox.id
        self.units.append(box)
        exec_id = again(self.client.execs.Start, pb.StartRequest(sandbox_id=box, command=command("sh", "-c", f"sleep 0.1; echo {word}"))).exec_id
        out = self.heard(lambda f: self.client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=exec_id, stdout_offset=len(f.out))))
        again(self.client.sandboxes.Kill, pb.KillRequest(sandbox_id=box))
        return out

    def has_ended(self, unit):
        def state():
            if unit.startswith("job"):
                return again(self.client.jobs.Get, pb.GetRequest(job_id=unit)).job.state
            return again(self.client.sandboxes.Get, pb.SandboxServiceGetRequest(sandbox_id=unit)).sandbox.state
        return until(lambda: state() == pb.UNIT_STATE_ENDED, 20)

    def job(self, word):
        job = again(self.client.jobs.Submit, pb.SubmitRequest(spec=spec("sh", "-c", f"sleep 0.3; echo {word}", wait=300), idempotency_key=word)).job_id
        self.units.append(job)
        return self.heard(lambda f: self.client.jobs.Watch(pb.WatchRequest(job_id=job, stdout_offset=len(f.out))))


@suite.long_scenario
def back_and_forth(c):
    pair(c)
    loads = [Load(c, n, kind) for n, kind in enumerate(("box", "box", "job", "job"))]
    progress = lambda: [load.good for load in loads]
    for turn in range(10):
        lead, other = pair(c)
        was, before = progress(), epoch(lead)
        moved = until(lambda: all(now > then for now, then in zip(progress(), was)), 30)
        check(f"turn {turn}: every client gets on", moved, (was, progress(), [load.wrong[-1:] for load in loads]))
        if turn % 2:
            equal(f"turn {turn}: the leader ends in order", lead.stop(), 0)
        else:
            lead.kill()
        takes_over(other, before)
    was = progress()
    check("every client gets on at last", until(lambda: all(now > then for now, then in zip(progress(), was)), 30), (was, progress()))
    for load in loads:
        load.over.set()
    for load in loads:
        load.join(soon(60))
    units = [u for load in loads for u in load.units]
    print(f"     {len(units)} units in ten terms")
    check("nothing went wrong", not any(load.wrong for load in loads), [load.wrong[:2] for load in loads])
    left = [(load.n, u) for load in loads for u in load.units if not load.has_ended(u)]
    equal("each has ended", left, [])
    once = until(lambda: set(c.unit_ends(units).values()) == {1}, 20)
    recovered = {r["fields"]["unit"] for r in c.audit_records() if r["event"] == "unit.end" and r["fields"].get("recovered")}
    print(f"     the ends of {len(recovered & set(units))} are told from the books, after their scheduler was killed")
    check("each has its end in the audit log", once, {u: n for u, n in c.unit_ends(units).items() if n != 1})
    known = {u for load in loads for u in load.units}
    made = {r["fields"].get("unit") for r in c.audit_records() if r["event"] == "unit.admit" and r.get("stream", "").endswith(tuple(f"load{n}" for n in range(4)))}
    check("and there were no others", made <= known, made - known)
    check("every lease is given back", until(lambda: not c.held(), 20), c.held())
    equal("the books show no drift", c.drift(), {})
    status, text = c.verify_audit()
    check("the audit log verifies while it is written", status in (0, 3), text)
    pair(c)


# --- Redis -----------------------------------------------------------------------------------------

@suite.long_scenario
def redis_is_started_anew(c):
    lead, other = anew(c)
    work, before, pids = Work(c, "redis"), epoch(lead), (lead.pid, other.pid)
    for how in (c.redis.stop, c.redis.kill):
        how()
        c.redis.start()
        check("it answers again", c.await_answer(30))
        check("who led leads", until(lambda: lead.leads() and other.leads() is False, 20), [s.leads() for s in c.schedulers])
    equal("… the same processes", (lead.pid, other.pid, lead.is_running(), other.is_running()), (*pids, True, True))
    equal("… in the same term", (epoch(lead), max(epoch(lead), epoch(other))), (before, before))
    work.judge()


@suite.long_scenario
def redis_is_away_for_longer_than_the_lead(c):
    lead, other = anew(c)
    work = Work(c, "away")
    c.redis.stop()
    time.sleep((TTL + 2) * FACTOR)
    c.redis.start()

    def one_leads_again():
        for s in c.schedulers:  # as their supervisor does
            if not s.is_running():
                equal("who ended was deposed", (s.child.poll(), bool(s.events("DEPOSED"))), (1, True))
                s.start()
        return sorted(str(s.leads()) for s in c.schedulers) == ["False", "True"]
    check("one leads again", until(one_leads_again, 30), [s.leads() for s in c.schedulers])
    pair(c)
    work.judge()


class Cable(threading.Thread):
    """A socket before another one.  Once it is cut nothing goes through, and neither end hears of it."""

    def __init__(self, path, to):
        super().__init__(daemon=True)
        self.to, self.whole, self.listener = str(to), threading.Event(), socket.socket(socket.AF_UNIX)
        self.whole.set()
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self.to)
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    def pass_on(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                self.whole.wait()
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cable_before_redis(c, scheduler):
    """Whatever happens, it has its own way to Redis again afterwards."""
    base, direct = scheduler.base, f"unix:{c.dir}/redis.sock"
    cable = Cable(c.dir / "cable.sock", c.dir / "redis.sock")
    scheduler.base = [f"unix:{c.dir}/cable.sock" if a == direct else a for a in base]
    try:
        yield cable
    finally:
        cable.whole.set()
        scheduler.base = base
        if scheduler.is_running():
            scheduler.stop()
        cable.listener.close()


@suite.long_scenario
def the_leader_is_cut_off_from_redis(c):
    """Its workers and clients still reach it, and it can renew no lease: it must not keep them."""
    with cable_before_redis(c, c.schedulers[0]) as cable:
        lead, other = anew(c)
        equal("the one behind the cable leads", lead, c.schedulers[0])
        work, before = Work(c, "cut"), epoch(lead)
        time.sleep(TTL * FACTOR)  # by now it knows that another one stands by: it asks three times as often
        cable.whole.clear()
        with contextlib.suppress(subprocess.TimeoutExpired):
            lead.child.wait(soon(TTL + 5))
        equal("it ends by itself", lead.child.poll(), 1)
        check("… and says why", any("not heard of" in row["text"] for row in lead.events("DEPOSED")[-1:]), lead.events()[-5:])
        takes_over(other, before, TTL + 5)
        work.judge()
        lead.start()
        equal("behind a cut cable it does not lead", (time.sleep(2), lead.leads(), other.leads())[1:], (False, True))
        cable.whole.set()
        check("with a whole one it stands by", until(lambda: [row["leader"] for row in lead.events("STANDS_BY")[-1:]] == [other.events("LEADS")[-1]["scheduler"]], 30), lead.events()[-3:])
    anew(c)


# --- the other programs ----------------------------------------------------------------------------

@suite.scenario
def the_gateway_goes_on(c):
    anew(c)
    a = Mcp(c.add_gateway("--template", "base"), c.tenant("agent").key)
    made = a.tool("exec", command="echo kept > note; echo made")
    sandbox = made.data["sandbox_id"]
    equal("an agent has a sandbox", made.data["stdout"], "made\n")
    job = a.tool("exec_start", sandbox_id=sandbox, command=COUNT).data["exec_id"]
    for how in ("is killed", "stands still", "is stopped"):
        lead, other = pair(c)
        before = epoch(lead)
        {"is killed": lead.kill, "stands still": lambda: lead.signal(signal.SIGSTOP), "is stopped": lead.stop}[how]()
        takes_over(other, before, TTL + 5)

        def works():
            got = a.tool("exec", sandbox_id=sandbox, command="cat note")
            return got if got.result and not got.failed else None
        got = until(works, 15)
        check(f"when the leader {how} an agent's sandbox is there still", got and got.data["stdout"] == "kept\n", (got, got and got.text))
        if how == "stands still":
            lead.signal(signal.SIGCONT)
            equal("the old one ends", until(lambda: lead.child.poll(), 20), 1)
    a.tool("exec", sandbox_id=sandbox, command="touch /tmp/enough")
    ended = until(lambda: 7 == a.tool("exec_poll", sandbox_id=sandbox, exec_id=job, wait_seconds=1).data.get("exit_code"), 30)
    check("and its command has its end", ended, a.tool("exec_poll", sandbox_id=sandbox, exec_id=job).text[-300:])
    a.tool("sandbox_kill", sandbox_id=sandbox)
    pair(c)
    c.gateway.stop()


# --- two hosts, as far as one can be two --------------------------------------------------------------

class TwoHosts(Cluster):
    """Schedulers that share Redis, the pepper and a CA: TCP and TLS everywhere, processes that do not see each other, and a log for each."""

    def __init__(self):
        super().__init__("standby-tls", workers=2, standbys=1)
        d, ports = self.dir, [free_port() for _ in self.schedulers]
        make_ca(d, "ca")
        for n, s in enumerate(self.schedulers):
            make_certificate(d, f"server{n}", "DNS:localhost,IP:127.0.0.1")
            s.apart = True
            s.extra = ["--tls-cert", d / f"server{n}.pem", "--tls-key", d / f"server{n}.key", "--worker-tcp", f"127.0.0.1:{ports[n]}",
                       "--worker-ca", d / "ca.pem", "--worker-cert", d / f"server{n}.pem", "--worker-key", d / f"server{n}.key"]
        for n, w in enumerate(self.workers):
            own = "wrk_" + str(n + 1) * 26
            make_certificate(d, f"worker{n}", f"URI:worker:{own}")
            (w.state_dir / "id").write_text(own)
            w.argv[w.argv.index("--scheduler") + 1] = ",".join(f"127.0.0.1:{port}" for port in ports)
            w.argv += worker_args(d, f"worker{n}")
        self._second_log(d / "audit1", d / "audit-keys" / "audit1.key")
        os.environ["CLOCHE_CA"] = str(d / "ca.pem")

    def _second_log(self, log, key):
        log.mkdir()
        mine, its = self.dir / "audit.sock", self.dir / "audit1.sock"
        self.others.append(Process(self, "audit1", [BUILD / "cloche-audit", "--socket", its, "--dir", log, "--key", key, "--host", "other"]))
        self.schedulers[1].base = [its if a == mine else a for a in self.schedulers[1].base]
        self.audits.append((log, f"{key}.pub"))

    def start(self):
        self.others[0].start()
        return super().start()

    @property
    def endpoint(self):
        return ",".join(f"127.0.0.1:{s.tcp}" for s in self.schedulers)

    def client(self, key=None, target=None, credentials=None):
        """A stock client over TLS; all certificates have the one name that it asks for."""
        trusted = grpc.ssl_channel_credentials((self.dir / "ca.pem").read_bytes())
        made = Client(self.target, key if key is not None else self.admin_key, trusted, [*PATIENT, ("grpc.default_authority", "localhost")])
        self.clients.append(made)
        return made


def log_has(c, n, unit):
    """Whether the log of that host has something of this unit."""
    log = c.audits[n][0]
    return any(unit in p.read_text("utf-8", "replace") for p in log.rglob("*") if p.is_file())


def two_hosts():
    c = TwoHosts()
    try:
        c.start()
        for how in ("killed", "stopped"):
            lead, other = pair(c)
            work, before = Work(c, how), epoch(lead)
            if how == "killed":
                lead.kill()
            else:
                equal("it ends in order", lead.stop(), 0)
            print(f"     over TCP with mTLS, {how}: the next one leads after {takes_over(other, before, TTL + 5):.2f} s")
            work.judge()
            check("the log of the new one's host has what it did since", until(lambda: log_has(c, other.n, work.asleep.id), 10))
        check("both logs verify while they are written", c.verify_audit()[0] in (0, 3), c.verify_audit())
    except Exception as err:  # noqa: BLE001
        check("two hosts: the scenario runs to its end", False, f"{err}\n{traceback.format_exc()}\n{c.tails()}")
    suite.close(c)


if __name__ == "__main__":
    named = sys.argv[1:]
    if named != ["two_hosts"]:
        finish, suite.finish = suite.finish, lambda: None
        suite.main(workers=2, standbys=1)
        suite.finish = finish
    if "two_hosts" in named or (not named and is_long()):
        two_hosts()
    elif not named:
        print("left out: two_hosts takes long; runs with CI=true or CLOCHE_LONG=1")
    suite.finish()
