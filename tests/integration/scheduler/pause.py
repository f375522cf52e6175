#!/usr/bin/env python3
"""Pause and resume as the scheduler and its books do it, whatever the worker answers, and whoever leaves in between."""
import queue
import signal
import threading
import time

from made_up_worker import Cluster, Worker, pb, until, wpb
from harness import MIB, SECOND, Suite, code_of, command, error_of, in_parallel, random_bytes

suite = Suite("pause")
check, equal = suite.check, suite.equal
NO_ROOM = wpb.ExecAnswer(code=14, message="no room on the disk")
LIMITS = {"vcpu_milli": 4000, "memory_mib": 4096, "sandboxes": 2, "disk_mib": 4096}


class Box:
    def __init__(self, client, **kw):
        self.client = client
        self.id = client.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=300 * SECOND, **kw), timeout=20).sandbox.id

    def get(self):
        return self.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=self.id)).sandbox

    def is_in(self, state, seconds=5):
        return until(lambda: self.get().state == state, seconds)

    def pause(self, **kw):
        return self.client.sandboxes.Pause(pb.PauseRequest(sandbox_id=self.id, **kw), timeout=20).sandbox

    def resume(self, **kw):
        return self.client.sandboxes.Resume(pb.ResumeRequest(sandbox_id=self.id, **kw), timeout=20)

    def start(self, **kw):
        return self.client.execs.Start(pb.StartRequest(sandbox_id=self.id, command=command("true")), **kw).exec_id

    def stat(self, **kw):
        return self.client.files.Stat(pb.StatRequest(sandbox_id=self.id, path="/"), **kw).file.name

    def write(self, data, piece=65536, **kw):
        pieces = [data[i:i + piece] for i in range(0, len(data), piece)]
        return self.client.files.Write((pb.WriteRequest(sandbox_id=self.id, path="/f", data=d, commit=i == len(pieces) - 1)
                                        for i, d in enumerate(pieces)), **kw).bytes

    def kill(self):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id), timeout=20)


