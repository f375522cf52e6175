#!/usr/bin/env python3
"""Functions: code that is loaded once and called any number of times, each time in a copy that nothing else has used."""
import json
import os
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from box import Box, quota, refused
from harness import BUILD, SECOND, Suite, in_parallel, pb, soon, until

suite = Suite("functions")
check, equal = suite.check, suite.equal

SOURCE = '''
import asyncio
import os
import sys
import time

calls = 0
LOADED = time.time()
print("loading")


def add(a, b=1):
    return a + b


def same(*args, **kw):
    return kw if kw else list(args)


def count(text=""):
    """Is it the first call?"""
    global calls
    calls += 1
    with open("/home/user/log", "a+") as f:
        f.write("x")
        f.seek(0)
        return [calls, f.read(), os.path.exists("/home/user/log")]


def talk():
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.system("echo of a child")


async def later(n):
    await asyncio.sleep(0.01)
    return n + 1


def wrong(what):
    inner(what)


def inner(what):
    raise ValueError(f"no {what}")


def leave(code):
    sys.exit(code)


def die():
    os._exit(3)


def wait(seconds):
    time.sleep(seconds)
    return "waited"


def spin():
    while True:
        pass


def make(expression):
    return eval(expression)


def loaded():
    return LOADED


class tools:
    class deep:
        def say():
            return "deep"

number = 7
'''


def create(client, name, source=SOURCE, **kw):
    return client.functions.Create(pb.FunctionServiceCreateRequest(name=name, source=source, **kw), timeout=120)


def call(client, function, *args, entry="", timeout=0, language=0, **named):
    arguments = json.dumps(named) if named else json.dumps(list(args)) if args else ""
    return raw(client, function, arguments, entry=entry, timeout_ns=int(timeout * SECOND), language=language)


def raw(client, function, arguments, **kw):
    return client.functions.Call(pb.CallRequest(function=function, arguments=arguments, **kw), timeout=120)


def outcome(m):
    return pb.CellOutcome.Name(m.outcome).removeprefix("CELL_OUTCOME_")


def boxes(client):
    return [s.id for s in client.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes]


def delete(client, *names):
    for name in names:
        client.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=name))


@suite.scenario
def made_and_called(c):
    """Its tenant may have one sandbox: each call ends before the next."""
    t = c.tenant("one", sandboxes=1)
    made = create(t, "lib", entry="add")
    equal("a function is made", (outcome(made), made.stdout, made.function.name, made.function.function.entry, made.function.function.language),
          ("OK", b"loading\n", "lib", "add", pb.LANGUAGE_PYTHON))
    equal("… which holds no sandbox", quota(c, "one")["sandboxes"], 0)
    at = time.monotonic()
    got = call(t, "lib", 2, 3)
    print(f"     called in {1000 * (time.monotonic() - at):.0f} ms")
    equal("it is called by position", (outcome(got), got.result), ("OK", "5"))
    check("… and says where and how long", got.sandbox_id.startswith("sbx_") and 0 < got.wall_ns < 60 * SECOND, got)
    equal("… and by name", call(t, "lib", a=2, b=30).result, "32")
    equal("… and by its id", call(t, made.function.id, 2).result, "3")
    equal("another function of the same code", json.loads(call(t, "lib", 1, "two", None, entry="same").result), [1, "two", None])
    equal("what it awaits is awaited", call(t, "lib", 41, entry="later").result, "42")
    equal("an entry can be in something", call(t, "lib", entry="tools.deep.say").result, '"deep"')
    equal("three calls after each other are all the first", [json.loads(call(t, "lib", entry="count").result) for _ in range(3)], 3 * [[1, "x", True]])
    loaded = {call(t, "lib", entry="loaded").result for _ in range(2)}
    check("… and the code was loaded once for all", len(loaded) == 1 and abs(float(*loaded) - time.time()) < 600, loaded)
    got = call(t, "lib", entry="talk")
    equal("what it prints comes apart from what it returns", (got.result, got.stdout, got.stderr), ("null", b"to stdout\nof a child\n", b"to stderr\n"))
    equal("no sandbox is left", (boxes(t), quota(c, "one")["sandboxes"]), ([], 0))
    records = c.audit_records("one")
    last = got.sandbox_id
    told = [r["event"] for r in records if r["fields"].get("unit") == last]
    check("the audit log has the cell of a call", "code.run" in told and "unit.admit" in told, told)
    until(lambda: any(r["event"] == "code.end" and r["fields"].get("unit") == last for r in c.audit_records("one")), 10)
    ends = [r["fields"]["outcome"] for r in c.audit_records("one") if r["event"] == "code.end" and r["fields"].get("unit") == last]
    equal("… and its end", ends, ["ok"])
    delete(t, "lib")
    equal("a deleted one cannot be called", refused(call, t, "lib", 1)[0], "NOT_FOUND")


