"""A scheduler without workers: PortService, SandboxService, SnapshotService, TemplateService, TenantService, FileService and
CodeService as the gateway sees them, over real gRPC.

A port of the sandbox is the same port of 127.0.0.1, where a `Guest` listens and answers as the test says.  Connect and
CreateLink judge the credential; what they were asked stands in `connects` and `links`.  Every Fork is made, unless
`on_fork(its number, context)` says something else; what was asked stands in `forks` and `kills`.
Snapshots are what the test puts into `snapshots`, templates those of `templates`, of container images those of `images`; `on_create(request, context)` and
`on_snapshot(method, request, context)` may say something else, `asked` has the method and the request of each.
Files that are written stand in `writes`, folders in `folders`; `on_write(write, context)` sees each message, `on_folder(request, context)`
each folder, and may say something else, or wait.
Folders that are watched stand in `watches`, and tell what the test says.
Cells that were asked for stand in `cells`, and end at once; `on_cell(request, context)` may say something else.
Every call, with its metadata, stands in `heard`.
"""
import concurrent.futures
import contextlib
import hashlib
import os
import queue
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "e2e"))
import harness  # noqa: E402
from harness import BUILD, grpc, pb, until  # noqa: E402

harness.generate_messages()
from cloche.v1 import file_pb2, port_pb2  # noqa: E402

BOX, OTHER, GONE, BUSY, SLOW = (f"sbx_{c}123456789abcdefghjkmnpqrs" for c in "01234")
SECRET = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop"
KEY = "clk_0123456789abcdef_" + 64 * "0"
TOKEN = "a.b.c"  # no API key
PIECE = 65536


def link_of(box, secret=SECRET):
    return f"clp_{box[4:]}_{secret}"


def at_its_end(context, do):
    """... of the call, which may be over when its handler begins: gRPC calls nobody back then."""
    if not context.add_callback(do):
        do()


class Watched:
    """A folder that the gateway watches: `tell` says what changes, an error ends it."""

    def __init__(self, m, context):
        self.request, self.context, self.queue, self.over = m, context, queue.Queue(), threading.Event()
        at_its_end(context, lambda: (self.over.set(), self.queue.put(None)))

    def tell(self, *changes, lost=False):
        self.queue.put(pb.FileServiceWatchResponse(lost=lost, changes=[pb.FileChange(kind=kind, path=path) for kind, path in changes]))

    def fail(self, code, text):
        self.queue.put((code, text))

    def messages(self):
        while (m := self.queue.get()) is not None:
            if isinstance(m, tuple):
                self.context.abort(*m)
            yield m


class Guest:
    """A server in the sandbox: `answer(conn, head, rest)` for each connection, in a thread of its own.  What came in each
    connection stands in `seen`: all bytes until its end where the answer reads them by `read`."""

    def __init__(self, answer):
        self.answer, self.seen, self.open = answer, [], 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=400)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        self.open += 1
        try:
            with conn:
                data = b""
                while b"\r\n\r\n" not in data and (piece := conn.recv(PIECE)):
                    data += piece
                head, _, rest = data.partition(b"\r\n\r\n")
                self.seen.append(data)
                self.answer(conn, head, rest)
        except OSError:
            pass
        finally:
            self.open -= 1

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # a close alone leaves it to the accept() that waits
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def says(data, then=None):
    """Always the same bytes; then wait for the end of the connection, or do `then`."""
    def answer(conn, _head, _rest):
        conn.sendall(data)
        if then:
            then(conn)
        else:
            while conn.recv(PIECE):
                pass
    return answer


class Write:
    """A file on its way: `over` is True once its call has ended, `committed` if its last message said so."""

    def __init__(self, first):
        self.path, self.user, self.box = first.path, first.user, first.sandbox_id
        self.bytes, self.sum, self.committed, self.over = 0, hashlib.sha256(), False, False

    @property
    def digest(self):
        return self.sum.hexdigest()


class Ear(grpc.ServerInterceptor):
    """Each call: (method, [metadata])"""

    def __init__(self):
        self.heard = []

    def intercept_service(self, continuation, handler_call_details):
        self.heard.append((handler_call_details.method, list(handler_call_details.invocation_metadata)))
        return continuation(handler_call_details)


