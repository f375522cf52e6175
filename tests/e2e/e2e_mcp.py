#!/usr/bin/env python3
"""Agents through the MCP gateway: both eras, tools, cancellation, handles, limits, the audit log."""
import base64
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

from harness import BUILD, LONG, Process, Suite, in_parallel, is_long, pb, until
from mcp_client import ACCEPT, LEGACY, META, MODERN, Mcp

suite = Suite("mcp")
check, equal = suite.check, suite.equal
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4z8AAAAACAAHiIbwzAAAAAElFTkSuQmCC")
ROUNDS = 110 if LONG else 4  # of the replays: 10,000 calls in the long variant
ALIASES = [("run-python-in-repl", {"pythonCode": "1"}), ("sandbox_start", {}), ("sandbox_stop", {}), ("sandbox_run_code", {"code": "1"}),
           ("sandbox_run_command", {"command": "id"}), ("sandbox_get_metrics", {})]
GONE = "Call again without sandbox_id"


def url_of(c):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "base")
    return c.mcp_url


def agent(c, tenant, era=MODERN, **limits):
    """A tenant of its own and an agent with a key of it."""
    return Mcp(url_of(c), c.tenant(tenant, **limits).key, era)


def running(c, tenant_key, sandbox, word):
    """Does a process whose arguments hold the word run in the sandbox?"""
    execs = c.client(tenant_key).execs.List(pb.ExecServiceListRequest(sandbox_id=sandbox)).execs
    return [e.id for e in execs if e.running and any(word in a for a in e.argv)]


