#!/usr/bin/env python3
"""Raw HTTP/2 frames that no good client sends, against interop_server.  Standard library only.

usage: hostile.py PORT PID
After each attack the server must answer a plain call, and its memory must stay bounded.
"""
import gzip
import socket
import struct
import sys
import time

PORT, PID = int(sys.argv[1]), int(sys.argv[2])
DATA, HEADERS, PRIORITY, RST, SETTINGS, PING, GOAWAY, WINDOW, CONT = 0, 1, 2, 3, 4, 6, 7, 8, 9
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CALM, NO_ERROR, CANCEL = 11, 0, 8
RSS_MAX_KIB = 700 * 1024  # under AddressSanitizer, whose quarantine keeps 256 MiB


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def lit(name, value):
    """A literal header, never indexed, without Huffman (RFC 7541 6.2.3)."""
    out = b"\x10"
    for s in (name.encode(), value.encode()):
        assert len(s) < 4096
        out += bytes([len(s)]) if len(s) < 127 else b"\x7f" + varint(len(s) - 127)
        out += s
    return out


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def head(path="/grpc.testing.TestService/UnaryCall", method="POST", **extra):
    block = lit(":method", method) + lit(":scheme", "http") + lit(":path", path) + lit(":authority", "x")
    block += lit("te", "trailers")
    fields = {"content-type": "application/grpc"}
    fields.update({k.replace("_", "-"): v for k, v in extra.items()})
    return block + b"".join(lit(k, v) for k, v in fields.items() if v is not None)


class Conn:
    def __init__(self, settings=b""):
        self.sock = socket.create_connection(("127.0.0.1", PORT), timeout=10)
        self.buf = b""
        self.closed = False
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            self.closed = True

    def recv_frame(self, timeout=5):
        self.sock.settimeout(timeout)
        while len(self.buf) < 9 or len(self.buf) < 9 + int.from_bytes(self.buf[:3], "big"):
            try:
                chunk = self.sock.recv(65536)
            except socket.timeout:
                return None
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
                return None
            self.buf += chunk
        n = int.from_bytes(self.buf[:3], "big")
        f = (self.buf[3], self.buf[4], int.from_bytes(self.buf[5:9], "big") & 0x7FFFFFFF, self.buf[9:9 + n])
        self.buf = self.buf[9 + n:]
        return f

    def wait(self, kind, timeout=5):
        end = time.time() + timeout
        while time.time() < end:
            f = self.recv_frame(max(0.05, end - time.time()))
            if f is None:
                return None
            if f[0] == kind:
                return f
        return None

    def wait_text(self, stream, text, timeout=5):
        """Collect header blocks of the stream until one holds text (short values are not Huffman
        coded by every encoder, so the test looks at frames only for END_STREAM)."""
        end = time.time() + timeout
        while time.time() < end:
            f = self.recv_frame(max(0.05, end - time.time()))
            if f is None:
                return None
            if f[2] == stream and f[0] in (HEADERS, DATA) and f[1] & 1:
                return f
        return None

    def wait_closed(self, timeout=8):
        end = time.time() + timeout
        while time.time() < end and not self.closed:
            self.recv_frame(0.2)
        return self.closed

    def close(self):
        self.sock.close()


def rss_kib():
    with open(f"/proc/{PID}/status") as f:
        for line in f:
            if line.startswith("VmRSS"):
                return int(line.split()[1])
    return 0


def good_call():
    c = Conn()
    c.send(frame(HEADERS, 4, 1, head("/grpc.testing.TestService/EmptyCall")))
    c.send(frame(DATA, 1, 1, b"\0\0\0\0\0"))
    assert c.wait_text(1, "") is not None, "a good call got no answer"
    c.close()


def expect_calm(c):
    f = c.wait(GOAWAY, 10)
    assert f is not None, "no GOAWAY"
    code = struct.unpack(">I", f[3][4:8])[0]
    assert code == CALM, f"GOAWAY with error {code}"
    assert c.wait_closed(), "not closed after GOAWAY"


