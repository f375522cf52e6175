"""How calls are made by threads that wait for them; _async_io.py has the same for an event loop."""
import contextlib
import threading
import time

import grpc

from . import _sync_ports as ports  # noqa: F401
from ._service import Service
from .errors import Error, from_grpc

CHUNK = 512 << 10  # bytes a message
TIMEOUT = 60       # s of a call that answers once, as of `cloche`
sleep = time.sleep


class Connection:
    """A channel, which is up."""

    def __init__(self, where, timeout):
        self._channel, self._metadata = where.channel(grpc), where.metadata
        try:
            grpc.channel_ready_future(self._channel).result(timeout)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise where.nobody() from None

    def ready(self):
        pass

    def close(self):
        self._channel.close()

    def service(self, name):
        return Service(self._channel, self._metadata, name, _ask, _write, _stream)


def _stream(call, metadata):
    return lambda request: call(request, metadata=metadata)


def _ask(call, metadata):
    def ask(request, timeout=TIMEOUT):
        try:
            return call(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as err:
            raise from_grpc(err) from None
    return ask


def _write(call, metadata):
    def write(messages):
        spoiled = []

        def kept():
            try:
                yield from messages
            except Exception as err:
                spoiled.append(err)
                raise
        try:
            return call(kept(), metadata=metadata)
        except grpc.RpcError as err:
            raise spoiled[0] if spoiled else from_grpc(err) from None
    return write


def chunks(data):
    """Bytes, a text, or a file that is open for reading, in pieces."""
    if hasattr(data, "read"):
        while piece := data.read(CHUNK):
            yield piece.encode() if isinstance(piece, str) else piece
        return
    view = memoryview(data.encode() if isinstance(data, str) else data)
    for at in range(0, len(view), CHUNK):
        yield bytes(view[at:at + CHUNK])


class Writer:
    """Writes the input of what is followed, beside that.  What reading it raises ends both."""

    def __init__(self):
        self._follower, self.spoiled = None, None

    def begin(self, write):
        threading.Thread(target=self._run, args=(write,), daemon=True).start()

    def _run(self, write):
        try:
            with contextlib.suppress(Error):  # who does not read it may end first: how it ended is told to who follows
                write()
        except Exception as err:
            self.spoiled = err
            if self._follower:
                self._follower.cancel()

    def is_followed_by(self, stream):
        self._follower = stream
        if self.spoiled:
            stream.cancel()
