"""A connection of HTTP/2 whose every frame the test writes: what no good client sends, or when."""
import socket
import struct
import threading

from harness import until

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CALM, CANCEL, PROTOCOL, NO_ERROR = 11, 8, 1, 0


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(n):
    if n < 127:
        return bytes([n])
    out, n = b"\x7f", n - 127
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def block(pairs):
    """Literal fields, never indexed, without Huffman (RFC 7541 section 6.2.3)."""
    return b"".join(b"\x10" + integer(len(n)) + n.encode() + integer(len(v)) + v.encode() for n, v in pairs)


class Raw:
    """What comes is kept by stream."""

    def __init__(self, host, port, window=1 << 20, timeout=60):
        self.frames, self.over, self.sent = [], False, {}
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HIHI", 1, 0, 4, window)))  # no HPACK table: each head alone
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, data):
        self.sock.sendall(data)

    def _read(self):
        data = b""
        try:
            while piece := self.sock.recv(65536):
                data += piece
                while len(data) >= 9 and len(data) >= 9 + (n := int.from_bytes(data[:3], "big")):
                    kind, flags, stream, payload = data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + n]
                    data = data[9 + n:]
                    self._take(kind, flags, stream, payload)
        except OSError:
            pass
        self.over = True
        self.close()

    def _take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        if kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        if kind == DATA and payload:
            self.send(frame(WINDOW, 0, 0, struct.pack(">I", len(payload))))
        self.frames.append((kind, flags, stream, payload))

    def of(self, kind, stream):
        return [p for k, f, s, p in list(self.frames) if (k, s) == (kind, stream)]

    def head(self, stream, extra=(), flags=END_HEADERS, method="POST", path="/mcp", headers=None):
        pairs = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        data = block(pairs + list((headers or {}).items()) + list(extra))
        first, rest = data[:16384], data[16384:]
        self.send(frame(HEADERS, flags & ~END_HEADERS if rest else flags, stream, first))
        if rest:
            self.send(frame(CONTINUATION, END_HEADERS, stream, rest))

    def room(self, stream):
        """Our send window: both start at 65535, SETTINGS says more for streams."""
        settings = dict(struct.unpack(">HI", p[i:i + 6]) for p in self.of(SETTINGS, 0) for i in range(0, len(p), 6))
        of_stream = settings.get(4, 65535) + sum(struct.unpack(">I", p)[0] for p in self.of(WINDOW, stream))
        of_all = 65535 + sum(struct.unpack(">I", p)[0] for p in self.of(WINDOW, 0))
        return min(of_stream - self.sent.get(stream, 0), of_all - sum(self.sent.values()))

    def upload(self, stream, n):
        """n bytes of a body, as far as there is no answer."""
        for _ in range(0, n, 16384):
            until(lambda: self.room(stream) >= 16384 or self.of(HEADERS, stream) or self.over, 10)
            if self.of(HEADERS, stream) or self.over:
                return
            self.send(frame(DATA, 0, stream, b" " * 16384))
            self.sent[stream] = self.sent.get(stream, 0) + 16384

    def status(self, stream, seconds=20):
        """The answer's; nghttp2 writes it as an index, or as a literal of three digits."""
        until(lambda: self.of(HEADERS, stream) or self.of(RST, stream) or self.over, seconds)
        got = self.of(HEADERS, stream)
        if not got:
            return "reset" if self.of(RST, stream) else None
        text = got[0].lstrip(b"\x20")  # the table's new size
        first = text[0]
        known = {0x88: 200, 0x89: 204, 0x8a: 206, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}
        if first in known:
            return known[first]
        at = text[1:]
        return int(at[1:4]) if at[0] == 3 else HUFFMAN.get(at[1:1 + (at[0] & 127)], at[:4].hex())

    def text(self, stream):
        return b"".join(self.of(DATA, stream)).decode()

    def ended(self, stream):
        return any(s == stream and f & END_STREAM and k in (DATA, HEADERS) for k, f, s, p in list(self.frames))

    def goaway(self):
        return [struct.unpack(">I", p[4:8])[0] for p in self.of(GOAWAY, 0)]

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


def digits(n):
    """A status in HPACK's Huffman code: 0-2 have five bits, 3-9 six (RFC 7541 appendix B)."""
    bits = "".join(f"{int(d):05b}" if d in "012" else f"{int(d) + 22:06b}" for d in str(n))
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


HUFFMAN = {digits(n): n for n in (202, 401, 403, 405, 406, 413, 414, 415, 429, 431, 502, 503)}
