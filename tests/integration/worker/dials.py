#!/usr/bin/env python3
"""Connections to ports of guests, as a worker relays them: flow, ends, errors, limits, idleness and rest."""
import os
import time

from made_up_scheduler import Scheduler, pb, play, until, wpb
from harness import MIB, SECOND, Suite, only_in_ci

suite = Suite("dials")
check, equal = suite.check, suite.equal
INVALID, EXHAUSTED, STATE, UNAVAILABLE = 3, 8, 9, 14
DIALS_MAX, WAITING_MAX = 32, 64
# Ports: 1 echo; 2 its own 5 MiB, then what it was given by its sum; 3 a reset; 4 what it hears at the end, to a file; 5 slow
SERVERS = r"""
use strict; use Socket qw(:all); use Errno qw(:POSIX); $SIG{PIPE} = 'IGNORE'; $SIG{CHLD} = 'IGNORE';
sub put { my ($c, $b) = @_; while (length $b) { my $n = syswrite($c, $b); return $! unless $n; substr($b, 0, $n) = '' } 0 }
my @do = (
    sub { my $c = shift; while (sysread($c, my $b, 65536)) { put($c, $b) } },
    sub { my $c = shift; unless (fork) { put($c, 'x' x 5242880); shutdown($c, 1); exit }
          my $n = 0; while (my $r = sysread($c, my $b, 65536)) { $n += $r } open(my $f, '>', '/tmp/taken'); print $f $n },
    sub { my $c = shift; sysread($c, my $b, 1); setsockopt($c, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close $c },
    sub { my $c = shift; my $r; do { $r = sysread($c, my $b, 65536) } while ($r);
          my $how = defined $r ? 'end' : $!{ECONNRESET} ? 'reset' : $!; open(my $f, '>', '/tmp/heard'); print $f $how },
    sub { my $c = shift; sleep 2; while (sysread($c, my $b, 65536)) { put($c, $b) } },
);
for my $n (1 .. @do) {
    next if fork;
    socket(my $l, AF_INET, SOCK_STREAM, 0); setsockopt($l, SOL_SOCKET, SO_REUSEADDR, 1);
    bind($l, pack_sockaddr_in(8000 + $n, INADDR_LOOPBACK)) && listen($l, 100) or die $!;
    while (1) { accept(my $c, $l) or next; unless (fork) { close $l; $do[$n - 1]->($c); exit } close $c }
}
sleep 1000;
"""
ECHO, BULK, RESET, LISTENER, SLOW, NOBODY = 8001, 8002, 8003, 8004, 8005, 8006


def dial(s, box, port):
    return s.relay(box, dial=wpb.RelayDial(port=port))


def served(s, **kw):
    box = s.sandbox(**kw)
    s.run(box, "perl", "-e", SERVERS)

    def answers():
        relay = dial(s, box, SLOW)
        connected = relay.awaits(lambda r: r.connected or r.done, 10) and relay.connected
        relay.leave()
        return connected
    if not until(answers, 20):
        raise RuntimeError("the servers do not come up")
    return box


def ended(relay):
    return relay.awaits(lambda r: r.eof) and relay.end()


@suite.scenario
def bytes_go_both_ways(s):
    box = served(s)
    relay = dial(s, box, ECHO)
    relay.send(b"early ")
    check("it is connected", relay.awaits(lambda r: r.connected))
    relay.send(b"late", eof=True)
    equal("it ends in order", ended(relay), (0, ""))
    equal("what came back", relay.data, b"early late")
    equal("how much that was", relay.done.bytes, 10)

    relay = dial(s, box, BULK)
    relay.may_read.clear()  # a client that does not read stops the guest, and nobody else
    data = os.urandom(5 * MIB)
    for at in range(0, len(data), 32768):
        relay.send(data[at:at + 32768])
    relay.send(eof=True)
    time.sleep(2)
    check("a client that does not read gets little", len(relay.data) < MIB, len(relay.data))
    other = dial(s, box, ECHO)
    other.send(b"meanwhile", eof=True)
    equal("another connection goes on meanwhile", (ended(other), other.data), ((0, ""), b"meanwhile"))
    relay.may_read.set()
    equal("5 MiB each way end in order", ended(relay), (0, ""))
    check("... and are whole", relay.data == b"x" * 5 * MIB and relay.done.bytes == 5 * MIB, len(relay.data))
    equal("... as the program says, too", until(lambda: s.read_file(box, "/tmp/taken") == b"%d" % (5 * MIB), 5), True)

    relay = dial(s, box, SLOW)
    for at in range(0, len(data), 32768):
        relay.send(data[at:at + 32768])
    relay.send(eof=True)
    equal("a program that reads late loses nothing", (ended(relay), relay.data == data), ((0, ""), True))
    s.end(box)


@suite.scenario
def ends_and_errors_are_told(s):
    box = served(s)
    equal("nobody listens", dial(s, box, NOBODY).end(), (STATE, f"nobody listens on port {NOBODY} in the sandbox"))
    for port in (0, 65536):
        equal(f"port {port}", dial(s, box, port).end()[0], INVALID)
    relay = dial(s, box, RESET)
    relay.send(b"x")
    code, text = relay.end()
    check("a reset is told", code == UNAVAILABLE and text.startswith("the connection was reset: ") and not relay.eof, (code, text))
    relay = dial(s, box, LISTENER)
    relay.send(b"hello")
    relay.awaits(lambda r: r.connected)
    relay.leave()
    check("a client that leaves is a reset for the program", until(lambda: s.read_file(box, "/tmp/heard") == b"reset", 10),
          s.read_file(box, "/tmp/heard"))
    relay = dial(s, box, ECHO)
    relay.awaits(lambda r: r.connected)
    s.end(box)
    check("a sandbox that ends takes its connections with it", relay.end()[0] == UNAVAILABLE, relay.done)
    equal("... and nobody gets in any more", dial(s, box, ECHO).end()[0], STATE)