@suite.scenario
def what_goes_wrong_in_it(c):
    create(c.admin, "lib", entry="wrong")
    got = call(c.admin, "lib", "luck")
    equal("an exception is told", (outcome(got), got.result, got.error.name, got.error.value), ("ERROR", "", "ValueError", "no luck"))
    check("… with its own frames only", "in inner" in got.error.traceback and "in wrong" in got.error.traceback and "__cloche" not in got.error.traceback, got.error.traceback)
    check("… that name the lines of the source", f"line {1 + SOURCE[:SOURCE.index('raise ValueError')].count(chr(10))}" in got.error.traceback, got.error.traceback)
    got = call(c.admin, "lib")
    check("so are missing arguments", outcome(got) == "ERROR" and got.error.name == "TypeError" and "missing 1 required" in got.error.value, got)
    got = call(c.admin, "lib", 4, entry="leave")
    equal("sys.exit() is one, too", (outcome(got), got.error.name, got.error.value), ("ERROR", "SystemExit", "4"))
    equal("the end of its interpreter", outcome(call(c.admin, "lib", entry="die")), "EXITED")
    at = time.monotonic()
    got = call(c.admin, "lib", entry="spin", timeout=0.5)
    check("its time limit interrupts it", outcome(got) == "TIMED_OUT" and time.monotonic() - at < soon(10), got)
    for expression, why in (("{1, 2}", "returned what is no JSON"), ("float('nan')", "returned what is no JSON"), ("'x' * 2000000", "at most 1048576")):
        got = call(c.admin, "lib", expression, entry="make")
        check(f"{expression} cannot be returned", outcome(got) == "ERROR" and why in got.error.value and not got.result, got)
    got = call(c.admin, "lib", "print('y' * 5000000)", entry="make")
    equal("of what it prints the first 64 KiB are kept", (got.result, len(got.stdout), got.stdout_total.bytes), ("null", 65536, 5000001))
    lie = "[display(type('Lie', (), {'_repr_mimebundle_': lambda s, **k: {'application/x-cloche-result': %r}})()) for i in range(1)]"
    got = call(c.admin, "lib", lie % "{not json", entry="make")
    equal("a result that is no JSON is none", (outcome(got), got.result), ("FAILED", ""))
    got = call(c.admin, "lib", lie % "1\ud800", entry="make")
    equal("… nor one that is no text", (outcome(got), got.result), ("FAILED", ""))
    delete(c.admin, "lib")
    equal("no sandbox is left", boxes(c.admin), [])