def rapid_reset():
    c = Conn()
    block = head()
    for i in range(4000):
        c.send(frame(HEADERS, 4, 2 * i + 1, block) + frame(RST, 0, 2 * i + 1, struct.pack(">I", CANCEL)))
        if c.closed:
            break
    expect_calm(c)


def continuation_flood():
    c = Conn()
    c.send(frame(HEADERS, 0, 1, head()))
    for i in range(10000):
        c.send(frame(CONT, 0, 1, lit("x-%d" % i, "y" * 100)))
        if c.closed:
            break
    assert c.wait_closed(), "CONTINUATION for ever is tolerated"


def ping_flood():
    c = Conn()
    for _ in range(100):
        c.send(frame(PING, 0, 0, b"12345678"))
    f = c.wait(GOAWAY)
    assert f and struct.unpack(">I", f[3][4:8])[0] == CALM and b"too_many_pings" in f[3], f
    assert c.wait_closed()


def settings_flood():
    c = Conn()
    for _ in range(3000):
        c.send(frame(SETTINGS, 0, 0))
    expect_calm(c)


def priority_flood():
    c = Conn()
    for i in range(3000):
        c.send(frame(PRIORITY, 0, 2 * i + 1, b"\0\0\0\0\1"))
    expect_calm(c)


def empty_data_flood():
    c = Conn()
    c.send(frame(HEADERS, 4, 1, head()))
    c.send(frame(DATA, 0, 1) * 3000)
    expect_calm(c)


def length_prefix_4g():
    c = Conn()
    c.send(frame(HEADERS, 4, 1, head()))
    c.send(frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 100))
    assert c.wait_text(1, "") is not None, "no trailers at the length prefix"
    f = c.wait(RST)
    assert f and struct.unpack(">I", f[3])[0] == NO_ERROR
    c.close()


def truncated_message():
    c = Conn()
    c.send(frame(HEADERS, 4, 1, head()))
    c.send(frame(DATA, 1, 1, b"\0\0\0\0\x10abc"))
    assert c.wait_text(1, "") is not None
    c.close()


def bad_flag_byte():
    c = Conn()
    c.send(frame(HEADERS, 4, 1, head()))
    c.send(frame(DATA, 1, 1, b"\x02\0\0\0\0"))
    assert c.wait_text(1, "") is not None
    c.close()


def compressed_without_encoding():
    c = Conn()
    body = gzip.compress(b"")
    c.send(frame(HEADERS, 4, 1, head()))
    c.send(frame(DATA, 1, 1, b"\x01" + struct.pack(">I", len(body)) + body))
    assert c.wait_text(1, "") is not None
    c.close()


def gzip_bomb():
    c = Conn()
    body = gzip.compress(b"\0" * (1 << 30))[:4 << 20]
    c.send(frame(HEADERS, 4, 1, head(grpc_encoding="gzip")))
    msg = b"\x01" + struct.pack(">I", len(body)) + body
    before = rss_kib()
    sent = 0
    while sent < len(msg) and not c.closed:
        part = msg[sent:sent + 16384]
        sent += len(part)
        c.send(frame(DATA, 1 if sent >= len(msg) else 0, 1, part))
        if sent % (256 * 1024) == 0:
            c.recv_frame(0.01)
    assert c.wait_text(1, "", 10) is not None
    assert rss_kib() - before < 300 * 1024, "the bomb went off"
    c.close()


