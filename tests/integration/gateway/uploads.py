#!/usr/bin/env python3
"""Uploads by E2B's API: bodies of any length that pass as they come, and what becomes of those that do not come whole."""
import contextlib
import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import threading
import time

from made_up_scheduler import BOX, KEY, TOKEN, grpc, play
from h2_client import DATA, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, RST, Raw, frame
from harness import MIB, Suite, is_long, random_bytes, read_text, rss_bytes, until

suite = Suite("gateway-uploads")
check, equal = suite.check, suite.equal
C = grpc.StatusCode
WHO = (f"X-API-Key: {KEY}", f"E2b-Sandbox-Id: {BOX}")
PLAIN = "Content-Type: application/octet-stream"
FORM = "Content-Type: multipart/form-data; boundary=B"
BIG = random_bytes(40 * MIB)
DIGEST = hashlib.sha256(BIG).hexdigest()
GROWTH = 12 * MIB  # 40 would be all of it; sanitizers take some once
IDLE_S = 60
KEY_PLACES, UPLOAD_PLACES = 256, 512
SILENT = ("/silent1", "/silent2", "/slow")  # of the clients that are there all the time


@contextlib.contextmanager
def world(w, on_write=None, on_folder=None):
    """A scheduler that has heard nothing."""
    s = w.s
    s.writes, s.folders, s.on_folder = [], [], on_folder
    s.on_write = lambda x, context: on_write and x.path not in SILENT and on_write(x, context)
    yield s
    s.on_write = s.on_folder = None


