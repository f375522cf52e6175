#!/usr/bin/env python3
"""Paused sandboxes that go from one worker to another: what the two say, what each has on its disk, and what goes wrong."""
import concurrent.futures
import contextlib
import copy
import hashlib
import sys
import threading
import time

from made_up_scheduler import Relay, Scheduler, harness, pb, until, wpb
from harness import MIB, SECOND, Suite, command
from cloche.v1 import kept_pb2

suite = Suite("moves")
check, equal = suite.check, suite.equal
INVALID, QUOTA, STATE, UNAVAILABLE, INTERNAL, DATALOSS = 3, 8, 9, 14, 13, 15
SETTLE_S = 30  # TAKE_SETTLE_S


class Worker(Scheduler):
    """A worker with a scheduler of its own; the test is what both schedulers share."""

    def __init__(self, name, *args):
        self.keys = harness.folder(f"keys-{name}")
        super().__init__("--paused-keys", self.keys, *args, name=f"moves-{name}", uids=0x1000 * (ord(name) - ord("a")))
        self.tails = lambda: harness.read_text(self.worker.log)[-3000:]
        self.n = 1000 * ord(name)  # so that the ids of two are different

    def files(self):
        """Names and lengths of what it keeps for paused sandboxes; records as KEY/…"""
        found = {}
        for path in [*(self.state_dir / "paused").glob("*"), *self.keys.rglob("sbx_*")]:
            with contextlib.suppress(FileNotFoundError):  # it goes meanwhile
                found["KEY/" * (self.keys in path.parents) + path.name] = path.stat().st_size
        return found

    def files_of(self, box):
        return {name: size for name, size in self.files().items() if name.startswith(box) or name == f"KEY/{box}"}

    def memory(self):
        return [name for name in self.files() if name.startswith("ram_")]

    def stop_and_start(self):
        self.worker.stop(60)
        self.start()

    def is_empty_of(self, box):
        return until(lambda: not self.files_of(box), 5) or not self.files_of(box)

    def asks_for(self, lease, seconds=3):
        """It did, lately; it does so every second."""
        return time.monotonic() - self.renewed.get(lease, (0, None))[0] < seconds


class Box:
    """A sandbox, where it is, and what it is held by there."""

    def __init__(self, worker, **kw):
        self.at, self.lease, self.fence = worker, f"lease_{worker.number():026}", 1
        self.id = worker.sandbox(lease=self.lease, **kw)
        self.assign = worker.assigned[self.id]

    def exec(self, *argv, env=None, timeout=600, stdin=False):
        start = wpb.ExecStartCommand(exec_id=f"exec_{self.at.number():026}",
                                     command=command(*argv, env=env, timeout=timeout, stdin=stdin))
        answer = self.at.ask(self.id, start=start)
        if answer is None or answer.code:
            raise RuntimeError(f"it does not start: {answer}")
        return start.exec_id

    def follow(self, exec_id, at=0):
        return self.at.relay(self.id, kind=Follower, attach=wpb.RelayAttach(exec_id=exec_id, stdout_offset=at))

    def output(self, *argv):
        seen = self.follow(self.exec(*argv))
        seen.over.wait(60)
        return bytes(seen.text[pb.STREAM_STDOUT])

    def pause(self, keep=600):
        return self.at.ask(self.id, 60, pause=wpb.PauseCommand(keep_ns=keep * SECOND))

    def resume(self):
        answer = self.at.ask(self.id, 60, resume=wpb.ResumeCommand())
        return (answer.code, answer.message) if answer else None

    def end(self):
        self.at.send(end=wpb.EndUnit(lease_id=self.lease, fence=self.fence))
        return until(lambda: self.lease in self.at.ended, 30)

    def to_take(self, lease, fence):
        """What another worker is told of it."""
        take = wpb.RelayTake(assign=self.assign)
        take.assign.lease_id, take.assign.fence = lease, fence
        return take

    def move_to(self, worker, **kw):
        return Move(self, worker, **kw)


class Follower(Relay):
    """Of a command."""

    def __init__(self):
        super().__init__()
        self.text, self.gaps, self.result = {pb.STREAM_STDOUT: bytearray(), pb.STREAM_STDERR: bytearray()}, 0, None

    def take(self, requests):
        try:
            for m in requests:
                if m.HasField("output"):
                    text = self.text[m.output.stream]
                    self.gaps += m.output.offset != len(text)
                    text += m.output.data
                self.result = m.ended if m.HasField("ended") else self.result
                self.done = m.done if m.HasField("done") else self.done
        except Exception:  # the call has ended
            pass
        self.over.set()
        self.out.put(None)


