"""The service as one caller sees it."""
import contextlib
import json
import uuid

from .. import _connect
from .._async_io import TIMEOUT, Connection, Writer, chunks
from .._wire import language as language_of
from .._wire import name_of, pb
from ..errors import CodeFailed, CommandFailed, Error
from ..results import SECOND, CodeError, Result, SandboxInfo, Snapshot, Template
from .sandbox import AsyncSandbox
from .stream import Output, command, fill_labels, fill_room, follow, pages

LOADING, CALLING = 300, 60  # s: the limits of a function unless one gives others


class AsyncClient:
    """A connection with one key.  Any number of threads, or of tasks of its event loop, may use it.

    endpoint  HOST:PORT, unix:PATH, or several schedulers that stand by for one another, with commas between
    key       an API key or a bearer token
    ca        the file of the CA that the server's certificate is of
    insecure  in plain text to another host, too
    What is not given is found as `cloche` finds it: CLOCHE_ENDPOINT, CLOCHE_API_KEY, CLOCHE_KEY_FILE, CLOCHE_CA, or what
    `cloche up` made on this host.  timeout: seconds until it is given up that anybody answers.
    """

    def __init__(self, endpoint=None, key=None, *, ca=None, insecure=False, timeout=20):
        self._connection = Connection(_connect.Where(endpoint, key, ca, insecure), timeout)
        self._job, self._sandbox, self._exec, self._code, self._file, self._port, self._snapshot, self._function, self._template = (
            self._connection.service(f"{name}Service")
            for name in ("Job", "Sandbox", "Exec", "Code", "File", "Port", "Snapshot", "Function", "Template"))

    async def close(self):
        await self._connection.close()

    async def ready(self):
        """Until it is up; Error UNAVAILABLE when nobody answers in time.  A block has waited for that."""
        await self._connection.ready()

    async def __aenter__(self):
        await self.ready()
        return self

    async def __aexit__(self, *exc):
        await self.close()

    # --- jobs ---------------------------------------------------------------------------------------

    async def run(self, argv, *, template="python", snapshot="", stdin=None, env=None, cwd="", user="", timeout=0, output_max=0,
            vcpus=0, memory_mib=0, disk_mib=0, net=(), labels=None, attempts=0, max_queue_wait=0, on_stdout=None, on_stderr=None,
            check=False):
        """Run a command in a machine of its own, which is destroyed after it, and wait for its end: a Result.

        argv      a list, or a text for `sh -c`
        snapshot  begin with it in place of a template
        stdin     bytes, a text, or a file that is open for reading
        timeout   seconds; 0 = the service's default of 300
        net       what it may reach, as "example.org"; nothing unless given
        attempts  how often it may begin when a worker is lost; 0 = the service's default
        on_...    hear each piece of output as it comes
        check     raise CommandFailed unless it ends with exit status 0
        Leaving the call, as by KeyboardInterrupt or a task's cancellation, cancels the job.
        """
        spec = pb.JobSpec(template="" if snapshot else template, snapshot=snapshot, max_attempts=attempts,
                          max_queue_wait_ns=int(max_queue_wait * SECOND))
        spec.command.CopyFrom(command(argv, env=env, cwd=cwd, user=user, timeout=timeout, output_max=output_max, stdin=stdin is not None))
        fill_room(spec, vcpus, memory_mib, disk_mib, net, labels)
        result = await _Job(self._job, spec, stdin, Output(on_stdout, on_stderr)).run()
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    # --- sandboxes ----------------------------------------------------------------------------------

    async def sandbox(self, template="python", *, snapshot="", ttl=0, on_idle="end", wake_on_use=False, vcpus=0, memory_mib=0, disk_mib=0,
                net=(), labels=None):
        """Make a sandbox.  As a context manager it ends with its block; otherwise with kill(), or ttl seconds after its last use
        (0 = the service's default), when it is paused instead with on_idle="pause", to be woken by its next use with wake_on_use."""
        request = pb.CreateRequest(template="" if snapshot else template, snapshot=snapshot, ttl_ns=int(ttl * SECOND),
                                   wake_on_use=wake_on_use, idempotency_key=str(uuid.uuid4()))
        if on_idle != "end":
            request.on_idle = getattr(pb, f"IDLE_ACTION_{on_idle.upper()}")
        fill_room(request, vcpus, memory_mib, disk_mib, net, labels)
        return AsyncSandbox(self, (await self._sandbox.Create(request)).sandbox.id)

    async def get_sandbox(self, sandbox_id):
        """One that is there already."""
        return AsyncSandbox(self, (await self._sandbox.Get(pb.SandboxServiceGetRequest(sandbox_id=sandbox_id))).sandbox.id)

    def sandboxes(self, *, labels=None, ended=False):
        """All SandboxInfo with these labels, of those that live or, with ended, of all that are known."""
        request = pb.SandboxServiceListRequest(include_ended=ended)
        fill_labels(request, labels)
        return pages(self._sandbox.List, request, "sandboxes", SandboxInfo.of)

    # --- snapshots, functions, templates ------------------------------------------------------------

    def snapshots(self, *, labels=None):
        request = pb.SnapshotServiceListRequest()
        fill_labels(request, labels)
        return pages(self._snapshot.List, request, "snapshots", Snapshot.of)

    async def delete_snapshot(self, name):
        """By its name or id.  A function is one, too."""
        await self._snapshot.Delete(pb.SnapshotServiceDeleteRequest(snapshot=name))

    async def create_function(self, name, source, *, entry="", language="python", template="", snapshot="", replace=False, timeout=0, keep=0,
                        vcpus=0, memory_mib=0, disk_mib=0, net=(), labels=None):
        """Load source once and keep it: a Function, whose calls run in copies of that.  What the source raises is CodeFailed."""
        request = pb.FunctionServiceCreateRequest(name=name, source=source, entry=entry, language=language_of(language),
                                                  template=template, snapshot=snapshot, replace=replace,
                                                  timeout_ns=int(timeout * SECOND), keep_ns=int(keep * SECOND))
        fill_room(request, vcpus, memory_mib, disk_mib, net, labels)
        answer = await self._function.Create(request, (timeout or LOADING) + TIMEOUT)
        if not answer.HasField("function"):
            raise _code_failed(answer)
        return AsyncFunction(self, answer.function.name)

    def function(self, name):
        """One that was made before, by anybody of this tenant; nothing is asked until it is called."""
        return AsyncFunction(self, name)

    def templates(self):
        return pages(self._template.List, pb.TemplateServiceListRequest(), "templates",
                           lambda t: Template(t.name, t.driver, t.warm, t.workers))


