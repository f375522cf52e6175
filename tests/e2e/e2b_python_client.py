"""E2B's Python SDKs, unmodified, against the gateway.  One JSON line on stdout.

usage: e2b_python_client.py TEMPLATE      (run by e2e_e2b.py with the tools' venv; E2B_* say where)
"""
import asyncio
import datetime
import hashlib
import http.client
import io
import json
import os
import random
import re
import sys
import time
import urllib.parse

from e2b import (AsyncSandbox, CommandExitException, FileNotFoundException, NotFoundException, PtySize, Sandbox, SandboxException, SandboxNotFoundException,
                 SandboxQuery, SandboxState, TimeoutException)
from e2b_code_interpreter import Sandbox as CodeSandbox


def caught(kind, call, *args, **options):
    try:
        call(*args, **options)
    except kind as e:
        return str(e) or kind.__name__
    return None


def commands(s, out):
    seen = []
    r = s.commands.run("echo out; echo err >&2; pwd; whoami", on_stdout=seen.append)
    out["run"] = [r.stdout, r.stderr, r.exit_code, "".join(seen)]
    try:
        s.commands.run("echo no >&2; exit 3")
    except CommandExitException as e:
        out["failing"] = [e.exit_code, e.stderr]
    out["env"] = s.commands.run("echo $OF_BOX $OF_CALL; pwd", envs={"OF_CALL": "b"}, cwd="/tmp").stdout
    out["root"] = s.commands.run("id -u", user="root").stdout
    begin = time.monotonic()
    out["slow"] = [bool(caught(TimeoutException, s.commands.run, "sleep 60", timeout=2)), time.monotonic() - begin < 30]
    handle = s.commands.run("cat; echo end", background=True, stdin=True, timeout=0)
    out["listed"] = handle.pid in [p.pid for p in s.commands.list()]
    s.commands.send_stdin(handle.pid, "one\n")
    s.commands.send_stdin(handle.pid, b"two\n")
    s.commands.close_stdin(handle.pid)
    out["stdin"] = handle.wait().stdout
    sleeper = s.commands.run("sleep 600", background=True, timeout=0)
    out["connected"] = s.commands.connect(sleeper.pid).pid == sleeper.pid
    out["killed"] = [s.commands.kill(sleeper.pid), caught(CommandExitException, sleeper.wait) is not None, s.commands.kill(sleeper.pid)]
    big = s.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout
    out["big"] = [len(big), set(big) == {"x"}]
    terminal = s.pty.create(PtySize(cols=90, rows=30), timeout=60)
    s.pty.resize(terminal.pid, PtySize(cols=100, rows=40))
    s.pty.send_stdin(terminal.pid, b"echo '<'$(stty size)'>'; exit\n")
    shown = []
    terminal.wait(on_pty=shown.append)
    out["pty"] = re.findall(r"<(\d+ \d+)>", b"".join(shown).decode())[-1]


def files(s, out):
    info = s.files.write("/home/user/a/b/c.txt", "hello")
    out["write"] = [info.name, info.path, s.files.read("a/b/c.txt")]
    out["bytes"] = bytes(s.files.read("/home/user/a/b/c.txt", format="bytes")).decode()
    s.files.write("stream.bin", iter([b"x" * 100000] * 5))
    out["stream"] = [sum(len(b) for b in s.files.read("stream.bin", format="stream")), s.files.get_info("stream.bin").size]
    out["many"] = [w.path for w in s.files.write_files([{"path": "m1 ü.txt", "data": "1"}, {"path": "d/m2.txt", "data": b"2"}])]
    out["names"] = [s.files.read("m1 ü.txt"), s.files.read("d/m2.txt")]
    out["empty"] = [s.files.write("empty", "").name, s.files.read("empty")]
    out["list"] = sorted((e.name, e.type.value) for e in s.files.list("/home/user/a"))
    out["deep"] = sorted(e.path for e in s.files.list("/home/user/a", depth=3))
    out["exists"] = [s.files.exists("a"), s.files.exists("nothing")]
    out["make"] = [s.files.make_dir("new/er"), s.files.make_dir("new/er")]
    out["rename"] = s.files.rename("a/b/c.txt", "/home/user/moved.txt").path
    out["info"] = [s.files.get_info("moved.txt").size, s.files.get_info("moved.txt").permissions, s.files.get_info("moved.txt").owner]
    s.files.remove("moved.txt")
    out["gone"] = bool(caught(FileNotFoundException, s.files.read, "moved.txt"))


