"""A machine that is kept, and what one does in it."""
import contextlib
import signal as signals
import uuid

from .. import _connect
from .._async_io import Writer, chunks, ports
from .._wire import language as language_of
from .._wire import name_of, pb
from ..errors import CommandFailed, Error, raised
from ..results import SECOND, FileChange, FileInfo, Result, SandboxInfo, Snapshot
from .stream import CellReader, Output, command, fill_env, fill_labels, follow, pages

SLOW = 600  # s: memory may have to be written or read


class AsyncSandbox:
    """Made by Client.sandbox().  `files` is its file system."""

    def __init__(self, client, sandbox_id):
        self._client, self.id = client, sandbox_id
        self.files = AsyncFiles(client, sandbox_id)

    def __repr__(self):
        return f"{type(self).__name__}({self.id!r})"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.kill()

    # --- life ---------------------------------------------------------------------------------------

    async def info(self):
        return SandboxInfo.of((await self._client._sandbox.Get(pb.SandboxServiceGetRequest(sandbox_id=self.id))).sandbox)

    async def kill(self):
        """End it.  One that has ended stays so."""
        await self._client._sandbox.Kill(pb.KillRequest(sandbox_id=self.id))

    async def extend(self, ttl):
        """It lives at least ttl seconds more."""
        await self._client._sandbox.Extend(pb.ExtendRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND)))

    async def pause(self, keep=0):
        """It rests, memory and processes and all, without CPU or memory, until resume() or for keep seconds (0 = the service's default)."""
        await self._client._sandbox.Pause(pb.PauseRequest(sandbox_id=self.id, keep_ns=int(keep * SECOND)), SLOW)

    async def resume(self, ttl=0):
        """False: it was not paused."""
        return (await self._client._sandbox.Resume(pb.ResumeRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND)), SLOW)).was_paused

    async def fork(self, n=1, *, ttl=0, labels=None):
        """n copies of it as it is now, which run: memory, processes, files and code contexts.  All are of one moment."""
        moment = str(uuid.uuid4())
        copies = []
        try:
            for _ in range(n):
                request = pb.ForkRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND), moment=moment, idempotency_key=str(uuid.uuid4()))
                fill_labels(request, labels)
                copies.append(AsyncSandbox(self._client, (await self._client._sandbox.Fork(request, SLOW)).sandbox.id))
        except BaseException:
            for copy in copies:  # all or none
                await copy.kill()
            raise
        return copies

    async def snapshot(self, name="", *, replace=False, keep=0, labels=None):
        """Keep it as it is: Client.sandbox(snapshot=...) and Client.run(snapshot=...) begin with that.  It runs on."""
        request = pb.SnapshotServiceCreateRequest(sandbox_id=self.id, name=name, replace=replace, keep_ns=int(keep * SECOND),
                                                  idempotency_key=str(uuid.uuid4()))
        fill_labels(request, labels)
        return Snapshot.of((await self._client._snapshot.Create(request, SLOW)).snapshot)

    # --- commands -----------------------------------------------------------------------------------

    async def run(self, argv, *, stdin=None, env=None, cwd="", user="", timeout=0, output_max=0, on_stdout=None, on_stderr=None, check=False):
        """Run a command and wait for its end: a Result.  The arguments are those of Client.run()."""
        process = await self.start(argv, env=env, cwd=cwd, user=user, timeout=timeout, output_max=output_max, stdin=stdin is not None)
        try:
            result = await process._end(Output(on_stdout, on_stderr), stdin)
        except BaseException:
            with contextlib.suppress(Error):
                await process.kill()
            raise
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    async def start(self, argv, *, env=None, cwd="", user="", timeout=0, output_max=0, stdin=False, pty=None):
        """Begin a command: a Process.  stdin: it will be written to; pty: (rows, columns) of its terminal."""
        message = command(argv, env=env, cwd=cwd, user=user, timeout=timeout, output_max=output_max, stdin=stdin or bool(pty), pty=pty)
        return AsyncProcess(self._client, self.id, (await self._client._exec.Start(pb.StartRequest(sandbox_id=self.id, command=message))).exec_id)

    def process(self, exec_id):
        """One that was begun before, by its id."""
        return AsyncProcess(self._client, self.id, exec_id)

    # --- code ---------------------------------------------------------------------------------------

    async def code(self, source, *, language="python", context="", timeout=0, env=None, on_stdout=None, on_stderr=None, on_result=None):
        """Run a cell where what the cells before made is still there: a Cell.  What the code raises is in it (`error`).

        context  of create_context(); otherwise the language's own
        """
        request = pb.RunCodeRequest(sandbox_id=self.id, code=source, timeout_ns=int(timeout * SECOND), context_id=context)
        if not context:
            request.language = language_of(language)
        fill_env(request, env)
        return await CellReader(on_stdout, on_stderr, on_result).read(self._client._code.RunCode(request))

    async def create_context(self, language="python", *, cwd="", env=None):
        """Another interpreter, with nothing of the others: its id."""
        request = pb.CreateContextRequest(sandbox_id=self.id, language=language_of(language), cwd=cwd)
        fill_env(request, env)
        return (await self._client._code.CreateContext(request)).context.id

    async def restart_context(self, context="python"):
        await self._client._code.RestartContext(pb.RestartContextRequest(sandbox_id=self.id, context_id=context))

    async def interrupt(self, context="python"):
        """What runs there, as Ctrl-C would; False: nothing did."""
        return (await self._client._code.InterruptContext(pb.InterruptContextRequest(sandbox_id=self.id, context_id=context))).was_running

    # --- servers ------------------------------------------------------------------------------------

    async def connect(self, port):
        """A connection to what listens on a port in it: a socket, or asyncio's reader and writer.  Error STATE: nobody does."""
        return await ports.connect(self._client._port, self.id, port)

    async def forward(self, port, address=("127.0.0.1", 0)):
        """A port of this host that leads there: a Forward, whose `address` any program may connect to, as a context manager for its block."""
        return await ports.forward(self._client._port, self.id, port, address)

    async def url(self, port, *, ttl=0, domain=None):
        """An address, for a browser, of what listens on a port in it; whoever has it may use it, for ttl seconds or while the sandbox lives.

        domain  the gateway's ports-domain, as "https://sandboxes.example.org" (docs/ports.md)
        """
        domain = domain or _connect.ports_domain()
        link = (await self._client._port.CreateLink(pb.CreateLinkRequest(sandbox_id=self.id, port=port, ttl_ns=int(ttl * SECOND)))).link
        scheme, _, host = domain.rpartition("://")
        is_local = host.partition(":")[0].endswith("localhost")
        _, sandbox, secret = link.split("_")
        if scheme == "http" or (not scheme and is_local):
            return f"http://{port}-sbx-{sandbox}.{secret}.{host}/"
        return f"https://{port}-sbx-{sandbox}.{host}/?cloche_link={link}"