class Http1:
    """A connection, and the answers on it."""

    def __init__(self, w, timeout=60):
        self.sock = socket.create_connection(("127.0.0.1", w.g.port), timeout=timeout)
        self.data = b""

    def head(self, *fields, path="/files?path=/d/f", method="POST"):
        self.sock.sendall("\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode())
        return self

    def send(self, data):
        self.sock.sendall(data)
        return self

    def chunk(self, data):
        return self.send(b"%x\r\n" % len(data) + data + b"\r\n")

    def _read(self):
        piece = self.sock.recv(65536)
        self.data += piece
        return piece

    def answer(self):
        """Status, fields and JSON of the next one; (0, {}, None): the connection ended."""
        while b"\r\n\r\n" not in self.data:
            if not self._read():
                return 0, {}, None
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        fields = {k.lower(): v for k, v in (x.split(": ", 1) for x in lines)}
        n = int(fields.get("content-length", 0))
        while len(self.data) < n and self._read():
            pass
        body, self.data = self.data[:n], self.data[n:]
        return int(line.split()[1]), fields, json.loads(body) if body else None

    def ended(self):
        with contextlib.suppress(ConnectionResetError):
            return self.data == b"" and self._read() == b""
        return True

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Http2(Raw):
    FIELDS = {"x-api-key": KEY, "e2b-sandbox-id": BOX}

    def __init__(self, w):
        super().__init__("127.0.0.1", w.g.port, timeout=None)  # silence is what some of them are about

    def begin(self, stream, kind="application/octet-stream", path="/files?path=/d/f", **more):
        self.head(stream, path=path, headers={**self.FIELDS, "content-type": kind, **more})

    def body(self, stream, data, seconds=30):
        """As far as there is room: how much was sent until there was none for so long, or an answer."""
        for at in range(0, len(data), 16384):
            piece = data[at:at + 16384]
            until(lambda: self.room(stream) >= len(piece) or self.of(HEADERS, stream) or self.over, seconds)
            if self.room(stream) < len(piece) or self.of(HEADERS, stream) or self.over:
                return at
            self.send(frame(DATA, 0, stream, piece))
            self.sent[stream] = self.sent.get(stream, 0) + len(piece)
        return len(data)

    def end(self, stream):
        self.send(frame(DATA, END_STREAM, stream))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def little_memory(w, what):
    """The most that the gateway has had meanwhile is not much more than it had before."""
    with open(f"/proc/{w.g.pid}/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # VmHWM begins anew
    before = rss_bytes(w.g.pid)
    yield
    most = next(int(x.split()[1]) * 1024 for x in read_text(f"/proc/{w.g.pid}/status").splitlines() if x.startswith("VmHWM:"))
    check(f"{what}: the gateway grew by {(most - before) / MIB:.1f} MiB", most - before < GROWTH, (before, most))


def form(*files, end=b"--B--\r\n"):
    out = b""
    for name, data in files:
        out += f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + data + b"\r\n"
    return out + end


def written(s):
    return [(x.path, x.bytes, x.digest, x.committed) for x in s.writes]


def as_json(*paths):
    return [{"name": p.rsplit("/", 1)[1], "type": "file", "path": p} for p in paths]


# --- how many at once; first, while all of w.silent are there

@suite.scenario
def more_than_there_are_places(w):
    go = threading.Event()
    second, third = (f"Authorization: Bearer {who}" for who in (TOKEN, "x.y.z"))
    with world(w, on_folder=lambda m, context: go.wait(60)) as s, contextlib.ExitStack() as held:
        def ask(*fields):
            return held.enter_context(Http1(w)).head(*fields, WHO[1], PLAIN, "Content-Length: 3")
        for what, who, n in (("a key", WHO[0], KEY_PLACES - len(w.silent)), ("another key", second, UPLOAD_PLACES - KEY_PLACES)):
            before = len(s.folders)
            for _ in range(n):
                ask(who)
            check(f"all that {what} may have wait", until(lambda: len(s.folders) == before + n, 30), len(s.folders))
            status, _, said = ask(who).answer()
            equal("… and one more of it may not", (status, "at once" in said["message"]), (429, True))
        status, _, said = ask(third).answer()
        equal("one more of anybody", (status, "uploads at once" in said["message"]), (429, True))
        equal("while a download is asked for", Http1(w).head(third, WHO[1], method="GET").answer()[0], 501)
        go.set()
    with world(w) as s:
        def works():
            with Http1(w) as c:
                return c.head(*WHO, PLAIN, "Content-Length: 3").send(b"abc").answer()[0] == 200
        check("and then there are places again", until(works, 20))


# --- what passes

@suite.scenario
def one_with_its_length(w):
    with world(w) as s, Http1(w) as c:
        c.head(*WHO, PLAIN, f"Content-Length: {20 * MIB}").send(BIG[:20 * MIB])
        equal("20 MiB pass", (c.answer()[0], s.writes[0].bytes), (200, 20 * MIB))  # then sanitizers keep all that they do of what is freed
    with world(w) as s, Http1(w) as c, little_memory(w, "40 MiB with their length"):
        c.head(*WHO, PLAIN, f"Content-Length: {len(BIG)}").send(BIG)
        status, fields, body = c.answer()
        equal("it is answered", (status, body), (200, as_json("/d/f")))
        equal("all of it came, once", (written(s), s.folders, s.writes[0].user, s.writes[0].box), ([("/d/f", len(BIG), DIGEST, True)], ["/d"], "user", BOX))
        c.head(*WHO, PLAIN, "Content-Length: 2", path="/files?path=/g").send(b"ab")
        equal("the connection goes on", (c.answer()[0], written(s)[1][:2], s.folders), (200, ("/g", 2), ["/d"]))


@suite.scenario
def one_in_chunks(w):
    with world(w) as s, Http1(w) as c, little_memory(w, "40 MiB in chunks"):
        c.head(*WHO, PLAIN, "Transfer-Encoding: chunked")
        for at in range(0, len(BIG), 100000):
            c.chunk(BIG[at:at + 100000])
        c.send(b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        equal("it is answered", (c.answer()[0], written(s)), (200, [("/d/f", len(BIG), DIGEST, True)]))
        equal("and then what came behind it", c.answer()[0], 401)


@suite.scenario
def one_over_http2(w):
    with world(w) as s, Http2(w) as c, little_memory(w, "40 MiB over HTTP/2"):
        c.begin(1)
        equal("its window goes on", c.body(1, BIG), len(BIG))
        c.end(1)
        equal("it is answered", (c.status(1), json.loads(c.text(1))), (200, as_json("/d/f")))
        equal("all of it came, once", written(s), [("/d/f", len(BIG), DIGEST, True)])


@suite.scenario
def files_of_a_form(w):
    files = [("/b/1 ü", BIG[:9 * MIB]), ("a/2", b"\r\n--A\r\n--"), ("3", b""), ("/top", b"x" * 70000)]
    want = ["/b/1 ü", "/home/user/a/2", "/home/user/3", "/top"]
    body = form(*files)
    digests = [(p, len(d), hashlib.sha256(d).hexdigest(), True) for p, (_, d) in zip(want, files)]
    with world(w) as s, Http1(w) as c:
        c.head(*WHO, FORM, f"Content-Length: {len(body)}", path="/files").send(body)
        equal("each is told, in order", c.answer()[::2], (200, as_json(*want)))
        equal("… and written", (written(s), s.folders), (digests, ["/b", "/home/user/a", "/home/user"]))
    with world(w) as s, Http2(w) as c:
        c.begin(1, "multipart/form-data; boundary=B", "/files")
        c.body(1, body)
        c.end(1)
        equal("HTTP/2: the same", (c.status(1), json.loads(c.text(1)), written(s)), (200, as_json(*want), digests))
    with world(w) as s, Http1(w) as c:
        c.head(*WHO, FORM, "Transfer-Encoding: chunked", path="/files")
        for byte in form(("/x", b"\r\n"), ("/y/z", b"-B\r")):
            c.chunk(bytes([byte]))
        c.send(b"0\r\n\r\n")
        equal("a byte at a time", (c.answer()[0], [x[:2] for x in written(s)]), (200, [("/x", 2), ("/y/z", 3)]))
    with world(w) as s, Http1(w) as c:
        c.head(*WHO, FORM, f"Content-Length: {len(form())}", path="/files").send(form())
        equal("a form of none", (c.answer()[::2], s.writes), ((200, []), []))


@suite.scenario
def an_empty_file(w):
    for fields in (("Content-Length: 0",), ("Transfer-Encoding: chunked",), ()):
        with world(w) as s, Http1(w) as c:
            c.head(*WHO, PLAIN, *fields).send(b"0\r\n\r\n" if "chunked" in str(fields) else b"")
            equal(f"with {fields}", (c.answer()[0], [x[:2] + x[3:] for x in written(s)]), (200, [("/d/f", 0, True)]))
    with world(w) as s, Http2(w) as c:
        c.head(1, flags=END_HEADERS | END_STREAM, path="/files?path=/d/f", headers=c.FIELDS)
        equal("over HTTP/2", (c.status(1), [x[:2] + x[3:] for x in written(s)]), (200, [("/d/f", 0, True)]))


@suite.scenario
def who_waits_for_100_continue(w):
    go = threading.Event()
    with world(w, on_folder=lambda m, context: go.wait(20)) as s, Http1(w) as c:
        c.head(*WHO, PLAIN, "Expect: 100-continue", "Content-Length: 3")
        check("is not told to go on", until(lambda: s.folders, 20))
        c.sock.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            c._read()
        equal("… before the scheduler has said yes", c.data, b"")
        c.sock.settimeout(60)
        go.set()
        equal("then", c.answer()[0], 100)
        equal("and the rest is as ever", (c.send(b"abc").answer()[0], written(s)[0][:2]), (200, ("/d/f", 3)))
    with world(w) as s, Http1(w) as c:
        c.head(PLAIN, WHO[1], "Expect: 100-continue", "Content-Length: 3")
        equal("without a key it is not wanted", (c.answer()[0], c.ended()), (401, True))


# --- what is refused

@suite.scenario
def refused_before_its_body(w):
    length = f"Content-Length: {1 << 40}"
    wrong = f"X-API-Key: clk_0123456789abcdef_{64 * '1'}"

    def no(code):
        return lambda *a: a[-1].abort(code, "no")
    for what, want, fields, knobs in [
            ("no key", 401, (WHO[1], PLAIN), {}), ("a key that the scheduler does not know", 401, (wrong, WHO[1], PLAIN), {}),
            ("an access token of nobody", 401, ("X-Access-Token: a.b", PLAIN), {}),
            ("no sandbox", 400, (WHO[0], PLAIN), {}), ("what is compressed", 400, (*WHO, PLAIN, "Content-Encoding: gzip"), {}),
            ("a form without a boundary", 400, (*WHO, "Content-Type: multipart/form-data"), {}),
            ("another Host", 403, (*WHO, PLAIN, "Origin: https://evil.org"), {}),
            ("no right to the folder", 403, (*WHO, PLAIN), {"on_folder": no(C.PERMISSION_DENIED)}),
            ("no right to the file", 403, (*WHO, PLAIN), {"on_write": no(C.PERMISSION_DENIED)}),
            ("a file that is too large", 413, (*WHO, PLAIN), {"on_write": lambda x, context: x.bytes > MIB and context.abort(C.OUT_OF_RANGE, "no")})]:
        with world(w, **knobs) as s, Http1(w) as c:
            c.head(*fields, length)
            sent = 0
            with contextlib.suppress(OSError):
                while sent < 256 * MIB and not until(lambda: readable(c.sock), 0):
                    c.send(BIG[:MIB])
                    sent += MIB
            status, head, body = c.answer()
            check(f"{what}: {want}, and it says so", status == want or (what == "a file that is too large" and status >= 400) and body["message"], (status, body))
            equal("… the connection ends with it, and nothing is committed", (head.get("connection"), c.ended(), [x.committed for x in s.writes if x.committed]),
                  ("close", True, []))
        with world(w, **knobs) as s, Http2(w) as c:
            named = {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}
            c.head(1, path="/files?path=/d/f", headers=named)
            sent = c.body(1, BIG)
            check(f"HTTP/2: {what}", c.status(1) == want or what == "a file that is too large" and c.status(1) != 200, c.status(1))
            check("… and the rest is not wanted", until(lambda: c.of(RST, 1), 20) and c.of(RST, 1)[0] == NO_ERROR.to_bytes(4, "big"), c.of(RST, 1))
            check("… early", sent < 8 * MIB, sent)
            c.head(3, flags=END_HEADERS | END_STREAM, method="GET", path="/health")
            equal("… while the connection goes on", c.status(3), 401)


def readable(sock):
    return bool(select.select([sock], [], [], 0)[0])


@suite.scenario
def what_is_no_body(w):
    def begins(s, send, data):
        """The call of its first file has come before the rest is sent: one that is reset at once need never come."""
        send(data[:len(data) // 2])
        check("… its call begins", until(lambda: s.writes, 20), written(s))
        send(data[len(data) // 2:])

    def bad(fields, data, path="/files", calls=False):
        with world(w) as s, Http1(w) as c:
            c.head(*WHO, *fields, path=path)
            if calls:
                begins(s, c.send, data)
            else:
                c.send(data)
            status, _, _ = c.answer()
            check("… its call is over, without a commit", until(lambda: all(x.over and not x.committed for x in s.writes), 20), written(s))
            return status, len(s.writes)
    cut = form(("/d/f", BIG[:MIB]), end=b"")
    equal("a form without an end", bad((FORM, f"Content-Length: {len(cut)}"), cut, calls=True), (400, 1))
    cut = form(("/d/f", BIG[:MIB]), end=b"--B")
    equal("… one byte before it", bad((FORM, f"Content-Length: {len(cut)}"), cut)[0], 400)
    equal("a form without a name", bad((FORM, "Transfer-Encoding: chunked"), b"10000000\r\n--B\r\n\r\nabc"), (400, 0))
    equal("a chunk that is none", bad((PLAIN, "Transfer-Encoding: chunked"), b"3\r\nabc\r\nzz\r\n", "/files?path=/d/f")[0], 400)
    equal("a length and chunks", bad((PLAIN, "Transfer-Encoding: chunked", "Content-Length: 3"), b"", "/files?path=/d/f"), (400, 0))
    with world(w) as s, Http2(w) as c:
        c.begin(1, "multipart/form-data; boundary=B", "/files")
        begins(s, lambda data: c.body(1, data), form(("/d/f", BIG[:MIB]), end=b""))
        c.end(1)
        equal("HTTP/2: a form without an end", (c.status(1), [x.committed for x in s.writes]), (400, [False]))
        c.begin(3, **{"content-length": "5"})
        c.send(frame(DATA, END_STREAM, 3, b"abc"))
        equal("HTTP/2: less than its length", c.status(3), "reset")
        check("… changes nothing", until(lambda: all(x.over and not x.committed for x in s.writes), 20), written(s))


@suite.scenario
def other_bodies_are_as_small_as_ever(w):
    for path in ("/execute", "/mcp", "/sandboxes"):
        with Http1(w) as c:
            c.head(*WHO, "Content-Type: application/json", f"Content-Length: {9 * MIB}", path=path)
            equal(f"{path}: refused at its length", (c.answer()[0], c.ended()), (413, True))
        with Http2(w) as c:
            c.head(1, path=path, headers={**c.FIELDS, "content-length": str(9 * MIB)})
            equal(f"HTTP/2: {path}", c.status(1), 413)


# --- who leaves, and who waits

@suite.scenario
def who_leaves_in_the_middle(w):
    before = fds(w)
    for what, fields, data, path in (("with a length", (PLAIN, f"Content-Length: {len(BIG)}"), BIG[:5 * MIB], "/files?path=/d/f"),
                                     ("in chunks", (PLAIN, "Transfer-Encoding: chunked"), b"%x\r\n" % len(BIG) + BIG[:5 * MIB], "/files?path=/d/f"),
                                     ("of a form", (FORM, f"Content-Length: {len(BIG)}"), form(("/d/f", BIG[:5 * MIB]), end=b""), "/files")):
        with world(w) as s, Http1(w) as c:
            c.head(*WHO, *fields, path=path).send(data)
            check(f"{what}: it came so far", until(lambda: s.writes and s.writes[0].bytes >= 4 * MIB, 20), written(s))
            c.close()
            check("… its call is over, without a commit", until(lambda: s.writes[0].over, 20) and not s.writes[0].committed, written(s))
    for what, leave in (("reset", lambda c: c.send(frame(RST, 0, 1, bytes(4)))), ("gone", lambda c: c.close())):
        with world(w) as s, Http2(w) as c:
            c.begin(1)
            c.body(1, BIG[:5 * MIB])
            check("HTTP/2: it came so far", until(lambda: s.writes and s.writes[0].bytes >= 4 * MIB, 20), written(s))
            leave(c)
            check(f"… {what}: its call is over, without a commit", until(lambda: s.writes[0].over, 20) and not s.writes[0].committed, written(s))
    check("no call is left", until(lambda: fds(w) <= before, 10), (fds(w), before))


def fds(w):
    return len(os.listdir(f"/proc/{w.g.pid}/fd"))


def stalls(go, at=MIB):
    def on_write(x, _context):
        if x.bytes >= at:
            go.wait(60)
    return on_write


@suite.scenario
def a_slow_worker_slows_the_client(w):
    go = threading.Event()
    with world(w, on_write=stalls(go)) as s, Http1(w) as c, little_memory(w, "a worker that waits"):
        c.head(*WHO, PLAIN, f"Content-Length: {len(BIG)}")
        c.sock.setblocking(False)
        sent, last = 0, time.monotonic()
        while time.monotonic() - last < 2 and sent < len(BIG):
            try:
                sent += c.sock.send(BIG[sent:sent + MIB])
                last = time.monotonic()
            except BlockingIOError:
                time.sleep(0.02)
        check("the client cannot send on", sent < len(BIG) // 2, sent)
        go.set()
        c.sock.settimeout(60)
        c.send(BIG[sent:])
        equal("then all of it comes", (c.answer()[0], written(s)), (200, [("/d/f", len(BIG), DIGEST, True)]))
    go = threading.Event()
    with world(w, on_write=stalls(go)) as s, Http2(w) as c, little_memory(w, "20 of HTTP/2 that wait"):
        streams = range(1, 41, 2)
        for n in streams:
            c.begin(n, path=f"/files?path=/f{n}")
        sent = {n: c.body(n, BIG, 1) for n in streams[:3]}
        check("no window opens", max(sent.values()) < len(BIG) // 2, sent)
        for n in streams[3:]:
            sent[n] = c.body(n, BIG[:256 * 1024], 1)
        c.head(101, flags=END_HEADERS | END_STREAM, method="GET", path="/health", headers=c.FIELDS)
        equal("others of the connection go on", c.status(101), 204)
        go.set()
        for n in streams:
            c.body(n, BIG[sent[n]:MIB], 20) if sent[n] < MIB else None
            c.end(n)
        equal("then all of them do", {c.status(n) for n in streams}, {200})
        equal("… whole", {x.digest == hashlib.sha256(BIG[:x.bytes]).hexdigest() and x.committed for x in s.writes}, {True})


@suite.scenario
def over_tls(w):
    """The worker is slower than the client, so that it is stopped and goes on often."""
    if not shutil.which("curl"):
        return
    key, cert, file = w.dir / "key.pem", w.dir / "cert.pem", w.dir / "big"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=localhost",
                    "-days", "2"], check=True, capture_output=True)
    file.write_bytes(BIG)
    p = w.gateway("gateway-tls", "--tls-cert", cert, "--tls-key", key)
    argv = ["curl", "-sSk", "--max-time", "60", "-w", " %{http_code} %{http_version}", f"https://localhost:{p.port}/files?path=/d/f"]
    for version in ("1.1", "2"):
        for what, fields, body in (("plain", (*WHO, PLAIN), ["--data-binary", f"@{file}"]), ("a form", WHO, ["-F", f"file=@{file}"]),
                                   ("in chunks", (*WHO, PLAIN, "Transfer-Encoding: chunked"), ["--data-binary", f"@{file}"])):
            if version == "2" and what == "in chunks":
                continue
            with world(w, on_write=lambda x, _: x.bytes % MIB < 16384 and time.sleep(0.02)) as s:
                done = subprocess.run([*argv, f"--http{version}", *(a for f in fields for a in ("-H", f)), *body], capture_output=True, text=True)
                equal(f"HTTP/{version}, {what}", (done.stdout, done.stderr, written(s)),
                      (f"{json.dumps(as_json('/d/f'), separators=(',', ':'))} 200 {version}", "", [("/d/f", len(BIG), DIGEST, True)]))
    done = subprocess.run([*argv, "--http1.1", "-H", WHO[1], "-H", PLAIN, "-H", "Expect:", "--data-binary", f"@{file}"], capture_output=True, text=True)
    check("refused: the answer is seen", done.stdout.endswith(" 401 1.1") and "no API key" in done.stdout, (done.stdout, done.stderr))


class Silent(threading.Thread):
    """One that stops in the middle, and how long until it is put out."""

    def __init__(self, begin, is_over):
        super().__init__(daemon=True)
        self.begin, self.is_over, self.seconds = begin, is_over, None

    def run(self):
        held, began = self.begin(), time.monotonic()
        if until(lambda: self.is_over(held), IDLE_S + 30):
            self.seconds = time.monotonic() - began


def begin_silent(w):
    w.silent = []
    if not is_long():
        return

    def http1():
        return Http1(w, IDLE_S + 90).head(*WHO, PLAIN, "Content-Length: 9", path="/files?path=/silent1").send(b"abc")

    def http2():
        c = Http2(w)
        c.begin(1, path="/files?path=/silent2")
        c.send(frame(DATA, 0, 1, b"abc"))
        return c

    def slow():
        """A byte now and then: slower than a request may be, but it goes on."""
        c = Http1(w).head(*WHO, PLAIN, "Content-Length: 5", path="/files?path=/slow")
        for byte in b"abcde":
            time.sleep(9)
            c.send(bytes([byte]))
        return c.answer()[0]
    w.silent = [Silent(http1, lambda c: c.ended()), Silent(http2, lambda c: c.of(RST, 1)), Silent(slow, lambda status: status == 200)]
    for t in w.silent:
        t.start()
    until(lambda: len(w.s.writes) == 3, 20)
    w.silent_writes = list(w.s.writes)


@suite.long_scenario
def z_who_stops_in_the_middle(w):
    for t in w.silent:
        t.join()
    http1, http2, slow = [t.seconds for t in w.silent]
    check("a client of HTTP/1.1 that stops is put out", http1 and IDLE_S - 5 < http1 < IDLE_S + 60, http1)
    check("one of HTTP/2, too", http2 and IDLE_S - 5 < http2 < IDLE_S + 60, http2)
    check("one that is slow is not", slow is not None)
    until(lambda: all(x.over for x in w.silent_writes), 20)
    equal("and only its file is changed", sorted((x.path, x.over, x.committed) for x in w.silent_writes),
          [("/silent1", True, False), ("/silent2", True, False), ("/slow", True, True)])


if __name__ == "__main__":
    play(suite, begin_silent)
