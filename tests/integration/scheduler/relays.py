#!/usr/bin/env python3
"""A worker's last word on a relay is what its client hears, whatever is still on its way to that worker, and whether it reads it or not."""
import concurrent.futures
import queue
import time

import pause
from made_up_worker import Cluster, grpc, pb, until, wpb
from harness import Suite, code_of
from pause import Box

suite = Suite("relays")
check, equal = suite.check, suite.equal
pause.equal = equal
KIB = 1024
SENT = 200 * KIB  # more than HTTP/2's window, so that the end of the call waits behind it; less than a call queues
CALLS = {
    "a connection": (lambda c: c.ports.Connect, lambda box, data: pb.ConnectRequest(sandbox_id=box, port=7, data=data)),
    "a file": (lambda c: c.files.Write, lambda box, data: pb.WriteRequest(sandbox_id=box, path="/tmp/f", data=data)),
    "a command's stdin": (lambda c: c.execs.WriteStdin,
                          lambda box, data: pb.ExecServiceWriteStdinRequest(sandbox_id=box, exec_id="exe_" + 26 * "0", data=data)),
}


def outcome(method, messages):
    """(status, text) of a call, whether its answer is one message or a stream."""
    try:
        answer = method(messages, timeout=30)
        return "OK", list(answer) if isinstance(answer, grpc.Call) else answer
    except grpc.RpcError as err:
        return code_of(err), err.details()


def refused(s, what, box, more):
    """(status, text, seconds since the worker's last word) of a call whose worker reads nothing and refuses."""
    method, message = CALLS[what]
    s.w.relay_speaks.clear()
    out, opened = queue.Queue(), len(s.w.opened)
    out.put(message(box.id, bytes(SENT)))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(outcome, method(s.client), iter(out.get, None))
        check(f"{what}: the worker is asked", until(lambda: len(s.w.opened) > opened, 10))
        time.sleep(0.3)
        began = time.monotonic()
        s.w.relay_speaks.set()
        if more:
            time.sleep(0.3)
            out.put(message(box.id, bytes(KIB)))
        code, text = call.result()
        out.put(None)
    return code, text, time.monotonic() - began


@suite.scenario
def what_the_worker_says_is_what_the_client_hears(c):
    with pause.Scene(c, "relays", sandboxes=8) as s:
        s.w.relay_says = wpb.RelayDone(code=9, message="no such thing\nlook again")
        box = Box(s.client)
        for what in CALLS:
            for more in (False, True):
                code, text, took = refused(s, what, box, more)
                equal(f"{what}, {'with more' if more else 'nothing'} sent meanwhile", (code, text.split("\n")[0]), ("FAILED_PRECONDITION", "no such thing"))
                check("... at once", took < 15, took)


if __name__ == "__main__":
    suite.main(cluster=Cluster)