CHANGES = "chmod 600 watched/deep/a; mv watched/deep/a watched/b; echo more >> watched/b; rm watched/b; mkdir watched/end"


def told(events):
    return [[e.type.value, e.name] for e in events]


def watching(s, out):
    """By polling, as the SDK without async does."""
    s.files.make_dir("watched/deep")
    w = s.files.watch_dir("watched", recursive=True, include_entry=True)
    s.files.write("watched/deep/a", "hello")
    s.commands.run(CHANGES)
    events = []
    while not any(e.name == "end" for e in events):
        events += w.get_new_events()
    out["watched"] = told(events)
    out["watched_entry"] = [(e.entry.path, e.entry.size) for e in events if e.name == "deep/a" and e.entry][:1]
    out["watch_quiet"] = told(w.get_new_events())
    w.stop()
    out["watch_stopped"] = [bool(caught(SandboxException, w.get_new_events)), bool(caught(SandboxException, s.files.watch_dir, "none"))]
    gone = s.files.watch_dir("watched/deep")
    s.files.remove("watched")
    while not (why := caught(SandboxException, gone.get_new_events)):
        time.sleep(0.1)
    out["watch_gone"] = why


async def watching_async(box, out):
    s, events, ends = await AsyncSandbox.connect(box), [], []
    await s.files.make_dir("watched/deep")
    w = await s.files.watch_dir("watched", events.append, ends.append, recursive=True)
    await s.files.write("watched/deep/a", "hello")
    await s.commands.run(CHANGES)
    while not any(e.name == "end" for e in events):
        await asyncio.sleep(0.05)
    out["watched_async"] = told(events)
    await w.stop()
    short = await s.files.watch_dir("watched", events.append, ends.append, timeout=1)
    while len(ends) < 2:
        await asyncio.sleep(0.05)
    out["watch_ends"] = [type(e).__name__ for e in ends]
    await short.stop()


def metrics(s, out):
    s.commands.run("head -c 30000000 /dev/zero > used; sync")
    before = s.get_metrics()
    s.commands.run("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; rm used; sync")
    now = s.get_metrics()[-1]
    out["metrics"] = [now.cpu_count, 0 < now.cpu_used_pct <= 100, 0 < now.mem_used < now.mem_total, 0 < now.mem_cache < now.mem_total,
                      now.disk_total > before[-1].disk_used > now.disk_used + 20_000_000, now.timestamp >= before[-1].timestamp]
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    out["metrics_when"] = [len(s.get_metrics(start=later)), len(s.get_metrics(end=later)) >= len(before)]


def large(s, out):
    data = random.Random(1).randbytes(50 << 20)
    digest = hashlib.sha256(data).hexdigest()
    out["large"] = []
    for body in (data, io.BytesIO(data)):  # a form; a body that is streamed
        s.files.write("large/file", body)
        back = hashlib.sha256(b"".join(s.files.read("large/file", format="stream"))).hexdigest()
        out["large"].append([digest == back, digest in s.commands.run("sha256sum large/file").stdout])
    two = s.files.write_files([{"path": f"large/{n}", "data": data[:20 << 20]} for n in "ab"])
    out["two"] = [[w.path for w in two], s.commands.run("cat large/a large/b | wc -c").stdout]
    s.files.remove("large")