class Scheduler:
    def __init__(self, folder):
        self.connects, self.links, self.creates, self.paths, self.forks, self.kills = [], [], [], [], [], []
        self.on_fork, self.now, self.most, self.lock = None, 0, 0, threading.Lock()
        self.on_create, self.on_snapshot, self.asked, self.snapshots, self.templates = None, None, [], [], {"python"}
        self.images = {}
        self.writes, self.folders, self.on_write, self.on_folder = [], [], None, None
        self.cells, self.on_cell, self.watches = [], None, []
        self.target = f"unix:{folder}/api.sock"
        ear = Ear()
        self.heard = ear.heard
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(700), interceptors=(ear,))
        unary, both = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        many, stream = grpc.stream_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler

        def text(m):
            return m.SerializeToString()
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler("cloche.v1.PortService", {
                "Connect": both(self.connect, port_pb2.ConnectRequest.FromString, text),
                "CreateLink": unary(self.create_link, port_pb2.CreateLinkRequest.FromString, text)}),
            grpc.method_handlers_generic_handler("cloche.v1.SandboxService", {
                "Create": unary(self.create, pb.CreateRequest.FromString, text),
                "Fork": unary(self.fork, pb.ForkRequest.FromString, text),
                "Kill": unary(self.kill, pb.KillRequest.FromString, text),
                "Get": unary(self.get, pb.SandboxServiceGetRequest.FromString, text),
                "Resume": unary(self.resume, pb.ResumeRequest.FromString, text)}),
            grpc.method_handlers_generic_handler("cloche.v1.FileService", {
                "MakeDir": unary(self.make_dir, file_pb2.MakeDirRequest.FromString, text),
                "Watch": stream(self.watch, file_pb2.FileServiceWatchRequest.FromString, text),
                "Write": many(self.write, file_pb2.WriteRequest.FromString, text)}),
            grpc.method_handlers_generic_handler("cloche.v1.CodeService", {
                "RunCode": stream(self.run_code, pb.RunCodeRequest.FromString, text),
                "ListContexts": unary(self.list_contexts, pb.ListContextsRequest.FromString, text)}),
            grpc.method_handlers_generic_handler("cloche.v1.TenantService", {
                "WhoAmI": unary(self.who_am_i, pb.WhoAmIRequest.FromString, text)}),
            grpc.method_handlers_generic_handler("cloche.v1.TemplateService", {
                "Get": unary(self.get_template, pb.TemplateServiceGetRequest.FromString, text),
                "List": unary(self.list_templates, pb.TemplateServiceListRequest.FromString, text)}),
            grpc.method_handlers_generic_handler("cloche.v1.SnapshotService", {
                "Create": unary(self.keep, pb.SnapshotServiceCreateRequest.FromString, text),
                "Get": unary(self.get_snapshot, pb.SnapshotServiceGetRequest.FromString, text),
                "List": unary(self.list_snapshots, pb.SnapshotServiceListRequest.FromString, text),
                "Delete": unary(self.delete_snapshot, pb.SnapshotServiceDeleteRequest.FromString, text)})))
        self.server.add_insecure_port(self.target)
        self.server.start()
        self.labels, self.link_error = {}, None

    # --- PortService

    def judge(self, context, box):
        bearer = dict(context.invocation_metadata()).get("authorization", "")
        if bearer in (f"Bearer {KEY}", f"Bearer {TOKEN}"):
            return
        if not bearer.startswith("Bearer clp_"):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no credential")
        if bearer != f"Bearer {link_of(box)}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the link is not valid (any more)")

    def connect(self, requests, context):
        first = next(requests)
        self.connects.append((first.sandbox_id, first.port, dict(context.invocation_metadata()).get("authorization")))
        self.judge(context, first.sandbox_id)
        if first.sandbox_id == GONE:
            context.abort(grpc.StatusCode.NOT_FOUND, f"sandbox {GONE}: not found")
        if first.sandbox_id == BUSY:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "32 connections of this sandbox are open")
        if first.sandbox_id == SLOW:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no worker")
        try:
            conn = socket.create_connection(("127.0.0.1", first.port), timeout=10)
        except OSError:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"port {first.port}: nobody listens")
        conn.settimeout(None)
        done = threading.Event()  # the client's eof is told, or the call is over
        at_its_end(context, lambda: self._shut(conn, done))
        threading.Thread(target=self._up, args=(conn, first, requests, done), daemon=True).start()
        yield port_pb2.ConnectResponse(connected=True)
        try:
            while data := conn.recv(PIECE):
                yield port_pb2.ConnectResponse(data=data)
        except OSError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was reset")
        yield port_pb2.ConnectResponse(eof=True)
        done.wait()

    @staticmethod
    def _shut(conn, done):
        done.set()
        with contextlib.suppress(OSError):
            conn.shutdown(socket.SHUT_RDWR)
        conn.close()

    def _up(self, conn, first, requests, done):
        with contextlib.suppress(OSError, grpc.RpcError, StopIteration, ValueError):
            m = first
            while True:
                if m.data:
                    conn.sendall(m.data)
                if m.eof:
                    conn.shutdown(socket.SHUT_WR)
                    done.set()
                m = next(requests)

    @contextlib.contextmanager
    def counted(self):
        """`most` is how many of these were under way at once."""
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self.lock:
                self.now -= 1

    def create_link(self, m, context):
        with self.counted():
            return self.make_link(m, context)

    def make_link(self, m, context):
        self.links.append((m.sandbox_id, m.port, m.ttl_ns, dict(context.invocation_metadata()).get("authorization")))
        if self.link_error:
            context.abort(*self.link_error)
        return port_pb2.CreateLinkResponse(link=link_of(m.sandbox_id))

    # --- SandboxService

    def box(self):
        return pb.Sandbox(id=BOX, template="python", state=pb.UNIT_STATE_RUNNING,
                          labels=[pb.Label(key=k, value=v) for k, v in self.labels.items()])

    def create(self, m, context):
        self.creates.append(m)
        if self.on_create:
            self.on_create(m, context)
        self.labels = {label.key: label.value for label in m.labels}
        return pb.CreateResponse(sandbox=self.box())

    def fork(self, m, context):
        with self.counted():
            with self.lock:
                self.forks.append(m)
                n = len(self.forks)
            if self.on_fork:
                self.on_fork(n, context)
            return pb.ForkResponse(sandbox=pb.Sandbox(id=f"sbx_{n:026d}", template="python", state=pb.UNIT_STATE_RUNNING, labels=m.labels))

    def kill(self, m, _context):
        self.kills.append(m.sandbox_id)
        return pb.KillResponse()

    def get(self, _m, _context):
        return pb.SandboxServiceGetResponse(sandbox=self.box())

    def resume(self, _m, _context):
        return pb.ResumeResponse(sandbox=self.box(), was_paused=True)

    # --- FileService

    def make_dir(self, m, context):
        self.judge(context, m.sandbox_id)
        self.folders.append(m.path)
        if self.on_folder:
            self.on_folder(m, context)
        return file_pb2.MakeDirResponse()

    def watch(self, m, context):
        self.judge(context, m.sandbox_id)
        w = Watched(m, context)
        self.watches.append(w)
        yield from w.messages()

    def write(self, requests, context):
        w = None
        try:
            for m in requests:
                if not w:
                    self.judge(context, m.sandbox_id)
                    w = Write(m)
                    self.writes.append(w)
                w.bytes += len(m.data)
                w.sum.update(m.data)
                if self.on_write:
                    self.on_write(w, context)
                w.committed = m.commit
            if not w or not w.committed:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended without commit; the file is as it was")
            return file_pb2.WriteResponse(bytes=w.bytes, sha256=w.sum.digest())
        finally:
            if w:
                w.over = True

    # --- CodeService

    def run_code(self, m, context):
        self.judge(context, m.sandbox_id)
        self.cells.append(m)
        if self.on_cell:
            self.on_cell(m, context)
        yield pb.RunCodeResponse(started=pb.CellStarted(context_id="python", language=pb.LANGUAGE_PYTHON, execution_count=1))
        yield pb.RunCodeResponse(ended=pb.CellEnded(outcome=pb.CELL_OUTCOME_OK))

    def list_contexts(self, _m, _context):
        return pb.ListContextsResponse(contexts=[pb.CodeContext(id="python", state=pb.CONTEXT_STATE_BUSY)])

    # --- TenantService, TemplateService and SnapshotService

    def who_am_i(self, _m, _context):
        return pb.WhoAmIResponse(tenant="t", subject="s", key_id="0123456789abcdef", scopes=["run"])

    def hear(self, method, m, context):
        self.asked.append((method, m))
        if self.on_snapshot:
            self.on_snapshot(method, m, context)

    def get_template(self, m, context):
        self.hear("Template", m, context)
        if m.name not in self.templates:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no connected worker has a template '{m.name}'")
        return pb.TemplateServiceGetResponse(template=pb.Template(name=m.name))

    def list_templates(self, m, context):
        self.hear("Templates", m, context)
        return pb.TemplateServiceListResponse(templates=[pb.Template(name=n, image=i) for n, i in self.images.items()])

    def keep(self, m, context):
        with self.counted():
            self.hear("Create", m, context)
            return pb.SnapshotServiceCreateResponse(snapshot=pb.Snapshot(id=f"snp_{1:026d}", name=m.name, sandbox_id=m.sandbox_id))

    def get_snapshot(self, m, context):
        self.hear("Get", m, context)
        for s in self.snapshots:
            if m.snapshot in (s.id, s.name):
                return pb.SnapshotServiceGetResponse(snapshot=s)
        return context.abort(grpc.StatusCode.NOT_FOUND, f"no snapshot '{m.snapshot}'")

    def list_snapshots(self, m, context):
        """A page is so many of all; those of other sandboxes are left out of it."""
        self.hear("List", m, context)
        at = int(m.page_token or 0)
        end = at + (m.page_size or 100)
        return pb.SnapshotServiceListResponse(
            snapshots=[s for s in self.snapshots[at:end] if m.sandbox_id in ("", s.sandbox_id)],
            next_page_token=str(end) if end < len(self.snapshots) else "")

    def delete_snapshot(self, m, context):
        self.hear("Delete", m, context)
        return pb.SnapshotServiceDeleteResponse()


