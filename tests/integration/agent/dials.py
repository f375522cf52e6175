"""Connections to ports of the guest's loopback: GuestDial, driven through the agent's protocol.

checks.py runs CHECKS in its one VM, OWN in VMs of their own and BROKEN as ways to break the protocol.  The
servers are Perl: every image has it.
"""
import errno
import hashlib
import os
import time

from guest import DATA_MAX, FACTOR, WINDOW, Guest, pb

SOCKET = pb.GUEST_CHANNEL_SOCKET
MIB = 1024 * 1024
# $l listens, `c` accepts.  With a port of 0 the kernel chooses; the first line of output is the port.
PRELUDE = r"""
use strict; use Socket qw(:all); use Errno qw(:POSIX); $| = 1; $SIG{PIPE} = 'IGNORE';
my ($family, $queue) = (%s, %d);
socket(my $l, $family, SOCK_STREAM, 0) or die $!;
my $at = $family == AF_INET ? pack_sockaddr_in(0, INADDR_LOOPBACK) : pack_sockaddr_in6(0, inet_pton(AF_INET6, '::1'));
bind($l, $at) && listen($l, $queue) or die $!;
my ($port) = $family == AF_INET ? unpack_sockaddr_in(getsockname $l) : unpack_sockaddr_in6(getsockname $l);
print "$port\n";
sub c { accept(my $c, $l) or die $!; $c }
sub put { my ($c, $b) = @_; while (length $b) { my $n = syswrite($c, $b); return $! unless $n; substr($b, 0, $n) = '' } 0 }
sub all { my ($c, $b) = (shift, ''); while (sysread($c, $b, 65536, length $b)) {} $b }
sub taken { my $c = shift; for (1 .. 1200) { my $n = pack 'i', 0; ioctl($c, 0x5411, $n) or die $!; return unless unpack 'i', $n; select undef, undef, undef, 0.05 } die }  # TIOCOUTQ
sub rst { my $c = shift; setsockopt($c, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close $c }
"""
ECHO = r"""
vec(my $want = '', fileno $l, 1) = 1; my %c;
while (1) {
    select(my $r = $want, undef, undef, undef);
    if (vec($r, fileno $l, 1)) { my $c = c(); $c{fileno $c} = $c; vec($want, fileno $c, 1) = 1 }
    for my $n (grep { vec($r, $_, 1) } keys %c) {
        my $read = sysread($c{$n}, my $bytes, 65536);
        next if $read && !put($c{$n}, $bytes);
        vec($want, $n, 1) = 0; delete $c{$n};
    }
}
"""


def expect(condition, *what):
    assert condition, what


class Server:
    """A Perl program in the guest that listens; its output after the first line is `said`."""

    def __init__(self, g, code, queue=100, family="AF_INET"):
        self.g = g
        self.stream = g.start(["perl", "-e", PRELUDE % (family, queue) + code], no_stdin=True)
        self.said = ""
        while "\n" not in self.said:
            frame = g.take(self.stream)
            expect(frame.WhichOneof("body") in ("exec_started", "data"), frame)
            self.said += frame.data.bytes.decode()
        port, self.said = self.said.split("\n", 1)
        self.port = int(port)

    def end(self):
        """What it said, once it has ended by itself."""
        ended, out, err = self.g.finish(self.stream)
        expect(ended.end == pb.GUEST_END_EXITED and ended.exit_code == 0, ended, out, err)
        return self.said + out.decode()

    def kill(self):
        self.g.send(self.stream, signal=pb.GuestSignal(signal=9))
        self.g.finish(self.stream)


