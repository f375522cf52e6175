"""A scheduler without clients or books: it speaks its side of WorkerService, and asks a real worker for what the test says.

A unit it assigned is in `started`, and once it ended in `ended`; `idle` has the leases whose time to live passed, `changed` the commands that ended.
"""
import os
import pathlib
import queue
import shutil
import sys
import tempfile
import threading
import time
from concurrent import futures

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "e2e"))
import harness  # noqa: E402
from harness import SECOND, grpc, pb, until  # noqa: E402

harness.generate_messages()  # with those of workers, which no client has
from cloche.v1 import worker_pb2  # noqa: E402

wpb = worker_pb2
MINOR = 4


class Relay:
    """One call that the worker dialed back with; `done` is its RelayDone."""

    def __init__(self):
        self.out, self.here = queue.Queue(), threading.Event()
        self.may_read, self.over = threading.Event(), threading.Event()
        self.may_read.set()
        self.connected, self.data, self.eof, self.cell_ended = False, b"", False, False
        self.done, self.context = None, None

    def take(self, requests):
        try:
            for m in requests:
                self.connected |= m.connected
                self.data += m.data
                self.eof |= m.eof
                self.cell_ended |= m.cell.HasField("ended")
                self.done = m.done if m.HasField("done") else self.done
                self.may_read.wait()
        except Exception:  # the call has ended
            pass
        self.over.set()

    def send(self, data=b"", eof=False):
        self.out.put(wpb.RelayResponse(data=data, eof=eof))

    def leave(self):
        """As a client that goes away."""
        self.context.cancel()

    def awaits(self, what, seconds=20):
        return until(lambda: what(self), seconds)

    def end(self, seconds=30):
        """Its code and text, once it is done."""
        self.awaits(lambda r: r.done is not None, seconds)
        self.out.put(None)
        return (self.done.code, self.done.message) if self.done else None


