"""Cloche's Python package, used as its README says.  One JSON line on stdout: what was seen.

usage: sdk_python_client.py all|follow|hello     (run by e2e_sdk.py; CLOCHE_* say where)
"""
import io
import json
import os
import socket
import sys
import threading
import time

import cloche


def raised(call, *args, **kw):
    """[class, code, message] of what it raises."""
    try:
        call(*args, **kw)
    except cloche.Error as err:
        return [type(err).__name__, err.code, err.message]
    return None


def jobs(client, out):
    heard = []
    r = client.run("echo out; echo err >&2; exit 3", on_stdout=heard.append)
    out["run"] = [r.outcome, r.exit_code, r.ok, r.text, r.stderr.decode(), r.ended_as, b"".join(heard).decode(), 0 < r.wall < 60]
    out["argv"] = client.run(["printf", "%s|", "a b", "$HOME"], template="base").text
    out["surroundings"] = client.run("echo $X; pwd; id -un", env={"X": "a b"}, cwd="/tmp", user="root").text
    out["stdin"] = [client.run("sort", stdin="b\na\n").text, client.run("wc -c", stdin=b"x" * 3_000_000).text.strip(),
                    client.run("md5sum", stdin=io.BytesIO(b"file")).text[:6], client.run("true", stdin=b"x" * 3_000_000).ok]
    out["timed out"] = [client.run("sleep 60", timeout=0.5).outcome, client.run(["nothing-of-this-name"]).outcome]
    out["check"] = raised(client.run, "echo why >&2; exit 4", check=True)
    out["network"] = raised(client.run, "true", net="example.org")[:2]
    out["large"] = len(client.run("head -c 20000000 /dev/zero").stdout)
    r = client.run("true", template="nothing")
    out["no template"] = [r.outcome, r.reason, r.ok]
    out["templates"] = sorted(t.name for t in client.templates())


def commands(box, out):
    p = box.start("cat; echo end; exit 5", stdin=True)
    p.write("one\n")
    p.write(b"two\n", eof=True)
    out["process"] = [[k for k, _ in p] != [], p.wait().text, box.process(p.id).wait().exit_code]
    p = box.start("trap 'echo told; exit 6' TERM; echo ready; while :; do sleep 0.1; done")
    pieces = iter(p)
    first = next(pieces)
    p.signal(15)
    out["signal"] = [list(first) == ["stdout", b"ready\n"], p.wait().text, p.wait().exit_code]
    p = box.start("sleep 100")
    p.kill()
    out["killed"] = [p.wait().outcome, p.wait().signal]
    p = box.start("stty size; read x; stty size", pty=(40, 100))
    first = next(iter(p))[1].decode().strip()
    p.resize(50, 120)
    p.write("\n")
    out["terminal"] = [first, p.wait().text.split("\r\n")[-2]]
    out["stdin of a command"] = [box.run("wc -c", stdin="x" * 2_000_000).text.strip(), box.run("exit 0", stdin="x" * 2_000_000).ok]


def files(box, out):
    f = box.files
    f.mkdir("/tmp/dir/deep")
    changes = f.watch("/tmp/dir", recursive=True)
    out["written"] = [f.write("/tmp/dir/a", "text ü"), f.write("/tmp/dir/large", io.BytesIO(os.urandom(3_000_000)), mode=0o600)]
    f.rename("/tmp/dir/a", "/tmp/dir/b")
    seen = []
    for change in changes:
        seen.append([change.kind, change.path])
        if seen[-1][1] == "b":
            break
    changes.close()
    out["watched"] = seen
    out["read"] = [f.read_text("/tmp/dir/b"), len(f.read("/tmp/dir/large")), f.stat("/tmp/dir/large").mode & 0o777]
    out["listed"] = sorted([i.name, i.kind, i.size] for i in f.list("/tmp/dir"))
    f.remove("/tmp/dir", recursive=True)
    out["gone"] = [f.exists("/tmp/dir"), f.exists("/tmp"), raised(f.read, "/tmp/dir/a")[:2]]


