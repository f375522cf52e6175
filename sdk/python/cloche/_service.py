"""The services of cloche.v1 on one channel."""
import grpc

from ._wire import PACKAGE, POOL, class_of
from .errors import from_grpc

TIMEOUT = 60  # s of a call that answers once, as of `cloche`


class Service:
    """Its methods by their names, called with a request, or with an iterator of them, and a time limit in seconds.

    One that answers once raises Error; one that answers with a stream gives gRPC's, which raises RpcError.
    """

    def __init__(self, channel, metadata, name):
        full = f"{PACKAGE}.{name}"
        for method in POOL.FindServiceByName(full).methods:
            kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
            call = getattr(channel, kind)(f"/{full}/{method.name}",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=class_of(method.output_type).FromString)
            setattr(self, method.name, _stream(call, metadata) if method.server_streaming else
                    _answer(call, metadata, None if method.client_streaming else TIMEOUT))


def _stream(call, metadata):
    return lambda request: call(request, metadata=metadata)


def _answer(call, metadata, limit):
    def ask(request, timeout=limit):
        try:
            return call(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as err:
            raise from_grpc(err) from None
    return ask