class Dial:
    def __init__(self, g, port, auto=True):
        self.g, self.stream = g, g.open_stream()
        if auto:
            g.auto_window.add(self.stream)
        self.got, self.eof = b"", False
        g.send(self.stream, dial=pb.GuestDial(port=port))

    def connected(self, timeout=30):
        frame = self.g.take(self.stream, timeout)
        expect(frame.WhichOneof("body") == "dialed", frame)
        return self

    def push(self, data, eof=False):
        self.g.push(self.stream, data, SOCKET, eof)

    def take(self, timeout=60):
        """One frame, its bytes kept; the HungUp, or None."""
        frame = self.g.take(self.stream, timeout)
        kind = frame.WhichOneof("body")
        if kind == "hung_up":
            return frame.hung_up
        expect(kind == "data" and frame.data.channel == SOCKET and not self.eof, frame)
        self.got += frame.data.bytes
        self.eof = frame.data.eof
        return None

    def read(self, n):
        while len(self.got) < n:
            expect(self.take() is None and not (self.eof and len(self.got) < n), self.got[-100:])
        return self.got

    def read_all(self):
        while not self.eof:
            expect(self.take() is None)
        return self.got

    def hung_up(self, *errors, timeout=60):
        end = self.take(timeout)
        while end is None:
            end = self.take(timeout)
        expect(end.error_number in (errors or (0,)) and bool(end.error) == bool(end.error_number), end)
        return end

    def reset(self):
        self.g.send(self.stream, reset=pb.GuestReset(reason="enough"))


def refused_at(g):
    """A port at which nobody listens."""
    server = Server(g, "")
    server.end()
    return server.port


def a_port_is_talked_to_and_the_client_ends(g):
    server = Server(g, "my $c = c(); my $q = all($c); put($c, \"you said $q\"); close $c")
    dial = Dial(g, server.port).connected()
    dial.push(b"hello ")
    dial.push(b"there", eof=True)
    expect(dial.read_all() == b"you said hello there", dial.got)
    dial.hung_up()
    server.end()


def a_program_ends_first_and_still_listens(g):
    server = Server(g, "my $c = c(); put($c, 'welcome'); shutdown($c, 1); print all($c)")
    dial = Dial(g, server.port).connected()
    expect(dial.read_all() == b"welcome")
    time.sleep(0.2)
    dial.push(b"late words", eof=True)
    dial.hung_up()
    expect(server.end() == "late words")


def a_program_that_reads_no_more_goes_on_writing(g):
    server = Server(g, "my $c = c(); shutdown($c, 0); put($c, 'x' x 1048576); shutdown($c, 1); sleep 1")
    dial = Dial(g, server.port).connected()
    expect(dial.read_all() == b"x" * MIB)
    dial.push(b"", eof=True)
    dial.hung_up()
    server.end()


def nobody_listens(g):
    dial = Dial(g, refused_at(g))
    frame = g.take(dial.stream)
    expect(frame.hung_up.error_number == errno.ECONNREFUSED and frame.hung_up.error == "Connection refused", frame)


def ports_that_cannot_be(g):
    for port in (0, 65536, 2**32 - 1):
        frame = g.take(Dial(g, port).stream)
        expect(frame.hung_up.error_number == errno.EINVAL and str(port) in frame.hung_up.error, frame)
    g.ping()


def a_reset_is_told_and_is_no_end(g):
    server = Server(g, "my $c = c(); sysread($c, my $b, 1); rst($c)")
    dial = Dial(g, server.port).connected()
    dial.push(b"x")
    dial.hung_up(errno.ECONNRESET)
    expect(not dial.eof and dial.got == b"", dial.got)
    server.end()


def an_answer_before_a_reset_is_delivered(g):
    # What is not read makes a reset of its close(): a server that refuses a large request does so.  What its own kernel has not sent
    # then is lost; so it waits until all is at the other end, whose buffer has room for 64 KiB at least beyond the credit.
    server = Server(g, "my $c = c(); sysread($c, my $b, 1); put($c, 'too large ' x 30000); taken($c); close $c")
    dial = Dial(g, server.port, auto=False).connected()
    dial.push(b"x" * 100000)
    dial.read(WINDOW)
    server.end()
    dial.push(b"y" * 50000)  # into the broken connection, with the answer not taken yet
    while g.pump(0.5):  # it gives credit
        pass
    expect(not g.inbox.get(dial.stream), g.inbox)
    g.send(dial.stream, window=pb.GuestWindow(bytes=WINDOW))
    end = dial.hung_up(errno.ECONNRESET, errno.EPIPE)
    expect(dial.got == b"too large " * 30000 and not dial.eof, len(dial.got), dial.eof, end)


