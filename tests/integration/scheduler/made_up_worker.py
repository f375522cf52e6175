"""A worker without VMs: it speaks the worker's side of WorkerService.Session, and answers as the test says.

It starts every unit at once and ends it when told.  What it is asked to do with `exec` commands stands in `asked`;
`answers[kind]` is an ExecAnswer, a function of the command, or None for no answer at all.  Relays take all that comes,
and say how much that was; with `relay_says` they read nothing, and say that when `relay_speaks` is set.
"""
import os
import queue
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "e2e"))
import harness  # noqa: E402
from harness import grpc, pb, until  # noqa: E402

harness.generate_messages()  # with those of workers, which no client has
from cloche.v1 import worker_pb2  # noqa: E402

wpb = worker_pb2
MINOR = 3
LEASE = "180s", "10s", "170s"  # a scheduler that is killed and started again takes ten seconds on a healthy machine, and no renewal comes meanwhile


class Cluster(harness.Cluster):
    """Redis, audit writer and scheduler; made-up workers are the test's."""

    def __init__(self, name, lease=LEASE, **kw):
        super().__init__(name, workers=0, templates="", lease=lease, **kw)

    def _stage_images(self):
        pass


class Worker:
    def __init__(self, cluster, minor=MINOR, worker_id="wrk_" + 26 * "0", forks=True, **load):
        self.target, self.minor, self.id = f"unix:{cluster.dir}/worker.sock", minor, worker_id
        self.load = wpb.WorkerLoad(**{"capacity_vcpu_milli": 64000, "capacity_memory_mib": 65536, "slots": 64, **load})
        self.units, self.ends, self.asked = {}, [], []  # unit id -> RunningUnit, paused or not
        self.assigned, self.acked, self.forks, self.snapshots = [], [], forks, forks
        self.image_bytes, self.answers_ends = 1 << 20, True  # of what it makes at rest; what it is told to end it ends
        self.renewed, self.lost = 0, []  # answers to its renewals; leases that were not its own any more
        self.refuses = {}  # unit that a fork is of -> AssignAnswer, UnitEnded, or "silence"
        self.answers = {kind: wpb.ExecAnswer() for kind in ("pause", "resume", "extend", "list", "signal", "resize", "context", "stats")}
        self.answers["start"] = lambda m: wpb.ExecAnswer(exec_id=m.start.exec_id)
        self.answers["file"] = wpb.ExecAnswer(files=[pb.FileInfo(name="made up")])
        self.relay_says, self.relay_speaks = None, threading.Event()  # RelayDone
        self.opened, self.taken = [], []  # OpenRelay; all bytes of each relay that ended in order
        self.channel, self.quiet = None, False  # quiet: it says no more than its Hello
        self.connect()

    # --- the session

    def connect(self):
        self.out, self.hello, self.over = queue.Queue(), threading.Event(), False
        self.channel = grpc.insecure_channel(self.target, [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65535)])
        session = self.channel.stream_stream("/cloche.v1.WorkerService/Session",
                                             request_serializer=lambda m: m.SerializeToString(),
                                             response_deserializer=wpb.SessionResponse.FromString)
        self.send(hello=wpb.WorkerHello(protocol_major=1, protocol_minor_max=self.minor, build="made up", worker_id=self.id,
                                        hostname="nowhere", driver="none", load=self.load, running=self.units.values(),
                                        guest_separation=pb.GUEST_SEPARATION_ISOLATED, forks=self.forks, snapshots=self.snapshots))
        self.send(load=self.load)
        self.call = session(iter(self.out.get, None))
        self.thread = threading.Thread(target=self._read, args=(self.call,), daemon=True)
        self.thread.start()
        if not self.hello.wait(5):
            raise RuntimeError("the scheduler says no Hello")

    def disconnect(self):
        self.over = True
        self.out.put(None)
        self.call.cancel()
        self.channel.close()
        self.thread.join(10)

    def send(self, **body):
        self.out.put(wpb.SessionRequest(**body))

    def _read(self, call):
        try:
            for m in call:
                if not self.over:
                    getattr(self, f"_on_{m.WhichOneof('body')}")(getattr(m, m.WhichOneof("body")))
        except grpc.RpcError:
            pass

    # --- what it is told

    def _on_hello(self, m):
        self.minor_agreed = m.protocol_minor
        self.hello.set()

    def _on_assign(self, m):
        self.assigned.append(m)
        refusal = self.refuses.get(m.fork_of)
        if isinstance(refusal, wpb.AssignAnswer):
            self.send(assigned=wpb.AssignAnswer(lease_id=m.lease_id, fence=m.fence, refused=refusal.refused, permanent=refusal.permanent))
            return
        self.units[m.unit_id] = wpb.RunningUnit(tenant=m.tenant, unit_id=m.unit_id, lease_id=m.lease_id, fence=m.fence,
                                                driver="none")
        self.send(assigned=wpb.AssignAnswer(lease_id=m.lease_id, fence=m.fence))
        if isinstance(refusal, wpb.UnitEnded):
            self.end(m.unit_id, refusal.result.outcome, refusal.result.reason, refusal.result.message)
        if not refusal:
            self.start(m)

    def start(self, m):
        """What it was told to start runs, or rests."""
        rest = None
        if m.kind == wpb.UNIT_KIND_SNAPSHOT:
            self.rest(m.unit_id, True, self.image_bytes, kept_until=time.time_ns() + m.ttl_ns)
            rest = self.units[m.unit_id]
        self.send(started=wpb.UnitStarted(lease_id=m.lease_id, fence=m.fence, source="warm", vm="vm", image_key="0" * 64,
                                          driver="none", rest=rest))

    def _on_end(self, m):
        self.ends.append(m)
        if not self.answers_ends:
            return
        for u in [u for u in self.units.values() if u.lease_id == m.lease_id]:
            self.end(u.unit_id, pb.OUTCOME_CANCELLED, m.reason)

    def _on_ended_ack(self, m):
        self.acked.append(m.lease_id)

    def _on_renew_ack(self, m):
        self.lost += m.lost_lease_ids
        self.renewed += 1
        for u in [u for u in self.units.values() if u.lease_id in m.lost_lease_ids]:
            self.end(u.unit_id, pb.OUTCOME_FAILED, pb.REASON_WORKER_LOST)

    def _on_exec(self, m):
        kind = m.WhichOneof("what")
        self.asked.append(m)
        answer = self.answers[kind]
        if callable(answer):
            answer = answer(m)
        if answer is None:
            return
        if not answer.code and kind in ("pause", "resume"):
            self.rest(m.unit_id, kind == "pause", answer.image_bytes, m.pause.if_idle, answer.kept and answer.expires.unix_ns)
        self.answer(m, answer)

    def _on_open_relay(self, m):
        self.opened.append(m)
        threading.Thread(target=self._relay, args=(m,), daemon=True).start()

    def _relay(self, m):
        out, taken = queue.Queue(), bytearray()
        call = self.channel.stream_stream("/cloche.v1.WorkerService/Relay", request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=wpb.RelayResponse.FromString)(iter(out.get, None))
        out.put(wpb.RelayRequest(relay_id=m.relay_id))
        try:
            if self.relay_says:
                self.relay_speaks.wait(60)
                out.put(wpb.RelayRequest(done=self.relay_says))
                out.put(None)
                time.sleep(60)  # and still it reads nothing
            elif m.WhichOneof("what") == "cell":
                out.put(wpb.RelayRequest(cell=pb.RunCodeResponse(ended=pb.CellEnded(outcome=pb.CELL_OUTCOME_OK))))
            elif m.WhichOneof("what") == "read":
                out.put(wpb.RelayRequest(done=wpb.RelayDone()))
            else:
                for piece in call:
                    taken += piece.data
                    if piece.eof:
                        break
                self.taken.append(bytes(taken))
                out.put(wpb.RelayRequest(done=wpb.RelayDone(bytes=len(taken))))
            out.put(None)
            for _ in call:
                pass
        except grpc.RpcError:
            pass

    # --- what it says

    def answer(self, command, answer):
        m = wpb.ExecAnswer()
        m.CopyFrom(answer)
        m.request = command.request
        self.send(exec=m)

    def rest(self, unit_id, paused, image_bytes=0, for_idle=False, kept_until=0):
        """kept_until: it outlives the worker's process, and expires then."""
        u = self.units[unit_id]
        u.kept, u.expires_unix_ns = kept_until > 0, kept_until
        u.paused_for_idle = paused and for_idle and (u.paused_for_idle or not u.paused)
        u.paused, u.image_bytes, u.goes_on = paused, image_bytes, False

    def renew(self):
        self.send(renew=wpb.RenewLeases(leases=list(self.units.values())))

    def keep_renewing(self, seconds):
        """From now on, whenever it is connected."""
        def renew():
            while True:
                time.sleep(seconds)
                if not self.over and not self.quiet and self.hello.is_set():
                    self.renew()
        threading.Thread(target=renew, daemon=True).start()

    def is_renewed(self):
        """What it says by now was in a renewal, and that was answered."""
        n = self.renewed + 2
        return until(lambda: self.renewed >= n, 10)

    def idle(self, unit_id):
        u = self.units[unit_id]
        self.send(idle=wpb.UnitIdle(lease_id=u.lease_id, fence=u.fence))

    def end(self, unit_id, outcome, reason, message="made up"):
        u = self.units.pop(unit_id)
        self.send(ended=wpb.UnitEnded(tenant=u.tenant, unit_id=u.unit_id, lease_id=u.lease_id, fence=u.fence, code_started=True,
                                      result=pb.ExecResult(outcome=outcome, reason=reason, message=message)))

    def asked_for(self, kind):
        return [m for m in self.asked if m.WhichOneof("what") == kind]

    def is_asked(self, kind, n=1):
        """It was asked for this n times by now, or soon."""
        return until(lambda: len(self.asked_for(kind)) >= n, 5)
