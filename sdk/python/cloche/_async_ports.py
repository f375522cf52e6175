"""Connections to programs that listen in a sandbox, in an event loop (docs/ports.md)."""
import asyncio
import contextlib
import socket

import grpc

from ._wire import pb
from .errors import Error, from_grpc

PIECE = 64 << 10
_running = set()  # tasks that nobody else holds


async def connect(service, sandbox_id, port):
    """(reader, writer) of one end of a pair of sockets, whose other end is passed on."""
    here, there = socket.socketpair()
    try:
        await _begin(service, sandbox_id, port, *await asyncio.open_connection(sock=there))
    except Error:
        here.close()
        raise
    return await asyncio.open_connection(sock=here)


async def forward(service, sandbox_id, port, address):
    async def pass_on(reader, writer):
        with contextlib.suppress(Error):  # who connects sees it closed at once, as where nobody listens
            await _begin(service, sandbox_id, port, reader, writer)
    return Forward(await asyncio.start_server(pass_on, *address))


class Forward:
    """A port here that leads to one in a sandbox, until close() or the end of its block; `address` is (host, port)."""

    def __init__(self, server):
        self._server, self.address = server, server.sockets[0].getsockname()[:2]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.close()

    async def close(self):
        """Nobody else may connect; who is connected stays so."""
        self._server.close()


async def _begin(service, sandbox_id, port, reader, writer):
    """Returns when the program's kernel took the connection."""
    async def requests():
        yield pb.ConnectRequest(sandbox_id=sandbox_id, port=port)
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                yield pb.ConnectRequest(data=data)
        yield pb.ConnectRequest(eof=True)

    call = service.Connect(requests())
    answers = call.__aiter__()
    try:
        await answers.__anext__()
    except (grpc.RpcError, StopAsyncIteration) as err:
        writer.close()
        raise from_grpc(err) if isinstance(err, grpc.RpcError) else Error("PEER", "the connection ended before it began") from None
    task = asyncio.ensure_future(_answers(call, answers, writer))
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _answers(call, answers, writer):
    try:
        async for answer in answers:
            writer.write(answer.data)
            await writer.drain()
            if answer.eof:
                writer.write_eof()
    except (grpc.RpcError, OSError):
        pass  # a reset, in either direction: the socket is closed
    finally:
        call.cancel()
        writer.close()