@suite.scenario
def a_sandbox_has_so_many_connections(s):
    box = served(s)
    relays = [dial(s, box, ECHO) for _ in range(DIALS_MAX)]
    check("all are connected", all(r.awaits(lambda r: r.connected) for r in relays))
    early = [dial(s, box, port) for port in (ECHO, NOBODY, ECHO, ECHO)]
    for r in early:
        r.send(b"early ")
    check("those after them wait", not early[0].awaits(lambda r: r.connected or r.done, 1), early[0].done)
    check("commands still run", s.run(box, "true"))
    early.pop(2).leave()
    relays.pop().leave()
    check("one less lets the first of them in, with what it sent", early[0].awaits(lambda r: r.data == b"early "), early[0].data)
    early[0].send(eof=True)
    equal("its end lets in the next, and who left is passed over", early[1].end(), (STATE, f"nobody listens on port {NOBODY} in the sandbox"))
    check("... whose end does the same", early[2].awaits(lambda r: r.data == b"early "), early[2].data)

    began = time.monotonic()
    late = dial(s, box, ECHO)
    line = [dial(s, box, ECHO) for _ in range(WAITING_MAX - 1)]
    refused = dial(s, box, ECHO)
    equal("a line has its end", refused.end(), (EXHAUSTED, f"{DIALS_MAX} connections to this sandbox are open already, and {WAITING_MAX} wait"))
    line.pop().leave()
    last = dial(s, box, ECHO)
    check("... which moves up when one leaves it", not last.awaits(lambda r: r.done, 1), last.done)
    for r in line:
        r.leave()
    equal("nobody waits for ever", late.end(60), (EXHAUSTED, f"{DIALS_MAX} connections to this sandbox are open, and none ended for 20 s"))
    check("... but a while", time.monotonic() - began > 19)
    last.end(60)
    for r in relays + early[2:]:
        r.send(eof=True)
    check("all end in order", all(ended(r) == (0, "") for r in relays + early[2:]))

    relays = [dial(s, box, ECHO) for _ in range(DIALS_MAX)]
    check("all are connected again", all(r.awaits(lambda r: r.connected) for r in relays))
    late = dial(s, box, ECHO)
    check("one waits", not late.awaits(lambda r: r.done, 0.5), late.done)
    s.end(box)
    check("a sandbox that ends takes those with it that wait", late.end()[0] in (STATE, UNAVAILABLE), late.done)


@suite.scenario
def an_open_connection_is_no_use_but_its_bytes_are(s):
    box = s.sandbox(ttl=4, pause_on_idle=True)
    code = f"cat > /tmp/servers <<'END'\n{SERVERS}\nEND\nperl /tmp/servers > /dev/null 2>&1 &\nsleep 2"
    cell = s.relay(box, cell=wpb.RelayCell(context_id="c", language=pb.LANGUAGE_BASH, code=code, timeout_ns=30 * SECOND,
                                           output_max_bytes=MIB, contexts_max=1))
    cell.awaits(lambda r: r.cell_ended, 60)
    cell.end(0)
    relay = dial(s, box, ECHO)
    check("a server of a code context is connected to", relay.awaits(lambda r: r.connected), relay.done)
    check("an open connection without bytes is no use", until(lambda: box in s.idle, 15), s.ended.get(box))
    relay.send(b".")
    check("... and stays open", relay.awaits(lambda r: r.data == b"."), relay.done)
    s.idle.clear()
    for n in range(2, 10):
        time.sleep(1)
        relay.send(b".")
        relay.awaits(lambda r: len(r.data) == n)
    check("bytes are use", box not in s.idle and len(relay.data) == 9, (s.idle, relay.data))
    check("... while they come", until(lambda: box in s.idle, 15))
    relay.leave()
    s.end(box)


@suite.scenario
def a_connection_outlives_the_rest_of_its_sandbox(s):
    box = served(s)
    relay = dial(s, box, ECHO)
    relay.send(b"before ")
    relay.awaits(lambda r: r.data == b"before ")
    answer = s.ask(box, 60, pause=wpb.PauseCommand(keep_ns=300 * SECOND))
    if answer is not None and answer.code == 12:
        print("left out: its monitor cannot rest")
        s.end(box)
        return
    equal("it is paused", (answer.code, answer.message), (0, ""))
    relay.send(b"meanwhile ")
    check("it is silent", not relay.awaits(lambda r: r.data != b"before " or r.done, 2), relay.data)
    code, text = dial(s, box, ECHO).end()
    check("a paused sandbox is not dialed", code == STATE and "paused" in text, (code, text))
    answer = s.ask(box, 60, resume=wpb.ResumeCommand())
    equal("it goes on", (answer.code, answer.message), (0, ""))
    relay.send(b"after", eof=True)
    equal("the connection has lost nothing", (ended(relay), relay.data), ((0, ""), b"before meanwhile after"))
    s.end(box)


def main():
    only_in_ci(70)
    play(suite, Scheduler())


if __name__ == "__main__":
    main()
