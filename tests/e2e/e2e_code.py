#!/usr/bin/env python3
"""Code contexts: interpreters that keep their state, what they show, and what breaks them."""
import json
import os
import pathlib
import pty
import select
import subprocess
import tempfile
import threading
import time

from harness import BUILD, MIB, SECOND, Suite, code_of, error_of, has_image, pb, sha256, soon, until

suite = Suite("code")
check, equal = suite.check, suite.equal


class Cell:
    """What one RunCode said, in full."""

    def __init__(self):
        self.started = self.error = self.ended = None
        self.out, self.err = bytearray(), bytearray()
        self.results, self.order, self.times = [], [], []

    def take(self, event):
        kind = event.WhichOneof("event")
        self.order.append(kind)
        self.times.append(time.monotonic())
        if kind == "output":
            target = self.err if event.output.stream == pb.STREAM_STDERR else self.out
            assert event.output.offset == len(target), event
            target += event.output.data
        elif kind == "result":
            self.results.append(event.result)
        else:
            setattr(self, kind, getattr(event, kind))
        return self

    @property
    def outcome(self):
        return pb.CellOutcome.Name(self.ended.outcome).removeprefix("CELL_OUTCOME_") if self.ended else "NONE"

    @property
    def main(self):
        """text/plain of the main result; None when there is none."""
        for r in self.results:
            if r.is_main_result:
                return self.forms(r).get("text/plain", b"").decode()
        return None

    @staticmethod
    def forms(result):
        return {d.mime_type: d.data for d in result.data}

    def all_forms(self):
        return {m: d for r in self.results for m, d in self.forms(r).items()}

    def __str__(self):
        return (f"{self.outcome} main={self.main!r} out={bytes(self.out[:300])!r} err={bytes(self.err[:300])!r} "
                f"error={self.error} ended={self.ended}")


class Box:
    def __init__(self, client, template="python", ttl=300):
        self.client, self.codes = client, client.codes
        self.id = client.sandboxes.Create(pb.CreateRequest(template=template, ttl_ns=ttl * SECOND), timeout=120).sandbox.id

    def stream(self, code, context="", language=pb.LANGUAGE_PYTHON, timeout=0, cap=0, rpc_timeout=120, env=()):
        return self.codes.RunCode(pb.RunCodeRequest(
            sandbox_id=self.id, context_id=context, language=0 if context else language, code=code,
            timeout_ns=int(timeout * SECOND), output_max_bytes=cap, env=[pb.EnvVar(name=k, value=v) for k, v in dict(env).items()]), timeout=rpc_timeout)

    def run(self, code, *args, **kw):
        cell = Cell()
        for event in self.stream(code, *args, **kw):
            cell.take(event)
        return cell

    def create(self, language=pb.LANGUAGE_PYTHON, **kw):
        return self.codes.CreateContext(pb.CreateContextRequest(sandbox_id=self.id, language=language, **kw), timeout=120).context

    def list(self):
        return {c.id: c for c in self.codes.ListContexts(pb.ListContextsRequest(sandbox_id=self.id)).contexts}

    def interrupt(self, context="python"):
        return self.codes.InterruptContext(pb.InterruptContextRequest(sandbox_id=self.id, context_id=context)).was_running

    def restart(self, context="python"):
        return self.codes.RestartContext(pb.RestartContextRequest(sandbox_id=self.id, context_id=context), timeout=120).context

    def delete(self, context):
        self.codes.DeleteContext(pb.DeleteContextRequest(sandbox_id=self.id, context_id=context))

    def kill(self):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))


def in_background(box, code, **kw):
    """Start a cell; the thread, its Cell."""
    cell = Cell()

    def work():
        for event in box.stream(code, **kw):
            cell.take(event)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    check("the cell starts", until(lambda: cell.started, 60), cell)
    return thread, cell


@suite.scenario
def state(c):
    box = Box(c.admin)
    first = box.run("x = 40\ndef add(n):\n    return x + n")
    equal("a cell without a value has no result", (first.outcome, first.main), ("OK", None))
    check("the template's context was there already", not first.started.fresh and first.started.context_id == "python", first.started)
    second = box.run("print('out'); import sys; print('err', file=sys.stderr); add(2)")
    equal("the next cell knows what the first defined", (second.outcome, second.main), ("OK", "42"))
    equal("stdout and stderr come apart", (bytes(second.out), bytes(second.err)), (b"out\n", b"err\n"))
    equal("cells are counted", (first.started.execution_count, second.ended.execution_count), (1, 2))
    equal("started first, ended last", (second.order[0], second.order[-1]), ("started", "ended"))
    total = second.ended.stdout
    check("totals are told", total.bytes == total.kept_bytes == 4 and total.sha256 == sha256(b"out\n"), total)
    listed = box.list()
    check("the context is listed", list(listed) == ["python"] and listed["python"].execution_count == 2 and
          listed["python"].state == pb.CONTEXT_STATE_IDLE, listed)
    equal("await works at the top level", box.run("import asyncio\nawait asyncio.sleep(0.01, 'awaited')").main, "'awaited'")
    rich = box.run("class R:\n    def _repr_html_(self): return '<b>r</b>'\n    def _repr_png_(self): return b'\\x89PNG...'\nR()")
    check("an object's own forms are shown", rich.all_forms().get("text/html") == b"<b>r</b>" and
          rich.all_forms().get("image/png") == b"\x89PNG...", rich)
    shown = box.run("display({'a': 1})\nprint('after')\n7")
    equal("display() comes before the main result", [r.is_main_result for r in shown.results], [False, True])
    orders = [box.run("display({'a': 1})\nprint('after')\n7").order for _ in range(40)]
    check("… and before what is printed next, each time", all(o.index("result") < o.index("output") for o in orders), orders)
    big = box.run("'x' * (4 << 20)")
    check("a form that is too large is left out, and said", big.outcome == "OK" and
          list(big.results[0].omitted_mime_types) == ["text/plain"], big.outcome)
    box.kill()