@suite.scenario
def arguments(c):
    create(c.admin, "lib", entry="same")
    strings = ["", "\"quoted\\", "'''", "\n\r\t\b\f\0\x1f\x7f", "\u2028\u2029", "🏺" * 100, "\\x00\\u0000", '")\nimport os\nos._exit(9)\n("', "__cloche_call__"]
    equal("strings come as they are", json.loads(call(c.admin, "lib", *strings).result), strings)
    equal("… also unescaped", json.loads(raw(c.admin, "lib", json.dumps(strings, ensure_ascii=False)).result), strings)
    equal("numbers too", raw(c.admin, "lib", "[12345678901234567890123, -0.5, 1e300]").result, "[12345678901234567890123,-0.5,1e+300]")
    equal("… and white space around them", raw(c.admin, "lib", " [\n1,\t2\r] ").result, "[1,2]")
    equal("64 levels are taken", raw(c.admin, "lib", "[" * 64 + "]" * 64).result, "[" * 64 + "]" * 64)
    big = json.dumps(["x" * 250_000])
    equal("… and 250 kB", raw(c.admin, "lib", big).result, big)
    before = quota(c, "local")
    for text, why in (("1", "array or object"), ("[1", "at byte"), ('{"a": 1, "a": 2}', "duplicate"), ("[NaN]", "at byte"), ("[1e999]", "at byte"),
                      ("[" * 65 + "]" * 65, "deeper than 64"), ("[" * 100_000, "at byte"), ("[1] [2]", "at byte"), ("[\"\x01\"]", "at byte")):
        code, text = refused(raw, c.admin, "lib", text)
        check(f"{text[:60]}", code == "INVALID_ARGUMENT" and why in text, (code, text))
    code, text = refused(raw, c.admin, "lib", json.dumps(["x" * 300_000]))
    check("what is too long is said to be", code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and "262144" in text, (code, text))
    for entry in ("1x", "a b", "a..b", "a.", "a;b", "x" * 129, "ä"):
        equal(f"no entry: {entry[:10]!r}", refused(call, c.admin, "lib", entry=entry)[0], "INVALID_ARGUMENT")
    for entry, why in (("nothing", "not there"), ("number", "no function"), ("tools.none", "not there")):
        code, text = refused(call, c.admin, "lib", entry=entry)
        check(f"… nor {entry}", code == "INVALID_ARGUMENT" and why in text, (code, text))
    equal("an unknown function is not found", refused(call, c.admin, "other")[0], "NOT_FOUND")
    equal("… so is another tenant's", refused(call, c.tenant("other"), "lib")[0], "NOT_FOUND")
    equal("who only reads may not call", refused(call, c.tenant("reader", scopes=("read",)), "lib")[0], "PERMISSION_DENIED")
    now = quota(c, "local")
    equal("labels are checked", [refused(raw, c.admin, "lib", "", labels=[pb.Label(key=k, value="v")] * n)[0] for k, n in (("Bad", 1), ("function", 1), ("k", 32))], 3 * ["INVALID_ARGUMENT"])
    equal("none of that holds quota", [now[k] for k in ("vcpu_milli", "memory_mib", "sandboxes", "disk_mib")], [before[k] for k in ("vcpu_milli", "memory_mib", "sandboxes", "disk_mib")])
    delete(c.admin, "lib")


