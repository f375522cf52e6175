"""A host and a server in network namespaces of their own, and a guest that speaks raw frames to cloche-net.

The host is 203.0.113.10, and routes 198.18.0.0/15 and 192.31.196.7 to the server too.  The server is 203.0.113.1: it echoes on
every TCP and UDP port of ECHO, and answers on port 53 what NAMES says.
"""
import ctypes
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

HOST, SERVER, PUBLIC = "203.0.113.10", "203.0.113.1", "192.31.196.7"
GATEWAY, GUEST, RESOLVER = "192.0.0.1", "192.0.0.2", "192.0.0.3"
ECHO = (443, 7000)
NAMES = {"good.test": [SERVER], "long.test": [SERVER], "many.test": [SERVER, "127.0.0.1", PUBLIC], "rebind.test": ["127.0.0.1", HOST, "169.254.169.254"]}
MAC, UID = bytes([2, 0xC1, 0x0C, 0x4E, 0, 2]), 61234
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
TCP, UDP = 6, 17
DNS, OPEN, CLOSE, DENIED, TOTALS = 1, 2, 3, 4, 5
CLOSED, RESET, IDLE, STOPPED = 1, 2, 3, 4
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
CLONE_NEWNET = 0x40000000
MTU, FRAME_MAX = 9000, 16384  # of the guest's link; more than any frame
PATIENCE_S = 60.0             # what comes at once on a healthy machine may take a sick one so long
libc = ctypes.CDLL(None, use_errno=True)


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


def number(address):
    return struct.unpack("!I", socket.inet_aton(address))[0]


# --- net/control.h ---------------------------------------------------------------------------------------------------
class Range(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint32), ("last", ctypes.c_uint32)]


class Rule(ctypes.Structure):
    _fields_ = [("target", ctypes.c_uint8), ("protocol", ctypes.c_uint8), ("port_first", ctypes.c_uint16),
                ("port_last", ctypes.c_uint16), ("range", Range), ("name", ctypes.c_char * 254)]


class Past(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("sent", ctypes.c_uint64), ("received", ctypes.c_uint64), ("flow", ctypes.c_uint64)]


class Grant(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("n_rules", ctypes.c_uint32), ("n_private", ctypes.c_uint32),
                ("n_servers", ctypes.c_uint32), ("egress_bytes", ctypes.c_uint64), ("past", Past), ("private_ranges", Range * 16),
                ("servers", ctypes.c_uint32 * 3), ("rules", Rule * 32)]


class Event(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("flow", ctypes.c_uint32), ("number", ctypes.c_uint64), ("sent", ctypes.c_uint64),
                ("received", ctypes.c_uint64), ("duration_us", ctypes.c_uint64), ("address", ctypes.c_uint32),
                ("port", ctypes.c_uint16), ("guest_port", ctypes.c_uint16), ("protocol", ctypes.c_uint8), ("end", ctypes.c_uint8),
                ("is_denied", ctypes.c_uint8), ("rcode", ctypes.c_uint8), ("qtype", ctypes.c_uint16), ("rule", ctypes.c_uint16),
                ("n_addresses", ctypes.c_uint32), ("addresses", ctypes.c_uint32 * 4), ("name", ctypes.c_char * 254),
                ("reason", ctypes.c_char * 64)]


def rule(target, first=443, last=None, protocol=TCP):
    """target: "public", an address "A/BITS", or a name."""
    made = Rule(protocol=protocol, port_first=first, port_last=last or first)
    if target == "public":
        made.target = 1
    elif target[0].isdigit():
        address, bits = target.split("/")
        made.target = 4
        made.range = Range(number(address), number(address) | (1 << (32 - int(bits))) - 1)
    else:
        made.target = 3 if target.startswith("*.") else 2
        made.name = target.removeprefix("*.").encode()
    return made


def grant(*rules, egress=1 << 60, servers=(SERVER,), private=("203.0.113.0/24",)):
    made = Grant(version=2, n_rules=len(rules), n_private=len(private), n_servers=len(servers), egress_bytes=egress)
    for i, one in enumerate(rules):
        made.rules[i] = one
    for i, one in enumerate(private):
        made.private_ranges[i] = rule(one).range
    for i, one in enumerate(servers):
        made.servers[i] = number(one)
    return made


# --- the server ------------------------------------------------------------------------------------------------------
def answer(query):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    name = ".".join(labels).lower()
    found = NAMES.get(name)
    records = b"".join(struct.pack("!HHHIH4s", 0xC00C, 1, 1, 60, 4, socket.inet_aton(a)) for a in found or [])
    head = query[:2] + struct.pack("!HHHHH", 0x8180 | (0 if found else NXDOMAIN), 1, len(found or []), 0, 0)
    return name, head + query[12:at + 5] + records