class AsyncFunction:
    """Called as if it were here: arguments and result are what JSON has."""

    def __init__(self, client, name):
        self._client, self.name = client, name

    async def __call__(self, *args, **kwargs):
        return await self.call(*args, **kwargs)

    async def call(self, *args, timeout=0, entry="", **kwargs):
        """As calling it, with a time limit in seconds (0 = 60), or another of its entries.  What it raises is CodeFailed."""
        if args and kwargs:
            raise TypeError("arguments go by place or by name, not both")
        request = pb.CallRequest(function=self.name, entry=entry, timeout_ns=int(timeout * SECOND),
                                 arguments=json.dumps(kwargs or list(args), allow_nan=False))
        answer = await self._client._function.Call(request, (timeout or CALLING) + TIMEOUT)
        if answer.outcome != pb.CELL_OUTCOME_OK:
            raise _code_failed(answer)
        return json.loads(answer.result)

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r})"


def _code_failed(answer):
    error = CodeError.of(answer.error) if answer.HasField("error") else None
    return CodeFailed(name_of("CellOutcome", answer.outcome), answer.message, error, answer.stdout, answer.stderr)


class _Job:
    """One job from its admission to its end."""

    def __init__(self, service, spec, stdin, output):
        self._service, self._stdin, self._output, self._writer = service, stdin, output, Writer()
        self._request = pb.RunRequest(spec=spec, idempotency_key=str(uuid.uuid4()))
        self._id, self._attempt, self._result = "", 0, None

    async def run(self):
        try:
            async for event in follow(self._open, self._writer):
                kind = event.WhichOneof("event")
                getattr(self, f"_on_{kind}")(getattr(event, kind))
        except BaseException:
            await self._cancel()
            raise
        if self._result is None:
            raise Error("PEER", f"the stream of {self._id or 'a job'} ended before the job")
        return self._result

    async def _cancel(self):
        """Who leaves the stream that it began with has cancelled it; who left another one has not."""
        if self._id:
            with contextlib.suppress(Error):
                await self._service.Cancel(pb.CancelRequest(job_id=self._id))

    def _open(self):
        if not self._id:
            return self._service.Run(self._request)
        return self._service.Watch(pb.WatchRequest(job_id=self._id, attempt=self._attempt, **self._output.offsets))

    def _on_accepted(self, accepted):
        self._id = accepted.job_id
        if self._stdin is not None:
            self._writer.begin(self._write)

    def _on_started(self, started):
        if self._attempt not in (0, started.attempt):
            self._output.restart()
        self._attempt = started.attempt

    def _on_output(self, output):
        self._output.take(output)

    def _on_ended(self, end):
        self._result = Result.of(end.result, self._output)

    async def _write(self):
        async def messages():
            yield pb.WriteStdinRequest(job_id=self._id)
            async for piece in chunks(self._stdin):
                yield pb.WriteStdinRequest(data=piece)
            yield pb.WriteStdinRequest(eof=True)
        await self._service.WriteStdin(messages())
