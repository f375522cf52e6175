"""A machine that is kept, and what one does in it."""
import contextlib
import signal as signals
import uuid

from . import _connect, ports
from ._stream import CellReader, Input, Output, chunks, command, fill_env, fill_labels, follow
from ._wire import language as language_of
from ._wire import name_of, pb
from .errors import CommandFailed, Error, raised
from .results import SECOND, FileChange, FileInfo, Result, SandboxInfo, Snapshot

SLOW = 600  # s: memory may have to be written or read


class Sandbox:
    """Made by Client.sandbox().  `files` is its file system."""

    def __init__(self, client, sandbox_id):
        self._client, self.id = client, sandbox_id
        self.files = Files(client, sandbox_id)

    def __repr__(self):
        return f"Sandbox({self.id!r})"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.kill()

    # --- life ---------------------------------------------------------------------------------------

    def info(self):
        return SandboxInfo.of(self._client._sandbox.Get(pb.SandboxServiceGetRequest(sandbox_id=self.id)).sandbox)

    def kill(self):
        """End it.  One that has ended stays so."""
        self._client._sandbox.Kill(pb.KillRequest(sandbox_id=self.id))

    def extend(self, ttl):
        """It lives at least ttl seconds more."""
        self._client._sandbox.Extend(pb.ExtendRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND)))

    def pause(self, keep=0):
        """It rests, memory and processes and all, without CPU or memory, until resume() or for keep seconds (0 = the service's default)."""
        self._client._sandbox.Pause(pb.PauseRequest(sandbox_id=self.id, keep_ns=int(keep * SECOND)), SLOW)

    def resume(self, ttl=0):
        """False: it was not paused."""
        return self._client._sandbox.Resume(pb.ResumeRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND)), SLOW).was_paused

    def fork(self, n=1, *, ttl=0, labels=None):
        """n copies of it as it is now, which run: memory, processes, files and code contexts.  All are of one moment."""
        moment = str(uuid.uuid4())
        copies = []
        try:
            for _ in range(n):
                request = pb.ForkRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND), moment=moment, idempotency_key=str(uuid.uuid4()))
                fill_labels(request, labels)
                copies.append(Sandbox(self._client, self._client._sandbox.Fork(request, SLOW).sandbox.id))
        except BaseException:
            for copy in copies:  # all or none
                copy.kill()
            raise
        return copies

    def snapshot(self, name="", *, replace=False, keep=0, labels=None):
        """Keep it as it is: Client.sandbox(snapshot=...) and Client.run(snapshot=...) begin with that.  It runs on."""
        request = pb.SnapshotServiceCreateRequest(sandbox_id=self.id, name=name, replace=replace, keep_ns=int(keep * SECOND),
                                                  idempotency_key=str(uuid.uuid4()))
        fill_labels(request, labels)
        return Snapshot.of(self._client._snapshot.Create(request, SLOW).snapshot)

    # --- commands -----------------------------------------------------------------------------------

    def run(self, argv, *, stdin=None, env=None, cwd="", user="", timeout=0, output_max=0, on_stdout=None, on_stderr=None, check=False):
        """Run a command and wait for its end: a Result.  The arguments are those of Client.run()."""
        process = self.start(argv, env=env, cwd=cwd, user=user, timeout=timeout, output_max=output_max, stdin=stdin is not None)
        try:
            source = Input(stdin) if stdin is not None else None
            result = process._end(Output(on_stdout, on_stderr), source)
        except BaseException:
            with contextlib.suppress(Error):
                process.kill()
            raise
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    def start(self, argv, *, env=None, cwd="", user="", timeout=0, output_max=0, stdin=False, pty=None):
        """Begin a command: a Process.  stdin: it will be written to; pty: (rows, columns) of its terminal."""
        message = command(argv, env=env, cwd=cwd, user=user, timeout=timeout, output_max=output_max, stdin=stdin or bool(pty), pty=pty)
        return Process(self._client, self.id, self._client._exec.Start(pb.StartRequest(sandbox_id=self.id, command=message)).exec_id)

    def process(self, exec_id):
        """One that was begun before, by its id."""
        return Process(self._client, self.id, exec_id)

    # --- code ---------------------------------------------------------------------------------------

    def code(self, source, *, language="python", context="", timeout=0, env=None, on_stdout=None, on_stderr=None, on_result=None):
        """Run a cell where what the cells before made is still there: a Cell.  What the code raises is in it (`error`).

        context  of create_context(); otherwise the language's own
        """
        request = pb.RunCodeRequest(sandbox_id=self.id, code=source, timeout_ns=int(timeout * SECOND), context_id=context)
        if not context:
            request.language = language_of(language)
        fill_env(request, env)
        return CellReader(on_stdout, on_stderr, on_result).read(self._client._code.RunCode(request))

    def create_context(self, language="python", *, cwd="", env=None):
        """Another interpreter, with nothing of the others: its id."""
        request = pb.CreateContextRequest(sandbox_id=self.id, language=language_of(language), cwd=cwd)
        fill_env(request, env)
        return self._client._code.CreateContext(request).context.id

    def restart_context(self, context="python"):
        self._client._code.RestartContext(pb.RestartContextRequest(sandbox_id=self.id, context_id=context))

    def interrupt(self, context="python"):
        """What runs there, as Ctrl-C would; False: nothing did."""
        return self._client._code.InterruptContext(pb.InterruptContextRequest(sandbox_id=self.id, context_id=context)).was_running

    # --- servers ------------------------------------------------------------------------------------

    def connect(self, port):
        """A connection to what listens on a port in it: a socket.  Error STATE: nobody does."""
        return ports.connect(self._client._port, self.id, port)

    def forward(self, port, address=("127.0.0.1", 0)):
        """A port of this host that leads there: a Forward, whose `address` any program may connect to, as a context manager for its block."""
        return ports.Forward(self._client._port, self.id, port, address)

    def url(self, port, *, ttl=0, domain=None):
        """An address, for a browser, of what listens on a port in it; whoever has it may use it, for ttl seconds or while the sandbox lives.

        domain  the gateway's ports-domain, as "https://sandboxes.example.org" (docs/ports.md)
        """
        domain = domain or _connect.ports_domain()
        link = self._client._port.CreateLink(pb.CreateLinkRequest(sandbox_id=self.id, port=port, ttl_ns=int(ttl * SECOND))).link
        scheme, _, host = domain.rpartition("://")
        is_local = host.partition(":")[0].endswith("localhost")
        _, sandbox, secret = link.split("_")
        if scheme == "http" or (not scheme and is_local):
            return f"http://{port}-sbx-{sandbox}.{secret}.{host}/"
        return f"https://{port}-sbx-{sandbox}.{host}/?cloche_link={link}"