@suite.scenario
def errors(c):
    box = Box(c.admin)
    cell = box.run("y = 1\ndef f():\n    return 1 / 0\nf()")
    equal("an exception is an outcome, not a status", (cell.outcome, cell.error.name, cell.error.value),
          ("ERROR", "ZeroDivisionError", "division by zero"))
    check("the traceback has the code and not the runner", "return 1 / 0" in cell.error.traceback and
          "/run/cloche" not in cell.error.traceback, cell.error.traceback)
    equal("the context recovers", box.run("y").main, "1")
    equal("a syntax error is one too", box.run("x = (").error.name, "SyntaxError")
    asked = box.run("input('name? ')")
    check("stdin is refused, and says why", asked.outcome == "ERROR" and "stdin" in asked.error.value, asked)
    equal("sys.exit() ends the cell only", (box.run("import sys; sys.exit(3)").error.name, box.run("y").main), ("SystemExit", "1"))
    gone = box.run("import os; os._exit(3)")
    equal("a real exit is told", (gone.outcome, gone.ended.exit_code, gone.ended.context_state), ("EXITED", 3, pb.CONTEXT_STATE_DEAD))
    again = box.run("'y' in globals()")
    check("the next cell has a fresh interpreter, and says so", again.main == "False" and again.started.fresh, again)
    oom = box.run("b = bytearray(2 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1")
    check("memory has a bound", oom.outcome in ("OOM_KILLED", "ERROR"), oom)
    equal("… and the context comes back", box.run("1 + 1").main, "2")
    box.kill()


@suite.scenario
def interrupts(c):
    box = Box(c.admin)
    box.run("kept = 'kept'")
    thread, cell = in_background(box, "print('go')\nwhile True: pass")
    check("output streams while the cell runs", until(lambda: cell.out == b"go\n", 20), cell)
    equal("a second cell is refused, not queued", code_of(error_of(box.run, "1")), "FAILED_PRECONDITION")
    check("the context is listed as busy", box.list()["python"].state == pb.CONTEXT_STATE_BUSY)
    check("interrupt finds it", box.interrupt())
    thread.join(soon(20))
    equal("an endless loop is interrupted", (cell.outcome, cell.error.name), ("INTERRUPTED", "KeyboardInterrupt"))
    equal("state is kept", box.run("kept").main, "'kept'")
    check("an idle context has nothing to interrupt", not box.interrupt())
    timed = box.run("import time; time.sleep(100)", timeout=0.5)
    equal("a time limit interrupts", timed.outcome, "TIMED_OUT")
    begin = time.monotonic()
    child = box.run("import os; os.system('sleep 100')", timeout=0.5)
    check("… also a child in the foreground", child.outcome in ("TIMED_OUT", "OK") and time.monotonic() - begin < soon(10), child)
    stream = box.stream("while True: pass")
    next(iter(stream))
    stream.cancel()
    check("leaving the stream interrupts the cell", until(lambda: box.list()["python"].state == pb.CONTEXT_STATE_IDLE, 10))
    deaf = box.run("import time\nwhile True:\n    try: time.sleep(100)\n    except KeyboardInterrupt: print('no')", timeout=0.5)
    check("a cell that ignores it is answered, and said to run on", deaf.outcome == "TIMED_OUT" and
          deaf.ended.context_state == pb.CONTEXT_STATE_BUSY and "ignores" in deaf.ended.message, deaf)
    equal("restart kills it", box.restart().state, pb.CONTEXT_STATE_IDLE)
    for language, endless in ((pb.LANGUAGE_PYTHON, "while True: pass"), (pb.LANGUAGE_BASH, "while :; do :; done")):
        context = pb.Language.Name(language).removeprefix("LANGUAGE_").lower()
        box.run("1" if language == pb.LANGUAGE_PYTHON else ":", language=language)
        stream, cell = box.stream((endless + "\n#").ljust(1 * MIB, "#"), language=language), Cell()
        cell.take(next(stream))
        box.interrupt(context)
        for event in stream:
            cell.take(event)
        check(f"{context}: an interrupt that overtakes the code waits for it", cell.outcome == "INTERRUPTED" and
              cell.ended.context_state == pb.CONTEXT_STATE_IDLE, cell.ended)
        equal("… and the next cell is whole", box.run("1 + 1" if language == pb.LANGUAGE_PYTHON else "echo 2", language=language).outcome, "OK")
    equal("… and all state", box.run("'kept' in globals()").main, "False")
    thread, cell = in_background(box, "while True: pass")
    box.restart()
    thread.join(soon(20))
    equal("a cell that is restarted under says so", cell.outcome, "RESTARTED")
    box.kill()


