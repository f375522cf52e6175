"""A channel that is held, and copies of its VM: GuestHold and GuestRelease, driven through the agent's protocol.

checks.py runs CHECKS in its one VM, OWN in VMs of their own and BROKEN as ways to break the protocol.
"""
import os
import time

from guest import FACTOR, WINDOW, Guest, pb

COUNT = "n=0; while [ $n -lt %d ]; do n=$((n+1)); echo $n; done"


def expect(condition, *what):
    assert condition, what


def hold(g):
    g.send(hold=pb.GuestHold())
    g.kept = []
    frame = g.take(0)
    expect(frame.WhichOneof("body") == "held", frame)
    expect(not g.buffer, "bytes behind Held", len(g.buffer))


def release(g):
    g.send(release=pb.GuestRelease())
    kept, g.kept = g.kept or [], None
    for stream, body in kept:
        g.send(stream, **body)


def begin(g, script):
    """Start it, and wait for its first output."""
    stream = g.start(["/bin/sh", "-c", script], no_stdin=True)
    g.take(stream)
    while not g.inbox.get(stream):
        g.pump(1)
    return stream


def is_silent(g, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if g.pump(until - time.monotonic()):
            return False
    return True


def lines(*parts):
    return [int(n) for n in b"".join(parts).split()]


def taken(g, stream):
    """Output of a stream that has come, without waiting."""
    return b"".join(f.data.bytes for f in g.inbox.pop(stream, []))


def a_held_channel_is_silent_and_loses_nothing(g):
    stream = begin(g, COUNT % 20000)
    hold(g)
    expect(is_silent(g, 0.5))
    release(g)
    ended, out, _ = g.finish(stream)
    expect(ended.end == pb.GUEST_END_EXITED and lines(out) == list(range(1, 20001)), ended, len(out))


def an_idle_channel_can_be_held(g):
    for _ in range(3):
        hold(g)
        expect(is_silent(g, 0.1))
        release(g)
        g.ping()


def all_of(guests, stream, before):
    """What each says until its name is there.  All are read at once: a port of QEMU's that nobody reads for long may not go on."""
    outs, end = {name: before for name in guests}, time.monotonic() + 300 * FACTOR

    def is_whole(out):
        return b"\n30000\n" in out and out.split(b"\n30000\n")[1].endswith(b"\n")
    while not all(is_whole(out) for out in outs.values()):
        expect(time.monotonic() < end, {name: (len(out), out[-40:]) for name, out in outs.items()})
        for name, g in guests.items():
            g.pump(0.02)
            outs[name] += taken(g, stream)
    return outs


def copies_of_a_held_guest_go_on(image):
    """Each where it was: no byte of a stream is lost, none comes twice, in the first as in its copies."""
    first, copies = Guest(image), []
    try:
        first.hello()
        first.identify(hostname="first")
        stream = begin(first, COUNT % 30000 + "; hostname; sleep 1000")
        hold(first)
        before = taken(first, stream)
        path = os.path.join(first.dir, "state")
        first.snapshot(path)
        for n in range(2):
            copies.append(Guest(image, restore=path))
        first.command("cont")
        for n, g in enumerate(copies):
            g.next_stream = first.next_stream
            g.auto_window.add(stream)
            expect(is_silent(g, 0.2), "a copy speaks before its release")
            release(g)
            g.send(stream, window=pb.GuestWindow(bytes=WINDOW))
            expect(not g.identify(hostname="copy-%d" % n).error)
        release(first)
        named = {"first": first, "copy-0": copies[0], "copy-1": copies[1]}
        for name, out in all_of(named, stream, before).items():
            g = named[name]
            numbers, said = out.split(b"\n30000\n")
            expect(lines(numbers) == list(range(1, 30000)), name, len(out))
            expect(said.decode().split() == [name], name, said)
            ended, out, _ = g.run("hostname; cat /etc/hostname")
            expect(ended.exit_code == 0 and out.decode().split() == [name, name], name, out)
    finally:
        for g in (first, *copies):
            g.kill()


CHECKS = [a_held_channel_is_silent_and_loses_nothing, an_idle_channel_can_be_held]
OWN = [copies_of_a_held_guest_go_on]


def frame_while_it_is_held(g):
    g.identify()
    hold(g)
    g.send(ping=pb.GuestPing(token=1))


def second_hold(g):
    g.identify()
    hold(g)
    g.send(hold=pb.GuestHold())


def release_without_hold(g):
    g.identify()
    release(g)


BROKEN = [frame_while_it_is_held, second_hold, release_without_hold]