class End(Relay):
    """One end of a move; `hear` gets what it says."""

    def __init__(self):
        super().__init__()
        self.hear, self.said, self.taken = None, [], False
        self.lock = threading.Lock()

    def listen(self, hear):
        with self.lock:
            self.hear = hear
            for m in self.said:
                hear(m)

    def take(self, requests):
        try:
            for m in requests:
                with self.lock:
                    if self.hear:
                        self.hear(m)
                    else:
                        self.said.append(m)
                self.taken |= m.taken
                self.done = m.done if m.HasField("done") else self.done
                if self.done:
                    self.out.put(None)
        except Exception:  # the call has ended
            pass
        self.over.set()

    def outcome(self, seconds=60):
        """Its code and text, or "taken"."""
        until(lambda: self.taken or self.done or self.over.is_set(), seconds)
        return "taken" if self.taken and not self.done else (self.done.code, self.done.message) if self.done else None

    def tell(self, **what):
        self.out.put(wpb.RelayResponse(**what))


class Move:
    """As a scheduler passes it on; `change` may make other pieces of each."""

    def __init__(self, box, to, change=lambda piece: [piece]):
        self.box, self.to, self.names, self.bytes, self.change = box, to, [], 0, change
        self.lease, self.fence = f"lease_{to.number():026}", box.fence + 1
        self.giver = box.at.relay(box.id, kind=End, give=wpb.RelayGive(lease_id=box.lease, fence=box.fence))
        self.taker = to.relay(box.id, kind=End, take=box.to_take(self.lease, self.fence))
        self.giver.listen(self.from_giver)
        self.taker.listen(self.from_taker)

    def from_giver(self, m):
        if m.HasField("move"):
            self.bytes += len(m.move.data.data)
            if m.move.HasField("file"):
                self.names.append(m.move.file.name)
            for piece in self.change(m.move):
                self.taker.tell(move=piece)

    def from_taker(self, m):
        if m.HasField("missing"):
            self.giver.tell(missing=m.missing)

    def outcome(self):
        """What became of it at its taker."""
        return self.taker.outcome()

    def leave(self):
        """As a scheduler that goes away."""
        self.giver.leave()
        self.taker.leave()

    def fails(self, at="taker"):
        """The error of one end; then it is as if it had never been tried."""
        outcome = getattr(self, at).outcome()
        self.leave()
        return outcome

    def moved(self):
        """The books have noted it: both are told."""
        self.taker.tell(moved=True)
        self.giver.tell(moved=True)
        self.taker.taken = False
        outcome = (self.giver.outcome(), self.taker.outcome())
        self.box.at, self.box.lease, self.box.fence = self.to, self.lease, self.fence
        return outcome

    def whole(self):
        """True, or where it stopped."""
        outcome = self.outcome()
        if outcome != "taken":
            return outcome
        outcome = self.moved()
        return outcome == ((0, ""), (0, "")) or outcome


def record(**parts):
    """Changes a record on its way: fields of its parts."""
    def change(piece):
        if not piece.HasField("record"):
            return [piece]
        m = kept_pb2.KeptSandbox.FromString(piece.record)
        where = {"kept": m, "assign": m.assign, "image": m.image, "template": m.template, "memory": m.template.memory, "resources": m.assign.resources}
        for part, fields in parts.items():
            for name, value in fields.items():
                setattr(where[part], name, value)
        return [wpb.MovePiece(record=m.SerializeToString())]
    return change


COUNT = "for i in $(seq 1 80); do echo line $i; sleep 0.1; done; echo bad >&2; exit 7"
NOISE = "head -c 3000000 /dev/urandom > /dev/shm/noise; head -c 5000000 /dev/urandom > /home/user/noise; sync"
WHO = "sha256sum /dev/shm/noise /home/user/noise; cat /proc/sys/kernel/random/boot_id; hostname"


def paused(worker, **kw):
    box = Box(worker, **kw)
    answer = box.pause()
    if answer.code or not answer.kept:
        raise RuntimeError(f"it is not kept: {answer}")
    return box