@suite.scenario
def making_one_fails(c):
    t = c.tenant("makes")
    got = create(t, "bad", "x = 1\nraise KeyError('k')\n")
    check("a source that raises makes none", not got.HasField("function") and outcome(got) == "ERROR" and got.error.name == "KeyError" and "line 2" in got.error.traceback, got)
    got = create(t, "bad", "def bad(:\n")
    check("… nor one that is no code", outcome(got) == "ERROR" and got.error.name == "SyntaxError", got)
    got = create(t, "bad-name.2", "x = 1\n")
    check("… nor one without its entry", outcome(got) == "ERROR" and got.message == "entry 'bad_name_2' is not there", got)
    got = create(t, "slow", "import time\ntime.sleep(600)\n", timeout_ns=SECOND // 2)
    equal("… nor one that takes too long", outcome(got), "TIMED_OUT")
    made = create(t, "good", "def good(): return 1\n").function
    equal("a name is taken once", refused(create, t, "good", "def good(): return 2\n")[0], "ALREADY_EXISTS")
    got = create(t, "good", "raise SystemExit\n", replace=True)
    equal("… what fails does not replace it", (outcome(got), call(t, "good").result), ("ERROR", "1"))
    newer = create(t, "good", "def good(): return 2\n", replace=True).function
    check("… what does not fail does", newer.id != made.id and call(t, "good").result == "2")
    more = create(t, "more", "def more(): return good() + 1\n", snapshot="good").function
    equal("one can begin with another", (call(t, "more").result, call(t, "more", entry="good").result), ("3", "2"))
    labelled = create(t, "labelled", "def f(): pass\n", entry="f", labels=[pb.Label(key="k", value="v")]).function
    listed = t.snapshots.List(pb.SnapshotServiceListRequest(labels=[pb.Label(key="k", value="v")])).snapshots
    equal("it is listed as the snapshot that it is", [(s.id, s.function.entry) for s in listed], [(labelled.id, "f")])
    for what, kw in (("a name", dict(name="")), ("a good name", dict(name="a/b")), ("a source", dict(name="x", source="")), ("one origin", dict(name="x", template="base", snapshot=more.id)),
                     ("Python or JavaScript", dict(name="x", language=pb.LANGUAGE_BASH)), ("a good entry", dict(name="x", entry="1"))):
        equal(f"it needs {what}", refused(create, t, **{"name": "x", "source": "x = 1", **kw})[0], "INVALID_ARGUMENT")
    equal("a template without Python says so", refused(create, t, "x", "x = 1", template="base")[0], "FAILED_PRECONDITION")
    equal("nothing is left of what failed", (boxes(t), sorted(s.name for s in t.snapshots.List(pb.SnapshotServiceListRequest()).snapshots)), ([], ["good", "labelled", "more"]))
    delete(t, "good", "more", "labelled")
    tight = c.tenant("none", sandboxes=1)
    held = Box(tight)
    equal("without quota it is refused", refused(create, tight, "x", "x = 1")[0], "RESOURCE_EXHAUSTED")
    held.kill()


@suite.scenario
def any_snapshot(c):
    box = Box(c.admin, template="python")
    box.python("import math\nhidden = 20\ndef area(r): return round(math.pi * r * r + hidden, 2)")
    box.snapshot("prepared")
    box.kill()
    equal("what a sandbox's context had can be called", call(c.admin, "prepared", 1, entry="area").result, "23.14")
    equal("… in the language that is asked for", refused(call, c.admin, "prepared", 1, entry="area", language=pb.LANGUAGE_BASH)[0], "INVALID_ARGUMENT")
    code, text = refused(call, c.admin, "prepared", 1)
    check("… when the call says what", code == "INVALID_ARGUMENT" and "say what to call" in text, (code, text))
    delete(c.admin, "prepared")


@suite.scenario
def at_once_and_left(c):
    create(c.admin, "lib", entry="wait")
    got = in_parallel(lambda i: call(c.admin, "lib", f"(count(), {i})[0] + [{i}]", entry="make"), range(6))
    equal("six at once do not see each other", [json.loads(m.result) if hasattr(m, "result") else m for m in got], [[1, "x", True, i] for i in range(6)])
    labels = [pb.Label(key="who", value="me")]
    running = c.admin.functions.Call.raw.future(pb.CallRequest(function="lib", arguments="[600]", timeout_ns=900 * SECOND, labels=labels), metadata=(("authorization", f"Bearer {c.admin_key}"),))
    check("one that takes long is a sandbox meanwhile", until(lambda: boxes(c.admin), 20), boxes(c.admin))
    view = c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=boxes(c.admin)[0])).sandbox
    equal("… with the labels that were asked for, and the function's", {label.key: label.value for label in view.labels}, {"who": "me", "function": "lib"})
    running.cancel()
    check("who leaves takes it along", until(lambda: not boxes(c.admin), 20), boxes(c.admin))
    making = c.admin.functions.Create.raw.future(pb.FunctionServiceCreateRequest(name="never", source="import time; time.sleep(600)"), metadata=(("authorization", f"Bearer {c.admin_key}"),))
    check("so does who leaves while it is made", until(lambda: boxes(c.admin), 20) and making.cancel() and until(lambda: not boxes(c.admin), 20), boxes(c.admin))
    equal("… and it has no name", refused(call, c.admin, "never")[0], "NOT_FOUND")
    got = []
    thread = threading.Thread(target=lambda: got.append(refused(call, c.admin, "lib", 600, timeout=900)))
    thread.start()
    check("another one runs", until(lambda: any(r["event"] == "code.run" and r["fields"]["unit"] in boxes(c.admin) for r in c.audit_records("local")), 20))
    c.worker.kill()
    thread.join(soon(60))
    check("when its worker dies the call says that it knows nothing", got and got[0][0] == "UNAVAILABLE", got)
    c.worker.start()
    c.await_ready(300)
    for box in boxes(c.admin):
        c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
    c.scheduler.stop()
    c.scheduler.start()
    c.await_ready(300)
    equal("for the next worker and the next scheduler it is the same function", call(c.admin, "lib", 0).result, '"waited"')
    delete(c.admin, "lib")