def code(s, out):
    r = s.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 41\nx + 1")
    out["cell"] = [r.text, r.logs.stdout, r.logs.stderr, r.error and r.error.name]
    out["state"] = s.run_code("x += 1; x").text
    out["wide"] = "".join(s.run_code("print('ü€' * 50000)").logs.stdout) == "ü€" * 50000 + "\n"
    failed = s.run_code("1 / 0")
    out["exception"] = [failed.error.name, failed.error.value, "ZeroDivisionError" in failed.error.traceback]
    context = s.create_code_context(cwd="/tmp")
    out["context"] = [s.run_code("import os; os.getcwd()", context=context).text, s.run_code("x", context=context).error.name]
    out["contexts"] = context.id in [k.id for k in s.list_code_contexts()]
    s.restart_code_context(context)
    s.remove_code_context(context)
    out["removed"] = context.id in [k.id for k in s.list_code_contexts()]
    out["bash"] = s.run_code("A=5; echo $A", language="bash").logs.stdout
    out["envs"] = [s.run_code("import os; os.environ.get('OF_CELL')", envs=envs).text for envs in ({"OF_CELL": "c 'ü\n"}, None)]
    out["bash_envs"] = [s.run_code("echo ${A-unset}", language="bash", envs=envs).logs.stdout for envs in ({"A": "6"}, {})]
    out["timeout"] = bool(caught(TimeoutException, s.run_code, "import time; time.sleep(60)", timeout=2))
    out["after"] = s.run_code("x").text


def boxes(s, out):
    out["running"] = s.is_running()
    info = s.get_info()
    out["info_of_box"] = [info.sandbox_id == s.sandbox_id, info.metadata, info.end_at > info.started_at, info.state.value]
    s.set_timeout(600)
    out["longer"] = (s.get_info().end_at - info.end_at).total_seconds() > 100
    other = Sandbox.connect(s.sandbox_id)
    other.files.write("from-other", "1")
    out["connect"] = s.files.read("from-other")
    found = Sandbox.list(query=SandboxQuery(metadata={"userId": "a b/ü"})).next_items()
    out["found"] = [i.sandbox_id for i in found] == [s.sandbox_id]
    none = Sandbox.list(query=SandboxQuery(metadata={"userId": "nobody"})).next_items()
    out["not_found"] = none == []
    out["unknown"] = bool(caught((NotFoundException, SandboxNotFoundException), Sandbox.connect, "sbx_00000000000000000000000000"))


def listed(state):
    """Ids of this client's sandboxes in this state, over all pages."""
    pages, ids = Sandbox.list(query=SandboxQuery(metadata={"userId": "a b/ü"}, state=[state]), limit=1), []
    while pages.has_next:
        ids += [i.sandbox_id for i in pages.next_items()]
    return ids


def pauses(s, out):
    s.run_code("kept = 41")
    s.files.write("/tmp/kept", "a file")
    counter = s.commands.run("i=0; while :; do i=$((i + 1)); echo $i > /tmp/c; mv /tmp/c /tmp/count; sleep 0.2; done", background=True, timeout=0)
    while not s.files.exists("/tmp/count"):
        time.sleep(0.1)
    out["pause"] = [s.pause(), s.pause()]
    info = s.get_info()
    out["paused"] = [info.state.value, (info.end_at - info.started_at).days >= 29, s.is_running(), listed(SandboxState.PAUSED) == [s.sandbox_id],
                     listed(SandboxState.RUNNING)]
    out["at_rest"] = [bool(caught(TimeoutException, s.commands.run, "true")), bool(caught(TimeoutException, s.files.read, "/tmp/kept")),
                      bool(caught(TimeoutException, s.run_code, "kept")), bool(caught(SandboxException, s.set_timeout, 60))]
    again = CodeSandbox.connect(s.sandbox_id, timeout=120)
    seen = again.files.read("/tmp/count")
    time.sleep(1)
    out["resumed"] = [again.sandbox_id == s.sandbox_id, again.get_info().state.value, again.run_code("kept + 1").text, again.files.read("/tmp/kept"),
                      counter.pid in [p.pid for p in again.commands.list()], int(again.files.read("/tmp/count")) > int(seen), s.is_running()]
    out["runs"] = [listed(SandboxState.PAUSED), listed(SandboxState.RUNNING) == [s.sandbox_id]]
    out["not_without_memory"] = caught(SandboxException, s.pause, mode="filesystem")
    out["by_id"] = [Sandbox.pause(s.sandbox_id), Sandbox.kill(s.sandbox_id), s.is_running(), Sandbox.kill(s.sandbox_id)]
    out["of_nothing"] = bool(caught(SandboxNotFoundException, s.pause))