def a_reset_after_its_end_is_told_unasked(g):
    server = Server(g, "my $c = c(); put($c, 'bye'); shutdown($c, 1); sleep 1; rst($c)")
    dial = Dial(g, server.port).connected()
    expect(dial.read_all() == b"bye")
    dial.hung_up(errno.ECONNRESET, errno.EPIPE)
    server.end()


def a_workers_reset_is_one_for_the_program(g):
    server = Server(g, "my $c = c(); sysread($c, my $b, 4); print defined sysread($c, $b, 1) ? 'end' : $!{ECONNRESET} ? 'reset' : $!")
    dial = Dial(g, server.port).connected()
    dial.push(b"over")
    time.sleep(0.2)
    dial.reset()
    expect(server.end() == "reset")
    server = Server(g, "c(); sleep 100")  # and one that was never answered
    Dial(g, server.port).reset()
    g.ping()
    server.kill()


def an_end_before_it_is_connected_is_told_by_itself(g):
    server = Server(g, "for (1 .. 20) { my $c = c(); put($c, 'got ' . length(all($c))); close $c }")
    for _ in range(20):  # nothing else comes that could wake the agent
        dial = Dial(g, server.port)
        dial.push(b"", eof=True)
        dial.connected()
        expect(dial.read_all() == b"got 0", dial.got)
        dial.hung_up()
    server.end()


