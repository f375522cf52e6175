#!/usr/bin/env python3
"""The interop cases of grpc/doc/interop-test-descriptions.md with grpcio against interop_server.

usage: interop_client.py PORT GEN_DIR [CA]   (GEN_DIR holds interop_pb2.py)
Prints one line a case; exits 1 when one fails.
"""
import concurrent.futures
import sys
import threading
import time
import traceback

import grpc

sys.path.insert(0, sys.argv[2])
import interop_pb2 as pb  # noqa: E402
import health_pb2 as hpb  # noqa: E402

CASES = []


def case(fn):
    CASES.append(fn)
    return fn


class Stub:
    def __init__(self, channel):
        def method(kind, name, req, resp, service="grpc.testing.TestService"):
            return getattr(channel, kind)(
                f"/{service}/{name}", request_serializer=req.SerializeToString,
                response_deserializer=resp.FromString)
        out_req, out_resp = pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse
        self.channel = channel
        self.empty = method("unary_unary", "EmptyCall", pb.Empty, pb.Empty)
        self.unary = method("unary_unary", "UnaryCall", pb.SimpleRequest, pb.SimpleResponse)
        self.output = method("unary_stream", "StreamingOutputCall", out_req, out_resp)
        self.input = method("stream_unary", "StreamingInputCall", pb.StreamingInputCallRequest,
                            pb.StreamingInputCallResponse)
        self.duplex = method("stream_stream", "FullDuplexCall", out_req, out_resp)
        self.no_method = method("unary_unary", "UnimplementedCall", pb.Empty, pb.Empty)
        self.no_service = method("unary_unary", "UnimplementedCall", pb.Empty, pb.Empty,
                                 "grpc.testing.UnimplementedService")
        self.check = method("unary_unary", "Check", hpb.HealthCheckRequest,
                            hpb.HealthCheckResponse, "grpc.health.v1.Health")
        self.watch = method("unary_stream", "Watch", hpb.HealthCheckRequest,
                            hpb.HealthCheckResponse, "grpc.health.v1.Health")


def payload(n):
    return pb.Payload(body=b"\0" * n)


def expect(code, fn, details=None):
    try:
        fn()
    except grpc.RpcError as e:
        assert e.code() == code, (e.code(), e.details())
        if details is not None:
            assert e.details() == details, repr(e.details())
        return e
    raise AssertionError(f"wanted {code}, got OK")


@case
def empty_unary(s):
    assert s.empty(pb.Empty()) == pb.Empty()


@case
def large_unary(s):
    r = s.unary(pb.SimpleRequest(response_size=314159, payload=payload(271828)))
    assert len(r.payload.body) == 314159


@case
def client_compressed_unary(s):
    yes, no = pb.BoolValue(value=True), pb.BoolValue(value=False)
    req = dict(response_size=314159, payload=payload(271828))
    expect(grpc.StatusCode.INVALID_ARGUMENT,
           lambda: s.unary(pb.SimpleRequest(expect_compressed=yes, **req)))
    r = s.unary(pb.SimpleRequest(expect_compressed=yes, **req), compression=grpc.Compression.Gzip)
    assert len(r.payload.body) == 314159
    r = s.unary(pb.SimpleRequest(expect_compressed=no, **req))
    assert len(r.payload.body) == 314159


@case
def server_compressed_unary(s):
    for on in (True, False):
        r = s.unary(pb.SimpleRequest(response_size=314159, payload=payload(271828),
                                     response_compressed=pb.BoolValue(value=on)))
        assert len(r.payload.body) == 314159


@case
def client_streaming(s):
    reqs = [pb.StreamingInputCallRequest(payload=payload(n)) for n in (27182, 8, 1828, 45904)]
    assert s.input(iter(reqs)).aggregated_payload_size == 74922


@case
def client_compressed_streaming(s):
    yes = pb.BoolValue(value=True)
    expect(grpc.StatusCode.INVALID_ARGUMENT, lambda: s.input(iter(
        [pb.StreamingInputCallRequest(payload=payload(27182), expect_compressed=yes)])))
    reqs = [pb.StreamingInputCallRequest(payload=payload(n), expect_compressed=yes)
            for n in (27182, 45904)]
    r = s.input(iter(reqs), compression=grpc.Compression.Gzip)
    assert r.aggregated_payload_size == 73086


def outputs(*sizes, compressed=None):
    return pb.StreamingOutputCallRequest(response_parameters=[
        pb.ResponseParameters(size=n, compressed=compressed) for n in sizes])


@case
def server_streaming(s):
    sizes = (31415, 9, 2653, 58979)
    assert tuple(len(r.payload.body) for r in s.output(outputs(*sizes))) == sizes


@case
def server_compressed_streaming(s):
    req = outputs(31415, 92653, compressed=pb.BoolValue(value=True))
    assert [len(r.payload.body) for r in s.output(req)] == [31415, 92653]


@case
def ping_pong(s):
    lock = threading.Semaphore(0)
    pairs = [(31415, 27182), (9, 8), (2653, 1828), (58979, 45904)]

    def requests():
        for out, body in pairs:
            req = outputs(out)
            req.payload.CopyFrom(payload(body))
            yield req
            lock.acquire()
    got = []
    for r in s.duplex(requests()):
        got.append(len(r.payload.body))
        lock.release()
    assert got == [p[0] for p in pairs]


