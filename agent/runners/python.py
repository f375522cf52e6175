"""The interpreter of a Python context: runs cells that the agent sends, in one namespace that stays.

fd 3 is a socket to the agent (proto/code_frame.h): lines and code come in, frames go out.  What
cells print goes to fds 1 and 2, as any process's output does.  IPython's InteractiveShell runs the
cells where the template has it (magics, rich display, figures); plain CPython otherwise.
"""
import ast
import builtins
import fcntl
import gc
import io
import linecache
import os
import signal
import sys
import termios
import threading
import time
import traceback
import types

READY, RESULT, ERROR, ENDED, BEGUN = 1, 2, 3, 4, 5
OK, FAILED, INTERRUPTED = 1, 2, 3
RESULT_MAX = 3 << 20  # of all forms of one result together
TRACEBACK_MAX = 200_000
TAKEN_SECONDS = 10
HERE = __file__


# --- frames out ----------------------------------------------------------------------------------
def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, data):
    """One length-delimited protobuf field."""
    if isinstance(data, str):
        data = data.encode("utf-8", "replace").replace(b"\0", b"?")
    return varint(number << 3 | 2) + varint(len(data)) + data


class Interrupts:
    """^C counts while a cell's code runs, and never in the middle of a frame."""

    def __init__(self):
        self.armed = self.came = False
        signal.signal(signal.SIGINT, self.on_signal)

    def on_signal(self, _number, _frame):
        self.came = True
        if self.armed:
            raise KeyboardInterrupt

    def end(self):
        self.armed = False

    def hold(self):
        held, self.armed = self.armed, False
        return held

    def release(self, held):
        if not held:
            return
        if self.came:
            raise KeyboardInterrupt
        self.armed = True


class Wire:
    def __init__(self, interrupts):
        os.set_inheritable(3, False)
        self.reader = open(3, "rb", closefd=False)
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.interrupts = interrupts

    def send(self, kind, payload=b""):
        if os.getpid() != self.pid:  # a fork of user code: what it shows is not ours to tell
            return
        main = threading.current_thread() is threading.main_thread()
        held = main and self.interrupts.hold()
        with self.lock:
            data = memoryview(len(payload).to_bytes(4, "little") + bytes([kind]) + payload)
            while data:
                data = data[os.write(3, data):]
        self.interrupts.release(held)

    def begin(self):
        """From here on ^C is the cell's."""
        self.interrupts.came = False
        self.send(BEGUN)
        self.interrupts.release(True)

    def send_result(self, forms, is_main, count):
        """forms: {mime type: str or bytes}."""
        out, omitted, total = b"", b"", 0
        for mime in sorted(forms, key=lambda m: m != "text/plain"):
            data = encode_form(mime, forms[mime])
            if total + len(data) > RESULT_MAX:
                omitted += field(4, mime[:200])
                continue
            total += len(data)
            out += field(1, field(1, mime[:200]) + field(2, data))
        flags = (b"\x10\x01" if is_main else b"") + b"\x18" + varint(count)
        flush()
        self.send(RESULT, out + flags + omitted[:4096])
        if not is_main:
            self.await_taken()

    def await_taken(self):
        """What is printed next goes another way, and must not overtake what was shown before it: the agent takes a frame
        after all that was printed before that.  It takes nothing while its reader is slow; that holds up at most TAKEN_SECONDS."""
        deadline = time.monotonic() + TAKEN_SECONDS
        while time.monotonic() < deadline:
            if int.from_bytes(fcntl.ioctl(3, termios.TIOCOUTQ, bytes(4)), "little") == 0:
                return
            time.sleep(0.0005)

    def send_error(self, name, value, text):
        flush()
        self.send(ERROR, field(1, name[:1000]) + field(2, value[:20_000]) + field(3, shorten(text)))

    def send_ended(self, outcome, status=0):
        flush()
        self.send(ENDED, bytes([outcome]) + status.to_bytes(4, "little", signed=True))


def encode_form(mime, value):
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if not isinstance(value, str):
        import json
        return json.dumps(value, default=str).encode()
    if mime.startswith("image/") and mime != "image/svg+xml":
        import base64
        return base64.b64decode(value)
    return value.encode("utf-8", "replace")


def shorten(text):
    if len(text) <= TRACEBACK_MAX:
        return text
    half = TRACEBACK_MAX // 2
    return text[:half] + "\n... %d characters left out ...\n" % (len(text) - 2 * half) + text[-half:]


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # user code closed or replaced it