def serve_names(asked):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((SERVER, 53))
    while True:
        query, peer = s.recvfrom(2048)
        name, reply = answer(query)
        os.write(asked, name.encode() + b"\n")
        if name == "long.test":
            reply = reply[:2] + b"\x83\x80\0\1\0\0\0\0\0\0" + query[12:]  # cut: ask again by TCP
        if name != "slow.test":
            s.sendto(reply, peer)


def serve_name_streams(asked):
    s = socket.create_server((SERVER, 53))
    while True:
        with s.accept()[0] as one:
            name, reply = answer(one.recv(2048)[2:])
            os.write(asked, name.encode() + b"\n")
            one.sendall(struct.pack("!H", len(reply)) + reply)


def echo_stream(s):
    with s:
        while data := s.recv(65536):
            s.sendall(data)


def serve_streams(port):
    s = socket.create_server(("0.0.0.0", port))
    while True:
        threading.Thread(target=echo_stream, args=(s.accept()[0],), daemon=True).start()


def serve_datagrams(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("0.0.0.0", port))
    while True:
        data, peer = s.recvfrom(65536)
        s.sendto(data, peer)


def ip(*words):
    done = subprocess.run(("ip",) + words, capture_output=True, text=True)
    if done.returncode:
        raise OSError("ip %s: %s" % (" ".join(words), done.stderr.strip()))


def be_server(ready, go, asked):
    if libc.unshare(CLONE_NEWNET) < 0:
        os._exit(1)
    os.write(ready, b"x")
    os.read(go, 1)
    ip("link", "set", "lo", "up")
    ip("addr", "add", SERVER + "/24", "dev", "v1")
    ip("addr", "add", PUBLIC + "/32", "dev", "lo")
    ip("link", "set", "v1", "up")
    for port in ECHO:
        threading.Thread(target=serve_streams, args=(port,), daemon=True).start()
        threading.Thread(target=serve_datagrams, args=(port,), daemon=True).start()
    threading.Thread(target=serve_names, args=(asked,), daemon=True).start()
    threading.Thread(target=serve_name_streams, args=(asked,), daemon=True).start()
    time.sleep(0.3)
    os.write(ready, b"x")
    os.read(go, 1)  # until the test ends
    os._exit(0)