@suite.scenario
def processes(c):
    box = Box(c.admin)
    box.run("import subprocess, threading, time, urllib.request, sys")
    started = box.run("server = subprocess.Popen([sys.executable, '-m', 'http.server', '8123', '--bind', '127.0.0.1'],"
                      " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nserver.poll()")
    equal("a child process is started", started.outcome, "OK")
    got = box.run("""
for _ in range(600):
    try:
        status = urllib.request.urlopen('http://127.0.0.1:8123/').status
        break
    except OSError:
        time.sleep(0.1)
status""")
    equal("it survives the cell", got.main, "200")
    box.run("while True: pass", timeout=0.5)
    equal("… and the interrupt of another", box.run("server.poll()").main, None)
    equal("a thread survives too", box.run("n = 0\ndef count():\n    global n\n    while True:\n        n += 1; time.sleep(0.01)\n"
                                           "threading.Thread(target=count, daemon=True).start()").outcome, "OK")
    check("… and runs between cells", until(lambda: box.run("n > 3").main == "True", 10))
    equal("what a child writes is output", bytes(box.run("subprocess.run(['echo', 'child'])").out), b"child\n")
    box.run("subprocess.Popen('sleep 0.5; echo late', shell=True)")
    time.sleep(1.5)
    check("what came between two cells is told by the next", until(lambda: bytes(box.run("pass").out) == b"late\n", 10))
    forked = box.run("import os\nif os.fork() == 0:\n    pass\n'parent'")
    equal("a fork that runs past its cell ends quietly", (forked.outcome, forked.main), ("OK", "'parent'"))
    slow = box.run("for i in range(5):\n    print(i)\n    time.sleep(0.2)")
    outputs = [t for t, kind in zip(slow.times, slow.order) if kind == "output"]
    check("lines arrive as they are written", len(outputs) >= 4 and outputs[-1] - outputs[0] > 0.5, outputs)
    box.kill()


@suite.scenario
def limits(c):
    box = Box(c.admin)
    cell = box.run("import sys\nfor _ in range(300): sys.stdout.write('x' * 9999 + '\\n')", cap=1 * MIB)
    total = cell.ended.stdout
    check("output has a cap, and what is beyond it is counted", cell.outcome == "OK" and total.truncated and
          len(cell.out) == total.kept_bytes == 1 * MIB and total.bytes == 3_000_000, total)
    equal("… and hashed", total.sha256, sha256((b"x" * 9999 + b"\n") * 300))
    shown = box.run("for _ in range(4): display('y' * (1 << 20))", cap=2 * MIB)
    check("results count too", shown.ended.results_dropped == 3 and len(shown.results) == 1, shown.ended)
    whole = box.run("display('z' * (2900 << 10))")
    equal("a result of nearly 3 MiB arrives whole", len(whole.all_forms()["text/plain"]), (2900 << 10) + 2)
    for name, kw in {"no code context at all": {"context": "", "language": 0},
                     "an unknown language": {"language": 9}, "what is no id": {"context": "../x"}}.items():
        equal(f"{name} is refused", code_of(error_of(box.run, "1", **kw)), "INVALID_ARGUMENT")
    both = pb.RunCodeRequest(sandbox_id=box.id, context_id="python", language=pb.LANGUAGE_PYTHON, code="1")
    equal("both at once are refused", code_of(error_of(box.codes.RunCode, both)), "INVALID_ARGUMENT")
    equal("an unknown context is NOT_FOUND", code_of(error_of(box.run, "1", context="ctx_" + "0" * 26)), "NOT_FOUND")
    equal("more than 1 MiB of code is refused", code_of(error_of(box.run, "#" * (1 * MIB + 1))), "RESOURCE_EXHAUSTED")
    equal("1 MiB is not", box.run("7\n#".ljust(1 * MIB, "#")).main, "7")
    absent = error_of(box.run, "1", language=pb.LANGUAGE_JAVASCRIPT)
    check("a language that the template lacks is told", code_of(absent) == "FAILED_PRECONDITION" and "node" in absent.details(), absent)
    box.kill()
    equal("a sandbox that is gone is NOT_FOUND", until(lambda: code_of(error_of(box.run, "1")) == "NOT_FOUND", 10), True)


@suite.scenario
def several(c):
    box = Box(c.admin)
    other = box.create(cwd="/tmp", env=[pb.EnvVar(name="WHO", value="other")])
    check("a second context has an id of its own", other.id.startswith("ctx_") and other.state == pb.CONTEXT_STATE_IDLE, other)
    box.run("who = 'first'")
    equal("the two are apart", box.run("'who' in globals()", context=other.id).main, "False")
    equal("it has its folder and environment", box.run("import os; (os.getcwd(), os.environ['WHO'])", context=other.id).main, "('/tmp', 'other')")
    thread, cell = in_background(box, "while True: pass", context=other.id)
    equal("one runs while the other is busy", box.run("who").main, "'first'")
    restarted = box.restart(other.id)
    thread.join(soon(20))
    equal("… and is restarted", restarted.id, other.id)
    equal("folder and environment are kept", box.run("import os; (os.getcwd(), os.environ['WHO'])", context=other.id).main, "('/tmp', 'other')")
    seen = box.run("import os; [p for p in os.listdir('/proc') if p.isdigit()]").main
    check("one does not see the other's processes", len(eval(seen)) <= 2, seen)
    made = [box.create().id for _ in range(6)]
    equal("their number is bounded", code_of(error_of(box.create)), "RESOURCE_EXHAUSTED")
    for context in made:
        box.delete(context)
    equal("a context that was deleted is gone", code_of(error_of(box.run, "1", context=made[0])), "NOT_FOUND")
    check("the list is what is left", until(lambda: set(box.list()) == {"python", other.id}, 5), box.list())
    box.kill()