@suite.scenario
def it_goes_on_elsewhere(w):
    a, b = w
    box = Box(a)
    box.output("sh", "-c", NOISE)
    who, over = box.output("sh", "-c", WHO), box.exec("sh", "-c", "seq 1 30000")
    equal("a command ends", box.follow(over).over.wait(60), True)
    runs = box.exec("sh", "-c", COUNT)
    reads = box.exec("cat", stdin=True)
    waits = a.number()
    a.send(exec=wpb.ExecCommand(request=waits, unit_id=box.id, wait=wpb.ExecWaitCommand(exec_id=runs)))
    follower = box.follow(runs)
    check("another runs", follower.awaits(lambda r: b"line 5\n" in r.text[pb.STREAM_STDOUT]))
    answer = box.pause()
    equal("it is paused, and kept", (answer.code, answer.kept), (0, True))
    before = a.files()
    feeder = box.at.relay(box.id, stdin=wpb.RelayStdin(exec_id=reads))
    feeder.send(b"not taken while it rests")

    move = box.move_to(b)
    equal("it is taken", move.outcome(), "taken")
    equal("… with all its files", sorted(move.names), sorted(n for n in before if not n.startswith("KEY/")))
    check("… and without the holes of its disk", move.bytes < sum(before.values()) - 100 * MIB, (move.bytes, before))
    equal("until the books have it both have its files", (a.files_of(box.id).keys(), a.files()), (b.files_of(box.id).keys(), before))
    equal("it does not go on where it is", box.resume(),
          (UNAVAILABLE, "it is being moved to another worker; try again in a moment"))
    second = a.relay(box.id, kind=End, give=wpb.RelayGive(lease_id=box.lease, fence=box.fence))
    equal("a second move of it is refused", second.outcome()[0], UNAVAILABLE)
    second = b.relay(box.id, kind=End, take=box.to_take(f"lease_{9:026}", 9))
    equal("… at either", second.outcome()[0], UNAVAILABLE)
    time.sleep(3)
    check("its new lease is not asked for, and its old one is", move.lease not in b.renewed and a.asks_for(box.lease), (a.renewed, b.renewed))
    lease = box.lease
    equal("it is moved", move.moved(), ((0, ""), (0, "")))
    check("nothing of it is left behind", a.is_empty_of(box.id), a.files())
    check("… and nobody hears of its end", not a.ended, a.ended)
    check("who followed its command is told to come again", follower.over.wait(20) and follower.done.code == UNAVAILABLE, follower.done)
    check("… and who waited for its end", until(lambda: waits in a.answers, 10) and a.answers[waits].code == UNAVAILABLE, a.answers.get(waits))
    check("… and who wrote to one, of which nothing is lost", feeder.end()[0] == UNAVAILABLE and feeder.done.bytes == 0, feeder.done)
    check("its new lease is asked for, and its old one is not",
          until(lambda: b.asks_for(move.lease) and not a.asks_for(lease), 10) and b.renewed[move.lease][1].kept, (a.renewed, b.renewed))

    equal("it goes on", box.resume(), (0, ""))
    again = box.follow(runs)
    check("its command goes on to its end", again.over.wait(60) and again.result.exit_code == 7, again.result or again.done)
    lines = "".join(f"line {i}\n" for i in range(1, 81)).encode()
    equal("… and what it said is whole", (bytes(again.text[pb.STREAM_STDOUT]), bytes(again.text[pb.STREAM_STDERR]), again.gaps), (lines, b"bad\n", 0))
    equal("… as its digest says", again.result.stdout.sha256, hashlib.sha256(lines).digest())
    old = box.follow(over)
    text = "".join(f"{i}\n" for i in range(1, 30001)).encode()
    check("what an ended one said is whole", old.over.wait(60) and bytes(old.text[pb.STREAM_STDOUT]) == text and old.result.stdout.sha256 == hashlib.sha256(text).digest())
    feeder = b.relay(box.id, stdin=wpb.RelayStdin(exec_id=reads))
    feeder.send(b"hello", eof=True)
    feeder.end()
    echo = box.follow(reads)
    check("stdin goes on", echo.over.wait(30) and bytes(echo.text[pb.STREAM_STDOUT]) == b"hello", bytes(echo.text[pb.STREAM_STDOUT]))
    equal("its memory and its disk are what they were", box.output("sh", "-c", WHO), who)
    check("while it runs nothing of it needs a record", f"KEY/{box.id}" not in b.files(), b.files())

    equal("it is paused there", box.pause().code, 0)
    equal("it comes back", box.move_to(a).whole(), True)
    equal("… goes on", box.resume(), (0, ""))
    equal("… and is what it was", box.output("sh", "-c", WHO), who)
    check("it ends", box.end())
    check("nothing of it is left at either", a.is_empty_of(box.id) and b.is_empty_of(box.id), (a.files(), b.files()))
    check("its template's memory went with its last user", until(lambda: not b.memory(), 10), b.files())