class World:
    """The made-up scheduler and a gateway before it."""

    def __init__(self, name):
        self.dir = harness.folder(name)
        (self.dir / "log").mkdir()
        self.mark, self.user, self.gateways = name, None, []
        self.scheduler = Scheduler(self.dir)

    def gateway(self, name, *extra):
        argv = [BUILD / "cloche-gateway", "--listen", "127.0.0.1:0", "--scheduler", self.scheduler.target, *extra]
        p = harness.Process(self, name, argv)
        self.gateways.append(p)
        p.start()
        if not until(lambda: p.events("LISTENING"), 20):
            raise RuntimeError(f"the gateway does not listen\n{self.tails()}")
        p.port = p.events("LISTENING")[0]["port"]
        return p

    def tails(self):
        return "\n".join(harness.read_text(p.log)[-2000:] for p in self.gateways)

    def stop(self):
        statuses = [p.statuses[-1] if p.statuses else p.stop() for p in self.gateways]
        self.scheduler.server.stop(0)
        return statuses

    def reports(self):
        words = ("Sanitizer", "runtime error", "assertion")
        return [line for p in self.gateways for line in harness.read_text(p.log).splitlines() if any(w in line for w in words)]


def play(suite, begin=lambda w: None):
    """The usual file: one gateway, every scenario (or those named on the command line)."""
    w = World(suite.name)
    w.s = w.scheduler
    try:
        w.g = w.gateway("gateway")
        begin(w)
        suite.play(w, sys.argv[1:])
    finally:
        suite.equal("every gateway ends in order", set(w.stop()), {0})
        suite.equal("no sanitizer or assertion spoke", w.reports(), [])
    suite.finish()