class AsyncProcess:
    """A command that runs in a sandbox.  It goes on when nobody follows it."""

    def __init__(self, client, sandbox_id, exec_id):
        self._client, self._sandbox_id, self.id = client, sandbox_id, exec_id
        self._result = None

    def __repr__(self):
        return f"{type(self).__name__}({self._sandbox_id!r}, {self.id!r})"

    def __aiter__(self):
        """What it writes, from the beginning to its end: ("stdout" or "stderr", bytes).  Nothing of it is kept."""
        return self._follow(Output(keep=False), Writer())

    async def wait(self, on_stdout=None, on_stderr=None):
        """Its end, with all that it wrote: a Result."""
        return await self._end(Output(on_stdout, on_stderr))

    async def write(self, data, *, eof=False):
        """To its stdin: bytes, a text or an open file; waits until it is taken.  The command was started with stdin=True."""
        async def messages():
            yield pb.ExecServiceWriteStdinRequest(sandbox_id=self._sandbox_id, exec_id=self.id)
            async for piece in chunks(data):
                yield pb.ExecServiceWriteStdinRequest(data=piece)
            if eof:
                yield pb.ExecServiceWriteStdinRequest(eof=True)
        await self._client._exec.WriteStdin(messages())

    async def close_stdin(self):
        await self.write(b"", eof=True)

    async def signal(self, number):
        await self._client._exec.Signal(pb.SignalRequest(sandbox_id=self._sandbox_id, exec_id=self.id, signal=int(number)))

    async def kill(self):
        await self.signal(signals.SIGKILL)

    async def resize(self, rows, columns):
        """Its terminal."""
        await self._client._exec.Resize(pb.ResizeRequest(sandbox_id=self._sandbox_id, exec_id=self.id, size=pb.Pty(rows=rows, columns=columns)))

    async def _end(self, output, stdin=None):
        writer = Writer()
        if stdin is not None:
            writer.begin(lambda: self.write(stdin, eof=True))
        async for _ in self._follow(output, writer):
            pass
        return Result.of(self._result, output)

    async def _follow(self, output, writer):
        def open_next():
            return self._client._exec.Attach(pb.AttachRequest(sandbox_id=self._sandbox_id, exec_id=self.id, **output.offsets))
        self._result = None
        async for event in follow(open_next, writer):
            if event.WhichOneof("event") == "ended":
                self._result = event.ended
            else:
                output.take(event.output)
                yield name_of("Stream", event.output.stream).lower(), event.output.data
        if self._result is None:
            raise Error("PEER", f"the stream of {self.id} ended before the command")