@suite.scenario
def bash(c):
    box = Box(c.admin)

    def run(code, **kw):
        return box.run(code, language=pb.LANGUAGE_BASH, **kw)
    first = run("x=42; declare -A m; m[a]=b; cd /tmp; export E=e; f() { echo \"f $1\"; }")
    check("bash is started when it is first used", first.outcome == "OK" and first.started.fresh, first)
    equal("variables, folder, functions stay", bytes(run("echo $x ${m[a]} $PWD $E; f 1").out), b"42 b /tmp e\nf 1\n")
    bad = run("false")
    equal("the exit status is the cell's", (bad.outcome, bad.ended.exit_code), ("ERROR", 1))
    equal("… and the next one's $?", bytes(run("echo $?").out), b"1\n")
    equal("stderr is apart", b"not found" in bytes(run("no-such-command").err), True)
    equal("a child in the foreground is interrupted", run("sleep 100", timeout=0.5).outcome, "TIMED_OUT")
    equal("a loop is interrupted", run("while :; do :; done", timeout=0.5).outcome, "TIMED_OUT")
    equal("state is kept", bytes(run("echo $x").out), b"42\n")
    equal("stdin is empty", bytes(run("read -r v || echo none").out), b"none\n")
    run("IFS=0123456789")
    equal("any IFS is the cell's own", (run("false").ended.exit_code, bytes(run("echo \"$?\"; unset IFS").out)), (1, b"1\n"))
    gone = run("exit 3")
    equal("exit ends the interpreter", (gone.outcome, gone.ended.exit_code), ("EXITED", 3))
    check("the next cell has a fresh one", run("echo ${x-unset}").out == b"unset\n")
    box.kill()


@suite.scenario
def javascript(c):
    if not has_image("code"):
        print("     skipped: no image `code` (images/build.sh code)")
        return
    box = Box(c.admin, template="code")

    def run(code, **kw):
        return box.run(code, language=pb.LANGUAGE_JAVASCRIPT, **kw)
    begin = time.monotonic()
    equal("node is started when it is first used", run("const x = 40; function add(n) { return x + n }").outcome, "OK")
    print(f"     first call: {(time.monotonic() - begin) * 1000:.0f} ms")
    cell = run("console.log('out'); console.error('err'); add(2)")
    equal("state stays; output is apart", (cell.main, bytes(cell.out), bytes(cell.err)), ("42", b"out\n", b"err\n"))
    bad = run("function f() { null.x }\nf()")
    check("an exception is told", bad.outcome == "ERROR" and bad.error.name == "TypeError" and "cell 3" in bad.error.traceback and
          "/run/cloche" not in bad.error.traceback, bad)
    equal("await works at the top level", run("const y = await Promise.resolve(7)").outcome, "OK")
    equal("… and what it declares stays", run("y").main, "7")
    equal("display() shows forms", run("display({'text/html': '<b>b</b>'})").all_forms(), {"text/html": b"<b>b</b>"})
    equal("a loop is interrupted", run("while (true);", timeout=0.5).outcome, "TIMED_OUT")
    equal("… an await too", run("await new Promise(() => {})", timeout=0.5).outcome, "TIMED_OUT")
    equal("… output that nobody could take so fast", run(f"while (true) console.log('x'.repeat({MIB}))", timeout=0.5, cap=1000).outcome, "TIMED_OUT")
    equal("… results, too", run(f"while (true) display({{'image/png': Buffer.alloc({MIB})}})", timeout=0.5).outcome, "TIMED_OUT")
    equal("the context goes on", run("add(1)").main, "41")
    for what, code in (("all", f"console.log('x'.repeat({MIB} - 1)); console.error('y'.repeat({MIB} - 1))"),
                       ("by callbacks", f"await new Promise((r) => process.stdout.write('x'.repeat({MIB}), () => process.stderr.end('y'.repeat({MIB}), r)))"),
                       ("of what it starts, too", f"require('child_process').execSync('yes x | head -c {MIB}; yes y | head -c {MIB} >&2', {{ stdio: 'inherit' }})"),
                       ("before an exit, too", f"process.stdout.write('x'.repeat({MIB})); process.stderr.write('y'.repeat({MIB})); process.exit(4)")):
        cell = run(code)
        equal(f"a MiB arrives, {what}", (len(cell.out), len(cell.err), cell.out[:1], cell.err[:1]), (MIB, MIB, b"x", b"y"))
    equal("an exit is told", cell.ended.exit_code, 4)
    box.kill()


# Python sees it, what it starts sees it; as JSON.
SAY = {
    pb.LANGUAGE_PYTHON: "import os, json, subprocess\nprint(json.dumps([[os.environ.get(n), subprocess.run(['sh', '-c', 'printf %s \"${'+n+'-unset}\"'], "
                        "capture_output=True, text=True).stdout] for n in {names}]))",
    pb.LANGUAGE_BASH: "for n in {words}; do printf '%s\\0%s\\0' \"${{!n-unset}}\" \"$(sh -c 'printf %s. \"${{'$n'-unset}}\"')\"; done",
    pb.LANGUAGE_JAVASCRIPT: "console.log(JSON.stringify({names}.map((n) => [process.env[n], '' + require('child_process').execSync(`printf %s \"\\${{${{n}}-unset}}\"`)])))",
}
BREAKS = {  # an exception, an endless loop, a cell that changes its variables; a variable that stays
    pb.LANGUAGE_PYTHON: ("1 / 0", "while True: pass", "del os.environ['KEPT']; os.environ['A'] = 'mine'; os.environ['OTHER'] = 'stays'"),
    pb.LANGUAGE_BASH: ("false", "while :; do :; done", "unset KEPT; A=mine; export OTHER=stays"),
    pb.LANGUAGE_JAVASCRIPT: ("null.x", "while (true);", "delete process.env.KEPT; process.env.A = 'mine'; process.env.OTHER = 'stays'"),
}
ODD = "q'\"$(touch /tmp/odd)`touch /tmp/odd`\\n\n\tü€ \x01\x7f end="