# --- stdio ---------------------------------------------------------------------------------------
class NoStdin(io.TextIOBase):
    """Nobody sits at this interpreter: asking is an error that says so, not a hang."""

    def _refuse(self, *_):
        raise EOFError("a code cell has no stdin: nobody can answer; put the value into the code")

    read = readline = _refuse

    def readable(self):
        return True

    def fileno(self):
        return 0  # /dev/null, for child processes

    @property
    def encoding(self):
        return "utf-8"


def set_stdio():
    """Lines go out at once, as on a terminal."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = io.TextIOWrapper(open(number, "wb", closefd=False), encoding="utf-8",
                                  errors="backslashreplace", line_buffering=True)
        stream.mode = "w"
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
    sys.stdin = sys.__stdin__ = NoStdin()


# --- plain CPython -------------------------------------------------------------------------------
FORMS = (("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"),
         ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"),
         ("image/jpeg", "_repr_jpeg_"), ("text/latex", "_repr_latex_"),
         ("application/json", "_repr_json_"), ("application/javascript", "_repr_javascript_"))


def forms_of(value):
    forms = {"text/plain": repr(value)}
    if isinstance(value, type):
        return forms
    methods = [(mime, getattr(value, name, None)) for mime, name in FORMS]
    bundle = getattr(value, "_repr_mimebundle_", None)
    for mime, method in methods + [(None, bundle)]:
        if not callable(method):
            continue
        try:
            made = method()
        except Exception:  # the object's own fault; its other forms are still good
            continue
        if isinstance(made, tuple):  # data and metadata
            made = made[0]
        if mime is None:
            forms.update(made or {})
        elif made is not None:
            forms[mime] = made
    return forms


class Plain:
    name = "Python %d.%d.%d" % sys.version_info[:3]

    def __init__(self, wire):
        self.wire = wire
        self.loop = None
        self.module = types.ModuleType("__main__")
        self.namespace = self.module.__dict__
        self.namespace["__builtins__"] = builtins
        sys.modules["__main__"] = self.module
        builtins.display = self.display
        self.count = 0

    def display(self, *values):
        for value in values:
            self.wire.send_result(forms_of(value), False, self.count)

    def compile(self, code):
        name = "<cell %d>" % self.count
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        parts = [compile(tree, name, "exec", flags, dont_inherit=True)]
        if last:
            parts.append(compile(last, name, "eval", flags, dont_inherit=True))
        return parts

    def evaluate(self, part):
        value = eval(part, self.namespace)
        if part.co_flags & 0x80:  # CO_COROUTINE: it awaits
            import asyncio
            self.loop = self.loop or asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
            value = self.loop.run_until_complete(value)
        return value

    def run(self, code, count):
        """True when it ran through."""
        self.count = count
        try:
            value = None
            self.wire.begin()
            for part in self.compile(code):
                value = self.evaluate(part)
            if value is not None:
                builtins._ = value
                self.wire.send_result(forms_of(value), True, count)
            self.wire.interrupts.end()
            return True
        except BaseException as e:  # SystemExit too: sys.exit() ends the cell, not the context
            self.wire.interrupts.end()
            self.tell(e)
            return False

    def tell(self, e):
        told = without_runner(traceback.TracebackException(type(e), e, e.__traceback__))
        text = "".join(told.format())
        value = "".join(told.format_exception_only()).strip()
        name = type(e).__name__
        prefix = told.exc_type.__qualname__ + ": "
        at = value.rfind(prefix) if isinstance(e, SyntaxError) else value.find(prefix)
        self.wire.send_error(name, value[at + len(prefix):] if at >= 0 else str_of(e), text)

    def forget(self, names):
        for name in set(self.namespace) - names:
            del self.namespace[name]
        builtins.__dict__.pop("_", None)
        linecache.cache.pop("<cell 0>", None)

    def names(self):
        return set(self.namespace)


def without_runner(told):
    """Frames of this file are no business of the reader's."""
    told.stack = traceback.StackSummary.from_list([f for f in told.stack if f.filename != HERE])
    for other in (told.__cause__, told.__context__):
        if other:
            without_runner(other)
    return told


def str_of(e):
    try:
        return str(e)
    except Exception:
        return ""


