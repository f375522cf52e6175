#!/usr/bin/python3
"""The real cloche-net between a guest of raw frames, a worker, and a server in another namespace.

usage: process.py CLOCHE_NET [CHECK...]     (CLOCHE_NET_WRAP: words before the program, as "strace -f -o FILE")
Exit 0 when all passed, 1 otherwise, 77 when this machine cannot run it.
"""
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

from world import (ACK, CLOSE, CLOSED, DENIED, DNS, GATEWAY, HOST, NOERROR, NXDOMAIN, OPEN, PUBLIC, RESET, RESOLVER, RST, SERVER,
                   SERVFAIL, STOPPED, TCP, TOTALS, UDP, UID, Grant, Guest, World, grant, number, packet, rule)

CHECKS = []
SERVERS = rule("203.0.113.0/24", 1, 65535)


def check(function):
    CHECKS.append(function)
    return function


def guest(*rules, **how):
    return Guest(sys.argv[1], grant(*rules, **how), os.environ.get("CLOCHE_NET_WRAP", "").split())


def expect(condition, *what):
    assert condition, what


def refused(g, stream, reason):
    expect(stream.reply and stream.reply.flags & RST, "no reset", stream.reply and stream.reply.flags)
    e = g.event(DENIED)
    expect(e and e.reason.decode() == reason, e and e.reason)
    expect((e.address, e.port, e.guest_port, e.protocol) == (number(stream.to), stream.port, stream.guest_port, TCP), e.address)
    return e


@check
def it_has_given_everything_away(world):
    with guest(SERVERS) as g:
        pid = g.process.pid
        status = dict(line.split(":\t", 1) for line in open("/proc/%d/status" % pid).read().splitlines() if ":\t" in line)
        expect(status["Uid"].split() == [str(UID)] * 4 and status["Gid"].split() == [str(UID)] * 4, status["Uid"])
        expect(not status["Groups"].strip(), status["Groups"])
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            expect(int(status[name], 16) == 0, name, status[name])
        expect(status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status["Seccomp"])
        expect(os.listdir("/proc/%d/root" % pid) == [], os.listdir("/proc/%d/root" % pid))
        limits = open("/proc/%d/limits" % pid).read()
        expect("Max file size             0 " in limits and "Max core file size        0 " in limits, limits)