def seen(box, language, *names, context="", env=()):
    """The values in a cell, which what it starts must have, too; None = unset."""
    code = SAY[language].replace("{names}", json.dumps(names)) if language == pb.LANGUAGE_PYTHON else SAY[language].format(names=json.dumps(names), words=" ".join(names))
    out = box.run(code, context, language, env=env).out.decode()
    if language == pb.LANGUAGE_BASH:
        parts = out.split("\0")[:-1]
        rows = [(a, b.removesuffix(".")) for a, b in zip(parts[::2], parts[1::2])]
    else:
        rows = [("unset" if a is None else a, b) for a, b in json.loads(out)]
    check("what it starts has it, too", all(a == b for a, b in rows), rows)
    return [None if a == "unset" else a for a, _ in rows]


def one_cell_has_it(box, language):
    name = pb.Language.Name(language).removeprefix("LANGUAGE_").lower()
    keep = {pb.LANGUAGE_PYTHON: "import os; os.environ['KEPT'] = 'old'", pb.LANGUAGE_BASH: "export KEPT=old",
            pb.LANGUAGE_JAVASCRIPT: "process.env.KEPT = 'old'"}[language]

    def run(code, **kw):
        return box.run(code, language=language, **kw)
    run(keep)
    equal(f"{name}: a cell has its variables", seen(box, language, "A", "KEPT", env={"A": "1", "KEPT": "new"}), ["1", "new"])
    equal("… the next has what was before", seen(box, language, "A", "KEPT"), [None, "old"])
    equal("values are taken as they are", seen(box, language, "ODD", "EMPTY", env={"ODD": ODD, "EMPTY": ""}), [ODD, ""])
    raises, endless, changes = BREAKS[language]
    equal("a cell that fails", run(raises, env={"A": "1", "KEPT": "new"}).outcome, "ERROR")
    equal("… leaves what was before", seen(box, language, "A", "KEPT"), [None, "old"])
    equal("one that is interrupted", run(endless, env={"A": "1", "KEPT": "new"}, timeout=0.5).outcome, "TIMED_OUT")
    equal("… too", seen(box, language, "A", "KEPT"), [None, "old"])
    equal("one that changes them", run(changes, env={"A": "1", "KEPT": "new"}).outcome, "OK")
    equal("… too, and what else it set stays", seen(box, language, "A", "KEPT", "OTHER"), [None, "old", "stays"])
    equal("64 KiB arrive", [len(v) for v in seen(box, language, "BIG", env={"BIG": "x" * (65536 - 13)})], [65523])


@suite.scenario
def environment(c):
    box = Box(c.admin)
    one_cell_has_it(box, pb.LANGUAGE_PYTHON)
    one_cell_has_it(box, pb.LANGUAGE_BASH)
    equal("nothing of a value was run", box.run("import os; os.path.exists('/tmp/odd')").main, "False")
    equal("exit() ends the cell and leaves nothing", (box.run("import sys; sys.exit(1)", env={"A": "1"}).outcome, seen(box, pb.LANGUAGE_PYTHON, "A")), ("ERROR", [None]))
    other = box.create(env=[pb.EnvVar(name="WHO", value="context")])
    equal("a context's own come back, too", [seen(box, pb.LANGUAGE_PYTHON, "WHO", context=other.id, env=env) for env in ({"WHO": "cell"}, {})], [["cell"], ["context"]])
    equal("a context that is made for the cell has them", [seen(box, pb.LANGUAGE_PYTHON, "A", env=env) for env in ({"A": "1"}, {})
                                                            if not env or not box.delete("python")], [["1"], [None]])
    box.delete("bash")
    box.run("num=5; declare -i num; list=(1 2); declare -n ref=target; target=t; readonly fixed=1; set -eu", language=pb.LANGUAGE_BASH)
    equal("bash takes the value whatever the variable was", seen(box, pb.LANGUAGE_BASH, "num", "list", "ref", env={"num": "a[$(touch /tmp/odd)]", "list": "(3 4)", "ref": "r"}),
          ["a[$(touch /tmp/odd)]", "(3 4)", "r"])
    equal("… and is as before", bytes(box.run("declare -p num list ref target", language=pb.LANGUAGE_BASH).out),
          b'declare -i num="5"\ndeclare -a list=([0]="1" [1]="2")\ndeclare -n ref="target"\ndeclare -- target="t"\n')
    fixed = box.run("echo $fixed", language=pb.LANGUAGE_BASH, env={"fixed": "2"})
    check("but for what is read-only, and says so", fixed.out == b"1\n" and b"readonly" in fixed.err, fixed)
    equal("names of the runner's own locals are free", seen(box, pb.LANGUAGE_BASH, "verb", "count", env={"verb": "v", "count": "c"}), ["v", "c"])
    equal("any IFS, too", bytes(box.run('printf %s "$IFS"', language=pb.LANGUAGE_BASH, env={"IFS": "0123456789"}).out), b"0123456789")
    for what, env, want in (("no name", {"": "1"}, "INVALID_ARGUMENT"), ("a name with =", {"A=B": "1"}, "INVALID_ARGUMENT"),
                            ("more than 64 KiB", {"A": "x" * 65526}, "RESOURCE_EXHAUSTED")):
        equal(f"{what} is refused", code_of(error_of(box.run, "1", env=env)), want)
    equal("and more than 1 MiB with the code", code_of(error_of(box.run, "#" * (1 * MIB), env={"A": "1"})), "RESOURCE_EXHAUSTED")
    equal("1 MiB is not", box.run("os.environ['A']\n#".ljust(1 * MIB - 12, "#"), env={"A": "1"}).main, "'1'")
    refused = error_of(box.run, "1", language=pb.LANGUAGE_BASH, env={"a.b": "1"})
    check("a name that bash cannot have is refused, and why", code_of(refused) == "INVALID_ARGUMENT" and "letters" in refused.details(), refused)
    equal("… Python can", box.run("import os; os.environ['a.b']", env={"a.b": "1"}).main, "'1'")
    box.kill()
    if not has_image("code"):
        print("     skipped: no image `code` (images/build.sh code)")
        return
    box = Box(c.admin, template="code")
    for language in (pb.LANGUAGE_PYTHON, pb.LANGUAGE_JAVASCRIPT):
        one_cell_has_it(box, language)
    box.kill()


