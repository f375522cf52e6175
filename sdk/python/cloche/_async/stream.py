"""Following what runs: its output, from where we were, over takeovers; and its input."""
import time

import grpc

from .._async_io import sleep
from .._wire import name_of, pb
from ..errors import Error, from_grpc
from ..results import SECOND, Cell, CodeError, CodeResult

PATIENCE = 120.0  # s without a word from any scheduler until a stream is given up
PAUSE = 0.2       # s between tries


def command(argv, *, env=None, cwd="", user="", timeout=0, output_max=0, stdin=False, pty=None):
    if isinstance(argv, str):
        argv = ["sh", "-c", argv]
    message = pb.Command(argv=list(argv), cwd=cwd, user=user, timeout_ns=int(timeout * SECOND), output_max_bytes=output_max, open_stdin=stdin)
    fill_env(message, env)
    if pty:
        message.pty.rows, message.pty.columns = pty
    return message


def fill_env(message, env):
    for name, value in (env or {}).items():
        message.env.add(name=name, value=value)


def fill_labels(message, labels):
    for key, value in (labels or {}).items():
        message.labels.add(key=key, value=value)


def fill_room(message, vcpus=0, memory_mib=0, disk_mib=0, net=(), labels=None):
    """What a job, a sandbox and a function are given."""
    if vcpus or memory_mib or disk_mib:
        message.resources.vcpus, message.resources.memory_mib, message.resources.disk_mib = vcpus, memory_mib, disk_mib
    if net:
        message.network_grant.allow.extend([net] if isinstance(net, str) else net)
    fill_labels(message, labels)


async def pages(method, request, field, of):
    """Of answers that come page by page."""
    while True:
        page = await method(request)
        for row in getattr(page, field):
            yield of(row)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


class Output:
    """Both streams so far.  Where a listener is given it hears each piece as it comes; kept is what there is memory for."""

    def __init__(self, on_stdout=None, on_stderr=None, *, keep=True):
        self.stdout, self.stderr, self._keep = bytearray(), bytearray(), keep
        self._listeners = {pb.STREAM_STDOUT: on_stdout, pb.STREAM_STDERR: on_stderr}
        self._taken = {pb.STREAM_STDOUT: 0, pb.STREAM_STDERR: 0}

    def take(self, output):
        self._taken[output.stream] += len(output.data)
        if self._keep:
            kept = self.stderr if output.stream == pb.STREAM_STDERR else self.stdout
            kept += output.data
        listener = self._listeners[output.stream]
        if listener:
            listener(output.data)

    def restart(self):
        """Another attempt begins; what the one before said does not count."""
        self.stdout.clear()
        self.stderr.clear()
        self._taken = dict.fromkeys(self._taken, 0)

    @property
    def offsets(self):
        """Where a stream that is cut off goes on, as fields of the request for it."""
        return {"stdout_offset": self._taken[pb.STREAM_STDOUT], "stderr_offset": self._taken[pb.STREAM_STDERR]}


async def follow(open_next, writer):
    """The events of what goes on when its stream is cut off.  open_next gives a stream from what was seen so far; writer: of its input."""
    cut_since = None
    while True:
        stream = open_next()
        writer.is_followed_by(stream)
        try:
            async for event in stream:
                cut_since = None
                yield event
            return
        except BaseException as err:
            if writer.spoiled:
                raise writer.spoiled from None
            if not isinstance(err, grpc.RpcError):
                raise
            error = from_grpc(err)
        finally:
            stream.cancel()
        cut_since = cut_since or time.monotonic()
        if error.code != "UNAVAILABLE" or time.monotonic() - cut_since > PATIENCE:
            raise error
        await sleep(PAUSE)


class CellReader:
    """One cell's stream, made a Cell."""

    def __init__(self, on_stdout, on_stderr, on_result):
        self._output, self._on_result = Output(on_stdout, on_stderr), on_result
        self._context, self._results, self._error = "", [], None

    async def read(self, stream):
        try:
            async for event in stream:
                kind = event.WhichOneof("event")
                if kind == "ended":
                    return self._cell(event.ended)
                self._take(kind, getattr(event, kind))
        except grpc.RpcError as err:
            raise from_grpc(err) from None
        finally:
            stream.cancel()
        raise Error("PEER", "the stream of a cell ended before the cell")

    def _take(self, kind, event):
        if kind == "started":
            self._context = event.context_id
        elif kind == "output":
            self._output.take(event)
        elif kind == "error":
            self._error = CodeError.of(event)
        elif kind == "result":
            self._results.append(CodeResult({d.mime_type: d.data for d in event.data}, event.is_main_result))
            if self._on_result:
                self._on_result(self._results[-1])

    def _cell(self, end):
        return Cell(name_of("CellOutcome", end.outcome), end.message, end.execution_count, end.wall_ns / SECOND, self._context,
                    self._results, self._error, bytes(self._output.stdout), bytes(self._output.stderr))