@check
def it_runs_as_an_ordinary_user_too(world):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(sys.argv[1], folder)
        with Guest(program, grant(SERVERS), user=UID, group=UID, extra_groups=[]) as g:
            expect(g.connect(SERVER, 443).echo(b"hello") == b"hello", "no echo")
            status = open("/proc/%d/status" % g.process.pid).read()
            expect("NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, status)


@check
def an_allowed_flow_is_told_with_every_byte(world):
    with guest(SERVERS) as g:
        s = g.connect(SERVER, 443)
        expect(s.is_open(), "no connection")
        e = g.event(OPEN)
        expect((e.flow, e.number, e.address, e.port, e.rule) == (1, 1, number(SERVER), 443, 0), e.flow, e.number)
        data = os.urandom(1000)
        expect(s.echo(data) == data, "no echo")
        expect(s.close(), "no FIN")
        e = g.event(CLOSE)
        expect(e and e.end == CLOSED and e.flow == 1, e and e.end)
        expect((e.sent, e.received) == (s.sent, s.received), (e.sent, e.received), (s.sent, s.received))
        e = g.event(TOTALS)
        while e.number != 2:
            e = g.event(TOTALS)
        expect((e.sent, e.received) == (s.sent, s.received), e.sent, e.received)


@check
def much_data_goes_through(world):
    with guest(SERVERS) as g:
        s = g.connect(SERVER, 7000)
        for _ in range(200):
            expect(len(s.echo(b"y" * 1400)) == 1400, "no echo")
        expect(s.close(), "no FIN")
        e = g.event(CLOSE)
        expect((e.sent, e.received) == (s.sent, s.received), (e.sent, e.received), (s.sent, s.received))


@check
def datagrams_go_and_come(world):
    with guest(rule("203.0.113.1/32", 7000, protocol=UDP)) as g:
        n = g.datagram(SERVER, 7000, b"hello")
        f = g.take(lambda f: f.protocol == UDP)
        expect(f and f.data == b"hello" and f.source == SERVER and f.port == 7000, f)
        g.wire.close()
        events, code = g.rest()
        expect(code == 0, code)
        closed = [e for e in events if e.kind == CLOSE]
        expect([(e.end, e.sent, e.received) for e in closed] == [(STOPPED, n, f.bytes)], closed)


@check
def what_is_not_allowed_is_refused_and_told(world):
    with guest(rule("203.0.113.0/24", 443)) as g:
        refused(g, g.connect(SERVER, 7000), "no rule allows it")
        refused(g, g.connect(PUBLIC, 443), "no rule allows it")
        refused(g, g.connect("10.0.0.1", 443), "its address is not public")
        refused(g, g.connect(HOST, 443), "it is an address of this host")
        refused(g, g.connect("127.0.0.1", 443), "no guest reaches such an address")
        refused(g, g.connect(GATEWAY, 443), "the link has no such service")
        g.datagram(SERVER, 443, b"x")
        f = g.take(lambda f: f.icmp)
        expect(f and f.icmp == (3, 13) and f.source == GATEWAY, f and f.icmp)
        e = g.event(DENIED)
        expect(e and e.protocol == UDP and e.reason == b"no rule allows it", e)
        g.datagram(SERVER, 443, b"x")  # again: refused, and not told
        expect(g.take(lambda f: f.icmp), "no answer")
        g.wire.close()
        events, code = g.rest()
        expect(code == 0 and len([e for e in events if e.kind == DENIED]) == 7, code, len(events))
        expect(events[-1].kind == TOTALS and events[-1].sent == 0, events[-1].kind, events[-1].sent)


@check
def names_lead_where_rules_lead(world):
    with guest(rule("good.test", 443), rule("*.good.test")) as g:
        refused(g, g.connect(SERVER, 443), "no rule allows it")
        expect(g.ask("Good.TEST") == (NOERROR, [SERVER]), "no address")
        e = g.event(DNS)
        expect((e.name, e.rule, e.n_addresses, e.addresses[0], e.is_denied) == (b"good.test", 0, 1, number(SERVER), 0), e.name)
        expect(e.duration_us > 0 and e.qtype == 1, e.duration_us)
        s = g.connect(SERVER, 443)
        expect(s.is_open() and g.event(OPEN).name == b"good.test", s.reply)
        expect(g.ask("none.good.test") == (NXDOMAIN, []), "want NXDOMAIN")
        expect(world.names_asked() == ["good.test", "none.good.test"], "what the resolver was asked")


@check
def an_answer_that_is_cut_is_asked_for_again(world):
    with guest(rule("long.test")) as g:
        expect(g.ask("long.test") == (NOERROR, [SERVER]), "no address")
        expect(world.names_asked() == ["long.test"] * 2, "by UDP, and by TCP")


@check
def what_no_rule_covers_never_leaves(world):
    with guest(rule("good.test")) as g:
        expect(g.ask("evil.test") == (NXDOMAIN, []), "want NXDOMAIN")
        e = g.event(DNS)
        expect(e.is_denied and e.name == b"evil.test" and e.reason == b"no rule covers the name", e.reason)
        expect(g.ask("good.test", qtype=16) == (NOERROR, []), "want no records")
        expect(g.ask("good.test", qtype=28) == (NOERROR, []), "want no records")
        expect(g.event(DNS).qtype == 16 and g.event(DNS).qtype == 28, "types")
        expect(world.names_asked() == [], "the resolver was asked")


@check
def a_name_does_not_lead_into_the_host(world):
    with guest(rule("*.test", 1, 65535), rule("public", 443)) as g:
        expect(g.ask("rebind.test") == (NOERROR, []), "addresses of the host are told")
        e = g.event(DNS)
        expect(e.is_denied and e.reason == b"its addresses are not public" and e.n_addresses == 0, e.reason)
        refused(g, g.connect(HOST, 7000), "it is an address of this host")
        expect(g.ask("many.test") == (NOERROR, [SERVER, PUBLIC]), "what is left")
        expect(g.connect(PUBLIC, 443).is_open(), "no connection")
        world.names_asked()


@check
def without_resolvers_no_name_has_addresses(world):
    with guest(rule("good.test"), servers=()) as g:
        expect(g.ask("good.test") == (SERVFAIL, []), "want SERVFAIL")
        expect(world.names_asked() == [], "somebody was asked")


@check
def a_question_that_is_open_at_the_end_is_told(world):
    with guest(rule("slow.test")) as g:
        g.datagram(RESOLVER, 53, struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + b"\4slow\4test\0\0\1\0\1")
        time.sleep(0.3)
        expect(world.names_asked() == ["slow.test"], "not asked")
        g.wire.close()
        events, code = g.rest()
        expect(code == 0 and [e.rcode for e in events if e.kind == DNS] == [SERVFAIL], [e.kind for e in events])


@check
def a_budget_ends(world):
    with guest(SERVERS, egress=3000) as g:
        s = g.connect(SERVER, 443)
        expect(s.echo(b"x" * 1000) == b"x" * 1000, "no echo")
        for _ in range(3):
            s.push(ACK, b"x" * 1000)
        expect(s.take(lambda f: f.flags & RST), "no reset")
        e = g.event(DENIED)
        expect(e.reason == b"the egress budget is used up", e.reason)
        expect(g.connect(SERVER, 443).reply.flags & RST, "another flow")
        g.control.shutdown(socket.SHUT_WR)
        events, code = g.rest()
        expect(code == 0 and len([e for e in events if e.kind == DENIED]) == 1, code)
        expect(1000 < events[-1].sent <= 3000, events[-1].sent)


@check
def a_server_that_refuses_resets(world):
    with guest(SERVERS) as g:
        s = g.connect(SERVER, 9)
        expect(s.reply and s.reply.flags & RST, s.reply)
        e = g.event(CLOSE)
        expect(e.end == RESET and e.sent == s.sent and e.received == s.received, e.end)


@check
def the_end_of_the_vm_is_told(world):
    with guest(SERVERS) as g:
        a, b = g.connect(SERVER, 443), g.connect(SERVER, 7000)
        expect(a.is_open() and b.is_open(), "no connection")
        g.wire.close()
        events, code = g.rest()
        expect(code == 0, code)
        expect(sorted((e.flow, e.end) for e in events if e.kind == CLOSE) == [(1, STOPPED), (2, STOPPED)], "ends")
        expect(events[-1].kind == TOTALS and events[-1].number == 4, events[-1].kind, events[-1].number)
        expect([e.number for e in events if e.kind != TOTALS] == [1, 2, 3, 4], "numbers")
        expect(g.process.stderr.read() == "", "stderr")


@check
def the_worker_asks_for_the_end(world):
    with guest(SERVERS) as g:
        expect(g.connect(SERVER, 443).is_open(), "no connection")
        g.control.shutdown(socket.SHUT_WR)
        events, code = g.rest()
        expect(code == 0 and events[-1].kind == TOTALS and events[-2].kind == CLOSE, code)


@check
def without_a_worker_there_is_no_network(world):
    with guest(SERVERS) as g:
        s = g.connect(SERVER, 443)
        expect(s.is_open(), "no connection")
        g.control.close()
        code, text = g.process.wait(5), g.process.stderr.read()
        expect(code == 1 and text.count("\n") == 1 and "the worker is gone" in text, code, text)


@check
def a_worker_that_does_not_read_stops_the_guest(world):
    with guest(SERVERS) as g:
        sent = 0
        while sent < 5000 and select.select([], [g.wire], [], 0.5)[1]:
            sent += 1
            g.send(packet(TCP, PUBLIC, struct.pack("!HHIIBBHHH", 5, sent, 1, 0, 0x50, 2, 64000, 0, 0), 16))
        expect(10 < sent < 5000, "the guest was not stopped", sent)
        g.wire.close()
        events, code = g.rest()
        told = [e.port for e in events if e.kind == DENIED]  # what was still on the wire went with the VM
        expect(code == 0 and len(told) > 10 and told == list(range(1, len(told) + 1)), code, sent, len(told))


@check
def what_the_guest_must_not_send_goes_nowhere(world):
    with guest(SERVERS) as g:
        good = packet(TCP, SERVER, struct.pack("!HHIIBBHHH", 5, 443, 1, 0, 0x50, 2, 64000, 0, 0), 16)
        for i in range(len(good)):
            g.send(good[:i] + bytes([good[i] ^ 0x55]) + good[i + 1:])
            g.wire.send(good[:i] or b"x")
        g.wire.send(b"\xff" * 1600)
        g.wire.close()
        events, code = g.rest()
        kinds = {e.kind for e in events} - {TOTALS}
        expect(code == 0 and kinds <= {OPEN, CLOSE}, code, kinds)  # of the bytes that nothing depends on: where it goes to, by MAC
        expect(all(e.address == number(SERVER) and e.port == 443 for e in events if e.kind == OPEN), "another destination")


@check
def a_grant_that_is_none_is_refused(world):
    bad = grant(SERVERS)
    bad.version += 1
    for raw in (bytes(bad), bytes(Grant())[:-1], b""):
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wire, mine = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if raw:
            other.send(raw)
        else:
            other.close()
        done = subprocess.run([sys.argv[1], str(control.fileno()), str(wire.fileno()), str(UID), str(UID)],
                              pass_fds=(control.fileno(), wire.fileno()), capture_output=True, text=True, timeout=120)
        expect(done.returncode == 1 and done.stderr.startswith("cloche-net: ") and done.stderr.count("\n") == 1, done)
    for words in ([], ["3"], ["3", "3", "1", "1"], ["0", "1", "1", "1"], ["3", "x", "1", "1"]):
        expect(subprocess.run([sys.argv[1], *words], capture_output=True).returncode == 2, words)
    expect(subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True).stdout.startswith("usage:"), "--help")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    world, failed = World(), 0
    for one in CHECKS:
        if sys.argv[2:] and one.__name__ not in sys.argv[2:]:
            continue
        began = time.monotonic()
        try:
            one(world)
            result = "ok"
        except Exception:
            traceback.print_exc()
            result, failed = "FAILED", failed + 1
        print("%-6s %s (%.1f s)" % (result, one.__name__.replace("_", " "), time.monotonic() - began), flush=True)
    return 1 if failed else 0


sys.exit(main())