@suite.scenario
def its_templates_memory_goes_once(w):
    a, b = w
    one, two = paused(a), paused(a)
    moves = [one.move_to(b), two.move_to(b)]
    equal("two come at once", [m.outcome() for m in moves], ["taken", "taken"])
    brought = [any(n.startswith("ram_") for n in m.names) for m in moves]
    equal("one brings the memory, and the other waits for it", sorted(brought), [False, True])
    check("… and brings the rest", all(f"{m.box.id}.image" in m.names for m in moves), [m.names for m in moves])
    equal("both are moved", [m.moved() for m in moves], [((0, ""), (0, ""))] * 2)
    third = paused(a)
    code, said = third.move_to(b, change=record(memory={"key": bytes(32)})).fails()
    check("nor is it another's of the same name", code == UNAVAILABLE and "is another one's" in said, (code, said))
    b.stop_and_start()
    check("both outlive their new worker", until(lambda: {one.lease, two.lease} <= set(b.running), 10), b.running)
    equal("the one goes on", one.resume(), (0, ""))
    equal("the other goes on", two.resume(), (0, ""))
    equal("… both", (one.output("echo", "1"), two.output("echo", "2")), (b"1\n", b"2\n"))
    equal("one comes back to where its snapshot is from", (one.pause().code, one.move_to(a).whole()), (0, True))
    check("… which needs its memory no more than the other did", len(a.memory()) == 1, a.files())
    check("it ends", one.end() and two.end() and third.end())


def again(box, to):
    """A move, once the one before is over."""
    move = box.move_to(to)
    if move.outcome() == "taken":
        move.moved()
        return move
    move.leave()
    return None


@suite.scenario
def what_must_not_come_is_refused(w):
    a, b = w
    box = paused(a)

    def spoil(at, make):
        n = [0]

        def change(piece):
            n[0] += piece.WhichOneof("what") == at
            return make(piece) if piece.WhichOneof("what") == at and n[0] == 2 else [piece]
        return change

    def data(piece, **kw):
        return wpb.MovePiece(data=wpb.MoveData(**{"offset": piece.data.offset, "data": piece.data.data, **kw}))
    for what, change, text in (
            ("data twice", spoil("data", lambda p: [p, p]), "are next"),
            ("data out of order", spoil("data", lambda p: [data(p, offset=p.data.offset + 1)]), "are next"),
            ("data beyond the end", spoil("data", lambda p: [data(p, offset=1 << 62)]), "are next"),
            ("an empty piece", spoil("data", lambda p: [data(p, data=b"")]), "with 0 bytes"),
            ("a file too early", spoil("file", lambda p: [p, p]), "ends after 0 of"),
            ("a file of another length", spoil("file", lambda p: [wpb.MovePiece(file=wpb.MoveFile(name=p.file.name, bytes=1))]), "its record says"),
            ("a file of another name", spoil("file", lambda p: [wpb.MovePiece(file=wpb.MoveFile(name="../x", bytes=1))]), "not asked for"),
            ("a file that is cut", spoil("file", lambda p: [wpb.MovePiece(end=True)]), "came before its"),
            ("a second record", lambda p: [p, p] if p.HasField("record") else [p], "out of turn"),
            ("no record", lambda p: [wpb.MovePiece(end=True)] if p.HasField("record") else [p], "out of turn")):
        code, said = box.move_to(b, change=change).fails()
        check(f"{what} is refused", code == INTERNAL and text in said, (code, said))
        check("… and nothing of it stays", b.is_empty_of(box.id) and until(lambda: not b.memory(), 5), b.files())
    code, said = box.move_to(b, change=lambda p: [wpb.MovePiece(record=p.record[:100])] if p.HasField("record") else [p]).fails()
    check("a record that is none is refused", code == INVALID, (code, said))
    other = f"sbx_{5:026}"
    for what, change, want, text in (
            ("of another sandbox", record(assign={"unit_id": other}, image={"name": other}), INVALID, "another sandbox"),
            ("that names another's file", record(memory={"name": f"{other}.image"}), INVALID, "no 'ram_...'"),
            ("that leaves the folder", record(memory={"name": "../ram"}), INVALID, "no name"),
            ("that needs more than was assigned", record(template={"memory_mib": 1 << 14}), INVALID, "larger than it was assigned"),
            ("with more disk than was assigned", record(kept={"scratch_bytes": 1 << 40}), INVALID, "larger than it was assigned"),
            ("with more than there is room for", record(image={"bytes": 1 << 60}), QUOTA, "no room"),
            ("with files that cannot be", record(image={"bytes": 1 << 63}), INVALID, "has 9223372036854775808 bytes"),
            ("of an image that is not here", record(template={"image_key": "0" * 64}), UNAVAILABLE, "cannot let the sandbox go on"),
            ("of another monitor", record(template={"snapshot_key": "0" * 64}), UNAVAILABLE, "another release of its monitor")):
        code, said = box.move_to(b, change=change).fails()
        check(f"a record {what} is refused", code == want and text in said, (code, said))
        check("… and nothing of it stays", b.is_empty_of(box.id) and b.is_empty_of(other) and not b.memory(), b.files())
    equal("after all that it goes on where it was", box.resume(), (0, ""))
    equal("… as it was", box.output("echo", "here"), b"here\n")
    box.end()