JAVASCRIPT = """
const fs = require('fs');
let calls = 0;
const add = (a, b = 1) => a + b;
function count() { calls++; fs.appendFileSync('/home/user/log', 'x'); return [calls, String(fs.readFileSync('/home/user/log'))]; }
async function later(n) { await new Promise((done) => setTimeout(done, 10)); console.log('late'); return { n }; }
function same(...list) { return list; }
function inner(what) { throw new RangeError('no ' + what); }
function wrong(what) { inner(what); }
function nothing() {}
function round() { const o = {}; o.o = o; return o; }
function spin() { for (;;); }
const tools = { say() { return 'deep'; } };
"""


@suite.scenario
def functions_of_other_interpreters(c):
    if not has_image("code"):
        print("     skipped: no image `code` (images/build.sh code)")
        return

    def create(name, source, **kw):
        return c.admin.functions.Create(pb.FunctionServiceCreateRequest(name=name, source=source, template="code", **kw), timeout=120)

    def call(name, *args, **kw):
        return c.admin.functions.Call(pb.CallRequest(function=name, arguments=json.dumps(args), **kw), timeout=120)

    made = create("js", JAVASCRIPT, entry="add", language=pb.LANGUAGE_JAVASCRIPT)
    check("a function is made of JavaScript", made.HasField("function") and made.outcome == pb.CELL_OUTCOME_OK, made)
    equal("… and called", [call("js", 2, 3).result, call("js", 2).result, call("js", entry="tools.say").result], ["5", "3", '"deep"'])
    equal("… each time the first", [call("js", entry="count").result for _ in range(2)], 2 * ['[1,"x"]'])
    got = call("js", 7, entry="later")
    equal("what it awaits is awaited", (got.result, got.stdout), ('{"n":7}', b"late\n"))
    strings = ["\"quoted\\", "\n\r\0", "\u2028`${1}", '"); process.exit(); ("']
    equal("strings come as they are", json.loads(call("js", *strings, entry="same").result), strings)
    equal("one object is one argument", c.admin.functions.Call(pb.CallRequest(function="js", entry="same", arguments='{"a": 1}'), timeout=120).result, '[{"a":1}]')
    got = call("js", "luck", entry="wrong")
    check("an exception is told with its own frames", (got.outcome, got.error.name, got.error.value) == (pb.CELL_OUTCOME_ERROR, "RangeError", "no luck")
          and "at inner" in got.error.traceback and "at wrong" in got.error.traceback and "clocheCall" not in got.error.traceback, got)
    equal("undefined is null", call("js", entry="nothing").result, "null")
    got = call("js", entry="round")
    check("what is no JSON is said to be none", got.outcome == pb.CELL_OUTCOME_ERROR and "returned what is no JSON" in got.error.value, got)
    equal("its time limit interrupts it", call("js", entry="spin", timeout_ns=SECOND // 2).outcome, pb.CELL_OUTCOME_TIMED_OUT)
    check("an unknown entry is refused", code_of(error_of(call, "js", entry="none")) == "INVALID_ARGUMENT")
    equal("… so is a source without its own", create("bad", "1", language=pb.LANGUAGE_JAVASCRIPT).message, "entry 'bad' is not there")
    made = create("rich", "import numpy as np\nm = np.arange(4).reshape(2, 2)\ndef rich(k): print('in'); return (m * k).tolist()\ndef wrong(): raise ValueError('no')")
    equal("IPython's is called as well", (call("rich", 2).result, call("rich", 2).stdout), ("[[0,2],[4,6]]", b"in\n"))
    got = call("rich", entry="wrong")
    equal("… and what it raises told", (got.outcome, got.error.name, got.error.value), (pb.CELL_OUTCOME_ERROR, "ValueError", "no"))
    for name in ("js", "rich"):
        c.admin.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=name))


@suite.scenario
def clones(c):
    boxes = [Box(c.admin) for _ in range(3)]
    frozen, others = eval(boxes[0].run("import gc; (gc.get_freeze_count(), len(gc.get_objects()))").main)
    check("a clone's first collection looks at nothing that the template has, whose pages it would copy", frozen > 10000 and others < 1000, (frozen, others))
    code = ("import random, uuid, tempfile, os, hashlib\n"
            "(random.random(), str(uuid.uuid4()), str(uuid.uuid1()), next(tempfile._get_candidate_names()), os.urandom(8).hex())")
    drawn = [eval(box.run(code).main) for box in boxes]
    for i, what in enumerate(("random()", "uuid4()", "uuid1()", "temporary names", "urandom()")):
        equal(f"no two clones draw the same {what}", len({row[i] for row in drawn}), len(boxes))
    for box in boxes:
        box.kill()