class Process:
    """A command that runs in a sandbox.  It goes on when nobody follows it."""

    def __init__(self, client, sandbox_id, exec_id):
        self._client, self._sandbox_id, self.id = client, sandbox_id, exec_id
        self._result = None

    def __repr__(self):
        return f"Process({self._sandbox_id!r}, {self.id!r})"

    def __iter__(self):
        """What it writes, from the beginning to its end: ("stdout" or "stderr", bytes).  Nothing of it is kept."""
        yield from self._follow(Output(keep=False))

    def wait(self, on_stdout=None, on_stderr=None):
        """Its end, with all that it wrote: a Result."""
        return self._end(Output(on_stdout, on_stderr))

    def write(self, data, *, eof=False):
        """To its stdin: bytes, a text or an open file; waits until it is taken.  The command was started with stdin=True."""
        def messages():
            yield pb.ExecServiceWriteStdinRequest(sandbox_id=self._sandbox_id, exec_id=self.id)
            for piece in data if isinstance(data, Input) else chunks(data):
                yield pb.ExecServiceWriteStdinRequest(data=piece)
            if eof:
                yield pb.ExecServiceWriteStdinRequest(eof=True)
        self._client._exec.WriteStdin(messages())

    def close_stdin(self):
        self.write(b"", eof=True)

    def signal(self, number):
        self._client._exec.Signal(pb.SignalRequest(sandbox_id=self._sandbox_id, exec_id=self.id, signal=int(number)))

    def kill(self):
        self.signal(signals.SIGKILL)

    def resize(self, rows, columns):
        """Its terminal."""
        self._client._exec.Resize(pb.ResizeRequest(sandbox_id=self._sandbox_id, exec_id=self.id, size=pb.Pty(rows=rows, columns=columns)))

    def _end(self, output, source=None):
        if source:
            source.write(lambda: self.write(source, eof=True))
        for _ in self._follow(output, source):
            pass
        return Result.of(self._result, output)

    def _follow(self, output, source=None):
        def open_next():
            return self._client._exec.Attach(pb.AttachRequest(sandbox_id=self._sandbox_id, exec_id=self.id, **output.offsets))
        self._result = None
        for event in follow(open_next, source):
            if event.WhichOneof("event") == "ended":
                self._result = event.ended
            else:
                output.take(event.output)
                yield name_of("Stream", event.output.stream).lower(), event.output.data
        if self._result is None:
            raise Error("PEER", f"the stream of {self.id} ended before the command")


