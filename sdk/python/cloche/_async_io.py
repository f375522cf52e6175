"""How calls are made in an event loop; _sync_io.py has the same for threads that wait for them."""
import asyncio
import contextlib

import grpc
import grpc.aio

from . import _async_ports as ports  # noqa: F401
from ._service import Service
from .errors import Error, from_grpc

CHUNK = 512 << 10  # bytes a message
TIMEOUT = 60       # s of a call that answers once, as of `cloche`
sleep = asyncio.sleep


class Connection:
    """A channel, which is up when ready() has returned."""

    def __init__(self, where, timeout):
        self._channel, self._where, self._timeout = where.channel(grpc.aio), where, timeout

    async def ready(self):
        try:
            await asyncio.wait_for(self._channel.channel_ready(), self._timeout)
        except asyncio.TimeoutError:
            await self.close()
            raise self._where.nobody() from None

    async def close(self):
        await self._channel.close()

    def service(self, name):
        return Service(self._channel, self._where.metadata, name, _ask, _write, _stream)


def _stream(call, metadata):
    return lambda request: call(request, metadata=metadata)


def _ask(call, metadata):
    async def ask(request, timeout=TIMEOUT):
        try:
            return await call(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as err:
            raise from_grpc(err) from None
    return ask


def _write(call, metadata):
    async def write(messages):
        spoiled = []

        async def kept():
            try:
                async for message in messages:
                    yield message
            except Exception as err:
                spoiled.append(err)
                raise
        try:
            return await call(kept(), metadata=metadata)
        except (grpc.RpcError, asyncio.CancelledError) as err:
            if spoiled:
                raise spoiled[0] from None
            if isinstance(err, grpc.RpcError):
                raise from_grpc(err) from None
            raise
    return write


async def chunks(data):
    """Bytes, a text, a file that is open for reading, or an async iterable of bytes, in pieces."""
    if hasattr(data, "__aiter__"):
        async for piece in data:
            async for part in chunks(piece):
                yield part
        return
    if hasattr(data, "read"):
        while piece := await asyncio.to_thread(data.read, CHUNK):
            yield piece.encode() if isinstance(piece, str) else piece
        return
    view = memoryview(data.encode() if isinstance(data, str) else data)
    for at in range(0, len(view), CHUNK):
        yield bytes(view[at:at + CHUNK])


class Writer:
    """Writes the input of what is followed, beside that.  What reading it raises ends both."""

    def __init__(self):
        self._follower, self._task, self.spoiled = None, None, None

    def begin(self, write):
        self._task = asyncio.ensure_future(self._run(write))

    async def _run(self, write):
        try:
            with contextlib.suppress(Error):  # who does not read it may end first: how it ended is told to who follows
                await write()
        except Exception as err:
            self.spoiled = err
            if self._follower:
                self._follower.cancel()

    def is_followed_by(self, stream):
        self._follower = stream
        if self.spoiled:
            stream.cancel()
