#!/usr/bin/env python3
"""Connections from outside to programs in a sandbox: bytes, ends, who may, limits, rest, records, and the two commands."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import grpc

from mcp_client import Mcp
from harness import BUILD, MIB, SECOND, Listener, Suite, code_of, command, error_of, follow, in_parallel, pb, random_bytes, soon, until

suite = Suite("ports")
check, equal = suite.check, suite.equal
SERVERS = (pathlib.Path(__file__).parent / "guest_servers.py").read_bytes()
ECHO, DIGEST, SOURCE, FIRST_WORD, RESET, WATCH, WEB, NOBODY = 7000, 7001, 7002, 7003, 7004, 7005, 8000, 7999


class Connection:
    """One call of Connect: send() and end() from here, what comes collects in `got`."""

    def __init__(self, ports, sandbox, port, first=b"", **kw):
        self.out, self.got, self.eof, self.error, self.messages = queue.Queue(), bytearray(), False, None, []
        self.connected = threading.Event()
        self.out.put(pb.ConnectRequest(sandbox_id=sandbox, port=port, data=first))
        self.call = ports.Connect(iter(self.out.get, None), timeout=90, **kw)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for m in self.call:
                self.messages.append((m.connected, len(m.data), m.eof))
                self.got += m.data
                self.eof |= m.eof
                if m.connected:
                    self.connected.set()
        except grpc.RpcError as err:
            self.error = err
        self.connected.set()

    def send(self, data, eof=False):
        for at in range(0, len(data), 65536):
            self.out.put(pb.ConnectRequest(data=data[at:at + 65536]))
        if eof:
            self.out.put(pb.ConnectRequest(eof=True))
        return self

    def end(self):
        return self.send(b"", eof=True)

    def open(self):
        return self.connected.wait(soon(30)) and not self.error

    def has(self, n):
        return until(lambda: len(self.got) >= n or self.error, 60) and len(self.got) >= n

    def finish(self, seconds=120):
        """(bytes, "OK" or the code, text) once the call is over."""
        self.thread.join(soon(seconds))
        self.out.put(None)
        code = "still open" if self.thread.is_alive() else code_of(self.error)
        return bytes(self.got), code, self.error.details() if self.error else ""


def dial(client, sandbox, port, data=b"", **kw):
    """Send all, end, and what came back."""
    return Connection(client.ports, sandbox, port, **kw).send(data, eof=True).finish()


def in_context(client, box):
    """Servers that keep nobody busy: of a code context, not of a command."""
    code = ("import subprocess\nopen('/tmp/servers.py', 'wb').write(" + repr(SERVERS) + ")\n"
            "p = subprocess.Popen(['python3', '/tmp/servers.py'], stdout=subprocess.PIPE)\np.stdout.readline()")
    events = client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box, language=pb.LANGUAGE_PYTHON, code=code), timeout=60)
    check("the servers listen", [e.ended.outcome for e in events if e.HasField("ended")] == [pb.CELL_OUTCOME_OK])


def sandbox(client, servers=True, ttl=600, **kw):
    box = client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=int(ttl * SECOND), **kw), timeout=120).sandbox.id
    if servers:
        client.files.Write(iter([pb.WriteRequest(sandbox_id=box, path="/tmp/servers.py", data=SERVERS, commit=True)]))
        started = client.execs.Start(pb.StartRequest(sandbox_id=box, command=command("python3", "/tmp/servers.py"))).exec_id
        listener = Listener(client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=started), timeout=600))
        check("the servers listen", until(lambda: listener.lines() == ["ready"], 60), listener.seen)
    return box


def kill(client, box):
    with contextlib.suppress(grpc.RpcError):
        client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))


def shell(client, box, script):
    f = follow(client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=client.execs.Start(
        pb.StartRequest(sandbox_id=box, command=command("sh", "-c", script))).exec_id), timeout=120))
    return bytes(f.out).decode().strip()


def records(c, event, unit):
    return [r for r in c.audit_records() if r["event"] == event and r["fields"].get("unit") == unit]


@suite.scenario
def bytes_go_both_ways(c):
    box = sandbox(c.admin)
    equal("an echo, and what comes after the client's end", dial(c.admin, box, ECHO, b"hello"), (b"hello<5>", "OK", ""))
    equal("bytes of the first message count", dial(c.admin, box, ECHO, b" two", first=b"one")[0], b"one two<7>")
    con = Connection(c.admin.ports, box, ECHO)
    check("`connected` comes first, alone, without a byte being sent", con.open() and con.messages[0] == (True, 0, False), con.messages)
    con.send(b"a")
    check("one byte, at once", con.has(1))
    con.end()
    got, code, _ = con.finish()
    equal("... then the end of both", (got, code, con.messages[-1][2]), (b"a<1>", "OK", True))
    blob = random_bytes(8 * MIB, 5)
    equal("8 MiB in", dial(c.admin, box, DIGEST, blob)[:2], (hashlib.sha256(blob).hexdigest().encode(), "OK"))
    got, code, _ = dial(c.admin, box, SOURCE, b"8388608\n")
    equal("8 MiB out", (len(got), hashlib.sha256(got[:-64]).hexdigest().encode() == got[-64:], code), (8 * MIB + 64, True, "OK"))
    con = Connection(c.admin.ports, box, FIRST_WORD)
    check("a program that ends first is heard to its end", until(lambda: con.eof, 30) and bytes(con.got) == b"bye", con.messages)
    con.send(b"and still it listens", eof=True)
    equal("... and the client goes on", con.finish()[1], "OK")
    equal("... which it hears", shell(c.admin, box, "cat /tmp/after-bye"), "and still it listens")
    results = in_parallel(lambda n: dial(c.admin, box, ECHO, b"%d" % n * 1000)[:2], range(24), 24)
    want = [(b"%d" % n * 1000 + b"<%d>" % len(b"%d" % n * 1000), "OK") for n in range(24)]
    equal("24 at once keep apart", results, want)
    slow = Connection(c.admin.ports, box, SOURCE)
    slow.send(b"40000000\n")
    equal("beside one that streams, another is served", dial(c.admin, box, ECHO, b"x")[0], b"x<1>")
    check("40 MB come whole", slow.end().finish(300)[1] == "OK" and len(slow.got) == 40000064, len(slow.got))
    kill(c.admin, box)


@suite.scenario
def ends(c):
    box = sandbox(c.admin)
    _, code, text = Connection(c.admin.ports, box, NOBODY).finish()
    check("nobody listens: FAILED_PRECONDITION that names the port", code == "FAILED_PRECONDITION" and str(NOBODY) in text, (code, text))
    got, code, text = Connection(c.admin.ports, box, RESET).send(b"x").finish()
    check("a reset is no end in order", code == "UNAVAILABLE" and "reset" in text, (got, code, text))
    con = Connection(c.admin.ports, box, WATCH)
    check("a client that is there", con.has(4))
    con.call.cancel()
    equal("... and leaves: its program sees a reset", until(lambda: shell(c.admin, box, "cat /tmp/left 2>/dev/null"), 30), "reset")
    equal("bytes after the end", Connection(c.admin.ports, box, ECHO).send(b"a", eof=True).send(b"b").finish()[1], "INVALID_ARGUMENT")
    for port in (0, 65536):
        equal(f"port {port}", dial(c.admin, box, port)[1], "INVALID_ARGUMENT")
    equal("a stream without a message", code_of(error_of(c.admin.ports.Connect, iter([]))), "INVALID_ARGUMENT")
    equal("a job is no sandbox", dial(c.admin, "job_01jabcdefghjkmnpqrstvwxyz0", ECHO)[1], "NOT_FOUND")
    con = Connection(c.admin.ports, box, ECHO, first=b"x")
    check("open when its sandbox ends", con.has(1))
    kill(c.admin, box)
    equal("... UNAVAILABLE", con.finish()[1], "UNAVAILABLE")
    equal("an ended sandbox", dial(c.admin, box, ECHO)[1], "NOT_FOUND")


@suite.scenario
def who_may(c):
    tenant = c.tenant("portly")
    box, other = sandbox(tenant), sandbox(tenant, servers=False)
    link = lambda port=0, ttl=0, who=tenant: who.ports.CreateLink(pb.CreateLinkRequest(sandbox_id=box, port=port, ttl_ns=int(ttl * SECOND)))
    by = lambda credential: c.client(credential)
    equal("no credential", dial(by(""), box, ECHO)[1], "UNAUTHENTICATED")
    reader = by(c.key("portly", ("read",)).secret)
    equal("a key that may only read", dial(reader, box, ECHO)[1], "PERMISSION_DENIED")
    equal("... makes no link either", code_of(error_of(link, who=reader)), "PERMISSION_DENIED")
    equal("another tenant sees no such sandbox", dial(c.tenant("stranger"), box, ECHO)[1], "NOT_FOUND")
    one, every, short = link(ECHO).link, link().link, link(ttl=2)
    check("a link is short enough for a host name, and has a time when asked", one.startswith("clp_") and
          len(one.rsplit("_", 1)[1]) <= 63 and one == one.lower() and short.expires.unix_ns > 0, one)
    equal("a link to the port opens it", dial(by(one), box, ECHO, b"hi"), (b"hi<2>", "OK", ""))
    equal("... and no other", dial(by(one), box, DIGEST)[1], "PERMISSION_DENIED")
    equal("... of no other sandbox", dial(by(one), other, ECHO)[1], "PERMISSION_DENIED")
    equal("a link to every port", dial(by(every), box, DIGEST)[1], "OK")
    equal("a link opens nothing else", code_of(error_of(by(every).sandboxes.Get, pb.SandboxServiceGetRequest(sandbox_id=box))), "PERMISSION_DENIED")
    equal("... no further links", code_of(error_of(link, who=by(every))), "PERMISSION_DENIED")
    forged = every[:-1] + ("0" if every[-1] != "0" else "g")
    equal("a forged one", dial(by(forged), box, ECHO)[1], "UNAUTHENTICATED")
    time.sleep(max(0.0, short.expires.unix_ns / 1e9 - time.time()) + 0.1)
    equal("one whose time is over", dial(by(short.link), box, ECHO)[1], "UNAUTHENTICATED")
    key = c.key("portly")
    of_key = link(who=by(key.secret)).link
    equal("one of a second key", dial(by(of_key), box, ECHO)[1], "OK")
    c.admin.tenants.RevokeKey(pb.RevokeKeyRequest(key_id=key.key.id))
    check("... ends when that is revoked", until(lambda: dial(by(of_key), box, ECHO)[1] == "UNAUTHENTICATED", 10))
    equal("... and only that", dial(by(every), box, ECHO)[1], "OK")
    equal("a link to what is not there", code_of(error_of(tenant.ports.CreateLink, pb.CreateLinkRequest(sandbox_id=other.replace("sbx_0", "sbx_1")))), "NOT_FOUND")
    made, opened = records(c, "port.link", box), records(c, "port.open", box)
    check("links are in the log, with who made them", until(lambda: len(records(c, "port.link", box)) == 4, 10), made)
    check("... and connections by link, with the key that made it", any(r["fields"]["link"] and r["fields"]["by"] == key.key.id for r in opened), opened)
    kill(tenant, box)
    equal("a link ends with its sandbox", dial(by(every), box, ECHO)[1], "NOT_FOUND")
    kill(tenant, other)


@suite.scenario
def limits(c):
    box = sandbox(c.admin)
    many = [Connection(c.admin.ports, box, ECHO, first=b"x") for _ in range(32)]
    check("32 connections", all(x.has(1) for x in many), [code_of(x.error) for x in many if x.error])
    late = Connection(c.admin.ports, box, ECHO, first=b"late")
    time.sleep(0.5)
    check("the 33rd waits", late.got == b"" and late.error is None, (late.got, late.error))
    equal("commands run beside them", shell(c.admin, box, "echo yes"), "yes")
    equal("another sandbox is not concerned", dial(c.admin, other := sandbox(c.admin), ECHO, b"x")[0], b"x<1>")
    many.pop().call.cancel()
    check("with one less it has its turn", late.has(4), (late.got, late.error))
    equal("... and is whole", late.end().finish()[:2], (b"late<4>", "OK"))
    for x in many:
        x.call.cancel()
    for b in (box, other):
        kill(c.admin, b)


@suite.scenario
def at_rest(c):
    box = sandbox(c.admin, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
    con = Connection(c.admin.ports, box, ECHO, first=b"before ")
    check("open before the pause", con.has(7))
    c.admin.sandboxes.Pause(pb.PauseRequest(sandbox_id=box))
    con.send(b"meanwhile ")
    time.sleep(0.5)
    equal("a sandbox that was paused by a call waits for Resume", dial(c.admin, box, ECHO)[1], "FAILED_PRECONDITION")
    c.admin.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box))
    con.send(b"after", eof=True)
    equal("the connection outlives the pause, and no byte is lost", con.finish()[:2], (b"before meanwhile after<22>", "OK"))
    kill(c.admin, box)
    box = sandbox(c.admin, servers=False, ttl=3, on_idle=pb.IDLE_ACTION_PAUSE, wake_on_use=True)
    in_context(c.admin, box)
    state = lambda: c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box)).sandbox.state
    check("one that is idle rests", until(lambda: state() == pb.UNIT_STATE_PAUSED, 30))
    equal("... and is woken by who connects", dial(c.admin, box, ECHO, b"good morning")[:2], (b"good morning<12>", "OK"))
    kill(c.admin, box)


@suite.scenario
def its_use_counts(c):
    box = sandbox(c.admin, servers=False, ttl=3)
    in_context(c.admin, box)
    con = Connection(c.admin.ports, box, ECHO)
    for i in range(6):
        con.send(b"%d" % i)
        time.sleep(1)
    equal("bytes keep a sandbox alive", (bytes(con.got), code_of(con.error)), (b"012345", "OK"))
    check("... and their absence does not: it ends as idle", until(lambda: con.error is not None, 30) and code_of(con.error) == "UNAVAILABLE", con.error)


@suite.scenario
def a_scheduler_that_dies(c):
    box = sandbox(c.admin)
    con = Connection(c.admin.ports, box, WATCH)
    check("a connection", con.has(4))
    c.scheduler.kill()
    equal("its scheduler is killed: the client hears of it", con.finish()[1], "UNAVAILABLE")
    c.scheduler.start()
    check("the scheduler is back", c.await_answer())
    check("... and the sandbox with its servers", until(lambda: dial(c.admin, box, ECHO, b"again")[0] == b"again<5>", 30))
    equal("its program has seen the connection end", until(lambda: shell(c.admin, box, "cat /tmp/left 2>/dev/null"), 30), "reset")
    kill(c.admin, box)


@suite.scenario
def what_is_recorded(c):
    box = sandbox(c.admin)
    dial(c.admin, box, ECHO, b"hello")
    dial(c.admin, box, NOBODY)
    con = Connection(c.admin.ports, box, WATCH)
    con.has(4)
    con.call.cancel()
    closed = lambda: {r["fields"]["port"]: r["fields"] for r in records(c, "port.close", box)}
    check("three ends in the log", until(lambda: len(closed()) == 3, 20), closed())
    opened = {r["fields"]["connection"]: r["fields"] for r in records(c, "port.open", box)}
    rows = closed()
    equal("each has its beginning", sorted(r["connection"] for r in rows.values()), sorted(opened))
    facts = lambda r: (r["end"], r["received_bytes"], r["sent_bytes"])
    equal("one in order, with its bytes", facts(rows[ECHO]), ("closed", 5, 8))
    check("one that nobody listened for", rows[NOBODY]["end"] == "failed" and "listens" in rows[NOBODY]["reason"], rows[NOBODY])
    equal("one that its client left", facts(rows[WATCH]), ("left", 0, 4))
    calls = [r for r in c.audit_records() if r["event"] == "api.call" and r["fields"]["method"].endswith("PortService/Connect") and r["fields"].get("object") == box]
    equal("the calls add nothing to that", calls, [])
    kill(c.admin, box)
    p = cloche(c, "audit", "tree", "--json", "--dir", str(c.audit_dir), box)
    tree = json.loads(p.communicate(timeout=soon(60))[0])
    below = lambda node, what: [n for n in node["nodes"] if n["what"] == what]
    equal("audit tree: the three connections stand together", [n["end"]["end"] for group in below(tree, "ports") for n in below(group, "connection")],
          ["closed", "failed", "left"])
    server = [n for e in below(tree, "exec") for n in below(e, "process") if below(n, "bind")]
    check("... and the program that they came to under its command, with the ports that it bound",
          len(server) == 1 and f"bind 127.0.0.1 port {ECHO}" in [n["text"] for n in below(server[0], "bind")], server)


@suite.scenario
def without_a_record_nothing_happens(c):
    box = sandbox(c.admin)
    c.audit.signal(signal.SIGSTOP)
    con = Connection(c.admin.ports, box, WATCH)
    con.connected.wait(1.5)
    check("while the audit log takes no record, nobody is connected", not con.messages and not con.error, (con.messages, con.error))
    left = Connection(c.admin.ports, box, WATCH)
    time.sleep(0.3)
    left.call.cancel()
    c.audit.signal(signal.SIGCONT)
    check("... and then he is", con.has(4), con.error)
    con.call.cancel()
    ends = lambda: sorted(r["fields"]["end"] for r in records(c, "port.close", box))
    equal("who left meanwhile reached nothing, and both are in the log", until(lambda: len(ends()) == 2 and ends(), 20), ["left", "left"])
    equal("... with what they heard", sorted(r["fields"]["sent_bytes"] for r in records(c, "port.close", box)), [0, 4])
    kill(c.admin, box)


def cloche(c, *words, **kw):
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin_key}
    return subprocess.Popen([BUILD / "cloche", *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)


@suite.scenario
def commands(c):
    box = sandbox(c.admin)
    p = cloche(c, "sandbox", "forward", "--json", box, f"0:{WEB}", f"0:{ECHO}", f"0:{NOBODY}")
    lines = []
    while not lines or lines[-1] not in ("]\n", ""):
        lines.append(p.stdout.readline())
    doors = {row["port"]: row["listen"] for row in json.loads("".join(lines))}
    get = lambda path: urllib.request.urlopen(f"http://{doors[WEB]}{path}", timeout=soon(30)).read().decode()
    check("forward: a web page", get("/page?x=1").startswith("/page?x=1\n"))
    blob = random_bytes(4 * MIB, 8)
    request = urllib.request.Request(f"http://{doors[WEB]}/", data=blob)
    equal("... an upload of 4 MiB", urllib.request.urlopen(request, timeout=soon(60)).read().decode(), hashlib.sha256(blob).hexdigest())
    held = [socket.create_connection(doors[ECHO].rsplit(":", 1)) for _ in range(32)]
    for s in held:
        s.sendall(b"x")
    equal("32 connections at once", [s.recv(1) for s in held], [b"x"] * 32)
    threading.Timer(0.5, lambda: [s.close() for s in held]).start()
    pages = in_parallel(lambda n: get(f"/{n}").split("\n")[0], range(40), 40)
    equal("40 more of a web page wait for them, and no one is lost", pages, [f"/{n}" for n in range(40)])
    with socket.create_connection(doors[NOBODY].rsplit(":", 1)) as s:
        s.settimeout(soon(30))
        try:
            end = s.recv(1)
        except ConnectionResetError:
            end = "reset"
    equal("a port where nobody listens: a reset", end, "reset")
    with socket.create_connection(doors[ECHO].rsplit(":", 1)) as s:
        s.settimeout(soon(30))
        s.sendall(b"half")
        s.shutdown(socket.SHUT_WR)
        got = b""
        while data := s.recv(100):
            got += data
    equal("half-close goes through", got, b"half<4>")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=soon(30))
    check("Ctrl-C ends it in order; what failed was told", p.returncode == 0 and str(NOBODY) in err, (p.returncode, err))
    p = cloche(c, "sandbox", "forward", box, "99999")
    equal("a word that is no port: usage", (p.wait(), "99999" in p.stderr.read()), (2, True))
    p = cloche(c, "sandbox", "url", "--domain", "localhost:1", box, str(WEB))
    out, err = p.communicate(timeout=soon(30))
    check("url: the link in the host name", out.startswith(f"http://{WEB}-sbx-{box[4:]}.") and out.endswith(".localhost:1/\n"), (out, err))
    p = cloche(c, "sandbox", "url", "--json", "--ttl", "1h", "--domain", "https://a.example", box, str(WEB))
    row = json.loads(p.communicate(timeout=soon(30))[0])
    check("... in the query, with https", row["url"] == f"https://{WEB}-sbx-{box[4:]}.a.example/?cloche_link={row['link']}" and row["expires"], row)
    p = cloche(c, "sandbox", "forward", "--json", box, f"0:{ECHO}")
    door = "".join(iter(p.stdout.readline, "]\n"))
    kill(c.admin, box)
    with contextlib.suppress(OSError), socket.create_connection(door.split('"')[3].rsplit(":", 1)) as s:
        s.recv(1)
    equal("forward of a sandbox that is gone ends, and says so", (p.wait(soon(30)), "sandbox" in p.stderr.read()), (1, True))
    p = cloche(c, "sandbox", "forward", box, f"0:{ECHO}")
    check("... and does not begin", p.wait(soon(30)) == 1 and "ended" in p.stderr.read())


class Web:
    """One request to the gateway, as whoever looks up the name would send it."""

    def __init__(self, port, host, path="/", method="GET", body=None, **headers):
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=soon(60))
        conn.request(method, path, body=body, headers={"Host": host, **{k.replace("_", "-"): v for k, v in headers.items()}})
        answer = conn.getresponse()
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()
        conn.close()

    @property
    def text(self):
        return self.body.decode()


@suite.scenario
def web(c):
    at = int(c.add_gateway().split(":")[2].split("/")[0])
    box, other = sandbox(c.admin), sandbox(c.admin)
    link = c.admin.ports.CreateLink(pb.CreateLinkRequest(sandbox_id=box)).link
    secret, name = link.rsplit("_", 1)[1], f"{WEB}-sbx-{box[4:]}"
    p = cloche(c, "sandbox", "url", "--domain", f"http://localhost:{at}", box, str(WEB))
    url = p.communicate(timeout=soon(30))[0].strip()
    got = subprocess.run(["curl", "-sS", "--max-time", str(int(soon(60))), url + "page"], capture_output=True, text=True)
    check("curl opens what `sandbox url` prints", got.stdout.startswith("/page\n"), (got.stdout, got.stderr))
    page = Web(at, f"{name}.{secret}.localhost:{at}", "/a?b=c", X_Mine="1", Authorization="Bearer theirs")
    check("the server sees the request: path, query, fields, the application's own Authorization", page.status == 200 and page.text.startswith("/a?b=c\n") and
          "X-Mine: 1" in page.text and "Authorization: Bearer theirs" in page.text, page.text)
    check("... and nothing of ours", secret not in page.text.replace(f"{name}.{secret}", "") and "clp_" not in page.text and c.admin_key not in page.text, page.text)
    equal("its cookie is for its own name alone", page.headers["Set-Cookie"], "mine=1; Path=/")
    blob = random_bytes(8 * MIB, 9)
    equal("8 MiB up", Web(at, f"{name}.{secret}.localhost", method="POST", body=blob).text, hashlib.sha256(blob).hexdigest())
    refused = Web(at, f"{name}.localhost")
    check("without a link: 401, and what helps", refused.status == 401 and "cloche sandbox url" in refused.text, refused.text)
    equal("... and with E2b-Traffic-Access-Token", Web(at, f"{name}.localhost", E2b_Traffic_Access_Token=link).status, 200)
    equal("a link of another sandbox", Web(at, f"{WEB}-sbx-{other[4:]}.{secret}.localhost").status, 401)
    equal("... in the query", Web(at, f"{WEB}-sbx-{other[4:]}.localhost", f"/?cloche_link={link}").status, 403)
    moved = Web(at, f"{name}.localhost", f"/page?x=1&cloche_link={link}")
    cookie = moved.headers["Set-Cookie"] or ""
    check("in the query: a cookie, and a clean address", (moved.status, moved.headers["Location"]) == (302, "/page?x=1") and
          "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Domain" not in cookie, (moved.status, moved.headers))
    page = Web(at, f"{name}.localhost", "/page", Cookie=f"own=1; {cookie.split(';')[0]}; more=2")
    check("... which opens it, and which the server does not see", page.status == 200 and "Cookie: own=1; more=2" in page.text and "clp_" not in page.text, page.text)
    nobody = Web(at, f"{NOBODY}-sbx-{box[4:]}.{secret}.localhost")
    check("nobody listens: 502 that says so", nobody.status == 502 and str(NOBODY) in nobody.text, nobody.text)
    pages = in_parallel(lambda n: Web(at, f"{name}.{secret}.localhost", f"/{n}").text.split("\n")[0], range(60), 12)
    equal("60 requests keep apart", pages, [f"/{n}" for n in range(60)])
    with socket.create_connection(("127.0.0.1", at), timeout=soon(30)) as s:
        s.sendall(f"GET /chat HTTP/1.1\r\nHost: {name}.{secret}.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        stream = s.makefile("rb")
        head = b"".join(iter(stream.readline, b"\r\n"))
        check("a WebSocket: 101 and the key of RFC 6455", head.startswith(b"HTTP/1.1 101") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head)
        for word in (b"hello", b"again"):
            s.sendall(bytes([0x81, 0x80 | len(word), 1, 2, 3, 4]) + bytes(b ^ (1 + i % 4) for i, b in enumerate(word)))
            equal("... a frame comes back", stream.read(2 + len(word)), bytes([0x81, len(word)]) + word)
    agent = Mcp(f"http://127.0.0.1:{at}/mcp", c.admin_key)
    made = agent.tool("sandbox_create", template="python").data["sandbox_id"]
    agent.tool("exec_start", sandbox_id=made, command="exec python3 -m http.server --bind 127.0.0.1 8080")
    address = agent.tool("port_url", sandbox_id=made, port=8080).data["url"]
    listing = lambda: subprocess.run(["curl", "-sS", "--max-time", str(int(soon(30))), address], capture_output=True, text=True).stdout
    check("an agent's port_url opens its server", until(lambda: "Directory listing" in listing(), 30), address)
    equal("... and its sandbox alone is served", agent.tool("port_url", sandbox_id="sbx_" + "0" * 26, port=8080).failed, True)
    kill(c.admin, made)
    kill(c.admin, box)
    equal("of a sandbox that has ended: 404", Web(at, f"{name}.{secret}.localhost").status, 404)
    kill(c.admin, other)


if __name__ == "__main__":
    suite.main(templates="python", warm=2)