class Files:
    """The file system of a sandbox.  Paths are absolute, or begin in the user's home; user: whose rights count ("" = the template's)."""

    def __init__(self, client, sandbox_id):
        self._service, self._id = client._file, sandbox_id

    def read(self, path, *, user=""):
        """All of it, as bytes."""
        return b"".join(self.stream(path, user=user))

    def read_text(self, path, *, user=""):
        return self.read(path, user=user).decode()

    def stream(self, path, *, user=""):
        """The same in pieces, for what is large."""
        with raised():
            for answer in self._service.Read(pb.ReadRequest(sandbox_id=self._id, path=path, user=user)):
                if answer.data:
                    yield answer.data

    def write(self, path, data, *, mode=0o644, user=""):
        """Bytes, a text or a file that is open for reading.  It is there whole or not at all."""
        def messages():
            yield pb.WriteRequest(sandbox_id=self._id, path=path, mode=mode, user=user)
            for piece in chunks(data):
                yield pb.WriteRequest(data=piece)
            yield pb.WriteRequest(commit=True)
        return self._service.Write(messages()).bytes

    def list(self, path, *, user=""):
        request = pb.FileServiceListRequest(sandbox_id=self._id, path=path, user=user)
        while True:
            page = self._service.List(request)
            yield from map(FileInfo.of, page.files)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def stat(self, path, *, user=""):
        return FileInfo.of(self._service.Stat(pb.StatRequest(sandbox_id=self._id, path=path, user=user)).file)

    def exists(self, path, *, user=""):
        try:
            self.stat(path, user=user)
        except Error as err:
            if err.code == "NOTFOUND":
                return False
            raise
        return True

    def mkdir(self, path, *, mode=0o755, parents=True, user=""):
        self._service.MakeDir(pb.MakeDirRequest(sandbox_id=self._id, path=path, mode=mode, parents=parents, user=user))

    def remove(self, path, *, recursive=False, user=""):
        self._service.Remove(pb.RemoveRequest(sandbox_id=self._id, path=path, recursive=recursive, user=user))

    def rename(self, old, new, *, user=""):
        request = pb.RenameRequest(sandbox_id=self._id, to=new, user=user)
        setattr(request, "from", old)
        self._service.Rename(request)

    def watch(self, path, *, recursive=False, user=""):
        """FileChange, one after the other, from when this returns until one closes it."""
        stream = self._service.Watch(pb.FileServiceWatchRequest(sandbox_id=self._id, path=path, recursive=recursive, user=user))
        stream.initial_metadata()
        return _changes(stream)


def _changes(stream):
    try:
        with raised():
            for answer in stream:
                yield from (FileChange(name_of("FileChangeKind", c.kind), c.path) for c in answer.changes)
                if answer.lost:
                    yield FileChange("LOST", "")
    finally:
        stream.cancel()