class Scheduler:
    SELF_KILL_NS = 600 * SECOND

    def __init__(self, *args, name="dials", uids=0):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cloche-made-up."))
        self.dir.chmod(0o711)
        self.out, self.relays, self.answers, self.assigned = queue.Queue(), {}, {}, {}
        self.started, self.ended, self.idle, self.changed, self.n = {}, {}, [], [], 0
        self.hello, self.mark = threading.Event(), f"{name}-{os.getpid()}"
        self.running, self.renewed, self.lost = {}, {}, set()  # by lease: as Hello had it; (time, as its newest renewal had it); to be lost
        self.server = grpc.server(futures.ThreadPoolExecutor(160))
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port(f"unix:{self.dir}/worker.sock")
        self.server.start()
        self._stage()
        state = self.dir / "worker"
        state.mkdir()
        argv = [harness.BUILD / "cloche-worker", "--scheduler", f"unix:{self.dir}/worker.sock", "--state-dir", state,
                "--template-dir", harness.IMAGES, "--template-key", self.dir / "signing.pub", "--templates", "base",
                "--instance", self.mark, "--warm", 1, "--slots", 0, "--vcpus", 8, "--memory", "4GiB",
                "--network=no", "--vm-uid-base", 0x71000000 + harness.uid_slot() * 0x10000 + uids,
                "--driver", harness.isolating_drivers(), *args]
        (self.dir / "log").mkdir()
        self.state_dir, self.worker = state, harness.Process(self, "worker", argv)
        self.start()

    def start(self):
        self.hello.clear()
        self.worker.start()
        if not self.hello.wait(30):
            raise RuntimeError(harness.read_text(self.worker.log))

    def _stage(self):
        if not (harness.IMAGES / "base" / "current" / "manifest.json").exists():
            shutil.rmtree(self.dir)
            harness.skip(f"no images in {harness.IMAGES}")
        shutil.copy(harness.IMAGES / "signing.pub", self.dir / "signing.pub")

    # --- the service

    def service(self, details):
        kind = details.method.rsplit("/", 1)[1]
        request = wpb.SessionRequest if kind == "Session" else wpb.RelayRequest
        return grpc.stream_stream_rpc_method_handler(self._session if kind == "Session" else self._relay,
                                                     request_deserializer=request.FromString,
                                                     response_serializer=lambda m: m.SerializeToString())

    def _session(self, requests, context):
        out = self.out = queue.Queue()
        context.add_callback(lambda: out.put(None))
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()
        yield from iter(out.get, None)

    def _read(self, requests):
        try:
            for m in requests:
                getattr(self, f"_on_{m.WhichOneof('body')}", lambda m: None)(getattr(m, m.WhichOneof("body")))
        except Exception:  # the session has ended
            pass

    def _relay(self, requests, context):
        relay = self.relays[next(requests).relay_id]
        relay.context = context
        context.add_callback(lambda: relay.out.put(None))
        threading.Thread(target=relay.take, args=(requests,), daemon=True).start()
        relay.here.set()
        yield from iter(relay.out.get, None)

    def _on_hello(self, m):
        self.running = {u.lease_id: u for u in m.running}
        self.send(hello=wpb.SchedulerHello(protocol_major=1, protocol_minor=MINOR, scheduler_id="made-up",
                                           lease_ttl_ns=600 * SECOND, renew_every_ns=SECOND, self_kill_ns=self.SELF_KILL_NS))
        self.hello.set()

    def _on_renew(self, m):
        self.renewed.update({u.lease_id: (time.monotonic(), u) for u in m.leases})
        self.send(renew_ack=wpb.RenewAck(lease_ids=[u.lease_id for u in m.leases if u.lease_id not in self.lost],
                                         lost_lease_ids=[u.lease_id for u in m.leases if u.lease_id in self.lost],
                                         asked_ns=m.asked_ns))

    def _on_started(self, m):
        self.started[m.lease_id] = m

    def _on_ended(self, m):
        self.ended[m.lease_id] = m
        self.send(ended_ack=wpb.EndedAck(lease_id=m.lease_id, fence=m.fence))

    def _on_idle(self, m):
        self.idle.append(m.lease_id)

    def _on_exec_changed(self, m):
        self.changed.append(m)

    def _on_exec(self, m):
        self.answers[m.request] = m

    # --- what a test asks for

    def send(self, **body):
        self.out.put(wpb.SessionResponse(**body))

    def number(self):
        self.n += 1
        return self.n

    def sandbox(self, ttl=300, lease=None, template="base", memory_mib=256, **kw):
        """The id of a sandbox that runs; its lease has the same, unless it is said."""
        unit = f"sbx_{self.number():026}"
        lease = lease or unit
        assign = dict(kind=wpb.UNIT_KIND_SANDBOX, tenant="t", unit_id=unit, lease_id=lease, fence=1, attempt=1, template=template,
                      resources=pb.Resources(vcpus=1, memory_mib=memory_mib), ttl_ns=int(ttl * SECOND),
                      guest_separation=pb.GUEST_SEPARATION_SHARED if harness.IS_SHARED else pb.GUEST_SEPARATION_ISOLATED, **kw)
        self.assigned[unit] = wpb.Assign(**assign)
        self.send(assign=self.assigned[unit])
        if not until(lambda: lease in self.started or lease in self.ended, 30) or lease in self.ended:
            raise RuntimeError(f"it does not start: {self.ended.get(lease)}")
        return unit

    def ask(self, unit, seconds=30, **what):
        request = self.number()
        self.send(exec=wpb.ExecCommand(request=request, unit_id=unit, **what))
        until(lambda: request in self.answers, seconds)
        return self.answers.get(request)

    def run(self, unit, *argv):
        start = wpb.ExecStartCommand(exec_id=f"exec_{self.number():026}", command=pb.Command(argv=argv, timeout_ns=600 * SECOND))
        answer = self.ask(unit, start=start)
        if answer is None or answer.code:
            raise RuntimeError(f"it does not start: {answer}")
        return start.exec_id

    def relay(self, unit, kind=Relay, **what):
        name, relay = f"relay-{self.number()}", kind()
        self.relays[name] = relay
        self.send(open_relay=wpb.OpenRelay(relay_id=name, unit_id=unit, **what))
        if not relay.here.wait(20):
            raise RuntimeError("no relay was dialed")
        return relay

    def read_file(self, unit, path):
        relay = self.relay(unit, read=wpb.RelayRead(path=path, user="user"))
        return relay.data if relay.end() == (0, "") else None

    def end(self, unit):
        self.send(end=wpb.EndUnit(lease_id=unit, fence=1))
        return until(lambda: unit in self.ended, 30)

    def stop(self):
        """The worker's exit status; what it and its guests said is told when that is not 0."""
        status = self.worker.stop(60)
        self.server.stop(0)
        if status != 0 or os.environ.get("CLOCHE_KEEP") == "1":
            print(harness.read_text(self.worker.log)[-5000:])
        shutil.rmtree(self.dir, ignore_errors=True)
        return status


def play(suite, s):
    """What a test's arguments name of the suite, or all of it; and the worker's end."""
    s.tails = lambda: harness.read_text(s.worker.log)[-3000:]
    suite.play(s, sys.argv[1:])
    suite.equal("the worker ends in order", s.stop(), 0)
    suite.finish()
