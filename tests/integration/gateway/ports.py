#!/usr/bin/env python3
"""The gateway as a proxy to ports of sandboxes: what passes, what stays, and what hostile clients and guests can do."""
import contextlib
import hashlib
import json
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

from made_up_scheduler import BOX, BUSY, GONE, KEY, OTHER, PIECE, SECRET, SLOW, TOKEN, Guest, World, grpc, link_of, says
from harness import MIB, Suite, random_bytes, rss_bytes, until

suite = Suite("gateway-ports")
check, equal = suite.check, suite.equal
LINK = link_of(BOX)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BY_TOKEN = f"E2b-Traffic-Access-Token: {LINK}"


def host(guest, box=BOX, secret="", domain=None):
    return f"{guest if isinstance(guest, int) else guest.port}-{box}.{secret + '.' if secret else ''}{domain or 'localhost:1'}"


def dial(w, timeout=20):
    return socket.create_connection(("127.0.0.1", w.g.port), timeout=timeout)


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := s.recv(PIECE):
            data += piece
    return data


def raw(w, data):
    """Send, and read until the gateway closes."""
    with dial(w) as s:
        s.sendall(data if isinstance(data, bytes) else data.encode("latin1"))
        return read_all(s)


def request(guest, *fields, line="GET / HTTP/1.1", name=None, body=b""):
    fields = fields or (BY_TOKEN,)
    return "\r\n".join([line, f"Host: {name or host(guest)}", *fields, "", ""]).encode("latin1") + body


class Answer:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
        self.raw, self.line = data, lines[0]
        self.status = int(self.line.split()[1]) if self.line.startswith("HTTP/1.1 ") else 0
        self.list = [tuple(x.split(": ", 1)) for x in lines[1:]]
        self.fields = {k.lower(): v for k, v in self.list}
        self.text = self.body.decode("latin1")


def ask(w, guest, *fields, **kw):
    return Answer(raw(w, request(guest, *fields, **kw)))


# --- what passes

@suite.scenario
def a_request_reaches_its_server(w):
    with Guest(says(b"HTTP/1.1 200 Fine\r\nServer: x\r\nSet-Cookie: a=b; Domain=localhost; Path=/\r\nKeep-Alive: timeout=5\r\n"
                    b"Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello")) as g:
        a = ask(w, g, BY_TOKEN, "Accept: */*", "Cookie: x=y; cloche_link=no; z=1", "X-Forwarded-For: 6.6.6.6", "Keep-Alive: 1",
                "Authorization: Basic eDp5", line="GET /p?q=1 HTTP/1.1")
        equal("the answer is there", (a.line, a.body), ("HTTP/1.1 200 Fine", b"hello"))
        equal("its fields are rewritten", a.list, [("Server", "x"), ("Set-Cookie", "a=b; Path=/"), ("Content-Length", "5"),
                                                   ("Connection", "close")])
        equal("the request is rewritten", g.seen[0].decode().split("\r\n"),
              ["GET /p?q=1 HTTP/1.1", f"Host: {host(g)}", "Accept: */*", "Cookie: x=y; z=1", "Authorization: Basic eDp5",
               "Connection: close", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", f"X-Forwarded-Host: {host(g)}", "", ""])
        equal("the call was for this port", w.s.connects[-1], (BOX, g.port, f"Bearer {LINK}"))
        check("nothing stays open", until(lambda: g.open == 0, 5), g.open)


@suite.scenario
def the_connection_may_have_been_the_apis_before(w):
    with Guest(says(OK)) as g, dial(w) as s:
        s.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\nGET /x HTTP/1.1\r\nHost: localhost\r\n\r\n" + request(g))
        got = read_all(s)
        equal("both answers of the API, then the guest's", (got.count(b"HTTP/1.1 404"), got.endswith(b"\r\n\r\nok")), (2, True))
        begin = time.monotonic()
        equal("what is no HTTP is refused at once", (Answer(raw(w, b"\x16\x03\x01")).status, time.monotonic() - begin < 5), (400, True))
        s2 = dial(w)
        for byte in request(g):
            s2.sendall(bytes([byte]))
        equal("a byte at a time", Answer(read_all(s2)).body, b"ok")


def sums(conn, head, rest):
    """Answer with the SHA-256 of the request's body."""
    lines = head.decode().lower()
    if "chunked" in lines:
        f = Reader(conn, rest)
        body = b""
        while n := int(f.line().split(b";")[0], 16):
            body += f.take(n)
            f.take(2)
        f.line()
    else:
        n = int(next(x for x in lines.split("\r\n") if x.startswith("content-length")).split()[1])
        body = Reader(conn, rest).take(n)
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + hashlib.sha256(body).hexdigest().encode())


@suite.scenario
def bodies_of_requests_pass(w):
    data = random_bytes(8 * MIB)
    digest = hashlib.sha256(data).hexdigest().encode()

    with Guest(sums) as g:
        a = ask(w, g, BY_TOKEN, f"Content-Length: {len(data)}", line="POST / HTTP/1.1", body=data)
        equal("8 MiB with their length", a.body, digest)
        chunks = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(c), c) for c in (data[i:i + 100000] for i in range(0, len(data), 100000)))
        a = ask(w, g, BY_TOKEN, "Transfer-Encoding: chunked", line="PUT / HTTP/1.1", body=chunks + b"0\r\nT: u\r\n\r\n")
        equal("8 MiB in chunks", a.body, digest)
        a = ask(w, g, BY_TOKEN, "Content-Length: 3", "Expect: 100-continue", line="POST / HTTP/1.1", body=b"abc")
        equal("Expect passes", a.status, 200)


