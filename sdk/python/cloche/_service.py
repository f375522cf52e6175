"""The services of cloche.v1 on a channel of grpc or of grpc.aio."""
from ._wire import PACKAGE, POOL, class_of


class Service:
    """Its methods by their names, called with a request, or with an iterator of them, and a time limit in seconds.

    One that answers once (ask, write: how it is called) raises Error; one that answers with a stream gives gRPC's, which raises RpcError.
    """

    def __init__(self, channel, metadata, name, ask, write, stream):
        full = f"{PACKAGE}.{name}"
        for method in POOL.FindServiceByName(full).methods:
            kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
            call = getattr(channel, kind)(f"/{full}/{method.name}",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=class_of(method.output_type).FromString)
            setattr(self, method.name, {"unary_unary": ask, "stream_unary": write}.get(kind, stream)(call, metadata))