class World:
    """Both namespaces; this process is in the host's from then on."""

    def __init__(self):
        if os.geteuid() != 0:
            skip("namespaces of the network need root")
        if not shutil.which("ip"):
            skip("iproute2 is not installed")
        if libc.unshare(CLONE_NEWNET) < 0:
            skip("unshare(CLONE_NEWNET): " + os.strerror(ctypes.get_errno()))
        ready, ready_in = os.pipe()
        go, self.go = os.pipe()
        self.asked, asked_in = os.pipe()
        os.set_blocking(self.asked, False)
        pid = os.fork()
        if pid == 0:
            os.close(self.go)
            be_server(ready_in, go, asked_in)
        assert os.read(ready, 1)
        try:
            ip("link", "set", "lo", "up")
            ip("link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(pid))
            ip("addr", "add", HOST + "/24", "dev", "v0")
            ip("link", "set", "v0", "up")
            ip("route", "add", PUBLIC, "via", SERVER, "onlink", "dev", "v0")
        except OSError as e:
            skip(str(e))
        os.write(self.go, b"x")
        assert os.read(ready, 1)

    def names_asked(self):
        """What the resolver was asked since the last time."""
        time.sleep(0.1)
        try:
            return os.read(self.asked, 65536).decode().split()
        except BlockingIOError:
            return []


# --- the guest -------------------------------------------------------------------------------------------------------
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(protocol, to, body, at):
    """An Ethernet frame; the checksum of the body goes to its byte `at`."""
    ends = socket.inet_aton(GUEST) + socket.inet_aton(to)
    body = body[:at] + struct.pack("!H", checksum(ends + struct.pack("!HH", protocol, len(body)) + body)) + body[at + 2:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0x4000, 64, protocol, 0) + ends
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return b"\x52\x55\xc0\0\0\1" + MAC + b"\x08\0" + head + body


class Frame:
    def __init__(self, raw):
        self.raw, self.protocol, self.bytes = raw, raw[23], struct.unpack("!H", raw[16:18])[0]
        self.source = socket.inet_ntoa(raw[26:30])
        body = raw[34:14 + self.bytes]
        self.icmp = (body[0], body[1]) if self.protocol == 1 else None
        if self.protocol in (TCP, UDP):
            self.port, self.guest_port = struct.unpack("!HH", body[:4])
        if self.protocol == TCP:
            self.seq, self.ack = struct.unpack("!II", body[4:12])
            self.flags, self.data = body[13], body[(body[12] >> 4) * 4:]
        if self.protocol == UDP:
            self.data = body[8:]


class Guest:
    """cloche-net with a grant, between this process as the worker and as the guest."""

    def __init__(self, program, its_grant, wrap=(), knows_the_way=True, **popen):
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wire, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.send(bytes(its_grant))
        self.events, self.next_port, self.got = [], 40000, []
        fds = (control.fileno(), wire.fileno())
        self.process = subprocess.Popen([*wrap, program, *map(str, fds), str(UID), str(UID)], pass_fds=fds,
                                        stderr=subprocess.PIPE, text=True, **popen)
        control.close()
        wire.close()
        if knows_the_way:
            self.find_gateway()

    def find_gateway(self):
        self.wire.send(b"\xff" * 6 + MAC + b"\x08\x06\0\1\x08\0\6\4\0\1" + MAC + socket.inet_aton(GUEST) + bytes(6) +
                       socket.inet_aton(GATEWAY))
        assert self.take_raw(lambda raw: raw[12:14] == b"\x08\x06" and raw[20:22] == b"\0\2"), "no answer to ARP"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in (self.wire, self.control):
            s.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stderr.close()

    def answer_arp(self, raw):
        if raw[12:14] == b"\x08\x06" and raw[20:22] == b"\0\1" and raw[38:42] == socket.inet_aton(GUEST):
            self.wire.send(raw[6:12] + MAC + b"\x08\x06\0\1\x08\0\6\4\0\2" + MAC + raw[38:42] + raw[22:32])

    def take_raw(self, wanted, seconds=PATIENCE_S):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.wire], [], [], left)[0]:
                break
            raw = self.wire.recv(FRAME_MAX)
            self.answer_arp(raw)
            if wanted(raw):
                return raw
        return None

    def take(self, wanted=lambda f: True, seconds=PATIENCE_S):
        """The next IPv4 frame that is wanted."""
        raw = self.take_raw(lambda raw: raw[12:14] == b"\x08\0" and wanted(Frame(raw)), seconds)
        return Frame(raw) if raw else None

    def send(self, frame):
        self.wire.send(frame)
        return struct.unpack("!H", frame[16:18])[0]

    def datagram(self, to, port, data, guest_port=41000):
        return self.send(packet(UDP, to, struct.pack("!HHHH", guest_port, port, 8 + len(data), 0) + data, 6))

    def ask(self, name, qtype=1, ident=77):
        """(rcode, addresses) or None."""
        labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
        query = struct.pack("!6H", ident, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", qtype, 1)
        self.datagram(RESOLVER, 53, query)
        f = self.take(lambda f: f.protocol == UDP and f.source == RESOLVER and f.data[:2] == query[:2])
        if not f:
            return None
        assert f.data[12:12 + len(query) - 12] == query[12:], "the question is not repeated as it was asked"
        n, at = struct.unpack("!H", f.data[6:8])[0], len(query)
        return f.data[3] & 15, [socket.inet_ntoa(f.data[at + 16 * i + 12:at + 16 * i + 16]) for i in range(n)]

    def connect(self, to, port):
        self.next_port += 1
        return Stream(self, to, port, self.next_port)

    def event(self, kind, seconds=PATIENCE_S):
        """The next event of a kind; those before it are kept in self.events."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.control], [], [], left)[0]:
                break
            raw = self.control.recv(4096)
            if not raw:
                break
            assert len(raw) == ctypes.sizeof(Event), len(raw)
            e = Event.from_buffer_copy(raw)
            self.events.append(e)
            if e.kind == kind:
                return e
        return None

    def rest(self):
        """Every event to the end of the process, which has ended."""
        while self.event(99, 10):
            pass
        return self.events, self.process.wait(10)


class Stream:
    """A flow of TCP, as little of it as an echo needs."""

    def __init__(self, guest, to, port, guest_port):
        self.guest, self.to, self.port, self.guest_port = guest, to, port, guest_port
        self.seq, self.ack, self.sent, self.received = 1000, 0, 0, 0
        self.push(SYN)
        self.seq += 1
        self.reply = self.take(lambda f: f.flags & (SYN | RST))
        if self.reply and self.reply.flags & SYN:
            self.push(ACK)

    def push(self, flags, data=b""):
        body = struct.pack("!HHIIBBHHH", self.guest_port, self.port, self.seq, self.ack, 0x50, flags, 64000, 0, 0) + data
        self.sent += self.guest.send(packet(TCP, self.to, body, 16))

    def is_open(self):
        return bool(self.reply and self.reply.flags & SYN)

    def take(self, wanted):
        def count(f):
            if f.protocol != TCP or f.guest_port != self.guest_port:
                return False
            self.received += f.bytes
            if f.flags & (SYN | FIN) or f.data:
                self.ack = f.seq + len(f.data) + bool(f.flags & SYN) + bool(f.flags & FIN)
            return wanted(f)
        return self.guest.take(count)

    def echo(self, data):
        got = b""
        self.push(ACK | PSH, data)
        self.seq += len(data)
        while len(got) < len(data) and (f := self.take(lambda f: f.data)):
            got += f.data
            self.push(ACK)
        return got

    def close(self):
        self.push(FIN | ACK)
        self.seq += 1
        done = self.take(lambda f: f.flags & FIN)
        self.push(ACK)
        return bool(done)