@suite.scenario
def a_spoiled_image_is_found_out(w):
    a, b = w
    box, current = paused(a), [""]

    def change(piece):
        current[0] = piece.file.name if piece.HasField("file") else current[0]
        if piece.HasField("data") and current[0].endswith(".image") and piece.data.offset == 0:
            piece.data.data = piece.data.data[:1000] + bytes([piece.data.data[1000] ^ 1]) + piece.data.data[1001:]
        return [piece]
    equal("it is taken: a worker does not know", box.move_to(b, change=change).whole(), True)
    code, said = box.resume()
    equal("its resume says so", (code, "not what was stored" in said), (DATALOSS, True))
    box.end()


@suite.scenario
def a_move_that_breaks_before_it_is_taken_leaves_no_trace(w):
    a, b = w
    box, seen = paused(a), []

    def change(piece):
        seen.append(piece)
        return [piece] if len(seen) < 100 else []
    move = box.move_to(b, change=change)
    check("it is under way", until(lambda: len(seen) > 100 and b.files(), 20), b.files())
    move.leave()
    check("nothing of it stays", b.is_empty_of(box.id) and until(lambda: not b.memory(), 5), b.files())
    equal("it goes on", until(lambda: (r := box.resume()) and r[0] == 0 and r, 10), (0, ""))
    equal("it is paused again", box.pause().code, 0)
    move = box.move_to(b, change=lambda p: [] if p.HasField("end") else [p])
    check("it is under way again", until(lambda: f"{box.id}.image" in b.files(), 20))
    check("it is ended", box.end())
    code, said = move.giver.outcome()
    check("… which ends its move", code == STATE and "ended" in said, (code, said))
    move.leave()
    check("… without a trace", a.is_empty_of(box.id) and b.is_empty_of(box.id), (a.files(), b.files()))


@suite.scenario
def who_waits_for_another_that_does_not_come_brings_it_itself(w):
    a, b = w
    one, two = paused(a), paused(a)
    first = one.move_to(b, change=lambda p: [] if p.HasField("end") else [p])
    check("the first is under way", until(lambda: b.memory() and f"{one.id}.image" in b.files(), 20), b.files())
    second = two.move_to(b)
    equal("the second waits", (time.sleep(1), second.names, second.taker.done)[1:], ([], None))
    first.leave()
    equal("it goes on when that breaks off", second.whole(), True)
    check("… and brings the memory", any(n.startswith("ram_") for n in second.names), second.names)
    equal("it goes on there", (two.resume(), two.output("echo", "2")), ((0, ""), b"2\n"))
    equal("the first where it is", until(lambda: (r := one.resume()) and r[0] == 0 and r, 10), (0, ""))
    check("both end", one.end() and two.end())