# --- IPython -------------------------------------------------------------------------------------
def make_shell(wire):
    """None where the template has no IPython."""
    try:
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        from traitlets import Type
        from traitlets.config import Config
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
    except ImportError:
        os.environ.pop("MPLBACKEND", None)
        return None

    class Hook(DisplayHook):
        def __call__(self, result=None):
            self.check_for_underscore()
            if result is None or self.quiet():
                return
            forms, _metadata = self.compute_format_data(result)
            self.update_user_ns(result)
            self.fill_exec_result(result)
            if forms:
                wire.send_result(forms, True, shell.execution_count)

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_):
            wire.send_result(data, False, shell.execution_count)

        def clear_output(self, wait=False):
            pass  # a stream of bytes cannot take back what it sent

    class Shell(InteractiveShell):
        displayhook_class = Type(Hook)
        display_pub_class = Type(Publisher)

        def _showtraceback(self, etype, evalue, stb):
            told = traceback.format_exception_only(etype, evalue)[-1].strip()
            name = etype.__name__
            wire.send_error(name, told[len(name) + 2:] if told.startswith(name + ": ") else str_of(evalue),
                            self.InteractiveTB.stb2text(stb))

        def ask_exit(self):
            raise SystemExit("exit() ends the cell only; restart the context for a new interpreter")

        system = InteractiveShell.system_raw

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Context"
    config.InteractiveShell.separate_in = ""
    shell = Shell.instance(config=config)
    return shell


class Rich:
    def __init__(self, shell, wire):
        self.shell = shell
        self.wire = wire

    def run(self, code, count):
        self.shell.execution_count = max(count, 1)
        try:
            self.wire.begin()
            result = self.shell.run_cell(code, store_history=count > 0)
            self.wire.interrupts.end()
            return result.success
        except BaseException as e:
            self.wire.interrupts.end()
            self.wire.send_error(type(e).__name__, str_of(e), "".join(traceback.format_exception(e)))
            return False

    def forget(self, names):
        for name in set(self.shell.user_ns) - names:
            del self.shell.user_ns[name]
        for name in ("_", "__", "___"):
            self.shell.user_ns[name] = ""
            setattr(self.shell.displayhook, name, "")
        self.shell.user_ns.get("Out", {}).clear()

    def names(self):
        return set(self.shell.user_ns)


# --- the loop ------------------------------------------------------------------------------------
def reseed(text):
    """After a restore: no two clones of a template draw the same numbers.  The kernel's generator
    was reseeded before; here is what keeps a state of its own.  (The seed of str.__hash__ stays the
    template's; it protects one process from its own input, not clones from each other.)"""
    seed = bytes.fromhex(text)
    loaded = sys.modules.get
    if loaded("random"):
        loaded("random").seed(seed)
    if loaded("numpy.random"):
        loaded("numpy.random").seed([int.from_bytes(seed[i:i + 4], "little") for i in range(0, 32, 4)])
    if loaded("tempfile"):
        loaded("tempfile")._name_sequence = None
    if loaded("uuid"):
        loaded("uuid")._node = None
    if loaded("ssl"):
        loaded("ssl").RAND_add(seed, 32.0)


environ = os.environb  # user code may give os.environ another meaning


def exchange(variables):
    """Set these, None = unset; what puts back what was there."""
    before = {name: environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            environ.pop(name, None)
            os.unsetenv(name)  # also what os.putenv() set
        else:
            environ[name] = value
    return before


def run_cell(wire, engine, code, count, variables):
    names = engine.names() if count == 0 else None
    before = exchange(variables)
    good = engine.run(code, count)
    if os.getpid() != wire.pid:
        os._exit(0)  # a fork that ran past the end of its cell
    exchange(before)
    if names is not None:
        engine.forget(names)
        gc.freeze()  # what the warm-up has loaded is a clone's, too
    if good:
        wire.send_ended(OK)
    else:
        wire.send_ended(INTERRUPTED if wire.interrupts.came else FAILED, 1)
    if signal.getsignal(signal.SIGINT) != wire.interrupts.on_signal:
        signal.signal(signal.SIGINT, wire.interrupts.on_signal)


def main():
    sys.path[0] = ""  # as an interactive interpreter: the working folder
    sys.argv = [""]
    set_stdio()
    wire = Wire(Interrupts())
    shell = make_shell(wire)
    engine = Rich(shell, wire) if shell else Plain(wire)
    gc.collect()
    gc.freeze()  # what is here now stays; a clone need not touch its pages to find out
    wire.send(READY)
    variables = {}  # of the next cell
    while line := wire.reader.readline():
        verb, *rest = line.split()
        if verb == b"seed":
            reseed(rest[0].decode())
        elif verb == b"env":
            name, _, value = wire.reader.read(int(rest[0])).partition(b"=")
            variables[name] = value
        else:
            code = wire.reader.read(int(rest[1])).decode()
            run_cell(wire, engine, code, int(rest[0]) if verb == b"run" else 0, variables)
            variables = {}


main()
