"""Connections to programs that listen in a sandbox, by threads (docs/ports.md)."""
import contextlib
import socket
import threading

import grpc

from ._wire import pb
from .errors import Error, from_grpc

PIECE = 64 << 10


def connect(service, sandbox_id, port):
    """One end of a pair of sockets, whose other end is passed on."""
    here, there = socket.socketpair()
    try:
        _Connection(service, sandbox_id, port, there).begin()
    except Error:
        here.close()
        raise
    return here


def forward(service, sandbox_id, port, address):
    return Forward(service, sandbox_id, port, address)


class Forward:
    """A port here that leads to one in a sandbox, until close() or the end of its block; `address` is (host, port)."""

    def __init__(self, service, sandbox_id, port, address):
        self._to = service, sandbox_id, port
        self._listener = socket.create_server(address)
        self.address = self._listener.getsockname()[:2]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Nobody else may connect; who is connected stays so."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept()
        self._listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client):
        with contextlib.suppress(Error):  # who connects sees it closed at once, as where nobody listens
            _Connection(*self._to, client).begin()


class _Connection:
    """One call of PortService.Connect, and the socket that it is for."""

    def __init__(self, service, sandbox_id, port, there):
        self._there = there
        self._call = service.Connect(self._requests(pb.ConnectRequest(sandbox_id=sandbox_id, port=port)))

    def begin(self):
        """Returns when the program's kernel took the connection."""
        try:
            next(self._call)
        except (grpc.RpcError, StopIteration) as err:
            self._end()
            raise from_grpc(err) if isinstance(err, grpc.RpcError) else Error("PEER", "the connection ended before it began") from None
        threading.Thread(target=self._answers, daemon=True).start()

    def _requests(self, first):
        yield first
        with contextlib.suppress(OSError):
            while data := self._there.recv(PIECE):
                yield pb.ConnectRequest(data=data)
        yield pb.ConnectRequest(eof=True)

    def _answers(self):
        try:
            for answer in self._call:
                self._there.sendall(answer.data)
                if answer.eof:
                    self._there.shutdown(socket.SHUT_WR)
        except (grpc.RpcError, OSError):
            pass  # a reset, in either direction: the socket is closed
        finally:
            self._call.cancel()
            self._end()

    def _end(self):
        with contextlib.suppress(OSError):
            self._there.shutdown(socket.SHUT_RDWR)  # who waits in recv() holds it open
        self._there.close()