def code(box, out):
    box.code("x = 41")
    heard = []
    cell = box.code("print('hello'); x + 1", on_stdout=heard.append)
    out["cell"] = [cell.ok, cell.text, cell.stdout.decode(), b"".join(heard).decode(), cell.context]
    cell = box.code("1/0")
    out["error"] = [cell.outcome, cell.error.name, cell.error.value, "ZeroDivisionError" in cell.error.traceback, cell.text]
    own = box.create_context(cwd="/tmp", env={"E": "of the context"})
    out["context"] = [box.code("import os; 'x' in globals(), os.getcwd(), os.environ['E']", context=own).text]
    out["bash"] = box.code("echo $((6*7))", language="bash").stdout.decode()
    threading.Timer(1, box.interrupt).start()
    out["interrupt"] = [box.code("import time; time.sleep(60)").outcome, box.code("x").text, box.interrupt()]
    box.restart_context()
    out["restarted"] = box.code("x").error.name
    out["too long"] = box.code("while True: pass", timeout=1).outcome


def life(client, box, out):
    info = box.info()
    out["info"] = [info.id == box.id, info.template, info.state, info.labels, info.created is not None and info.expires > info.created]
    out["found"] = [i.id for i in client.sandboxes(labels={"of": "sdk"})] == [box.id]
    box.code("n = 7")
    box.pause()
    out["rests"] = [client.get_sandbox(box.id).info().state, box.resume(), box.resume(), box.code("n").text]
    copies = box.fork(2)
    out["forked"] = [c.code("n += 1; n").text for c in copies] + [box.code("n").text]
    for c in copies:
        c.kill()
    snapshot = box.snapshot("kept", labels={"of": "sdk"})
    with client.sandbox(snapshot="kept") as other:
        out["snapshot"] = [snapshot.name, snapshot.size > 0, other.code("n").text, [s.id for s in client.snapshots(labels={"of": "sdk"})] == [snapshot.id]]
    out["job of it"] = client.run("echo made", snapshot="kept").text
    out["ended"] = [other.info().state, other.info().reason]
    client.delete_snapshot("kept")
    box.extend(900)
    server = box.start(["python3", "-m", "http.server", "8000"])
    out["url"] = box.url(8000, ttl=60, domain="https://sandboxes.example.org/".rstrip("/")).split("?")[0].replace(box.id.replace("_", "-"), "ID")
    out["url here"] = box.url(8000, domain="localhost:7780").endswith(".localhost:7780/")
    server.kill()


ECHO = ["python3", "-u", "-c", "import socket\ns = socket.create_server(('127.0.0.1', 7000))\nprint('up')\nwhile True:\n    c, _ = s.accept()\n"
        "    n = 0\n    while d := c.recv(65536):\n        n += len(d)\n    c.sendall(b'%d bytes' % n)\n    c.close()"]


def all_of(s):
    return b"".join(iter(lambda: s.recv(65536), b"")).decode()


def ports(box, out):
    server = box.start(ECHO)
    next(iter(server))
    with box.connect(7000) as s:
        s.sendall(b"x" * 3_000_000)
        s.shutdown(socket.SHUT_WR)
        out["connected"] = [all_of(s)]
    with box.forward(7000) as tunnel:
        for text in (b"one", b"three"):
            with socket.create_connection(tunnel.address) as s:
                s.sendall(text)
                s.shutdown(socket.SHUT_WR)
                out["connected"].append(all_of(s))
        server.kill()
        server.wait()
        with socket.create_connection(tunnel.address) as s:
            out["connected"].append(all_of(s))
    out["nobody listens"] = raised(box.connect, 7000)[:2]