def cloche(c, *args, stdin=None):
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin.key}
    return subprocess.run([BUILD / "cloche", *args], input=stdin, capture_output=True, timeout=soon(120), env=env)


class Terminal:
    """`cloche repl` at a terminal."""

    def __init__(self, c, *args):
        env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": c.admin.key}
        self.master, theirs = pty.openpty()
        self.child = subprocess.Popen([BUILD / "cloche", "repl", *args], stdin=theirs, stdout=theirs, stderr=theirs, env=env,
                                      preexec_fn=lambda: (os.setsid(), __import__("fcntl").ioctl(0, 0x540E, 0)))
        os.close(theirs)
        self.seen = ""

    def see(self, text, seconds=30):
        """Wait for text; what came before it is dropped."""
        end = time.monotonic() + soon(seconds)
        while text not in self.seen and time.monotonic() < end:
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    break
        found = text in self.seen
        self.seen = self.seen.partition(text)[2] if found else self.seen
        return found

    def type(self, text):
        os.write(self.master, text.encode())


@suite.scenario
def repl(c):
    p = cloche(c, "repl", stdin=b"x = 40\nprint('out')\nx + 2\n")
    equal("a pipe is one cell; its value is shown", (p.returncode, p.stdout), (0, b"out\n42\n"))
    p = cloche(c, "repl", stdin=b"1/0")
    check("an exception is exit code 1, its traceback on stderr", p.returncode == 1 and b"ZeroDivisionError" in p.stderr, p)
    told = json.loads(cloche(c, "repl", "--json", stdin=b"print('o'); 6 * 7").stdout)
    equal("--json tells all", (told["outcome"], told["stdout"], told["results"][0]["data"]["text/plain"]), ("ok", "o\n", "42"))
    p = cloche(c, "repl", "--language", "bash", stdin=b"exit_code() { return 7; }; exit_code")
    equal("bash's status is the exit code", p.returncode, 7)
    equal("the time limit is 124", cloche(c, "repl", "--timeout", "500ms", stdin=b"while True: pass").returncode, 124)
    equal("an unknown language is refused", cloche(c, "repl", "--language", "cobol", stdin=b"").returncode, 125)
    box = Box(c.admin)
    cloche(c, "repl", "--sandbox", box.id, stdin=b"kept = 'yes'")
    equal("--sandbox keeps state from call to call", cloche(c, "repl", "--sandbox", box.id, stdin=b"kept").stdout, b"'yes'\n")
    with tempfile.TemporaryDirectory() as d:
        p = cloche(c, "repl", "--sandbox", box.id, "--save", d, stdin=b"display(type('P', (), {'_repr_png_': lambda s: b'PNG'})())")
        equal("--save keeps images", pathlib.Path(d, "result-1.png").read_bytes(), b"PNG")
    t = Terminal(c, "--sandbox", box.id)
    check("a terminal gets a prompt", t.see(">>> "), t.seen)
    t.type("def f(n):\n    return n * 6\n\nf(7)\n")
    check("a block is one cell, and state stays", t.see("42"), t.seen)
    t.see(">>> ")
    t.type("while True: pass\n\n")
    time.sleep(1)
    t.type("\x03")
    check("^C interrupts the cell", t.see("KeyboardInterrupt") and t.see(">>> "), t.seen)
    t.type("junk(\x03")
    check("^C at the prompt drops the line", t.see(">>> "), t.seen)
    t.type("kept\n")
    check("the context goes on", t.see("'yes'"), t.seen)
    t.see(">>> ")
    t.type("\x04")
    equal("^D leaves", t.child.wait(soon(20)), 0)
    os.close(t.master)
    box.kill()


HOSTILE = {
    "garbage": "os.write(3, b'garbage' * 100)",
    "an endless length": "os.write(3, b'\\xff\\xff\\xff\\xff\\x02')",
    "half a frame, then the end": "os.write(3, b'\\x00\\x10\\x00\\x00\\x02half'); os._exit(0)",
    "a result that is no message": "os.write(3, b'\\x04\\x00\\x00\\x00\\x02\\xff\\xff\\xff\\xff')",
    "a string that is no UTF-8": "os.write(3, b'\\x05\\x00\\x00\\x00\\x03\\x0a\\x03\\xff\\xfe\\xfd')",
    "an outcome that does not exist": "os.write(3, b'\\x05\\x00\\x00\\x00\\x04\\x09\\x00\\x00\\x00\\x00')",
    "a closed socket": "os.close(3); import time; time.sleep(5)",
    "a thousand ends": "os.write(3, b'\\x05\\x00\\x00\\x00\\x04\\x01\\x00\\x00\\x00\\x00' * 1000)",
    "frames under a flood of output": "import subprocess\np = subprocess.Popen(['yes'])\n"
                                      "[os.write(3, b'\\x02\\x00\\x00\\x00\\x02\\x10\\x01' * 4000) for _ in range(40)]\np.kill()",
    "an end, and no ear for the next cell": "os.write(3, b'\\x05\\x00\\x00\\x00\\x04\\x01\\x00\\x00\\x00\\x00')\nimport signal, time"
                                            "\nsignal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)",
    "a flood of frames": "[os.write(3, (b'\\x02\\x00\\x00\\x00\\x02\\x10\\x01' * 5000)) for _ in range(40)]",
}