@case
def empty_stream(s):
    assert list(s.duplex(iter([]))) == []


@case
def custom_metadata(s):
    md = (("x-grpc-test-echo-initial", "test_initial_metadata_value"),
          ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"))

    def check(initial, trailing):
        assert ("x-grpc-test-echo-initial", "test_initial_metadata_value") in initial, initial
        assert ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab") in trailing, trailing
    _, call = s.unary.with_call(pb.SimpleRequest(response_size=1), metadata=md)
    check(call.initial_metadata(), call.trailing_metadata())
    stream = s.duplex(iter([outputs(314159)]), metadata=md)
    assert [len(r.payload.body) for r in stream] == [314159]
    check(stream.initial_metadata(), stream.trailing_metadata())


@case
def status_code_and_message(s):
    st = pb.EchoStatus(code=2, message="test status message")
    expect(grpc.StatusCode.UNKNOWN, lambda: s.unary(pb.SimpleRequest(response_status=st)),
           "test status message")
    expect(grpc.StatusCode.UNKNOWN, lambda: list(s.duplex(iter(
        [pb.StreamingOutputCallRequest(response_status=st)]))), "test status message")


@case
def special_status_message(s):
    text = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001F608\t\n"
    expect(grpc.StatusCode.NOT_FOUND, lambda: s.unary(pb.SimpleRequest(
        response_status=pb.EchoStatus(code=5, message=text))), text)


@case
def unimplemented_method(s):
    e = expect(grpc.StatusCode.UNIMPLEMENTED, lambda: s.no_method(pb.Empty()))
    details = dict(e.trailing_metadata())["grpc-status-details-bin"]
    assert b"google.rpc.ErrorInfo" in details and b"UNIMPL" in details, details


@case
def unimplemented_service(s):
    expect(grpc.StatusCode.UNIMPLEMENTED, lambda: s.no_service(pb.Empty()))


def waiting(event):
    event.wait(10)
    return
    yield


@case
def cancel_after_begin(s):
    hold = threading.Event()
    f = s.input.future(waiting(hold))
    f.cancel()
    hold.set()
    assert f.code() == grpc.StatusCode.CANCELLED


@case
def cancel_after_first_response(s):
    hold = threading.Event()

    def requests():
        yield outputs(31415)
        hold.wait(10)
    stream = s.duplex(requests())
    assert len(next(stream).payload.body) == 31415
    stream.cancel()
    hold.set()
    expect(grpc.StatusCode.CANCELLED, lambda: next(stream))


@case
def timeout_on_sleeping_server(s):
    hold = threading.Event()

    def requests():
        yield pb.StreamingOutputCallRequest(payload=payload(27182))
        hold.wait(10)
    expect(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: list(s.duplex(requests(), timeout=0.001)))
    hold.set()


@case
def server_deadline(s):
    hold = threading.Event()

    def requests():
        yield pb.StreamingOutputCallRequest(payload=payload(10))
        hold.wait(10)
    start = time.time()
    expect(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: list(s.duplex(requests(), timeout=0.2)))
    hold.set()
    assert time.time() - start < 5


@case
def concurrent_large_unary(s):
    def one(_):
        return len(s.unary(pb.SimpleRequest(response_size=314159, payload=payload(271828))).payload.body)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert set(pool.map(one, range(200))) == {314159}


@case
def too_big_both_ways(s):
    expect(grpc.StatusCode.RESOURCE_EXHAUSTED,
           lambda: s.unary(pb.SimpleRequest(response_size=1, payload=payload(5 << 20))))
    expect(grpc.StatusCode.RESOURCE_EXHAUSTED,
           lambda: s.unary(pb.SimpleRequest(response_size=5 << 20)))
    s.empty(pb.Empty())


@case
def rpc_soak(s):
    for _ in range(1000):
        s.empty(pb.Empty())


@case
def channel_soak(s):
    for _ in range(20):
        with make_channel() as channel:
            Stub(channel).empty(pb.Empty())


@case
def health(s):
    assert s.check(hpb.HealthCheckRequest()).status == 1
    assert s.check(hpb.HealthCheckRequest(service="grpc.testing.TestService")).status == 1
    expect(grpc.StatusCode.NOT_FOUND, lambda: s.check(hpb.HealthCheckRequest(service="nope")))
    w = s.watch(hpb.HealthCheckRequest(service="nope"))
    assert next(w).status == 3
    w.cancel()
    w = s.watch(hpb.HealthCheckRequest())
    assert next(w).status == 1
    w.cancel()


def make_channel():
    target = f"localhost:{sys.argv[1]}"
    if len(sys.argv) > 3:
        with open(sys.argv[3], "rb") as f:
            return grpc.secure_channel(target, grpc.ssl_channel_credentials(f.read()))
    return grpc.insecure_channel(target)


def main():
    failed = 0
    with make_channel() as channel:
        stub = Stub(channel)
        for fn in CASES:
            try:
                fn(stub)
                print("ok", fn.__name__, flush=True)
            except Exception:  # a failed case must not hide the next
                failed += 1
                print("FAILED", fn.__name__, flush=True)
                traceback.print_exc()
    print(f"{len(CASES) - failed} of {len(CASES)} cases pass")
    sys.exit(1 if failed else 0)


main()