def cloche(c, *words, stdin=None):
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin_key}
    return subprocess.run([BUILD / "cloche", *words], env=env, input=stdin, capture_output=True, text=True, timeout=soon(120))


@suite.scenario
def by_command(c):
    path = c.dir / "lib.py"
    path.write_text(SOURCE)
    got = cloche(c, "function", "create", "lib", str(path), "--entry", "add")
    check("`cloche function create` prints its id", got.returncode == 0 and got.stdout.startswith("snp_") and got.stderr == "loading\n", got)
    got = cloche(c, "call", "lib", "2", "3")
    equal("`cloche call` prints what it returns", (got.returncode, got.stdout, got.stderr), (0, "5\n", ""))
    equal("a word that is no JSON is a string", cloche(c, "call", "lib", "x", "yz").stdout, '"xyz"\n')
    equal("one with a dash comes after --", cloche(c, "call", "lib", "--", "-2", "-3").stdout, "-5\n")
    equal("arguments by name", cloche(c, "call", "lib", "--args", '{"a": 1, "b": 1}').stdout, "2\n")
    equal("… from stdin", cloche(c, "call", "lib", "--args", "-", stdin="[20, 22]").stdout, "42\n")
    got = cloche(c, "call", "lib", "--entry", "wrong", "luck")
    check("an exception is on stderr, and the exit code 1", got.returncode == 1 and not got.stdout and "ValueError: no luck" in got.stderr, got)
    got = cloche(c, "call", "lib", "--entry", "wait", "60", "--timeout", "500ms")
    check("… 124 at the time limit", got.returncode == 124 and "timed_out" in got.stderr, got)
    got = cloche(c, "call", "lib", "--entry", "none")
    check("… 125 when it cannot be called", got.returncode == 125 and "is not there" in got.stderr, got)
    got = json.loads(cloche(c, "call", "lib", "--json", "--entry", "talk").stdout)
    equal("--json tells all", (got["outcome"], got["result"], got["stdout"], got["stderr"]), ("ok", None, "to stdout\nof a child\n", "to stderr\n"))
    rows = json.loads(cloche(c, "function", "list", "--json").stdout)
    equal("`cloche function list` has it", [(r["name"], r["entry"], r["language"], r["template"]) for r in rows], [("lib", "add", "python", "python")])
    got = cloche(c, "function", "create", "worse", "-", stdin="def worse():\n    return 1\nraise ValueError('here')\n")
    check("what raises is shown with its line", got.returncode == 1 and "line 3" in got.stderr and "ValueError: here" in got.stderr, got)
    got = cloche(c, "function", "create", "worse", "-", stdin="x = 1\n")
    check("… and what lacks its entry says so", got.returncode == 1 and "entry 'worse' is not there" in got.stderr, got)
    equal("`cloche function rm` deletes it", (cloche(c, "function", "rm", "lib").returncode, cloche(c, "function", "list", "--json").stdout.strip()), (0, "[]"))


@suite.scenario
def by_plain_http(c):
    base = urllib.parse.urljoin(c.add_gateway(), "/cloche.v1.FunctionService/")

    def post(method, message):
        request = urllib.request.Request(base + method, json.dumps(message).encode(), {"Authorization": f"Bearer {c.admin_key}", "Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=soon(60)).read())

    made = post("Create", {"name": "add", "source": "def add(a, b):\n    return a + b\n"})
    equal("a function is made by JSON", (made["outcome"], made["function"]["function"]), ("CELL_OUTCOME_OK", {"language": "LANGUAGE_PYTHON", "entry": "add"}))
    equal("… and called", post("Call", {"function": "add", "arguments": "[2, 3]"})["result"], "5")
    delete(c.admin, "add")


if __name__ == "__main__":
    suite.main(templates="base,python")