@suite.scenario
def whose_it_is_its_scheduler_says(w):
    """Not the worker that gives it, which may be in other hands."""
    a, b = w
    box = paused(a)
    change = record(assign={"tenant": "another", "pause_on_idle": True}, resources={"disk_mib": 1 << 20})
    equal("it is moved", box.move_to(b, change=change).whole(), True)
    check("it is what it was assigned as", until(lambda: b.asks_for(box.lease), 10) and b.renewed[box.lease][1].tenant == "t", b.renewed)
    equal("it goes on", box.resume(), (0, ""))
    check("it ends, and is its tenant's", box.end() and b.ended[box.lease].tenant == "t", b.ended.get(box.lease))


@suite.scenario
def who_may_not_have_it_does_not_get_it(w):
    a, b = w
    box = Box(a)
    code, said = box.move_to(b).fails("giver")
    equal("one that runs is not given", (code, said), (STATE, "the sandbox is not paused; pause it first"))
    box.pause()
    for field, value in (("lease", f"lease_{7:026}"), ("fence", 99)):
        kept = getattr(box, field)
        setattr(box, field, value)
        code, said = box.move_to(b).fails("giver")
        setattr(box, field, kept)
        equal(f"nor to who has another {field}", (code, said), (STATE, "the sandbox is held by another lease here"))
    code, said = box.move_to(a).fails()
    equal("nor taken where it is", (code, said), (STATE, "the sandbox is on this worker already"))
    low = b.relay(box.id, kind=End, take=box.to_take(f"lease_{8:026}", 1))
    giver = until(lambda: ready(a, box), 10)
    giver.listen(lambda m: m.HasField("move") and low.tell(move=m.move))
    equal("nor by who comes too late", low.outcome(), (STATE, "the sandbox is held by a newer lease where it is"))
    giver.leave()
    gone = a.relay("sbx_" + "0" * 26, kind=End, give=wpb.RelayGive(lease_id=box.lease, fence=1))
    equal("nor one that is not there", gone.outcome()[0], 5)
    equal("it goes on", until(lambda: (r := box.resume()) and r[0] == 0 and r, 10), (0, ""))
    box.end()


def ready(worker, box):
    """A giver that is not refused because the one before has not left yet."""
    giver = worker.relay(box.id, kind=End, give=wpb.RelayGive(lease_id=box.lease, fence=box.fence))
    return giver if until(lambda: giver.said or giver.done, 5) and not giver.done else None


@suite.scenario
def a_worker_that_cannot_have_it_says_why(w):
    a, _ = w
    box = paused(a)
    driver = harness.isolating_drivers().split(",")[0]
    others = [d for d in ("qemu/tcg", "kvm/xenpv") if d != driver]
    for what, args, want, text in (
            ("without room", ("--disk-reserve", "100000GiB"), QUOTA, "no room"),
            ("without a place for keys", ("--paused-keys", "none"), UNAVAILABLE, "--paused-keys"),
            ("without the driver", ("--driver", others[0]), UNAVAILABLE, f"no driver '{driver}'")):
        c = Worker("c", "--templates", "", "--warm", 0, *args)
        code, said = until(lambda: (o := box.move_to(c).fails()) and o[0] != 9 and o, 10)
        check(f"a worker {what} says so", code == want and text in said, (code, said))
        equal("… and has nothing of it", c.files_of(box.id), {})
        equal("… and ends in order", c.stop(), 0)
    equal("it goes on where it was", until(lambda: (r := box.resume()) and r[0] == 0 and r, 10), (0, ""))
    box.end()


@suite.scenario
def either_worker_may_be_stopped_meanwhile(w):
    a, b = w
    box = paused(a)
    for which in (b, a):
        move = box.move_to(b, change=lambda p: [] if p.HasField("end") else [p])
        check("it is under way", until(lambda: f"{box.id}.image" in b.files(), 20))
        which.stop_and_start()
        move.leave()
        check("nothing of it stays where it was to go", b.is_empty_of(box.id) and until(lambda: not b.memory(), 5), b.files())
    check("where it is the next worker has it", until(lambda: box.lease in a.running, 10) and a.running[box.lease].kept, a.running)
    move = box.move_to(b, change=lambda p: [] if p.HasField("data") else [p])
    check("it is under way again", until(lambda: b.memory(), 20))
    b.worker.kill()
    check("a worker that is killed leaves files", b.memory(), b.files())
    b.start()
    check("… that the next one sweeps", b.is_empty_of(box.id) and not b.memory(), b.files())
    move.leave()
    equal("it is moved in the end", until(lambda: again(box, b), 20) is not None, True)
    equal("it goes on", box.resume(), (0, ""))
    equal("… as it was", box.output("echo", "here"), b"here\n")
    box.end()