def bytes_before_it_is_connected_are_kept(g):
    server = Server(g, "print length all(c())")
    dial = Dial(g, server.port)
    data = bytes(DATA_MAX)
    for _ in range(WINDOW // DATA_MAX):
        g.send(dial.stream, data=pb.GuestData(channel=SOCKET, bytes=data))
    g.send(dial.stream, data=pb.GuestData(channel=SOCKET, eof=True))
    dial.connected()
    dial.read_all()
    dial.hung_up()
    expect(server.end() == str(WINDOW))


def five_mib_each_way_at_once(g):
    server = Server(g, r"""
        open(my $r, '<', '/dev/urandom'); sysread($r, my $b, 5 << 20); my $c = c();
        open(my $s, '>', '/tmp/sent'); print $s $b; close $s;
        unless (fork) { put($c, $b); shutdown($c, 1); exit }
        open(my $t, '>', '/tmp/taken'); print $t all($c); close $t; wait""")
    dial = Dial(g, server.port).connected()
    data = os.urandom(5 * MIB)
    dial.push(data, eof=True)
    dial.read_all()
    dial.hung_up()
    server.end()
    sums = g.run("sha256sum < /tmp/sent; sha256sum < /tmp/taken; rm /tmp/sent /tmp/taken")[1].decode().split()
    expect(sums[0] == hashlib.sha256(dial.got).hexdigest() and len(dial.got) == len(data), len(dial.got))
    expect(sums[2] == hashlib.sha256(data).hexdigest(), sums)


def nobody_gets_more_than_his_credit(g):
    server = Server(g, "my $c = c(); put($c, 'x' x 5242880); shutdown($c, 1); sleep 1; print length all($c)")
    dial = Dial(g, server.port, auto=False).connected()
    dial.read(WINDOW)
    expect(not g.pump(0.5) and len(dial.got) == WINDOW, len(dial.got))
    expect(g.ping() < 5 * FACTOR)
    dial.push(b"y" * WINDOW)  # it does not read either: so much is taken
    for _ in range(5 * MIB // WINDOW):
        g.send(dial.stream, window=pb.GuestWindow(bytes=WINDOW))
    expect(dial.read_all() == b"x" * (5 * MIB))
    dial.push(b"y" * MIB, eof=True)
    dial.hung_up()
    expect(server.end() == str(WINDOW + MIB))


def as_many_as_there_are_streams(g):
    server = Server(g, ECHO)
    dials = [Dial(g, server.port).connected() for _ in range(63)]
    for n, dial in enumerate(dials):
        dial.push(b"%d" % n)
    for n, dial in enumerate(dials):
        expect(dial.read(len(b"%d" % n)) == b"%d" % n, n)
    frame = g.take(Dial(g, server.port).stream)
    expect(frame.hung_up.error_number == errno.EAGAIN and "64 streams" in frame.hung_up.error, frame)
    dials.pop().reset()
    dials.append(Dial(g, server.port).connected())
    for dial in dials:
        dial.push(b"", eof=True)
        dial.read_all()
        dial.hung_up()
    server.kill()


def who_does_not_accept_is_not_waited_for_long(g):
    server = Server(g, "sleep 100", queue=1)
    begin = time.monotonic()
    dials = [Dial(g, server.port) for _ in range(4)]
    for dial in dials:
        g.send(dial.stream, data=pb.GuestData(channel=SOCKET, bytes=b"kept"))
    dials[0].connected()
    dials[3].hung_up(errno.ETIMEDOUT, timeout=30)
    expect(9 < time.monotonic() - begin < 10 + 10 * FACTOR, time.monotonic() - begin)
    for dial in dials[:3]:
        dial.reset()
    server.kill()


def a_connection_outlives_a_pause(g):
    server = Server(g, ECHO)
    dial = Dial(g, server.port).connected()
    dial.push(b"before ")
    dial.read(7)
    g.command("stop")
    dial.push(b"meanwhile ")
    expect(not g.pump(0.5))
    g.command("cont")
    dial.push(b"after", eof=True)
    expect(dial.read_all() == b"before meanwhile after", dial.got)
    dial.hung_up()
    server.kill()


CHECKS = [
    a_port_is_talked_to_and_the_client_ends, a_program_ends_first_and_still_listens,
    a_program_that_reads_no_more_goes_on_writing, nobody_listens, ports_that_cannot_be, a_reset_is_told_and_is_no_end,
    an_answer_before_a_reset_is_delivered, a_reset_after_its_end_is_told_unasked, a_workers_reset_is_one_for_the_program,
    an_end_before_it_is_connected_is_told_by_itself, bytes_before_it_is_connected_are_kept, five_mib_each_way_at_once, nobody_gets_more_than_his_credit,
    as_many_as_there_are_streams, who_does_not_accept_is_not_waited_for_long, a_connection_outlives_a_pause,
]


def in_a_vm(image, append, run):
    g = Guest(image, extra_append=append)
    try:
        g.hello()
        expect(not g.identify().error)
        run(g)
    finally:
        g.kill()


def a_server_of_ipv6_alone_is_found(image):
    def run(g):
        server = Server(g, "my $c = c(); put($c, 'six')", family="AF_INET6")
        dial = Dial(g, server.port).connected()
        expect(dial.read_all() == b"six")
        dial.push(b"", eof=True)
        dial.hung_up()
        server.end()
        nobody_listens(g)
    in_a_vm(image, "ipv6.disable=0", run)


def a_connection_to_itself_is_none(image):
    def run(g):
        for _ in range(3):
            frame = g.take(Dial(g, 40000).stream)
            expect(frame.hung_up.error_number == errno.ECONNREFUSED, frame)
        nobody_listens(g)
    in_a_vm(image, '"sysctl.net.ipv4.ip_local_port_range=40000 40000"', run)


OWN = [a_server_of_ipv6_alone_is_found, a_connection_to_itself_is_none]


def dial_before_identity(g):
    Dial(g, 80)


def bytes_after_the_end_of_a_dial(g):
    g.identify()
    dial = Dial(g, Server(g, "sleep 100").port)
    for _ in range(2):
        g.send(dial.stream, data=pb.GuestData(channel=SOCKET, eof=True))


BROKEN = [dial_before_identity, bytes_after_the_end_of_a_dial]