def pauses_when_idle(template, out):
    """Used up, so that only its timeout pauses it: what asks for its state does not use it."""
    with Sandbox.create(template=template, timeout=3, lifecycle={"on_timeout": "pause"}) as s:
        s.files.write("/tmp/kept", "a file")
        end = time.monotonic() + 60
        while s.get_info().state != SandboxState.PAUSED and time.monotonic() < end:
            time.sleep(0.5)
        out["idle"] = [s.get_info().state.value, s.get_info().lifecycle, s.connect(timeout=60).files.read("/tmp/kept")]
    with Sandbox.create(template=template, timeout=3, lifecycle={"on_timeout": "pause", "auto_resume": True}) as s:
        s.files.write("/tmp/kept", "a file")
        end = time.monotonic() + 60
        while s.get_info().state != SandboxState.PAUSED and time.monotonic() < end:
            time.sleep(0.5)
        out["auto_resume"] = [s.get_info().state.value, s.get_info().lifecycle, s.files.read("/tmp/kept"), s.commands.run("echo on").stdout,
                              s.get_info().state.value]


SERVER = """python3 -c "
import socket
l = socket.create_server(('127.0.0.1', 8080))
print('listens', flush=True)
while True:
    c, _ = l.accept()
    c.recv(65536)
    c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello')
    c.close()
\""""


def fetch(host, **headers):
    """What is at http://host/; its name leads to this machine, whatever the resolver here says of names below localhost."""
    at = urllib.parse.urlsplit(os.environ["E2B_API_URL"])
    conn = http.client.HTTPConnection(at.hostname, at.port, timeout=60)
    conn.request("GET", "/", headers={"Host": host, **headers})
    answer = conn.getresponse()
    return [answer.status, answer.read().decode() if answer.status == 200 else ""]


def serve(s):
    for stdout, _, _ in s.commands.run(SERVER, background=True, timeout=0):
        if stdout:
            return s.get_host(8080)


def ports(template, out):
    with Sandbox.create(template=template, timeout=300) as s:
        host = serve(s)
        out["public"] = [fetch(host), fetch(Sandbox.connect(s.sandbox_id).get_host(8080)), fetch(s.get_host(8081))[0]]
    with Sandbox.create(template=template, timeout=300, network={"allow_public_traffic": False}) as s:
        host = serve(s)
        out["private"] = [fetch(host), fetch(host, **{"e2b-traffic-access-token": s.traffic_access_token}),
                          fetch(Sandbox.connect(s.sandbox_id).get_host(8080))]


def main(template):
    out = {}
    with CodeSandbox.create(template=template, timeout=300, metadata={"userId": "a b/ü"}, envs={"OF_BOX": "a"}) as s:
        for part in (commands, files, watching, metrics, large, boxes, code):
            part(s, out)
        asyncio.run(watching_async(s.sandbox_id, out))
    out["dead"] = [s.is_running(), s.kill(), caught(Exception, s.commands.run, "true")]
    out["dead_write"] = [caught(Exception, s.files.write, "x", body) for body in (bytes(50 << 20), io.BytesIO(bytes(50 << 20)))]
    with CodeSandbox.create(template=template, timeout=300, metadata={"userId": "a b/ü"}) as s:
        pauses(s, out)
    pauses_when_idle(template, out)
    ports(template, out)
    print(json.dumps(out))


main(sys.argv[1])