def zero_window_stall():
    """Ask for 100 MB on every stream and never open the window."""
    c = Conn(struct.pack(">HI", 4, 0))
    params = b"".join(b"\x12\x04\x08\x80\x80\x40" for _ in range(100))  # 1 MiB each
    msg = b"\0" + struct.pack(">I", len(params)) + params
    before = rss_kib()
    for i in range(100):
        c.send(frame(HEADERS, 4, 2 * i + 1, head("/grpc.testing.TestService/StreamingOutputCall")))
        c.send(frame(DATA, 1, 2 * i + 1, msg))
    time.sleep(1)
    grown = rss_kib() - before
    assert grown < 400 * 1024, f"grew by {grown} KiB"
    good_call()
    c.close()


def reader_that_never_reads():
    c = Conn(struct.pack(">HI", 4, 0x7FFFFFFF) )
    c.send(frame(WINDOW, 0, 0, struct.pack(">I", 0x7FFF0000)))
    params = b"".join(b"\x12\x04\x08\x80\x80\x40" for _ in range(200))
    msg = b"\0" + struct.pack(">I", len(params)) + params
    before = rss_kib()
    for i in range(20):
        c.send(frame(HEADERS, 4, 2 * i + 1, head("/grpc.testing.TestService/StreamingOutputCall")))
        c.send(frame(DATA, 1, 2 * i + 1, msg))
    time.sleep(1)
    assert rss_kib() - before < 300 * 1024
    good_call()
    c.close()


def headers_over_the_limit():
    c = Conn()
    block = head() + b"".join(lit("x-%d" % i, "v" * 1000) for i in range(12))
    c.send(frame(HEADERS, 5, 1, block))
    assert c.wait_text(1, "") is not None
    c.close()


def not_grpc():
    for method, ctype in (("GET", None), ("POST", "text/html"), ("POST", "application/grpc-web")):
        c = Conn()
        c.send(frame(HEADERS, 5, 1, head("/", method, content_type=ctype)))
        assert c.wait_text(1, "") is not None, (method, ctype)
        c.close()


def http1():
    s = socket.create_connection(("127.0.0.1", PORT), timeout=10)
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    s.settimeout(8)
    got = b""
    while True:
        try:
            chunk = s.recv(4096)
        except OSError:
            break
        if not chunk:
            break
        got += chunk
    assert got  # SETTINGS and GOAWAY, then the end
    s.close()


def silent_peer():
    """Connects and says nothing: closed after the handshake time."""
    s = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    start = time.time()
    s.settimeout(20)
    try:
        while s.recv(4096):
            pass
    except ConnectionError:
        pass
    assert 8 < time.time() - start < 18, time.time() - start
    s.close()


def garbage():
    for seed in range(50):
        c = Conn()
        x = seed * 2654435761 + 12345
        junk = bytearray()
        for _ in range(400):
            x = (x * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
            junk.append(x >> 56)
        c.send(frame(HEADERS, 4, 1, head()) + bytes(junk))
        c.close()


def half_open_calls_die_with_the_connection():
    for _ in range(50):
        c = Conn()
        for i in range(50):
            c.send(frame(HEADERS, 4, 2 * i + 1, head("/grpc.testing.TestService/FullDuplexCall")))
        c.close()


CASES = [rapid_reset, continuation_flood, ping_flood, settings_flood, priority_flood, empty_data_flood,
         length_prefix_4g, truncated_message, bad_flag_byte, compressed_without_encoding, gzip_bomb,
         zero_window_stall, reader_that_never_reads, headers_over_the_limit, not_grpc, http1, garbage,
         half_open_calls_die_with_the_connection, silent_peer]


def main():
    failed = 0
    for fn in CASES:
        try:
            fn()
            good_call()
            assert rss_kib() < RSS_MAX_KIB, f"RSS {rss_kib()} KiB"
            print("ok", fn.__name__, f"rss {rss_kib() // 1024} MiB", flush=True)
        except Exception as e:  # a failed case must not hide the next
            failed += 1
            print("FAILED", fn.__name__, type(e).__name__, e, flush=True)
    print(f"{len(CASES) - failed} of {len(CASES)} attacks are survived")
    sys.exit(1 if failed else 0)


main()