@suite.long_scenario
def hostile(c):
    box = Box(c.admin)
    other = box.create()
    box.run("alive = 1", context=other.id)
    for what, code in HOSTILE.items():
        cell = box.run("import os\n" + code, timeout=20)
        check(f"{what}: the cell has an end", cell.ended is not None or cell.outcome == "NONE", cell)
        if "no ear" in what:
            unread = box.run("#" * (900 << 10), timeout=0.3)
            equal(f"{what}: a cell that it does not read times out", (unread.outcome, unread.ended.context_state), ("TIMED_OUT", pb.CONTEXT_STATE_BUSY))
            equal(f"{what}: … and the next is refused, not kept", code_of(error_of(box.run, "1")), "FAILED_PRECONDITION")
        equal(f"{what}: the context can be used again", box.restart().state, pb.CONTEXT_STATE_IDLE)
        equal(f"{what}: … and runs", box.run("6 * 7").main, "42")
        equal(f"{what}: the other context does not notice", box.run("alive", context=other.id).main, "1")
    box.kill()


@suite.scenario
def audited(c):
    box = Box(c.admin)
    box.run("password = 'hunter2hunter2'; print(password)")
    box.kill()
    until(lambda: any(r["event"] == "unit.end" and r["fields"]["unit"] == box.id for r in c.audit_records()), 10)
    text = "".join(p.read_text(errors="replace") for p in pathlib.Path(c.audit_dir).rglob("*") if p.is_file())
    records = [json.loads(line) for line in text.splitlines() if line.startswith("{") and '"code.' in line]
    ran = [r for r in records if r["event"] == "code.run" and r["fields"]["unit"] == box.id]
    ended = [r for r in records if r["event"] == "code.end" and r["fields"]["unit"] == box.id]
    check("a cell is recorded before it runs, and its end", len(ran) == len(ended) == 1 and
          ran[0]["fields"]["cell"] == ended[0]["fields"]["cell"] and ended[0]["fields"]["outcome"] == "ok", records[-2:])
    equal("… by digest", ran[0]["fields"]["code_sha256"], sha256(b"password = 'hunter2hunter2'; print(password)").hex())
    check("its text is nowhere in the log", "hunter2" not in text)


@suite.scenario
def rich(c):
    if not has_image("code"):
        print("     skipped: no image `code` (images/build.sh code)")
        return
    box = Box(c.admin, template="code")
    begin = time.monotonic()
    first = box.run("x = 41\nx + 1")
    print(f"     first call: {(time.monotonic() - begin) * 1000:.0f} ms")
    check("the context is warm", first.main == "42" and not first.started.fresh, first)
    begin = time.monotonic()
    figure = box.run("import numpy as np, matplotlib.pyplot as plt\n"
                     "t = np.linspace(0, 6, 50)\nplt.plot(t, np.sin(t))\nplt.title('sine')\nplt.show()")
    print(f"     first figure: {(time.monotonic() - begin) * 1000:.0f} ms")
    png = figure.all_forms().get("image/png", b"")
    check("a figure comes as PNG", png.startswith(b"\x89PNG\r\n\x1a\n") and len(png) > 1000, figure)
    frame = box.run("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\ndf")
    check("a DataFrame comes as HTML", b"<table" in frame.all_forms().get("text/html", b""), frame)
    equal("… and as text", frame.main.split()[:2], ["a", "b"])
    magic = box.run("%%timeit -n1 -r1\n1 + 1")
    check("magics work", magic.outcome == "OK" and b"loop" in magic.out, magic)
    equal("shell commands stream their output", bytes(box.run("!echo $((6*7))").out), b"42\n")
    bad = box.run("def f():\n    raise ValueError('why')\nf()")
    check("a traceback is told without colours", bad.error.name == "ValueError" and bad.error.value == "why" and
          "raise ValueError" in bad.error.traceback and "\x1b" not in bad.error.traceback, bad)
    check("the runner is not in it", "/run/cloche" not in bad.error.traceback, bad.error.traceback)
    equal("stdin is refused here too", box.run("input()").error.name, "EOFError")
    loop = box.run("while True: pass", timeout=0.5)
    equal("an endless loop is interrupted", loop.outcome, "TIMED_OUT")
    equal("state is kept", box.run("x").main, "41")
    equal("_ and Out work", box.run("_").main, "41")
    kinds = box.run("from IPython.display import display, Markdown, Latex, JSON, SVG, Javascript\n"
                    "display(Markdown('# m'), Latex('$x$'), JSON({'j': 1}), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'), Javascript('1'))")
    for mime in ("text/markdown", "text/latex", "application/json", "image/svg+xml", "application/javascript"):
        check(f"{mime} is shown", mime in kinds.all_forms(), kinds)
    boxes = [box, Box(c.admin, template="code")]
    drawn = [b.run("import random; (random.random(), float(np.random.rand()))" if b is box else
                   "import random, numpy as np; (random.random(), float(np.random.rand()))").main for b in boxes]
    check("numpy draws other numbers in every clone", drawn[0] != drawn[1] and eval(drawn[0])[1] != eval(drawn[1])[1], drawn)
    shells = [b.run("echo $RANDOM $RANDOM; echo $HOSTNAME; hostname", language=pb.LANGUAGE_BASH) for b in boxes]
    said = [bytes(s.out).decode().splitlines() for s in shells]
    check("bash is warm too", not any(s.started.fresh for s in shells), shells)
    check("… draws other numbers in every clone", said[0][0] != said[1][0], said)
    check("… and knows its sandbox's name", all(s[1] == s[2] and "warm" not in s[1] for s in said) and said[0][1] != said[1][1], said)
    for b in boxes:
        b.kill()


if __name__ == "__main__":
    suite.main(templates="python,code" if has_image("code") else "python")