class Scene:
    """A tenant of the scenario's own, and a worker that pauses to 300.5 MiB."""

    def __init__(self, c, name, minor=3, **limits):
        self.c, self.name = c, name
        self.client = c.tenant(name, scopes=("run", "read"), **{**LIMITS, **limits})
        self.w = Worker(c, minor=minor)
        self.w.answers["pause"] = wpb.ExecAnswer(image_bytes=300 * MIB + MIB // 2, expires=pb.Time(unix_ns=5 * 10**18))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for unit_id in list(self.w.units):
            error_of(self.client.sandboxes.Kill, pb.KillRequest(sandbox_id=unit_id))
        until(lambda: not self.w.units, 5)
        equal(f"{self.name}: nothing is held at the end", until(lambda: not self.held(), 5) or self.held(), True)
        self.w.disconnect()

    def asleep(self):
        """A sandbox that was idle, and that its next use wakes."""
        box = Box(self.client, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
        self.doze(box)
        return box

    def doze(self, box):
        def rests():
            self.w.idle(box.id)
            return box.is_in(pb.UNIT_STATE_PAUSED, 0.2)
        check("it rests", until(rests, 10), box.get())

    def held(self):
        return self.c.held().get(self.name, {})

    def drift(self):
        return self.c.usage(self.name).drift

    def events(self, name):
        return [r["fields"] for r in self.c.audit_records(f"tenant/{self.name}/") if r["event"] == name]

    def has_event(self, name, **fields):
        return until(lambda: any(fields.items() <= r.items() for r in self.events(name)), 2)


@suite.scenario
def a_pause_gives_the_quota_back_and_a_resume_takes_it(c):
    with Scene(c, "there-and-back") as s:
        box = Box(s.client)
        running = s.held()
        equal("its worker was told of no pause on idleness", s.w.assigned[0].pause_on_idle, False)
        equal("a sandbox ends when idle, unless asked otherwise", box.get().on_idle, pb.IDLE_ACTION_END)
        answer = box.pause(keep_ns=3600 * SECOND)
        equal("the answer says PAUSED", answer.state, pb.UNIT_STATE_PAUSED)
        equal("… and the size of its image", answer.image_bytes, 300 * MIB + MIB // 2)
        equal("… and until when it is kept", answer.expires.unix_ns, 5 * 10**18)
        equal("its worker was told how long to keep it", s.w.asked_for("pause")[0].pause.keep_ns, 3600 * SECOND)
        held = s.held()
        check("it holds no vCPU, memory and sandbox", not {"vcpu_milli", "memory_mib", "sandboxes"} & held.keys(), held)
        equal("… and whole MiB of disk more", held.get("disk_mib", 0) - running.get("disk_mib", 0), 301)
        equal("Get says PAUSED", (box.get().state, box.get().image_bytes), (pb.UNIT_STATE_PAUSED, 300 * MIB + MIB // 2))
        rows = s.client.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes
        equal("List has it", [(r.id, r.state) for r in rows], [(box.id, pb.UNIT_STATE_PAUSED)])
        equal("a second Pause is answered as well", box.pause(keep_ns=7 * SECOND).state, pb.UNIT_STATE_PAUSED)
        equal("… without its worker", len(s.w.asked_for("pause")), 1)
        s.w.renew()
        answer = box.resume(ttl_ns=60 * SECOND)
        equal("it was paused until now", answer.was_paused, True)
        equal("the answer says RUNNING, without an image", (answer.sandbox.state, answer.sandbox.image_bytes), (pb.UNIT_STATE_RUNNING, 0))
        equal("its worker was told the time to live", s.w.asked_for("resume")[0].resume.ttl_ns, 60 * SECOND)
        equal("it holds what it held", s.held(), running)
        answer = box.resume()
        equal("a running one is resumed as well", (answer.was_paused, answer.sandbox.state), (False, pb.UNIT_STATE_RUNNING))
        equal("… by its worker, which knows", len(s.w.asked_for("resume")), 2)
        equal("… and with a time to live it is an Extend", box.resume(ttl_ns=9 * SECOND).was_paused, False)
        equal("… of that", s.w.asked_for("resume")[2].resume.ttl_ns, 9 * SECOND)
        whole = {"unit": box.id, "bytes": 300 * MIB + MIB // 2, "keep_ms": 3600000}
        check("the pause is in the log", s.has_event("unit.pause", **whole), s.events("unit.pause"))
        check("the resume is in the log", s.has_event("unit.resume", unit=box.id), s.events("unit.resume"))
        equal("each once", (len(s.events("unit.pause")), len(s.events("unit.resume"))), (1, 1))
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def what_cannot_be_asked_is_refused_with_the_reason(c):
    with Scene(c, "refused") as s:
        box = Box(s.client)
        err = error_of(box.pause, keep_ns=30 * 24 * 3600 * SECOND + 1)
        check("a keep of more than 30 days is not valid", code_of(err) == "INVALID_ARGUMENT" and "keep_ns" in err.details(), err)
        err = error_of(box.resume, ttl_ns=24 * 3600 * SECOND + 1)
        check("a time to live of more than a day is not valid", code_of(err) == "INVALID_ARGUMENT" and "ttl_ns" in err.details(), err)
        err = error_of(Box, s.client, on_idle=7)
        check("an unknown on_idle is not valid", code_of(err) == "INVALID_ARGUMENT" and "on_idle" in err.details(), err)
        err = error_of(s.client.sandboxes.Pause, pb.PauseRequest(sandbox_id="sbx_nobody"))
        equal("one that is not there is not found", code_of(err), "NOT_FOUND")
        other = c.tenant("refused-other", **LIMITS)
        err = error_of(other.sandboxes.Pause, pb.PauseRequest(sandbox_id=box.id))
        equal("another tenant's is not found", code_of(err), "NOT_FOUND")
        reader = c.client(c.key("refused", ("read",)).secret)
        err = error_of(reader.sandboxes.Pause, pb.PauseRequest(sandbox_id=box.id))
        equal("who may only look may not pause", code_of(err), "PERMISSION_DENIED")
        equal("its worker was asked nothing", s.w.asked, [])
        s.w.answers["pause"] = NO_ROOM
        err = error_of(box.pause)
        check("the worker's refusal reaches the client", code_of(err) == "UNAVAILABLE" and "no room" in err.details(), err)
        equal("… and it goes on", box.get().state, pb.UNIT_STATE_RUNNING)
        equal("0 keeps it for a day", s.w.asked_for("pause")[0].pause.keep_ns, 24 * 3600 * SECOND)


@suite.scenario
def an_older_worker_is_not_asked(c):
    with Scene(c, "older", minor=2) as s:
        equal("they speak minor 2", s.w.minor_agreed, 2)
        box = Box(s.client)
        err = error_of(box.pause)
        check("its sandboxes are not paused", code_of(err) == "UNIMPLEMENTED" and "upgrade" in err.details(), err)
        equal("… and it hears nothing of it", s.w.asked, [])


@suite.scenario
def without_disk_quota_the_pause_is_undone(c):
    with Scene(c, "no-disk", disk_mib=1024) as s:
        box = Box(s.client)
        running = s.held()
        s.w.answers["pause"] = wpb.ExecAnswer(image_bytes=2000 * MIB)
        err = error_of(box.pause)
        check("it is refused for the disk quota", code_of(err) == "RESOURCE_EXHAUSTED" and "disk_mib" in err.details(), err)
        check("its worker resumed it before that", len(s.w.asked_for("resume")) == 1 and not s.w.units[box.id].paused, s.w.asked)
        equal("it runs", box.get().state, pb.UNIT_STATE_RUNNING)
        equal("it holds what it held", s.held(), running)
        check("the refusal is in the log", s.has_event("quota.refused"), s.events("quota.refused"))
        check("no pause is", not s.events("unit.pause"))
        s.w.renew()
        equal("the books show no drift", s.drift(), 0)
        s.w.answers["resume"] = NO_ROOM  # it cannot be undone: it rests, and the books follow
        equal("refused again", code_of(error_of(box.pause)), "RESOURCE_EXHAUSTED")
        s.w.rest(box.id, True, 2000 * MIB)
        s.w.renew()
        check("what could not be undone is paused", box.is_in(pb.UNIT_STATE_PAUSED), box.get())
        check("… by its worker", s.has_event("unit.pause", unit=box.id, by="worker"), s.events("unit.pause"))
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def without_quota_a_resume_is_refused_before_its_worker_hears_of_it(c):
    with Scene(c, "no-quota", sandboxes=1) as s:
        box = Box(s.client)
        box.pause()
        second = Box(s.client)
        err = error_of(box.resume)
        check("the only sandbox is taken", code_of(err) == "RESOURCE_EXHAUSTED" and "sandboxes" in err.details(), err)
        equal("its worker was asked nothing", s.w.asked_for("resume"), [])
        equal("it stays paused", box.get().state, pb.UNIT_STATE_PAUSED)
        second.kill()
        equal("when the other has ended it goes on", box.resume().was_paused, True)


@suite.scenario
def what_its_worker_cannot_resume_stays_paused(c):
    with Scene(c, "no-room") as s:
        box = Box(s.client)
        box.pause()
        rests = s.held()
        s.w.answers["resume"] = NO_ROOM
        err = error_of(box.resume)
        check("the worker's refusal reaches the client", code_of(err) == "UNAVAILABLE" and "no room" in err.details(), err)
        equal("it stays paused", (box.get().state, box.get().image_bytes), (pb.UNIT_STATE_PAUSED, 300 * MIB + MIB // 2))
        equal("it holds what it held", s.held(), rests)
        s.w.answers["resume"] = wpb.ExecAnswer()
        equal("later it goes on", box.resume().was_paused, True)
        equal("one resume is in the log", len(s.events("unit.resume")), 1)


@suite.scenario
def one_at_a_time_and_to_its_end_whoever_leaves(c):
    with Scene(c, "one-at-a-time") as s:
        box, done = Box(s.client), s.w.answers["pause"]
        s.w.answers["pause"] = None
        first = []
        thread = threading.Thread(target=lambda: first.append(error_of(s.client.sandboxes.Pause, pb.PauseRequest(sandbox_id=box.id), timeout=3)))
        thread.start()
        check("its worker is asked", s.w.is_asked("pause"))
        err = error_of(box.pause)
        check("a second Pause is told to come again", code_of(err) == "UNAVAILABLE" and "being paused" in err.details(), err)
        err = error_of(box.resume)
        check("a Resume as well", code_of(err) == "UNAVAILABLE" and "being paused" in err.details(), err)
        s.w.renew()  # it says what was before the command
        thread.join()
        equal("the first client gives up", code_of(first[0]), "DEADLINE_EXCEEDED")
        s.w.rest(box.id, True, done.image_bytes)
        s.w.answer(s.w.asked_for("pause")[0], done)
        check("it is paused all the same", box.is_in(pb.UNIT_STATE_PAUSED), box.get())
        equal("its worker was asked once", len(s.w.asked_for("pause")), 1)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def one_that_ends_meanwhile_is_not_found(c):
    with Scene(c, "ends") as s:
        box = Box(s.client)
        s.w.answers["pause"] = None
        got = []
        thread = threading.Thread(target=lambda: got.append(error_of(box.pause)))
        thread.start()
        check("its worker is asked", s.w.is_asked("pause"))
        box.kill()
        thread.join()
        check("its Pause is answered", code_of(got[0]) == "NOT_FOUND" and "ended while" in got[0].details(), got)
        s.w.answer(s.w.asked_for("pause")[0], wpb.ExecAnswer(image_bytes=MIB))  # too late
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def a_session_that_breaks_leaves_the_word_to_the_worker(c):
    with Scene(c, "breaks") as s:
        box = Box(s.client)
        for what, call, rests in (("pause", box.pause, True), ("resume", box.resume, False)):
            before, s.w.answers[what] = s.w.answers[what], None
            got = []
            thread = threading.Thread(target=lambda call=call: got.append(error_of(call)))
            thread.start()
            check(f"its worker is asked to {what}", s.w.is_asked(what))
            s.w.rest(box.id, rests, 300 * MIB if rests else 0)
            s.w.disconnect()
            thread.join()
            check(f"the {what} is answered", code_of(got[0]) == "UNAVAILABLE" and "broke" in got[0].details(), got)
            s.w.answers[what] = before
            s.w.connect()
            state = pb.UNIT_STATE_PAUSED if rests else pb.UNIT_STATE_RUNNING
            check(f"after its Hello the books have the {what}", box.is_in(state), box.get())
            check("… and so has the log", s.has_event(f"unit.{what}", unit=box.id, by="worker"), s.events(f"unit.{what}"))
            equal("the books show no drift", s.drift(), 0)
        check("nothing rests in the books", "vcpu_milli" in s.held(), s.held())
        box.pause()  # and one that broke before it did anything
        s.w.answers["resume"] = None
        thread = threading.Thread(target=lambda: error_of(box.resume))
        thread.start()
        check("its worker is asked again", s.w.is_asked("resume", 2))
        s.w.disconnect()
        thread.join()
        s.w.answers["resume"] = wpb.ExecAnswer()
        s.w.connect()
        check("what did not resume holds nothing", until(lambda: "vcpu_milli" not in s.held(), 5), s.held())
        equal("it is paused", box.get().state, pb.UNIT_STATE_PAUSED)


@suite.scenario
def a_session_that_replaces_another_answers_what_was_asked_there(c):
    with Scene(c, "replaced") as s:
        box = Box(s.client)
        s.w.answers["pause"] = None
        got = []
        thread = threading.Thread(target=lambda: got.append(error_of(box.pause)))
        thread.start()
        check("its worker is asked", s.w.is_asked("pause"))
        old = s.w.call
        s.w.connect()
        thread.join()
        equal("the call is answered", code_of(got[0]), "UNAVAILABLE")
        old.cancel()
        s.w.answers["pause"] = wpb.ExecAnswer(image_bytes=MIB)
        equal("it can be paused after that", box.pause().state, pb.UNIT_STATE_PAUSED)


@suite.scenario
def an_idle_one_is_paused_or_ends(c):
    with Scene(c, "idle", disk_mib=2048) as s:
        plain = Box(s.client)
        s.w.idle(plain.id)
        box = Box(s.client, on_idle=pb.IDLE_ACTION_PAUSE)
        equal("its worker knows", [a.pause_on_idle for a in s.w.assigned], [False, True])
        equal("… and so does Get", box.get().on_idle, pb.IDLE_ACTION_PAUSE)
        s.w.idle(box.id)
        check("it is paused", box.is_in(pb.UNIT_STATE_PAUSED), box.get())
        check("… for its idleness", s.has_event("unit.pause", unit=box.id, by="idle"), s.events("unit.pause"))
        equal("… for a day", s.w.asked_for("pause")[0].pause.keep_ns, 24 * 3600 * SECOND)
        equal("one that did not ask for it is left alone", (len(s.w.asked), plain.get().state), (1, pb.UNIT_STATE_RUNNING))
        s.w.idle(box.id)
        equal("it goes on", box.resume().was_paused, True)
        s.w.answers["pause"] = NO_ROOM
        s.w.idle(box.id)
        check("its worker refuses", s.w.is_asked("pause", 2))
        equal("… and is asked again when it tells again", box.get().state, pb.UNIT_STATE_RUNNING)
        s.w.answers["pause"] = wpb.ExecAnswer(image_bytes=3000 * MIB)
        s.w.idle(box.id)
        check("without disk quota it ends", box.is_in(pb.UNIT_STATE_ENDED), box.get())
        equal("… as expired", box.get().reason, pb.REASON_EXPIRED)
        check("… and the log says why", s.has_event("quota.refused", unit=box.id), s.events("quota.refused"))


@suite.scenario
def use_wakes_what_was_idle(c):
    with Scene(c, "wake") as s:
        box = s.asleep()
        equal("Get says that use wakes it", box.get().wake_on_use, True)
        exec_id = box.start()
        equal("a command is started as if it had been running", s.w.asked_for("start")[0].start.exec_id, exec_id)
        equal("… after its worker resumed it", [m.WhichOneof("what") for m in s.w.asked], ["pause", "resume", "start"])
        equal("it runs", box.get().state, pb.UNIT_STATE_RUNNING)
        key_id = s.client.key.split("_")[1]
        check("the log says whose use it was", s.has_event("unit.resume", unit=box.id, by=key_id), s.events("unit.resume"))
        s.w.idle(box.id)
        time.sleep(0.2)
        equal("what is in use is not paused for being idle a moment ago", box.get().state, pb.UNIT_STATE_RUNNING)
        uses = {
            "a signal": lambda: box.client.execs.Signal(pb.SignalRequest(sandbox_id=box.id, exec_id=exec_id, signal=15)),
            "a new size": lambda: box.client.execs.Resize(pb.ResizeRequest(sandbox_id=box.id, exec_id=exec_id)),
            "input": lambda: box.client.execs.WriteStdin(iter([pb.ExecServiceWriteStdinRequest(sandbox_id=box.id, exec_id=exec_id, data=b"in", eof=True)])),
            "a file": box.stat,
            "reading": lambda: list(box.client.files.Read(pb.ReadRequest(sandbox_id=box.id, path="/f"))),
            "writing": lambda: box.write(b"out"),
            "code": lambda: list(box.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box.id, code="1", language=pb.LANGUAGE_PYTHON))),
            "contexts": lambda: box.client.codes.ListContexts(pb.ListContextsRequest(sandbox_id=box.id)),
            "more time": lambda: box.client.sandboxes.Extend(pb.ExtendRequest(sandbox_id=box.id, ttl_ns=60 * SECOND)),
        }
        for what, call in uses.items():
            s.doze(box)
            err = error_of(call)
            check(f"{what} wakes it", err is None and box.get().state == pb.UNIT_STATE_RUNNING, err)
        equal("… each once", len(s.w.asked_for("resume")), 1 + len(uses))
        equal("all bytes have come", s.w.taken, [b"in", b"out"])
        s.doze(box)
        error_of(box.client.execs.List, pb.ExecServiceListRequest(sandbox_id=box.id))
        error_of(box.client.sandboxes.Stats, pb.StatsRequest(unit_id=box.id))
        box.client.sandboxes.List(pb.SandboxServiceListRequest())
        equal("what only looks does not", box.get().state, pb.UNIT_STATE_PAUSED)
        equal("the books show no drift", s.drift(), 0)


@suite.scenario
def what_a_client_paused_is_not_woken(c):
    with Scene(c, "not-woken") as s:
        for kw in ({}, {"on_idle": pb.IDLE_ACTION_END}):
            err = error_of(Box, s.client, wake_on_use=True, **kw)
            check("only what is paused can be woken", code_of(err) == "INVALID_ARGUMENT" and "wake_on_use" in err.details(), err)
        s.w.answers["file"] = wpb.ExecAnswer(code=9, message="the sandbox is paused; resume it first")
        plain = Box(s.client, on_idle=pb.IDLE_ACTION_PAUSE)
        equal("nothing wakes unless that was asked for", plain.get().wake_on_use, False)
        s.doze(plain)
        box = Box(s.client, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
        box.pause()
        again = s.asleep()
        equal("one that rests for being idle may be paused", again.pause().state, pb.UNIT_STATE_PAUSED)
        equal("… of which its worker hears", s.w.asked_for("pause")[-1].pause.if_idle, False)
        equal("… and the log nothing", len([e for e in s.events("unit.pause") if e["unit"] == again.id]), 1)
        s.w.renew()
        for what in (plain, box, again):
            err = error_of(what.stat)
            check("use is refused, with the remedy", code_of(err) == "FAILED_PRECONDITION" and "resume it" in err.details(), err)
        equal("no worker was asked to resume anything", s.w.asked_for("resume"), [])
        equal("Resume does it", again.resume().was_paused, True)


@suite.scenario
def what_is_written_meanwhile_waits(c):
    with Scene(c, "streams") as s:
        box, done = s.asleep(), s.w.answers["resume"]
        s.w.answers["resume"] = None
        data, got = random_bytes(4 * MIB), []
        thread = threading.Thread(target=lambda: got.append(box.write(data)))
        thread.start()
        check("its worker is asked to resume it", s.w.is_asked("resume"))
        time.sleep(0.3)
        equal("nothing goes there before that", s.w.opened, [])
        s.w.rest(box.id, False)
        s.w.answer(s.w.asked_for("resume")[0], done)
        thread.join()
        equal("the client is told of all bytes", got, [len(data)])
        check("they are those that it sent", s.w.taken == [data], [len(t) for t in s.w.taken])


@suite.scenario
def many_uses_wake_it_once(c):
    with Scene(c, "together") as s:
        box, done = s.asleep(), s.w.answers["resume"]
        s.w.answers["resume"] = None
        got = []
        thread = threading.Thread(target=lambda: got.extend(in_parallel(lambda i: [box.start, box.stat, lambda: box.write(b"x"), box.resume][i % 4](), range(16))))
        thread.start()
        check("its worker is asked to resume it", s.w.is_asked("resume"))
        left = error_of(box.stat, timeout=1)
        equal("who does not wait for it leaves", code_of(left), "DEADLINE_EXCEEDED")
        err = error_of(box.pause)
        check("it is not paused meanwhile", code_of(err) == "UNAVAILABLE" and "being resumed" in err.details(), err)
        s.w.rest(box.id, False)
        s.w.answers["resume"] = done
        s.w.answer(s.w.asked_for("resume")[0], done)
        thread.join()
        equal("all calls went on", len([r for r in got if r is not None]), 16)
        equal("… once each", (len(s.w.asked_for("start")), len(s.w.asked_for("file")), len(s.w.opened)), (4, 4, 4))
        equal("its worker was asked once, and by each Resume", len(s.w.asked_for("resume")), 1 + 4)
        equal("… and the log has it once", len(s.events("unit.resume")), 1)

        s.doze(box)
        s.w.answers["resume"] = None
        left = error_of(box.start, timeout=1)
        equal("when its only caller leaves", code_of(left), "DEADLINE_EXCEEDED")
        time.sleep(0.5)  # its scheduler has heard of that
        s.w.rest(box.id, False)
        s.w.answer(s.w.asked_for("resume")[-1], done)
        check("… it is woken all the same", box.is_in(pb.UNIT_STATE_RUNNING), box.get())
        equal("… and nothing is started in it", len(s.w.asked_for("start")), 4)


@suite.scenario
def who_wakes_it_changes_something(c):
    """A look that wakes a sandbox is answered, like any change, once that is written."""
    with Scene(c, "change") as s:
        box, looks = s.asleep(), queue.Queue()
        c.audit.signal(signal.SIGSTOP)
        try:
            thread = threading.Thread(target=lambda: looks.put(error_of(box.stat) or box.stat()))
            thread.start()
            check("its worker wakes it", s.w.is_asked("resume"))
            time.sleep(1)
            check("no answer while the log stands still", looks.empty())
        finally:
            c.audit.signal(signal.SIGCONT)
        equal("it comes when the log goes on", looks.get(), "made up")
        thread.join()
        equal("… which has it by then", len(s.events("unit.resume")), 1)
        s.doze(box)
        asked = len(s.w.asked_for("resume"))
        c.audit.kill()
        try:
            refused = lambda what, *args: "takes no records" in getattr(error_of(what, *args), "details", str)()
            nobodys = pb.KillRequest(sandbox_id="sbx_" + "0" * 26)  # changes nothing while the scheduler has not heard yet
            check("the scheduler knows that its log is gone", until(lambda: refused(s.client.sandboxes.Kill, nobodys), 5))
            check("without a log nothing is woken to be looked at", refused(box.stat))
            check("… or written to", refused(box.client.execs.WriteStdin, iter([pb.ExecServiceWriteStdinRequest(sandbox_id=box.id, exec_id="exec_1", data=b"in")])))
            equal("… of which its worker hears nothing", (len(s.w.asked_for("resume")), box.get().state), (asked, pb.UNIT_STATE_PAUSED))
        finally:
            c.audit.start()
        check("it is woken when the log is back", until(lambda: error_of(box.stat) is None, 10), box.get())


@suite.scenario
def a_use_while_it_is_being_paused_waits_for_both(c):
    with Scene(c, "just-then", disk_mib=2048) as s:
        box, done = Box(s.client, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True), s.w.answers["pause"]

        def use_while_pausing(n, answer):
            got = []
            s.w.answers["pause"] = None
            def asked():
                s.w.idle(box.id)
                return until(lambda: len(s.w.asked_for("pause")) >= n, 0.5)
            check("its worker is asked to pause it", until(asked, 10))
            thread = threading.Thread(target=lambda: got.append(error_of(box.stat) or box.stat()))
            thread.start()
            time.sleep(0.2)
            equal("the use waits", got, [])
            if not answer.code:
                s.w.rest(box.id, True, answer.image_bytes, True)
            s.w.answer(s.w.asked_for("pause")[n - 1], answer)
            thread.join()
            equal("… and goes on", got, ["made up"])
            check("it runs", box.is_in(pb.UNIT_STATE_RUNNING), box.get())
        use_while_pausing(1, done)
        equal("it was paused and woken", (len(s.events("unit.pause")), len(s.events("unit.resume"))), (1, 1))
        use_while_pausing(2, wpb.ExecAnswer(code=9, message="the sandbox is in use again"))
        use_while_pausing(3, wpb.ExecAnswer(image_bytes=3000 * MIB))
        equal("without disk quota it is not ended when it is used", box.get().state, pb.UNIT_STATE_RUNNING)


@suite.scenario
def what_cannot_be_woken_is_refused_as_a_resume(c):
    with Scene(c, "cannot", sandboxes=1) as s:
        box = s.asleep()
        second = Box(s.client)
        for what, call in (("a command", box.start), ("a file that is written", lambda: box.write(b"x" * 300000))):
            err = error_of(call)
            check(f"{what} is refused for the quota", code_of(err) == "RESOURCE_EXHAUSTED" and "sandboxes" in err.details(), err)
        equal("its worker hears nothing of it", s.w.asked_for("resume"), [])
        second.kill()
        s.w.answers["resume"] = NO_ROOM
        errs = in_parallel(lambda _: error_of(box.stat), range(4))
        check("its worker's refusal reaches all of them", all(code_of(e) == "UNAVAILABLE" and "no room" in e.details() for e in errs), errs)
        equal("it stays paused", box.get().state, pb.UNIT_STATE_PAUSED)
        s.w.disconnect()
        for what, call in (("a file", box.stat), ("a file that is written", lambda: box.write(b"x"))):
            err = error_of(call)
            check(f"{what} of a worker that is away is refused", code_of(err) == "UNAVAILABLE" and "not connected" in err.details(), err)
        s.w.connect()
        s.w.answers["resume"] = None
        got = []
        thread = threading.Thread(target=lambda: got.append(error_of(box.write, b"x" * 300000)))
        thread.start()
        n = len(s.w.asked_for("resume"))
        check("its worker is asked", s.w.is_asked("resume", n + 1) or n)
        box.kill()
        thread.join()
        check("one that ends meanwhile is not found", code_of(got[0]) == "NOT_FOUND" and "ended while" in got[0].details(), got)


@suite.scenario
def a_scheduler_that_starts_again_wakes_it(c):
    with Scene(c, "wakes-again") as s:
        idle = s.asleep()
        box = Box(s.client, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
        box.pause()
        c.scheduler.kill()
        s.w.disconnect()
        c.scheduler.start()
        check("it answers", c.await_answer())
        equal("it is not woken before its worker is back", code_of(error_of(idle.stat)), "UNAVAILABLE")
        s.w.connect()
        check("wake_on_use is kept", idle.get().wake_on_use)
        equal("what was idle is woken", (idle.stat(), idle.get().state), ("made up", pb.UNIT_STATE_RUNNING))
        error_of(box.stat)
        equal("what a client paused is not", box.get().state, pb.UNIT_STATE_PAUSED)
        s.doze(idle)
        s.w.answers["resume"] = None
        got = []
        thread = threading.Thread(target=lambda: got.append(error_of(idle.write, b"x" * 300000)))
        thread.start()
        check("its worker is asked", s.w.is_asked("resume", 2))
        equal("the scheduler ends in order while a call waits", c.scheduler.stop(), 0)
        thread.join()
        check("the call fails", code_of(got[0]) != "OK", got)
        s.w.disconnect()
        s.w.answers["resume"] = wpb.ExecAnswer()
        c.scheduler.start()
        check("it answers", c.await_answer())
        s.w.connect()
        equal("and it can be woken then", until(lambda: not error_of(idle.stat), 5), True)


@suite.scenario
def a_scheduler_that_starts_again_finds_it(c):
    with Scene(c, "again") as s:
        box = Box(s.client, on_idle=pb.IDLE_ACTION_PAUSE)
        box.pause()
        rests = s.held()
        c.scheduler.kill()
        s.w.disconnect()
        c.scheduler.start()
        check("it answers", c.await_answer())
        equal("it is paused before its worker is back", box.get().state, pb.UNIT_STATE_PAUSED)
        equal("… and cannot be resumed then", code_of(error_of(box.resume)), "UNAVAILABLE")
        s.w.connect()
        check("after the Hello its size is known", until(lambda: box.get().image_bytes == 300 * MIB + MIB // 2, 5), box.get())
        equal("it holds what it held", s.held(), rests)
        equal("it goes on", box.resume().was_paused, True)
        equal("on_idle is kept", box.get().on_idle, pb.IDLE_ACTION_PAUSE)
        box.pause()
        box.kill()
        check("a paused one is killed as any", box.is_in(pb.UNIT_STATE_ENDED), box.get())
        equal("… at once", [u for u in s.w.units], [])


@suite.scenario
def a_scheduler_that_stops_drops_what_it_had_begun(c):
    with Scene(c, "stops") as s:
        box = Box(s.client)
        box.pause()
        before, s.w.answers["resume"] = s.w.answers["resume"], None
        thread = threading.Thread(target=lambda: error_of(box.resume))
        thread.start()
        check("its worker is asked", s.w.is_asked("resume"))
        equal("the scheduler ends in order", c.scheduler.stop(), 0)
        thread.join()
        s.w.disconnect()
        s.w.answers["resume"] = before
        c.scheduler.start()
        check("it answers", c.await_answer())
        s.w.connect()
        check("what did not resume is paused in the books as well", until(lambda: "vcpu_milli" not in s.held(), 5), s.held())
        check("it goes on", until(lambda: error_of(box.resume) is None, 5))


@suite.long_scenario
def books_that_are_away_follow_later(c):
    with Scene(c, "away") as s:
        box, done = Box(s.client), s.w.answers["pause"]
        running = s.held()

        def stop_redis(_):
            c.redis.signal(signal.SIGSTOP)
            return done
        s.w.answers["pause"] = stop_redis
        got = []
        thread = threading.Thread(target=lambda: got.append(error_of(s.client.sandboxes.Pause, pb.PauseRequest(sandbox_id=box.id), timeout=60)))
        thread.start()
        check("its worker resumes what nobody noted", until(lambda: s.w.asked_for("resume"), 20), s.w.asked)
        c.redis.signal(signal.SIGCONT)
        thread.join()
        equal("the client is told to come again", code_of(got[0]), "UNAVAILABLE")
        check("the scheduler answers", c.await_answer())
        s.w.renew()
        check("it runs, and holds what it needs", until(lambda: s.held() == running, 5), s.held())
        equal("… for its clients as well", box.get().state, pb.UNIT_STATE_RUNNING)
        equal("the books show no drift", s.drift(), 0)


if __name__ == "__main__":
    suite.main(cluster=Cluster)