class AsyncFiles:
    """The file system of a sandbox.  Paths are absolute, or begin in the user's home; user: whose rights count ("" = the template's)."""

    def __init__(self, client, sandbox_id):
        self._service, self._id = client._file, sandbox_id

    async def read(self, path, *, user=""):
        """All of it, as bytes."""
        return b"".join([piece async for piece in self.stream(path, user=user)])

    async def read_text(self, path, *, user=""):
        return (await self.read(path, user=user)).decode()

    async def stream(self, path, *, user=""):
        """The same in pieces, for what is large."""
        with raised():
            async for answer in self._service.Read(pb.ReadRequest(sandbox_id=self._id, path=path, user=user)):
                if answer.data:
                    yield answer.data

    async def write(self, path, data, *, mode=0o644, user=""):
        """Bytes, a text or a file that is open for reading.  It is there whole or not at all."""
        async def messages():
            yield pb.WriteRequest(sandbox_id=self._id, path=path, mode=mode, user=user)
            async for piece in chunks(data):
                yield pb.WriteRequest(data=piece)
            yield pb.WriteRequest(commit=True)
        return (await self._service.Write(messages())).bytes

    def list(self, path, *, user=""):
        return pages(self._service.List, pb.FileServiceListRequest(sandbox_id=self._id, path=path, user=user), "files", FileInfo.of)

    async def stat(self, path, *, user=""):
        return FileInfo.of((await self._service.Stat(pb.StatRequest(sandbox_id=self._id, path=path, user=user))).file)

    async def exists(self, path, *, user=""):
        try:
            await self.stat(path, user=user)
        except Error as err:
            if err.code == "NOTFOUND":
                return False
            raise
        return True

    async def mkdir(self, path, *, mode=0o755, parents=True, user=""):
        await self._service.MakeDir(pb.MakeDirRequest(sandbox_id=self._id, path=path, mode=mode, parents=parents, user=user))

    async def remove(self, path, *, recursive=False, user=""):
        await self._service.Remove(pb.RemoveRequest(sandbox_id=self._id, path=path, recursive=recursive, user=user))

    async def rename(self, old, new, *, user=""):
        request = pb.RenameRequest(sandbox_id=self._id, to=new, user=user)
        setattr(request, "from", old)
        await self._service.Rename(request)

    async def watch(self, path, *, recursive=False, user=""):
        """FileChange, one after the other, from when this returns until one closes it."""
        stream = self._service.Watch(pb.FileServiceWatchRequest(sandbox_id=self._id, path=path, recursive=recursive, user=user))
        await stream.initial_metadata()
        return _changes(stream)


async def _changes(stream):
    try:
        with raised():
            async for answer in stream:
                for change in answer.changes:
                    yield FileChange(name_of("FileChangeKind", change.kind), change.path)
                if answer.lost:
                    yield FileChange("LOST", "")
    finally:
        stream.cancel()