def left(client, box, out):
    """Who leaves in the middle leaves nothing behind."""
    class Enough(Exception):
        pass

    def enough(_):
        raise Enough
    for name, run in (("job", client.run), ("command", box.run)):
        try:
            run("echo; exec sleep 1000", on_stdout=enough, timeout=900)
        except Enough:
            out[f"left {name}"] = True
    end = time.monotonic() + 60
    while box.run(["pgrep", "-x", "sleep"]).ok and time.monotonic() < end:
        time.sleep(0.1)
    out["left nothing"] = not box.run(["pgrep", "-x", "sleep"]).ok

    class Spoiled:
        n = 0

        def read(self, _):
            self.n += 1
            if self.n > 1:
                raise OSError("spoiled")
            return b"a"
    for run in (client.run, box.run):
        try:
            run("cat", stdin=Spoiled())
            out["left nothing"] = "spoiled input is read"
        except OSError as err:
            out["left nothing"] &= str(err) == "spoiled"


def functions(client, out):
    f = client.create_function("mean", "import statistics\ndef mean(values, times=1):\n    return statistics.mean(values) * times\n"
                                       "def wrong():\n    print('before')\n    raise ValueError('no')\n", replace=True)
    out["function"] = [f([1, 2, 4.5]), f(values=[1, 3], times=2), client.function("mean")([5]), [s.entry for s in client.snapshots()]]
    out["raises"] = raised(f.call, entry="wrong")
    out["not loaded"] = raised(client.create_function, "bad", "import nothing_of_this_name")
    out["no function"] = raised(client.function("never-made"), 1)[:2]
    client.delete_snapshot("mean")


def errors(client, out):
    out["unknown"] = raised(client.get_sandbox, "sbx_01h000000000000000000000000"[:30])[:2]
    out["wrong key"] = raised(lambda: cloche.Client(key="clk_wrong").run("true"))[:2]
    os.environ["CLOCHE_RUN_DIR"] = "/nowhere"
    endpoint = os.environ.pop("CLOCHE_ENDPOINT")
    out["not here"] = raised(cloche.Client)
    out["nobody"] = raised(cloche.Client, "127.0.0.1:9", timeout=1)
    out["mixed"] = raised(cloche.Client, "127.0.0.1:9,10.0.0.1:9")[:2]
    out["plain"] = raised(cloche.Client, "192.0.2.1:7443", ca="/nowhere/ca.pem")
    os.environ["CLOCHE_ENDPOINT"] = endpoint
    boxes = [client.sandbox(ttl=60) for _ in range(4)]
    refused = None
    try:
        client.sandbox(ttl=60)
    except cloche.Error as err:
        refused = [err.code, err.is_retryable]
    out["quota"] = refused
    for b in boxes:
        b.kill()


def everything(client):
    out = {}
    jobs(client, out)
    functions(client, out)
    with client.sandbox(ttl=600, labels={"of": "sdk"}) as box:
        for part in (commands, files, code):
            part(box, out)
        ports(box, out)
        left(client, box, out)
        life(client, box, out)
    errors(client, out)
    return out


def follow(client):
    """Output of a job and of a command, and a sandbox's cell before and after, while schedulers come and go."""
    out, count = {}, "for i in $(seq 0 99); do echo $i; sleep 0.1; done; exit 9"
    whole = "".join(f"{i}\n" for i in range(100))
    box = client.sandbox(ttl=600)
    box.code("x = 1")

    def of(name, call):
        r = call(count)
        out[name] = [r.text == whole, r.exit_code]
    threads = [threading.Thread(target=of, args=a) for a in (("job", client.run), ("command", box.run))]
    for t in threads:
        t.start()
    time.sleep(1)
    print("running", flush=True)
    for t in threads:
        t.join()
    out["after"] = box.code("x + 1").text
    box.kill()
    return out


def hello(client):
    return {"hello": client.run("echo hello").text}


with cloche.Client(timeout=float(os.environ.get("CONNECT_TIMEOUT", "60"))) as service:
    print(json.dumps({"all": everything, "follow": follow, "hello": hello}[sys.argv[1]](service)), flush=True)