class Reader:
    def __init__(self, conn, data=b""):
        self.conn, self.data = conn, data

    def line(self):
        while b"\r\n" not in self.data:
            self.data += self.conn.recv(PIECE)
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def take(self, n):
        while len(self.data) < n:
            piece = self.conn.recv(PIECE)
            if not piece:
                raise OSError("too short")
            self.data += piece
        data, self.data = self.data[:n], self.data[n:]
        return data


@suite.scenario
def bodies_of_answers_pass(w):
    data = random_bytes(8 * MIB, 2)
    with Guest(says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)) as g:
        equal("8 MiB with their length", hashlib.sha256(ask(w, g).body).digest(), hashlib.sha256(data).digest())
    with Guest(says(b"HTTP/1.0 200 OK\r\n\r\n" + data, then=lambda conn: None)) as g:
        equal("8 MiB until the end", hashlib.sha256(ask(w, g).body).digest(), hashlib.sha256(data).digest())
    chunks = b"10\r\n" + 16 * b"a" + b"\r\n0\r\nT: u\r\n\r\n"
    with Guest(says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)) as g:
        equal("chunks as they came", ask(w, g).body, chunks)


@suite.scenario
def answers_without_a_body(w):
    with Guest(says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")) as g:
        a = ask(w, g, line="HEAD / HTTP/1.1")
        equal("HEAD", (a.status, a.fields["content-length"], a.body), (200, "5", b""))
    with Guest(says(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")) as g:
        a = ask(w, g)
        equal("204", (a.status, "content-length" in a.fields, a.body), (204, False, b""))
    with Guest(says(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\nhello")) as g:
        equal("304", (ask(w, g).status, ask(w, g).body), (304, b""))
    with Guest(says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\nConnection: x\r\n\r\n" + OK)) as g:
        equal("1xx pass before it", ask(w, g).raw,
              b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
              b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        equal("but not to HTTP/1.0", ask(w, g, line="GET / HTTP/1.0").line, "HTTP/1.1 200 OK")


# --- one request, one connection

@suite.scenario
def what_follows_a_request_never_reaches_the_guest(w):
    def answer(conn, _head, rest):
        time.sleep(0.2)
        conn.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            rest += conn.recv(PIECE)
        g.seen.append(rest)
        conn.setblocking(True)
        conn.sendall(OK)
    with Guest(answer) as g:
        got = raw(w, request(g) + request(g, line="GET /second HTTP/1.1"))
        equal("one answer", got.count(b"HTTP/1.1"), 1)
        equal("one request", (len(g.seen), g.seen[1]), (2, b""))
        got = raw(w, request(g, BY_TOKEN, "Content-Length: 3", line="POST / HTTP/1.1", body=b"abc" + request(g)))
        equal("nor behind a body", (got.count(b"HTTP/1.1"), g.seen[3]), (1, b"abc"))


@suite.scenario
def what_follows_an_answer_never_reaches_the_client(w):
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    for head in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 No\r\n\r\n",
                 b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        with Guest(says(head + extra)) as g:
            a = ask(w, g)
            check(f"behind {head[:30]}", b"evil" not in a.raw and a.raw.count(b"HTTP/1.1") == 1, a.raw)
    with Guest(says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + extra)) as g:
        check("behind that of a HEAD", b"evil" not in ask(w, g, line="HEAD / HTTP/1.1").raw)


@suite.scenario
def hostile_answers(w):
    for name, data in {"no HTTP": b"SSH-2.0-x\r\n", "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                       "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                       "a bare LF": b"HTTP/1.1 200 OK\nX: y\n\n", "a folded line": b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
                       "a coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
                       "a head without end": b"HTTP/1.1 200 OK\r\nX: " + 70000 * b"a",
                       "many fields": b"HTTP/1.1 200 OK\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(201)) + b"\r\n",
                       "a protocol nobody asked for": b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"}.items():
        with Guest(says(data)) as g:
            a = ask(w, g)
            equal(f"{name}: 502", (a.status, a.fields.get("connection"), "X" in a.fields), (502, "close", False))
    with Guest(says(b"", then=lambda conn: None)) as g:
        equal("an end without an answer: 502", ask(w, g).status, 502)
    with Guest(says(b"HTTP/1.1 200 OK\r\n", then=lambda conn: None)) as g:
        equal("half a head: 502", ask(w, g).status, 502)


def is_reset(w, guest):
    """Does the answer end with a reset?"""
    with dial(w) as s:
        s.sendall(request(guest))
        try:
            while s.recv(PIECE):
                pass
            return False
        except ConnectionResetError:
            return True


@suite.scenario
def a_part_is_never_taken_for_the_whole(w):
    for name, data in {"length": b"Content-Length: 10\r\n\r\nabc", "chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
                       "bad chunks": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"}.items():
        with Guest(says(b"HTTP/1.1 200 OK\r\n" + data, then=lambda conn: time.sleep(0.2))) as g:
            check(f"{name}: the connection is cut", is_reset(w, g))

    def reset(conn):
        time.sleep(0.2)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with Guest(says(b"HTTP/1.1 200 OK\r\n\r\nabc", then=reset)) as g:
        check("until the end, which is a reset: cut", is_reset(w, g))


@suite.scenario
def requests_that_can_be_read_in_two_ways(w):
    with Guest(says(OK)) as g:
        for name, fields, line in (("two Hosts", (BY_TOKEN, "Host: localhost"), None), ("two equal Hosts", (BY_TOKEN, f"Host: {host(g)}"), None),
                                   ("absolute form", (BY_TOKEN,), f"GET http://{host(g)}/ HTTP/1.1"),
                                   ("absolute form of the API", (BY_TOKEN,), "GET http://localhost/mcp HTTP/1.1"),
                                   ("length and chunks", (BY_TOKEN, "Content-Length: 1", "Transfer-Encoding: chunked"), "POST / HTTP/1.1"),
                                   ("a folded line", (BY_TOKEN, "X: y", " z"), None), ("a tunnel", (BY_TOKEN,), "CONNECT a:1 HTTP/1.1"),
                                   ("a bad name", (BY_TOKEN, "X Y: z"), None)):
            equal(f"{name}: 400", ask(w, g, *fields, line=line or "GET / HTTP/1.1").status, 400)
        a = Answer(raw(w, f"GET / HTTP/1.1\r\nHost: localhost\r\nHost: {host(g)}\r\n{BY_TOKEN}\r\n\r\n"))
        equal("the API's Host first: 400, too", a.status, 400)
        equal("a long head: 431", ask(w, g, BY_TOKEN, "X: " + 17000 * "a").status, 431)
        equal("many fields: 431", ask(w, g, BY_TOKEN, *(f"x{i}: y" for i in range(101))).status, 431)
        equal("no guest saw any of it", g.seen, [])


# --- whose it is

@suite.scenario
def credentials(w):
    with Guest(says(OK)) as g:
        a = ask(w, g, "Accept: */*")
        equal("none: 401 in plain text", (a.status, a.fields["content-type"], a.fields["cache-control"]),
              (401, "text/plain; charset=utf-8", "no-store"))
        check("… which names the remedy", "cloche sandbox url" in a.text, a.text)
        a = ask(w, g, f"Authorization: Bearer {KEY}")
        equal("Authorization is the application's: 401", a.status, 401)
        equal("a link in the header", ask(w, g, BY_TOKEN).body, b"ok")
        equal("a key in the header", ask(w, g, f"e2b-traffic-access-token: {KEY}").body, b"ok")
        equal("a secret in the name", ask(w, g, "A: b", name=host(g, secret=SECRET)).body, b"ok")
        equal("… in capitals, with a dash", ask(w, g, "A: b", name=host(g, BOX.replace("_", "-"), SECRET).upper()).body, b"ok")
        equal("a wrong secret in the name: 401", ask(w, g, "A: b", name=host(g, secret="0" + SECRET[1:])).status, 401)
        equal("a link of another sandbox: 403", ask(w, g, f"E2b-Traffic-Access-Token: {link_of(OTHER)}").status, 403)
        before = len(w.s.connects)
        equal("nonsense: 401", ask(w, g, "E2b-Traffic-Access-Token: x").status, 401)
        equal("… which no scheduler was asked about", len(w.s.connects), before)
        equal("the credentials did not reach the guest", [s for s in g.seen if b"clp_" in s or b"clk_" in s], [])
        equal("other names are not served", Answer(raw(w, request(g, line="GET / HTTP/1.0", name=f"x-{BOX}.localhost"))).status, 403)


@suite.scenario
def the_cookie(w):
    with Guest(says(OK)) as g:
        a = ask(w, g, "A: b", line=f"GET /a?x=1&cloche_link={LINK}&y=2 HTTP/1.1")
        equal("the parameter becomes a cookie", (a.status, a.fields["location"], a.fields["set-cookie"]),
              (302, "/a?x=1&y=2", f"cloche_link={LINK}; HttpOnly; SameSite=Lax; Path=/"))
        equal("no guest is asked", g.seen, [])
        a = ask(w, g, f"Cookie: cloche_link={LINK}", line="GET /a?x=1&y=2 HTTP/1.1")
        equal("the cookie opens it", a.body, b"ok")
        for path in ("//evil.org/", "/\\evil.org"):
            a = ask(w, g, "A: b", line=f"GET {path}?cloche_link={LINK} HTTP/1.1")
            equal("it stays on this host", a.fields["location"], f"/.{path}")
        equal("a link of another sandbox: 403", ask(w, g, "A: b", line=f"GET /?cloche_link={link_of(OTHER)} HTTP/1.1").status, 403)
        a = ask(w, g, "Content-Length: 0", line=f"POST /?cloche_link={LINK}&x HTTP/1.1")
        equal("a POST goes on with it", (a.body, g.seen[-1].split(b"\r\n")[0]), (b"ok", b"POST /?x HTTP/1.1"))
        equal("a cookie of another sandbox is none", ask(w, g, f"Cookie: cloche_link={link_of(OTHER)}").status, 401)


@suite.scenario
def pages_of_other_sandboxes(w):
    with Guest(says(OK)) as g:
        for origin, status in (("http://" + host(g), 200), ("http://" + host(8080), 200), ("http://" + host(g, OTHER), 403), ("null", 403)):
            equal(f"with the cookie, from {origin}: {status}", ask(w, g, f"Cookie: cloche_link={LINK}", f"Origin: {origin}").status, status)
        equal("with a secret of their own they may", ask(w, g, BY_TOKEN, "Origin: http://evil.org").status, 200)


@suite.scenario
def errors_of_the_scheduler(w):
    with Guest(says(OK)) as g:
        port = g.port
    for box, status, words, retry in ((BOX, 502, f"nobody listens on port {port} in the sandbox", None), (GONE, 404, "not found", None),
                                      (BUSY, 429, "32 connections", "1"), (SLOW, 503, "no worker", "1")):
        a = Answer(raw(w, request(port, f"E2b-Traffic-Access-Token: {link_of(box)}", name=host(port, box))))
        equal(f"{box}: {status}", (a.status, words in a.text, a.fields.get("retry-after")), (status, True, retry))
        check("… with a remedy", "remedy:" in a.text, a.text)
    a = Answer(raw(w, request(port, f"E2b-Traffic-Access-Token: {KEY}", line="HEAD / HTTP/1.1")))
    equal("to a HEAD without the text", (a.status, a.body), (502, b""))


# --- other protocols

def echo(conn, _head, rest):
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
    if rest:
        conn.sendall(rest)
    while data := conn.recv(PIECE):
        conn.sendall(data)
    conn.sendall(b"bye")


ASK_FOR_IT = (BY_TOKEN, "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k")


@suite.scenario
def websockets(w):
    with Guest(echo) as g, dial(w) as s:
        s.sendall(request(g, *ASK_FOR_IT) + b"early")
        head, _, rest = b"", b"", b""
        while b"\r\n\r\nearly" not in head:
            head += s.recv(PIECE)
        check("the protocol is changed", head.startswith(b"HTTP/1.1 101 ") and b"Connection: Upgrade\r\nUpgrade: websocket" in head, head)
        check("the guest was asked for it", b"Connection: Upgrade\r\nUpgrade: websocket" in g.seen[0], g.seen)
        data = random_bytes(2 * MIB, 3)
        threading.Thread(target=s.sendall, args=(data,)).start()
        equal("bytes go both ways", Reader(s).take(len(data)) == data, True)
        s.shutdown(socket.SHUT_WR)
        equal("half-close passes, and the rest comes", read_all(s), b"bye")
        check("the guest's connection ends", until(lambda: g.open == 0, 5))
    with Guest(says(OK)) as g:
        equal("a server that does not want", ask(w, g, *ASK_FOR_IT).body, b"ok")
    with Guest(says(b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello", then=lambda conn: None)) as g:
        with dial(w) as s:
            s.sendall(request(g, *ASK_FOR_IT))
            check("the guest's end passes", read_all(s).endswith(b"hello"))


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def head(*pairs):
    """Literal fields, never indexed, without Huffman (RFC 7541 section 6.2.3)."""
    return b"".join(b"\x10" + bytes([len(n)]) + n.encode() + bytes([len(v)]) + v.encode() for n, v in pairs)


@suite.scenario
def http2_is_sent_to_http1(w):
    with Guest(says(OK)) as g, dial(w) as s:
        common = [(":method", "GET"), (":scheme", "http"), (":path", "/x")]
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) +
                  frame(1, 5, 1, head(*common, (":authority", host(g)), ("e2b-traffic-access-token", LINK))) +
                  frame(1, 4, 3, head(*common, ("host", host(g)))) + frame(0, 1, 3, b"body") +
                  frame(1, 5, 5, head(*common, (":authority", "localhost"))))
        r, resets, answered = Reader(s), {}, set()
        while 5 not in answered or len(resets) < 2:
            n, kind, _, stream = struct.unpack(">IBBI", b"\0" + r.take(9))
            payload = r.take(n)
            if kind == 3:
                resets[stream] = int.from_bytes(payload, "big")
            if kind == 1:
                answered.add(stream)
        equal("HTTP_1_1_REQUIRED", resets, {1: 0xd, 3: 0xd})
        equal("the others are answered", answered, {5})
        equal("the guest saw nothing", g.seen, [])


# --- limits

@suite.scenario
def slow_readers_and_writers_hold_little(w):
    size, most = 64 * MIB, 24 * MIB
    stop = threading.Event()

    def pours(conn, _head, _rest):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // PIECE):
            conn.sendall(PIECE * b"a")
    ask(w, 1)  # all that is made once
    before = rss_bytes(w.g.pid)
    with Guest(pours) as g, dial(w) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(request(g))
        time.sleep(2)
        held = rss_bytes(w.g.pid) - before
        check("an answer of 64 MiB that nobody reads", held < most, f"{held >> 20} MiB")
        got = 0
        while piece := s.recv(1 << 20):
            got += len(piece)
        check("all of it comes when it is read", got > size, got)

    def waits(conn, _head, rest):
        stop.wait(20)
        n = len(rest)
        while n < size:
            n += len(conn.recv(1 << 20))
        conn.sendall(OK)
    with Guest(waits) as g, dial(w) as s:
        before = rss_bytes(w.g.pid)
        s.sendall(request(g, BY_TOKEN, f"Content-Length: {size}", line="POST / HTTP/1.1"))
        sender = threading.Thread(target=s.sendall, args=(size * b"b",), daemon=True)
        sender.start()
        time.sleep(2)
        held = rss_bytes(w.g.pid) - before
        check("a request of 64 MiB that nobody reads", held < most, f"{held >> 20} MiB")
        stop.set()
        equal("all of it comes when it is read", Answer(read_all(s)).body, b"ok")
        sender.join()


@suite.long_scenario
def silence_and_readers_that_stop(w):
    with Guest(says(b"")) as g, Guest(says(b"HTTP/1.1 200 OK\r\n\r\nabc")) as h, dial(w, 200) as s, dial(w, 200) as t:
        s.sendall(request(g))
        t.sendall(request(h))
        with Guest(says(b"HTTP/1.1 200 OK\r\n\r\n" + 16 * MIB * b"a", then=lambda conn: None)) as p, dial(w) as u:
            u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            u.sendall(request(p))
            time.sleep(40)
            try:
                while u.recv(PIECE):
                    pass
                check("a client that does not read for 30 s is cut", False)
            except ConnectionResetError:
                check("a client that does not read for 30 s is cut", True)
        equal("a server that says nothing for 120 s: 504", Answer(read_all(s)).status, 504)
        try:
            while t.recv(PIECE):
                pass
            check("one that stops in its answer is cut", False)
        except ConnectionResetError:
            check("one that stops in its answer is cut", True)


@suite.scenario
def a_client_that_leaves_ends_it(w):
    with Guest(says(b"HTTP/1.1 200 OK\r\n\r\nabc")) as g:
        s = dial(w)
        s.sendall(request(g))
        check("it is there", until(lambda: g.open == 1, 5))
        s.close()
        check("the guest's connection ends with the client's", until(lambda: g.open == 0, 5))


@suite.scenario
def an_early_answer_is_not_lost(w):
    def refuses(conn, _head, _rest):
        conn.sendall(b"HTTP/1.1 413 No\r\nContent-Length: 4\r\n\r\nless")
        time.sleep(0.2)
    with Guest(refuses) as g, dial(w) as s:
        s.sendall(request(g, BY_TOKEN, f"Content-Length: {4 * MIB}", line="POST / HTTP/1.1"))
        with contextlib.suppress(OSError):
            for _ in range(64):
                s.sendall(PIECE * b"x")
                time.sleep(0.01)
        equal("though the client still sends", Answer(read_all(s)).body, b"less")


@suite.scenario
def only_so_many_lead_into_sandboxes(w):
    with Guest(says(b"HTTP/1.1 200 OK\r\n\r\nabc")) as g:
        held = []
        for _ in range(256):
            s = dial(w)
            s.sendall(request(g))
            held.append(s)
        check("256 are served", until(lambda: g.open == 256, 20), g.open)
        a = ask(w, g)
        equal("one more is not", (a.status, a.fields.get("retry-after")), (429, "1"))
        equal("the API still answers", Answer(raw(w, b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).status, 404)
        for s in held:
            s.close()
        check("they end", until(lambda: g.open == 0, 20), g.open)
        check("then others have their places", until(lambda: is_served(w), 10))


def is_served(w):
    with Guest(says(OK)) as g:
        return ask(w, g).status == 200


@suite.scenario
def a_gateway_that_ends(w):
    go = threading.Event()

    def waits(conn, _head, _rest):
        go.wait(10)
        conn.sendall(OK)

    def tunnel(conn, _head, _rest):
        conn.sendall(b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        while conn.recv(PIECE):
            pass
    p = w.gateway("gateway-drain", "--drain", "10s")
    p_world = type("", (), {"g": p})
    with Guest(waits) as g, Guest(tunnel) as t:
        busy, quiet, idle = dial(p_world), dial(p_world), dial(p_world)
        busy.sendall(request(g))
        quiet.sendall(request(t, BY_TOKEN, "Connection: Upgrade", "Upgrade: x"))
        idle.sendall(b"GET / HTTP/1.1\r\n")
        check("they are there", until(lambda: g.open == 1 and t.open == 1, 5))
        quiet.recv(PIECE)
        time.sleep(1.2)
        p.signal(signal.SIGTERM)
        equal("a connection without a request is closed", read_all(idle), b"")
        equal("a quiet tunnel, too", read_all(quiet), b"")
        quiet.close()
        check("it still runs", p.is_running())
        go.set()
        equal("what is asked is answered", Answer(read_all(busy)).body, b"ok")
        busy.close()
        check("then it ends, long before its time", until(lambda: not p.is_running(), 5))
        p.statuses.append(p.child.wait())


@suite.scenario
def over_tls(w):
    key, cert = w.dir / "key.pem", w.dir / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=localhost",
                    "-days", "2"], check=True, capture_output=True)
    p = w.gateway("gateway-tls", "--tls-cert", cert, "--tls-key", key, "--ports-domain", "Box.Example.org:443")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def get(*fields, line="GET / HTTP/1.1", then=None):
        with socket.create_connection(("127.0.0.1", p.port), timeout=20) as tcp, context.wrap_socket(tcp) as s:
            s.sendall(request(g, *fields, line=line, name=host(g, domain="box.example.org")))
            return Answer(read_all(s))
    with Guest(says(OK)) as g:
        a = get("A: b", line=f"GET /?cloche_link={LINK} HTTP/1.1")
        equal("the cookie is none but this host's", a.fields["set-cookie"],
              f"__Host-cloche_link={LINK}; HttpOnly; SameSite=Lax; Path=/; Secure")
        a = get(f"Cookie: __Host-cloche_link={LINK}")
        check("it opens the port", a.body == b"ok" and b"X-Forwarded-Proto: https" in g.seen[0] and b"cloche_link" not in g.seen[0], a.raw)
        equal("the plain one does not", get(f"Cookie: cloche_link={LINK}").status, 401)
        data = random_bytes(8 * MIB, 4)
        with Guest(sums) as sg:
            with socket.create_connection(("127.0.0.1", p.port), timeout=20) as tcp, context.wrap_socket(tcp) as c:
                c.sendall(request(sg, BY_TOKEN, f"Content-Length: {len(data)}", line="POST / HTTP/1.1", name=host(sg, domain="box.example.org"),
                                  body=data))
                equal("8 MiB up", Answer(read_all(c)).body, hashlib.sha256(data).hexdigest().encode())
        with Guest(echo) as e, socket.create_connection(("127.0.0.1", p.port), timeout=20) as tcp, context.wrap_socket(tcp) as c:
            c.sendall(request(e, *ASK_FOR_IT, name=host(e, domain="box.example.org")))
            r = Reader(c)
            while r.line():
                pass
            same = True
            for i in range(0, len(data), MIB // 2):
                c.sendall(data[i:i + MIB // 2])
                same &= r.take(MIB // 2) == data[i:i + MIB // 2]
            check("8 MiB both ways in a tunnel", same)
        with Guest(says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)) as d:
            with socket.create_connection(("127.0.0.1", p.port), timeout=20) as tcp, context.wrap_socket(tcp) as c:
                c.sendall(request(d, name=host(d, domain="box.example.org")))
                time.sleep(0.5)
                equal("8 MiB down, to a reader that waits first", Answer(read_all(c)).body == data, True)
        name = host(g, domain="box.example.org").replace("_", "-").replace(":443", "")
        got = shutil.which("curl") and subprocess.run(["curl", "-sSk", "--http2", "--max-time", "20", "-w", " %{http_version}", "--resolve", f"{name}:{p.port}:127.0.0.1",
                              "-H", BY_TOKEN, f"https://{name}:{p.port}/"], capture_output=True, text=True)
        if got:
            equal("a client that comes with HTTP/2 asks again with HTTP/1.1", got.stdout + got.stderr, "ok 1.1")
        s = Guest(says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", then=lambda conn: time.sleep(0.2)))
        with socket.create_connection(("127.0.0.1", p.port), timeout=20) as tcp, context.wrap_socket(tcp, suppress_ragged_eofs=False) as c:
            c.sendall(request(s, name=host(s, domain="box.example.org")))
            try:
                while c.recv(PIECE):
                    pass
                check("a part is cut", False)
            except (ssl.SSLEOFError, ConnectionResetError):
                check("a part is cut", True)


def api(w, method, path, body=None, key=KEY):
    data = json.dumps(body or {}).encode()
    a = Answer(raw(w, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-API-Key: {key}\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data))
    return a.status, json.loads(a.body) if a.body else None


@suite.scenario
def domains_for_e2b(w):
    domain = f"localhost:{w.g.port}"
    with Guest(says(OK)) as g:
        status, box = api(w, "POST", "/v2/sandboxes", {"templateID": "base", "envVars": {"A": "1"}})
        equal("a new sandbox has a domain with a link", (status, box["domain"]), (201, f"{SECRET}.{domain}"))
        equal("… of every port, while it lives", w.s.links[-1], (BOX, 0, 0, f"Bearer {KEY}"))
        equal("get_host() leads to its port", ask(w, g, "A: b", name=f"{g.port}-{box['sandboxID']}.{box['domain']}").body, b"ok")
        equal("connect says it, too", api(w, "POST", f"/sandboxes/{BOX}/connect", {"timeout": 60})[1]["domain"], f"{SECRET}.{domain}")
        equal("get tells the domain alone", api(w, "GET", f"/sandboxes/{BOX}")[1]["domain"], domain)
        before = len(w.s.links)
        status, box = api(w, "POST", "/v2/sandboxes", {"templateID": "base", "network": {"allowPublicTraffic": False}})
        equal("without public traffic there is no link in it", (status, box["domain"]), (201, domain))
        equal("… nor for who connects", api(w, "POST", f"/sandboxes/{BOX}/connect", {"timeout": 60})[1]["domain"], domain)
        equal("… and none was made", len(w.s.links), before)
        equal("no network was granted", w.s.creates[-1].HasField("network_grant"), False)
        name = f"{g.port}-{box['sandboxID']}.{box['domain']}"
        equal("the URL alone does not open it", ask(w, g, "A: b", name=name).status, 401)
        equal("the traffic token does", ask(w, g, f"e2b-traffic-access-token: {box['trafficAccessToken']}", name=name).body, b"ok")
        equal("… with the caller's own key", w.s.connects[-1], (BOX, g.port, f"Bearer {KEY}"))
        equal("it is of this sandbox only", ask(w, g, f"e2b-traffic-access-token: {box['trafficAccessToken']}",
                                                name=host(g, OTHER)).status, 403)
        w.s.link_error = grpc.StatusCode.FAILED_PRECONDITION, "no API key"
        status, box = api(w, "POST", "/v2/sandboxes", {"templateID": "base"}, TOKEN)
        equal("a caller without a key gets the domain alone", (status, box["domain"]), (201, domain))
        w.s.link_error = None
        equal("other rules are refused", api(w, "POST", "/v2/sandboxes", {"templateID": "base", "network": {"maskRequestHost": "a"}})[0], 501)


def main():
    world = World("gateway-ports")
    world.s = world.scheduler
    try:
        world.g = world.gateway("gateway", "--metrics", "127.0.0.1:0")
        suite.play(world, sys.argv[1:])
    finally:
        equal("every gateway ends in order", set(world.stop()), {0})
        equal("no sanitizer or assertion spoke", world.reports(), [])
    suite.finish()


if __name__ == "__main__":
    main()