@suite.scenario
def envelope_and_headers(c):
    a = agent(c, "env")
    equal("discover names all versions", a.call("server/discover").result["supportedVersions"][0], MODERN)
    body, headers = a.request("tools/list")
    cases = [
        ("broken JSON", "{", headers, 400, -32700),
        ("a batch", [body], headers, 400, -32600),
        ("no jsonrpc", {**body, "jsonrpc": "1.0"}, headers, 400, -32600),
        ("an id that is null", {**body, "id": None}, headers, 400, -32600),
        ("an id that is a float", {**body, "id": 1.5}, headers, 400, -32600),
        ("doubled names", '{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', headers, 400, -32700),
        ("deep nesting", '{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + "[" * 70 + "]" * 70 + "}}", headers, 413, -32700),
        ("bad UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', headers, 400, -32700),
        ("no _meta", {**body, "params": {}}, headers, 400, -32602),
        ("no Mcp-Method", body, {**headers, "Mcp-Method": None}, 400, -32020),
        ("another Mcp-Method", body, {**headers, "Mcp-Method": "tools/call"}, 400, -32020),
        ("another version in the header", body, {**headers, "MCP-Protocol-Version": LEGACY}, 400, -32020),
        ("an unknown legacy version", {**body, "params": {}}, {"MCP-Protocol-Version": "1999-01-01"}, 400, -32600),
    ]
    for what, message, h, status, code in cases:
        got = a.raw(message, h)
        equal(f"{what} is refused", (got.status, got.code), (status, code))
    body["params"]["_meta"][META + "protocolVersion"] = "v999"
    got = a.raw(body, {**headers, "MCP-Protocol-Version": "v999"})
    equal("an unknown modern version is refused and those we have are named",
          (got.status, got.code, got.error["data"]["requested"]), (400, -32022, "v999"))
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "nonsense"):
        got = a.call(method)
        equal(f"modern {method} does not exist", (got.status, got.code), (404, -32601))
    got = a.call("tools/call", {"name": "rm_rf", "arguments": {}})
    equal("an unknown tool is an error", (got.status, got.code), (200, -32602))
    equal("a cursor that is none is an error", a.call("tools/list", {"cursor": "x"}).code, -32602)
    equal("a notification is accepted", a.raw({"jsonrpc": "2.0", "method": "notifications/x"}, headers).status, 202)


@suite.scenario
def http_edges(c):
    a = agent(c, "edges")
    body, headers = a.request("server/discover")
    for what, h, status in [("another Host", {"Host": "evil.example"}, 403), ("another Origin", {"Origin": "http://evil.example"}, 403),
                            ("a loopback Origin", {"Origin": "http://localhost:1234"}, 200),
                            ("another type", {"Content-Type": "text/plain"}, 415), ("an Accept without JSON", {"Accept": "text/html"}, 406),
                            ("no credential", {"Authorization": None}, 401), ("another credential", {"Authorization": "Bearer clk_x"}, 401)]:
        got = a.raw(body, {**headers, **h})
        equal(f"{what}: {status}", got.status, status)
        check(f"{what}: a 401 says what it wants", status != 401 or "Bearer" in got.headers["WWW-Authenticate"])
    reader = Mcp(url_of(c), c.key("edges", scopes=("read",)).secret)
    got = reader.tool("exec", command="id")
    check("a key without the scope gets 403 and the reason",
          got.status == 403 and "insufficient_scope" in got.headers["WWW-Authenticate"], got.body)
    equal("GET is not there", a.raw(None, method="GET").status, 405)
    equal("another path is not there", raw_bytes(a, b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")[:12], b"HTTP/1.1 404")
    for what, text, status in [
            ("two Hosts", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", b"400"),
            ("both lengths", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
            ("a huge body", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", b"413"),
            ("huge headers", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n", b"431"),
            ("many headers", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200 + b"\r\n", b"431"),
            ("another protocol", b"GET / HTTP/3.0\r\n\r\n", b"505"), ("no HTTP", b"\x16\x03\x01\x00\x00", b"400")]:
        equal(f"{what}: refused", raw_bytes(a, text)[9:12], status)
    chunked = ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
               f"Accept: {ACCEPT}\r\nAuthorization: Bearer {a.key}\r\nConnection: close\r\n" +
               "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n")
    text = json.dumps(body)
    chunked += f"{10:x}\r\n{text[:10]}\r\n{len(text) - 10:x}\r\n{text[10:]}\r\n0\r\n\r\n"
    check("a chunked body is read", b"supportedVersions" in raw_bytes(a, chunked.encode()))


def raw_bytes(a, text):
    with socket.create_connection((a.url.hostname, a.url.port), timeout=20) as s:
        s.sendall(text)
        data = b""
        while piece := s.recv(65536):
            data += piece
            if b"Connection: close" not in data and b"\r\n\r\n" in data:
                break
    return data


@suite.scenario
def a_session_of_an_agent(c):
    a = agent(c, "agent", sandboxes=2)
    first = a.tool("exec", command="echo made > note; echo hello; echo trouble >&2")
    sandbox = first.data["sandbox_id"]
    equal("a command says all about itself", (first.failed, first.data["exit_code"], first.data["stdout"], first.data["stderr"]),
          (False, 0, "hello\n", "trouble\n"))
    check("a new sandbox is named, and what to do with it", f"{sandbox} (new; pass it" in first.text, first.text)
    equal("files stay", a.tool("exec", sandbox_id=sandbox, command="cat note").data["stdout"], "made\n")
    check("without the id there is another one", a.tool("exec", command="cat note").failed)
    bad = a.tool("exec", sandbox_id=sandbox, command="ls /nowhere; exit 3")
    check("a command that fails is a result, with what it said", bad.failed and bad.data["exit_code"] == 3 and "nowhere" in bad.data["stderr"])
    check("a program that is missing is told", a.tool("exec", sandbox_id=sandbox, argv=["no-such-program"]).data["outcome"] == "not_found")
    equal("stdin arrives", a.tool("exec", sandbox_id=sandbox, argv=["cat"], stdin="höll\n" * 1000).data["stdout_bytes_total"], 6000)
    equal("env and cwd arrive", a.tool("exec", sandbox_id=sandbox, command="echo $A; pwd", env={"A": "b"}, cwd="/tmp").data["stdout"], "b\n/tmp\n")

    over = a.tool("sandbox_create", template="base")
    check("over the quota: what, why, what to do", over.failed and "quota" in over.text and "sandbox_kill" in over.text, over.text)
    many = a.tool("exec", sandbox_id=sandbox, command="seq 1 200000", max_output_bytes=4096)
    check("long output is cut in the middle and says so", many.data["stdout_truncated"] and len(many.data["stdout"]) < 5000 and
          many.data["stdout"].startswith("1\n2\n") and many.data["stdout"].endswith("200000\n"))
    links = [i for i in many.result["content"] if i["type"] == "resource_link"]
    check("all of it can be read in ranges", links and a.call("resources/read", {"uri": links[0]["uri"] + "?offset=0&length=20"})
          .result["contents"][0]["text"] == "1\n2\n3\n4\n5\n6\n7\n8\n9\n10"[:20])
    cut = a.tool("exec", sandbox_id=sandbox, command="for i in $(seq 2000); do printf 'ä€😈'; done; printf '\\377\\000x'", max_output_bytes=1024)
    check("no character is cut and bytes that are none are replaced", "\ufffd" in cut.data["stdout"][-4:] and "\ufffd" not in cut.data["stdout"][:-4])

    png = a.tool("file_write", sandbox_id=sandbox, path="deep/er/dot.png", content=base64.b64encode(PNG).decode(), encoding="base64")
    equal("bytes are written and folders made", png.data["bytes"], len(PNG))
    back = a.tool("file_read", sandbox_id=sandbox, path="deep/er/dot.png")
    check("a picture comes back as one", base64.b64decode(back.result["content"][-1]["data"]) == PNG and back.data["encoding"] == "image")
    a.tool("file_write", sandbox_id=sandbox, path="t.txt", content="grün\n" * 3)
    equal("a range of a file", a.tool("file_read", sandbox_id=sandbox, path="t.txt", offset=6, limit=5).data["content"], "grün"[:4])
    equal("a folder is listed", [e["name"] for e in a.tool("file_list", sandbox_id=sandbox, path="deep").data["entries"]], ["er"])
    check("a file that is missing is named", "nope.txt" in a.tool("file_read", sandbox_id=sandbox, path="nope.txt").text)
    for what, args in [("a wrong type", {"limit": "x"}), ("a wrong name", {"pth": "x"}), ("U+0000", {"path": "a\0b"}), ("too much", {"limit": 10**9})]:
        wrong = a.tool("file_read", **{"sandbox_id": sandbox, "path": "t.txt", **args})
        check(f"{what} in an argument is a result that says so", wrong.failed and "argument" in wrong.text, wrong.text)

    server = a.tool("exec_start", sandbox_id=sandbox, command="while :; do echo tick; sleep 0.2; done").data["exec_id"]
    poll = a.tool("exec_poll", sandbox_id=sandbox, exec_id=server, wait_seconds=1)
    check("a server runs in the background", poll.data["running"] and "tick" in poll.data["stdout"])
    time.sleep(0.5)
    again = a.tool("exec_poll", sandbox_id=sandbox, exec_id=server, cursor=poll.data["cursor"])
    check("a cursor shows only what is new", 0 < again.data["stdout_bytes_total"] < poll.data["stdout_bytes_total"] + 30)
    a.tool("exec_signal", sandbox_id=sandbox, exec_id=server)
    equal("it is ended by a signal", a.tool("exec_poll", sandbox_id=sandbox, exec_id=server, wait_seconds=10).data["outcome"], "signalled")
    slow = a.tool("exec", sandbox_id=sandbox, command="sleep 30", timeout_seconds=0.5)
    check("a time limit ends a command and says how to have more", slow.data["timed_out"] and "exec_start" in slow.text)
    check("one's sandboxes are listed", sandbox in [s["sandbox_id"] for s in a.tool("sandbox_list").data["sandboxes"]])
    a.tool("sandbox_kill", sandbox_id=sandbox)
    gone = a.tool("exec", sandbox_id=sandbox, command="id")
    check("one that was ended says so, and how to go on", gone.failed and GONE in gone.text, gone.text)

    records = lambda: [json.dumps(r) for r in c.audit_records("agent")]
    for what in ("SandboxService/Create", "ExecService/Start", "ExecService/Signal", "FileService/Write", "FileService/Read", "SandboxService/Kill",
                 "seq 1 200000"):  # a command itself, too
        check(f"the audit log has {what}", until(lambda: any(what in r for r in records()), 10))


@suite.scenario
def legacy_sessions(c):
    a = agent(c, "legacy", LEGACY)
    first = a.initialize()
    check("initialize gives a session", first.result["protocolVersion"] == LEGACY and a.session)
    made = a.tool("exec", command="echo here > f")
    equal("a session has one sandbox", a.tool("exec", command="cat f").data["stdout"], "here\n")
    equal("ping", a.call("ping").result, {})
    other = agent(c, "legacy2", LEGACY)
    other.session = a.session
    equal("another's session does not exist", other.call("ping").status, 404)
    other.session = None
    equal("without one there is none", other.call("ping").status, 400)
    b = Mcp(url_of(c), a.key, LEGACY)
    b.initialize()
    check("another session has another sandbox", b.tool("exec", command="cat f").failed)
    c.gateway.stop()
    a.url = b.url = Mcp(c.add_gateway("--template", "base"), "").url
    c.mcp_url = a.url.geturl()
    a.close()
    equal("a session outlives the gateway, with its sandbox", a.tool("exec", command="cat f").data.get("stdout"), "here\n")
    c.client(a.key).sandboxes.Kill(pb.KillRequest(sandbox_id=made.data["sandbox_id"]))
    check("its end is told once", GONE in a.tool("exec", command="cat f").text)
    check("then there is a new one", "(new;" in a.tool("exec", command="true").text)
    equal("DELETE ends it", a.raw(None, method="DELETE").status, 204)
    equal("then it is gone", a.call("ping").status, 404)


@suite.scenario
def cancellation(c):
    a = agent(c, "cancel")
    sandbox = a.tool("sandbox_create", template="base").data["sandbox_id"]
    body, headers = a.request("tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "command": "while :; do :; done # spin"}},
                              {"progressToken": "p1"})
    connection = a.connect()
    threading.Thread(target=lambda: ignore(lambda: a.raw(body, headers, connection=connection)), daemon=True).start()
    check("it runs", until(lambda: running(c, a.key, sandbox, "spin"), 10))
    time.sleep(2)
    connection.sock.shutdown(socket.SHUT_RDWR)
    check("modern: leaving the stream ends it", until(lambda: not running(c, a.key, sandbox, "spin"), 10))

    progress = a.tool("exec", {"progressToken": 7}, sandbox_id=sandbox, command="for i in 1 2 3; do echo $i; sleep 1; done").notifications
    values = [n["params"]["progress"] for n in progress]
    check("progress grows, is ours and is not a flood", values == sorted(set(values)) and 2 <= len(values) <= 6 and
          all(n["params"]["progressToken"] == 7 for n in progress), values)
    equal("without a token there is none", a.tool("exec", sandbox_id=sandbox, command="sleep 2; echo").notifications, [])

    old = Mcp(url_of(c), a.key, LEGACY)
    old.initialize()
    body, headers = old.request("tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "command": "sleep 3; echo kept > kept # old"}})
    connection = old.connect()
    threading.Thread(target=lambda: ignore(lambda: old.raw(body, headers, connection=connection)), daemon=True).start()
    check("it runs", until(lambda: running(c, a.key, sandbox, "# old"), 10))
    connection.sock.shutdown(socket.SHUT_RDWR)
    check("legacy: leaving is no cancellation", until(lambda: a.tool("exec", sandbox_id=sandbox, command="cat kept").data["stdout"] == "kept\n", 10))
    body, headers = old.request("tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "command": "while :; do :; done # told"}})
    answers = []
    threading.Thread(target=lambda: answers.append(old.raw(body, headers, connection=old.connect())), daemon=True).start()
    check("it runs", until(lambda: running(c, a.key, sandbox, "told"), 10))
    old.raw({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": body["id"]}}, headers)
    check("legacy: notifications/cancelled ends it", until(lambda: not running(c, a.key, sandbox, "told"), 10) and until(lambda: answers, 5))


def ignore(fn):
    try:
        fn()
    except Exception:  # noqa: BLE001
        pass


@suite.scenario
def tasks(c):
    a = agent(c, "tasks")
    a.capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    made = a.tool("exec", command="sleep 6; echo done", timeout_seconds=120).result
    equal("a long run is a task", (made["resultType"], made["status"]), ("task", "working"))
    task = made["taskId"]
    equal("it works", a.call("tasks/get", {"taskId": task}).result["status"], "working")
    check("it completes", until(lambda: a.call("tasks/get", {"taskId": task}).result["status"] == "completed", 10))
    equal("its result is the tool's", a.call("tasks/get", {"taskId": task}).result["result"]["structuredContent"]["stdout"], "done\n")
    endless = a.tool("exec", command="sleep 600", timeout_seconds=1000).result["taskId"]
    a.call("tasks/cancel", {"taskId": endless})
    check("it is cancelled", until(lambda: a.call("tasks/get", {"taskId": endless}).result["status"] == "completed", 10))
    equal("an unknown task is an error", a.call("tasks/get", {"taskId": "x"}).code, -32602)
    a.capabilities = {}
    equal("a client that does not know tasks gets none", a.call("tasks/get", {"taskId": task}).code, -32021)


class Listening:
    """A stream of subscriptions/listen, read by a thread of its own."""

    def __init__(self, a, **notifications):
        body, headers = a.request("subscriptions/listen", {"notifications": notifications})
        self.id, self.messages, self.comments, self.over = body["id"], [], 0, False
        self.connection = a.connect()
        self.connection.request("POST", a.url.path, json.dumps(body), {"Content-Type": "application/json", "Accept": ACCEPT,
                                                                       "Authorization": f"Bearer {a.key}", **headers})
        self.response = self.connection.getresponse()
        threading.Thread(target=lambda: ignore(self._read), daemon=True).start()

    def _read(self):
        for line in self.response:
            self.comments += line.startswith(b":")
            if line.startswith(b"data: "):
                self.messages.append(json.loads(line[6:]))
        self.over = True

    def told(self):
        """{task: (status, stdout)} of what was told."""
        return {m["params"]["taskId"]: (m["params"]["status"], m["params"]["result"]["structuredContent"]["stdout"])
                for m in self.messages if m.get("method") == "notifications/tasks"}

    def leave(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)


@suite.scenario
def tasks_are_told(c):
    a = agent(c, "listener")
    equal("what is not delivered is not offered", a.call("server/discover").result["capabilities"]["tools"], {})
    a.capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    sandbox = a.tool("sandbox_create", template="base").data["sandbox_id"]

    def task(line):
        return a.tool("exec", sandbox_id=sandbox, command=line, timeout_seconds=120).result["taskId"]
    old, soon, endless = task("echo old"), task("until [ -e /tmp/go ]; do sleep 0.1; done; echo soon"), task("sleep 600")
    check("the first has ended", until(lambda: a.call("tasks/get", {"taskId": old}).result["status"] == "completed", 10))
    heard = Listening(a, toolsListChanged=True, promptsListChanged=True, taskIds=[old, soon, endless])
    check("the stream is acknowledged", until(lambda: heard.messages, 10))
    first = heard.messages[0]
    equal("first, and with what there is here", (first["method"], first["params"]["notifications"]),
          ("notifications/subscriptions/acknowledged", {"toolsListChanged": True, "taskIds": [old, soon, endless]}))
    check("a task that had ended is told at once, in full", until(lambda: heard.told().get(old) == ("completed", "old\n"), 5), heard.messages)
    check("one that works is not", soon not in heard.told() and endless not in heard.told(), heard.told())
    task("touch /tmp/go")
    check("it is told when it ends", until(lambda: heard.told().get(soon) == ("completed", "soon\n"), 30), (heard.told(), a.call("tasks/get", {"taskId": soon}).body))
    shown = next(m["params"] for m in heard.messages if m.get("params", {}).get("taskId") == soon)
    got = a.call("tasks/get", {"taskId": soon}).result
    equal("just as tasks/get shows it", {k: v for k, v in shown.items() if k not in ("_meta", "lastUpdatedAt")},
          {k: v for k, v in got.items() if k not in ("_meta", "lastUpdatedAt", "resultType")})
    a.call("tasks/cancel", {"taskId": endless})
    check("so is one that is cancelled", until(lambda: endless in heard.told(), 15), heard.told())
    time.sleep(1)
    equal("each once, and nothing else", [m["params"].get("taskId") for m in heard.messages], [None, old, soon, endless])
    equal("all carry the stream's id", {m["params"]["_meta"][META + "subscriptionId"] for m in heard.messages}, {heard.id})
    check("a quiet stream is kept awake", until(lambda: heard.comments > 0, 30))

    more = [Listening(a, toolsListChanged=True) for _ in range(7)]
    check("eight streams of one key", until(lambda: all(m.messages for m in more), 10))
    refused = a.call("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    equal("the ninth is refused, other calls are not", (refused.status, a.call("server/discover").status), (429, 200))
    more[0].leave()

    def place_again():
        again = Listening(a, toolsListChanged=True)
        return again.response.status == 200 and again
    again = until(place_again, 10)
    check("leaving gives the place back", again)
    more[1].leave()
    for what, notifications, code in [("no filter", None, -32602), ("a filter that is none", [], -32602), ("too many tasks", {"taskIds": [old] * 7}, -32602),
                                      ("a task that is none", {"taskIds": ["x"]}, -32602), ("ids that are none", {"taskIds": [1]}, -32602),
                                      ("a list that is none", {"taskIds": "x"}, -32602)]:
        check(f"{what}: refused", until(lambda n=notifications, code=code: a.call("subscriptions/listen", {"notifications": n}).code == code, 5))
    a.capabilities = {}
    equal("who has not declared tasks hears of none", a.call("subscriptions/listen", {"notifications": {"taskIds": [old]}}).code, -32021)
    equal("the gateway ends in order", c.gateway.stop(), 0)
    check("and its streams with a result", until(lambda: heard.over, 5) and heard.messages[-1]["result"]["resultType"] == "complete" and
          heard.messages[-1]["result"]["_meta"][META + "subscriptionId"] == heard.id == heard.messages[-1]["id"], heard.messages[-1])
    c.mcp_url = c.add_gateway("--template", "base")
    Mcp(c.mcp_url, a.key).tool("sandbox_kill", sandbox_id=sandbox)


def replays(mine, theirs):
    """Everything that a stranger can do with another's names; each is called with a sandbox's id."""
    _, exec_id = mine
    calls = [("exec", {"command": "id"}), ("exec_start", {"command": "id"}), ("exec_poll", {"exec_id": exec_id}),
             ("exec_signal", {"exec_id": exec_id}), ("sandbox_pause", {}), ("sandbox_resume", {}), ("sandbox_fork", {}), ("snapshot_create", {}), ("port_url", {"port": 80}), ("sandbox_kill", {}), ("file_read", {"path": "x"}), ("file_list", {}),
             ("file_write", {"path": "x", "content": "x"}), ("run_code", {"code": "1"})]
    for name, args in ALIASES:
        handle = "replId" if "repl" in name else "sandbox"
        yield name, lambda s, name=name, args=args, handle=handle: theirs.tool(name, **{handle: s}, **args)
    for name, args in calls:
        yield name, lambda s, name=name, args=args: theirs.tool(name, sandbox_id=s, **args)
    yield "tasks/get", lambda s: theirs.call("tasks/get", {"taskId": f"{s}.{exec_id}"})
    yield "tasks/cancel", lambda s: theirs.call("tasks/cancel", {"taskId": f"{s}.{exec_id}"})
    yield "subscriptions/listen", lambda s: theirs.call("subscriptions/listen", {"notifications": {"taskIds": [f"{s}.{exec_id}"]}})
    yield "resources/read", lambda s: theirs.call("resources/read", {"uri": f"cloche://{s}/{exec_id}/stdout"})


@suite.scenario
def handles_belong_to_who_made_them(c):
    c.tenant("owner", rate_interval_us=1, rate_burst=1000000)
    c.tenant("stranger", rate_interval_us=1, rate_burst=1000000)
    p = Process(c, "gateway-aliases", [BUILD / "cloche-gateway", "--listen", "127.0.0.1:0", "--scheduler", f"unix:{c.dir}/api.sock",
                                       "--template", "base", "--aliases"]).start()
    check("a gateway with all names listens", until(lambda: p.events("LISTENING"), 20))
    url = f"http://127.0.0.1:{p.events('LISTENING')[-1]['port']}/mcp"
    a = Mcp(url, c.key("owner").secret)
    live, ended = a.tool("exec", command="echo secret").data, a.tool("exec", command="echo secret").data
    a.tool("sandbox_kill", sandbox_id=ended["sandbox_id"])
    a.close()  # what follows may take longer than a connection may be idle
    unknown = "sbx_" + "0" * 26

    def plain(answer, real):
        return json.dumps({k: v for k, v in answer.body.items() if k != "id"}).replace(real, "ID")

    def differing(key, made):
        """Calls whose answer is not that for an id that never was."""
        theirs = Mcp(url, key)
        theirs.capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        bad, n = [], 0
        for _ in range(ROUNDS):
            for name, call in replays((made["sandbox_id"], made["exec_id"]), theirs):
                bad += [name] if plain(call(made["sandbox_id"]), made["sandbox_id"]) != plain(call(unknown), unknown) else []
                n += 2
        seen = theirs.tool("sandbox_list").data["sandboxes"]
        theirs.close()
        return n, bad, seen
    jobs = [(key, made) for key in (c.key("stranger").secret, c.key("owner").secret) for made in (live, ended)]
    results = in_parallel(lambda j: differing(*j), jobs, 4)
    total = sum(r[0] for r in results if isinstance(r, tuple))
    equal(f"a stranger and another key of the tenant: {total} replays of live and ended handles answer as for one that never was",
          [r if not isinstance(r, tuple) else r[1] for r in results], [[]] * 4)
    equal("they see none of them", [r[2] for r in results], [[]] * 4)
    equal("and nothing was done to it", a.tool("exec", sandbox_id=live["sandbox_id"], command="echo fine").data["stdout"], "fine\n")
    a.close()
    equal("the gateway ends in order", p.stop(), 0)


@suite.scenario
def many_calls_at_once(c):
    c.tenant("crowd", rate_interval_us=1, rate_burst=100000)
    key = c.key("crowd").secret
    agents = [Mcp(url_of(c), key) for _ in range(50)]
    before = rss(c.gateway.pid)

    def work(a):
        return [a.call("tools/list").status for _ in range(40)]
    statuses = [s for r in in_parallel(work, agents, 50) for s in (r if isinstance(r, list) else [repr(r)])]
    equal("2000 calls from 50 clients", (len(statuses), set(statuses)), (2000, {200}))
    for a in agents:
        a.close()
    again = in_parallel(work, [Mcp(url_of(c), key) for _ in range(50)], 50)
    check("and again, in flat memory", all(isinstance(r, list) for r in again) and rss(c.gateway.pid) - before < 64 << 20,
          rss(c.gateway.pid) - before)


@suite.scenario
def many_calls_that_work(c):
    c.tenant("factory", rate_interval_us=1, rate_burst=100000, sandboxes=4)
    key = c.key("factory").secret
    boxes = [Mcp(url_of(c), key).tool("sandbox_create", template="base").data["sandbox_id"] for _ in range(4)]
    wrong, slowest = [], []

    def note(what, answer, ok):
        if not ok(answer):
            wrong.append((what, answer.status, answer.text or answer.body))

    rounds = 10 if is_long() else 2

    def work(n, rounds=rounds):
        a, box = Mcp(url_of(c), key), boxes[n % len(boxes)]
        for i in range(rounds):
            text, path, begin = f"{n} {i}\n" * 40, f"f{n}", time.monotonic()
            note("file_write", a.tool("file_write", sandbox_id=box, path=path, content=text), lambda r: r.data.get("bytes") == len(text))
            note("exec", a.tool("exec", sandbox_id=box, argv=["cat", path]), lambda r: r.data.get("stdout") == text)
            note("file_read", a.tool("file_read", sandbox_id=box, path=path), lambda r: r.data.get("content") == text)
            note("file_list", a.tool("file_list", sandbox_id=box), lambda r: path in [e["name"] for e in r.data.get("entries", [])])
            slowest.append(time.monotonic() - begin)
        a.close()
        return 4 * rounds
    in_parallel(lambda n: work(n, 1), range(50), 50)
    before = rss(c.gateway.pid)
    begin = time.monotonic()
    done = in_parallel(work, range(50), 50)
    took, grown = time.monotonic() - begin, rss(c.gateway.pid) - before
    print(f"     {len(slowest) * 4 - 200} calls in {took:.0f} s, the gateway grew by {grown >> 10} KiB")
    equal(f"{200 * rounds} calls from 50 clients that write, run and read, without an error", (done, wrong[:3]), ([4 * rounds] * 50, []))
    check("the gateway grows by less than 8 MiB over them", grown < 8 << 20, grown)
    for box in boxes:
        Mcp(url_of(c), key).tool("sandbox_kill", sandbox_id=box)


def rss(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


@suite.scenario
def stdio(c):
    env = {"CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.tenant("stdio").key, "PATH": "/usr/bin:/bin",
           "ASAN_OPTIONS": "quarantine_size_mb=8"}
    p = subprocess.Popen([str(BUILD / "cloche"), "mcp", "--template", "base"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)

    def send(**m):
        p.stdin.write(json.dumps({"jsonrpc": "2.0", **m}) + "\n")
        p.stdin.flush()

    def ask(number, method, **params):
        send(id=number, method=method, params=params)
        return json.loads(p.stdout.readline())
    check("initialize", ask(1, "initialize", protocolVersion="2025-06-18", capabilities={})["result"]["protocolVersion"] == "2025-06-18")
    send(method="notifications/initialized")
    made = ask(2, "tools/call", name="exec", arguments={"command": "echo 1 > f"})["result"]["structuredContent"]
    equal("one process, one sandbox", ask(3, "tools/call", name="exec", arguments={"command": "cat f"})["result"]["structuredContent"]["stdout"], "1\n")
    modern = {"_meta": {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}}
    equal("both eras", ask(4, "tools/list", **modern)["result"]["resultType"], "complete")
    send(id=5, method="tools/call", params={"name": "exec", "arguments": {"command": "while :; do :; done # loop"}})
    check("it runs", until(lambda: running(c, env["CLOCHE_API_KEY"], made["sandbox_id"], "loop"), 10))
    send(method="notifications/cancelled", params={"requestId": 5})
    check("notifications/cancelled ends it", until(lambda: not running(c, env["CLOCHE_API_KEY"], made["sandbox_id"], "loop"), 10))
    equal("and nothing is said about it", ask(6, "ping")["id"], 6)
    send(id=7, method="subscriptions/listen", params={"notifications": {"toolsListChanged": True}, **modern})
    equal("a stream on stdio is acknowledged", json.loads(p.stdout.readline())["params"]["_meta"][META + "subscriptionId"], 7)
    p.stdin.write("{nonsense\n")
    p.stdin.flush()
    equal("nonsense is answered", json.loads(p.stdout.readline())["error"]["code"], -32700)
    p.stdin.close()
    equal("it is ended with stdin", json.loads(p.stdout.readline())["id"], 7)
    equal("it ends with its stdin", p.wait(20), 0)
    box = c.client(env["CLOCHE_API_KEY"]).sandboxes
    check("and so does its sandbox", until(lambda: box.Get(pb.SandboxServiceGetRequest(sandbox_id=made["sandbox_id"])).sandbox.state
                                          == pb.UNIT_STATE_ENDED, 10))


@suite.scenario
def tls(c):
    key, cert = c.dir / "tls.key", c.dir / "tls.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key,
                    "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    argv = [BUILD / "cloche-gateway", "--listen", "127.0.0.1:0", "--scheduler", f"unix:{c.dir}/api.sock"]
    p = Process(c, "gateway-tls", [*argv, "--tls-cert", cert, "--tls-key", key]).start()
    check("it listens with a certificate", until(lambda: p.events("LISTENING"), 20))
    port = p.events("LISTENING")[-1]["port"]
    a = Mcp(f"https://localhost:{port}/mcp", c.tenant("tls").key)
    a.connect = lambda: http.client.HTTPSConnection("localhost", port, timeout=30, context=ssl.create_default_context(cafile=cert))
    equal("a call over TLS", a.call("server/discover").status, 200)
    equal("and another on the same connection", len(a.call("tools/list").result["tools"]), 20)
    new = [c.dir / f"fresh.{ext}" for ext in ("key", "pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", new[0],
                    "-out", new[1], "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    shown = ssl.get_server_certificate(("127.0.0.1", int(port)))
    os.replace(new[0], key)
    p.signal(signal.SIGHUP)
    check("a key that does not fit is refused at SIGHUP", until(lambda: p.events("CONFIG_REFUSED"), 10))
    equal("… and changes nothing", ssl.get_server_certificate(("127.0.0.1", int(port))), shown)
    os.replace(new[1], cert)
    p.signal(signal.SIGHUP)
    check("SIGHUP takes the new certificate", until(lambda: p.events("CONFIG_RELOADED"), 10)
          and ssl.get_server_certificate(("127.0.0.1", int(port))) == cert.read_text())
    equal("the open connection goes on", a.call("server/discover").status, 200)
    a.close()
    old = ssl.create_default_context(cafile=cert)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        old.wrap_socket(socket.create_connection(("localhost", int(port))), server_hostname="localhost")
        refused = False
    except (ssl.SSLError, ConnectionError):
        refused = True
    check("TLS 1.2 is refused", refused)
    equal("it ends in order", p.stop(), 0)
    for what, extra in [("plain off loopback", ["--listen", "0.0.0.0:1"]), ("a certificate without a key", ["--tls-cert", cert]),
                        ("no names off loopback", ["--listen", "0.0.0.0:1", "--tls-cert", cert, "--tls-key", key]),
                        ("metrics off loopback", ["--metrics", "0.0.0.0:1"])]:
        done = subprocess.run([*map(str, [*argv, *extra]), "--check-config"], capture_output=True, text=True)
        check(f"{what}: refused at the start", done.returncode == 1 and "FATAL" in done.stderr, done.stderr)


@suite.scenario
def metadata_of_the_resource(c):
    p = Process(c, "gateway-oauth", [BUILD / "cloche-gateway", "--listen", "127.0.0.1:0", "--scheduler", f"unix:{c.dir}/api.sock",
                                     "--resource", "https://box.example/mcp", "--authorization-servers", "https://as.example"]).start()
    check("it listens", until(lambda: p.events("LISTENING"), 20))
    a = Mcp(f"http://127.0.0.1:{p.events('LISTENING')[-1]['port']}/mcp", c.tenant("oauth").key)
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        connection = a.connect()
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        equal(f"{path} needs no credential", (answer["resource"], answer["authorization_servers"]), ("https://box.example/mcp", ["https://as.example"]))
        connection.close()
    got = a.raw({}, {"Authorization": None})
    check("a 401 says where it is", got.status == 401 and
          'resource_metadata="https://box.example/.well-known/oauth-protected-resource/mcp"' in got.headers["WWW-Authenticate"], got.headers)
    equal("API keys go on working", a.call("server/discover").status, 200)
    a.close()
    equal("it ends in order", p.stop(), 0)
    plain = agent(c, "oauth2")
    plain.url = plain.url._replace(path="/.well-known/oauth-protected-resource/mcp")
    equal("without a configuration there is none", plain.raw(None, method="GET").status, 404)


@suite.scenario
def slow_peers(c):
    a = agent(c, "slow")
    sandbox = a.tool("sandbox_create", template="base").data["sandbox_id"]
    body, headers = a.request("tools/call", {"name": "exec", "arguments": {"sandbox_id": sandbox, "command": "yes", "timeout_seconds": 3}},
                              {"progressToken": 1})
    before = rss(c.gateway.pid)
    connection = a.connect()
    connection.request("POST", a.url.path, json.dumps(body), {"Content-Type": "application/json", "Accept": ACCEPT,
                                                              "Authorization": f"Bearer {a.key}", **headers})
    time.sleep(5)
    check("a guest that prints without end, to a client that does not read, costs no memory", rss(c.gateway.pid) - before < 16 << 20,
          rss(c.gateway.pid) - before)
    connection.close()
    idle = [socket.create_connection((a.url.hostname, a.url.port)) for _ in range(200)]
    for s in idle:
        s.sendall(b"POST /mcp HTTP/1.1\r\nHost: local")
    equal("200 connections that never end their request disturb nobody", a.call("tools/list").status, 200)
    for s in idle:
        s.close()


@suite.scenario
def the_product_has_no_fixtures(c):
    a = agent(c, "plain")
    names = [t["name"] for t in a.call("tools/list").result["tools"]]
    check("no tool of a test is in the product", names and not [n for n in names if n.startswith("test_")], names)
    words = (BUILD / "cloche-gateway").read_bytes() + (BUILD / "cloche").read_bytes()
    check("nor in its binaries", b"test_simple_text" not in words and
          b"test_simple_text" in (BUILD / "gateway_with_fixtures").read_bytes())


@suite.scenario
def without_a_scheduler(c):
    known, fresh = agent(c, "known"), agent(c, "fresh")
    equal("one works", known.call("tools/list").status, 200)
    c.scheduler.kill()
    got = fresh.call("tools/list")
    equal("who cannot be known now hears that it is not his fault", (got.status, got.code), (503, -32603))
    check("… and why", "scheduler" in got.error["message"] or "connect" in got.error["message"], got.error)
    got = until(lambda: known.tool("exec", command="true"), 5)
    check("who is known hears it, too", got.failed and "again" in got.text, got.text)
    c.scheduler.start()
    c.await_answer()
    check("afterwards both work", until(lambda: fresh.call("tools/list").status == 200 and not known.tool("exec", command="true").failed, 30))


@suite.scenario
def nothing_is_kept(c):
    keys = {name: c.key(name).secret for name in c.tenant_names()}
    for key in keys.values():
        boxes = c.client(key).sandboxes
        for box in boxes.List(pb.SandboxServiceListRequest()).sandboxes:
            boxes.Kill(pb.KillRequest(sandbox_id=box.id))
    check("every sandbox can be ended by its tenant", until(lambda: not c.held(), 20), c.held())


suite.main(warm=3)