@suite.scenario
def a_worker_that_is_started_anew_asks_for_its_lease(w):
    a, b = w
    box = paused(a)
    move = box.move_to(b)
    equal("it is taken", move.outcome(), "taken")
    b.stop_and_start()
    check("the next worker has it", move.lease in b.running and b.running[move.lease].kept, b.running)
    check("… and asks for its lease", until(lambda: b.asks_for(move.lease), 10), b.renewed)
    b.lost.add(move.lease)
    check("the books say it is another's: nothing of it stays", until(lambda: b.is_empty_of(box.id), 20), b.files())
    move.giver.leave()
    moved = until(lambda: again(box, b), 20)
    equal("it is taken again, by the same fence", moved and moved.fence, move.fence)
    check("it goes on there", until(lambda: b.asks_for(box.lease), 10) and box.resume() == (0, ""), b.renewed)
    check("nobody heard of another end of it", move.lease not in b.ended, b.ended)
    box.end()


@suite.scenario
def what_moved_while_its_worker_was_away_goes_on_elsewhere(w):
    """The books have given it over, and who gave it was not told."""
    a, b = w
    box = Box(a)
    runs = box.exec("sh", "-c", COUNT)
    box.pause()
    lease, move = box.lease, box.move_to(b)
    equal("it is taken", move.outcome(), "taken")
    a.worker.kill()
    move.taker.tell(moved=True)
    box.at, box.lease, box.fence = b, move.lease, move.fence
    a.lost.add(lease)
    a.changed.clear()
    a.start()
    check("nothing of it stays where it was", until(lambda: a.is_empty_of(box.id), 20), a.files())
    check("… and nobody hears of its end, nor its command's", lease not in a.ended and not a.changed, (a.ended, a.changed))
    check("it goes on there", until(lambda: b.asks_for(box.lease), 10) and box.resume() == (0, ""), b.renewed)
    again = box.follow(runs)
    check("its command goes on to its end", again.over.wait(60) and again.result.exit_code == 7, again.result or again.done)
    box.end()


def left_alone(box, to, is_its):
    """It was taken, and nobody says whose it is but the books: as its taker would be asked for it."""
    move = box.move_to(to)
    equal("it is taken", move.outcome(), "taken")
    if not is_its:
        to.lost.add(move.lease)
    move.leave()
    there = copy.copy(box)
    there.at, there.lease, there.fence = to, move.lease, move.fence
    return there


@suite.scenario
def without_a_word_the_books_decide(w):
    a, b = w
    box = paused(a)
    there, began = left_alone(box, b, True), time.monotonic()
    equal("it goes on as soon as they say that it may", there.resume(), (0, ""))
    check("… which is asked at once", time.monotonic() - began < SETTLE_S - 1, time.monotonic() - began)
    there.end()
    box.end()


@suite.long_scenario
def what_they_do_not_know_yet_they_may_be_about_to(w):
    a, b = w
    box, began = paused(a), time.monotonic()
    there = left_alone(box, b, False)
    check("they are asked at once", until(lambda: there.lease in b.renewed, 10), b.renewed)
    resumed = concurrent.futures.ThreadPoolExecutor(1).submit(there.resume)
    time.sleep(max(0, began + SETTLE_S - 10 - time.monotonic()))
    check("it is kept meanwhile, and who resumes it waits", b.files_of(box.id) and not resumed.done(), b.files())
    equal("… and hears that it is another worker's", resumed.result(60), (UNAVAILABLE, "the sandbox goes to another worker; try again in a moment"))
    check("nothing of it stays", until(lambda: not b.files_of(box.id), 20) and time.monotonic() - began > SETTLE_S - 1, b.files())
    box.end()


def main():
    pair = Pair([Worker("a"), Worker("b")])
    suite.play(pair, sys.argv[1:])
    for w in pair:
        reports = [line for line in harness.read_text(w.worker.log).splitlines() if "Sanitizer" in line or "runtime error" in line]
        equal("no sanitizer spoke", reports, [])
        equal("the worker ends in order", w.stop(), 0)
    suite.finish()


class Pair(list):
    def tails(self):
        return "\n".join(w.tails() for w in self)


if __name__ == "__main__":
    main()
