"""A whole Cloche of its own for one test file: Redis, audit writer, scheduler and workers.

Each cluster lives in a private folder, has its own cgroup instance and its own range of VM uids,
so that several run side by side.  Environment:

    CLOCHE_BUILD    build folder with the programs   (default out/dev)
    CLOCHE_IMAGES   built images and signing.pub     (default out/images)
    CLOCHE_SNAPSHOTS    folder in which all of them keep the snapshots of templates (default: each worker its own)
    CLOCHE_LONG     1 = the long variants too
    CLOCHE_TWIN     1 = this is another run of a suite, which only long runs have
    CLOCHE_KEEP     1 = keep the folder of the cluster
    CLOCHE_TIME_FACTOR  how much longer to wait on a slow machine (1)
"""
import atexit
import collections
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import pathlib
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CLOCHE_BUILD", REPO / "out" / "dev")).resolve()
IMAGES = pathlib.Path(os.environ.get("CLOCHE_IMAGES", REPO / "out" / "images")).resolve()
DRIVER = os.environ.get("CLOCHE_DRIVER", "auto")
DRIVERS = ("kvm", "kvm/xenpv", "qemu/kvm", "qemu/tcg")
IS_SHARED = DRIVER == "kvm/xenpv-shared"  # user code in its guests can reach their kernel
LONG = os.environ.get("CLOCHE_LONG") == "1"
FACTOR = float(os.environ.get("CLOCHE_TIME_FACTOR", "1"))
PATIENCE = 5  # what a healthy machine does in a second may take a sick one so many
SNAPSHOTS = os.environ.get("CLOCHE_SNAPSHOTS", "")
VCPUS, MEMORY = 16, "12GiB"  # that a worker hands out, on any machine; guests sleep, and clones share their memory
SKIPPED = 77
SECOND = 10**9
MIB = 1 << 20
MARK = "CLOCHE_E2E_CLUSTER"


@functools.cache
def isolating_drivers():
    """What runs isolated guests here.  `auto` would give tenants that are shared-ok others: not what a suite is about."""
    if DRIVER != "auto":
        return DRIVER
    drivers = json.loads(subprocess.check_output([BUILD / "cloche-worker", "--probe"]))["drivers"]
    return ",".join(d for d in drivers.split(",") if not d.endswith("-shared"))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


# gRPC's C core looks at connections that nobody waits for every 5 s, and then at one event of one of them: with a dozen clients
# in one process a new connection is up only after half a minute.
os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100")
try:
    import grpc
    import google.protobuf  # noqa: F401
except ImportError as missing:
    skip(f"{missing} (apt install python3-grpcio python3-protobuf)")


def generate_messages():
    """Compile the .proto files to a folder that this process imports from."""
    out = tempfile.mkdtemp(prefix="cloche-e2e-pb.")
    protos = sorted((REPO / "proto" / "cloche" / "v1").glob("*.proto"))
    protoc = shutil.which("protoc") or skip("no protoc (apt install protobuf-compiler)")
    subprocess.run([protoc, f"-I{REPO / 'proto'}", f"--python_out={out}", *map(str, protos)], check=True)
    sys.path.insert(0, out)
    return out


_GENERATED = generate_messages()
from google.protobuf import message_factory, symbol_database  # noqa: E402,F401
from cloche.v1 import (code_pb2, common_pb2, exec_pb2, file_pb2, function_pb2, job_pb2, port_pb2, sandbox_pb2, snapshot_pb2,  # noqa: E402
                       template_pb2, tenant_pb2, fleet_pb2, audit_pb2, kept_pb2)
shutil.rmtree(_GENERATED, ignore_errors=True)

MODULES = [code_pb2, common_pb2, job_pb2, sandbox_pb2, snapshot_pb2, exec_pb2, file_pb2, port_pb2, template_pb2, tenant_pb2, fleet_pb2, audit_pb2, kept_pb2, function_pb2]


def folder(name):
    """For files of a test besides its cluster's; gone with the process."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"cloche-e2e-{name}."))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Messages:
    """Every message and enum value of cloche.v1 by its name."""

    def __getattr__(self, name):
        for module in MODULES:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


pb = Messages()


# --- client ----------------------------------------------------------------------------------------

# What a stock client of gRPC is told to live through a takeover: wait for a connection, ask again what was cut off, and ask the
# silent whether they are there.  (docs/standby.md)
PATIENT = [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "waitForReady": True, "retryPolicy": {
    "maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]})),
           ("grpc.enable_retries", 1), ("grpc.min_reconnect_backoff_ms", 3000), ("grpc.keepalive_time_ms", 3000),
           ("grpc.keepalive_timeout_ms", 3000), ("grpc.http2.max_pings_without_data", 0)]


class Service:
    def __init__(self, channel, metadata, descriptor):
        for method in descriptor.methods:
            kind = (("stream" if method.client_streaming else "unary") + "_" +
                    ("stream" if method.server_streaming else "unary"))
            answer = getattr(pb, method.output_type.name)
            raw = getattr(channel, kind)(f"/{descriptor.full_name}/{method.name}",
                                         request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
                                         response_deserializer=answer.FromString)
            setattr(self, method.name, self._bind(raw, metadata, method.server_streaming))

    @staticmethod
    def _bind(raw, metadata, streams):
        def call(request, timeout=120, **kw):
            extra = kw.pop("metadata", ())
            limit = soon(timeout) if timeout > 5 else timeout  # a short one is what is tested
            return raw(request, timeout=limit, metadata=tuple(metadata) + tuple(extra), **kw)
        call.raw = raw
        return call


class Client:
    """All services with one key over one connection of its own."""

    def __init__(self, target, key, credentials=None, options=()):
        own = {"grpc.use_local_subchannel_pool": 1, "grpc.max_receive_message_length": 64 * MIB, "grpc.max_send_message_length": 64 * MIB,
               "grpc.initial_reconnect_backoff_ms": 100, "grpc.min_reconnect_backoff_ms": 20000, "grpc.max_reconnect_backoff_ms": 300}
        options = list({**own, **dict(options)}.items())
        self.channel = (grpc.secure_channel(target, credentials, options) if credentials
                        else grpc.insecure_channel(target, options))
        metadata = [("authorization", f"Bearer {key}")] if key else []
        self.key = key
        for name, module in {"jobs": job_pb2, "sandboxes": sandbox_pb2, "execs": exec_pb2, "codes": code_pb2,
                             "files": file_pb2, "ports": port_pb2, "templates": template_pb2, "tenants": tenant_pb2,
                             "fleet": fleet_pb2, "snapshots": snapshot_pb2, "audit": audit_pb2, "functions": function_pb2}.items():
            (descriptor,) = module.DESCRIPTOR.services_by_name.values()
            setattr(self, name, Service(self.channel, metadata, descriptor))

    def close(self):
        self.channel.close()


def command(*argv, stdin=False, env=None, cwd="", user="", pty=None, timeout=0, cap=0):
    c = pb.Command(argv=list(argv), cwd=cwd, user=user, timeout_ns=int(timeout * SECOND), output_max_bytes=cap, open_stdin=stdin)
    for name, value in (env or {}).items():
        c.env.add(name=name, value=value)
    if pty:
        c.pty.rows, c.pty.columns = pty
    return c


def spec(*argv, template="base", labels=None, attempts=0, wait=0, resources=None, **kw):
    s = pb.JobSpec(template=template, command=command(*argv, **kw), max_attempts=attempts,
                   max_queue_wait_ns=int(wait * SECOND))
    for key, value in (labels or {}).items():
        s.labels.add(key=key, value=value)
    if resources:
        s.resources.vcpus, s.resources.memory_mib, s.resources.disk_mib = resources
    return s


class Followed:
    """What a stream of Run, Watch or Attach said, in full."""

    def __init__(self):
        self.job_id = None
        self.attempts = []
        self.out = bytearray()
        self.err = bytearray()
        self.result = None
        self.gaps = 0
        self.audit_head = ""

    def take(self, event):
        kind = event.WhichOneof("event")
        if kind == "accepted":
            self.job_id = event.accepted.job_id
        elif kind == "started":
            self.attempts.append(event.started.attempt)
        elif kind == "output":
            target = self.err if event.output.stream == pb.STREAM_STDERR else self.out
            self.gaps += event.output.offset != len(target)
            target += event.output.data
        elif kind == "ended":
            ended = event.ended
            self.result = ended.result if isinstance(ended, pb.JobEnded) else ended
            self.audit_head = getattr(ended, "audit_head", "")
        return kind

    @property
    def outcome(self):
        return pb.Outcome.Name(self.result.outcome).removeprefix("OUTCOME_") if self.result else "NONE"

    @property
    def reason(self):
        return pb.Reason.Name(self.result.reason).removeprefix("REASON_") if self.result else "NONE"

    def __str__(self):
        code = self.result.exit_code if self.result else None
        sig = self.result.signal if self.result else None
        text = self.result.message if self.result else ""
        return (f"{self.outcome}/{self.reason} exit={code} signal={sig} '{text}' attempts={self.attempts} "
                f"out={bytes(self.out[:200])!r} err={bytes(self.err[:200])!r}")


def follow(stream):
    f = Followed()
    for event in stream:
        f.take(event)
    return f


class Listener(threading.Thread):
    """Follows a stream of Attach for as long as it comes."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.seen = stream, Followed()
        self.start()

    def run(self):
        with contextlib.suppress(grpc.RpcError):  # the sandbox is killed under it
            for event in self.stream:
                self.seen.take(event)

    def lines(self):
        return bytes(self.seen.out).decode().split("\n")[:-1]


def run(client, *argv, timeout_rpc=120, detach=False, key="", **kw):
    request = pb.RunRequest(spec=spec(*argv, **kw), detach_on_disconnect=detach, idempotency_key=key)
    return follow(client.jobs.Run(request, timeout=timeout_rpc))


def error_of(call, *args, **kw):
    """The RpcError of a call that must fail; None when it does not."""
    try:
        answer = call(*args, **kw)
        if hasattr(answer, "__next__"):
            for _ in answer:
                pass
    except grpc.RpcError as err:
        return err
    return None


def code_of(err):
    return err.code().name if err is not None else "OK"


def soon(seconds):
    """The longest that what takes a healthy machine `seconds` may take here."""
    return seconds * FACTOR * PATIENCE


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, seconds, every=0.05):
    """Wait until what() is true, which takes a healthy machine at most `seconds`; its last value."""
    end = time.monotonic() + soon(seconds)
    while True:
        value = what()
        if value or time.monotonic() > end:
            return value
        time.sleep(every)


def in_parallel(fn, items, threads=32):
    """[fn(item) …], each in a thread of its own; an exception takes the place of a value."""
    todo, results = queue.Queue(), [None] * len(items)
    for pair in enumerate(items):
        todo.put(pair)

    def work():
        while True:
            try:
                i, item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                results[i] = fn(item)
            except Exception as err:  # noqa: BLE001
                results[i] = err
    pool = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(items)))]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    return results


# --- processes -------------------------------------------------------------------------------------

def read_text(path):
    try:
        return pathlib.Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def open_files(pid):
    """What the fds of a process are; some may be closed while it is asked."""
    links = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(fd))
    return links


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def rss_bytes(pid):
    for line in read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Process:
    """One child of the cluster, restarted with the same arguments; its log grows in one file."""

    def __init__(self, cluster, name, argv, env=None, user=None, sockets=()):
        self.cluster, self.name, self.argv, self.user = cluster, name, argv, user
        self.env, self.sockets = env or {}, sockets
        self.log = cluster.dir / "log" / f"{name}.log"
        self.child = None
        self.statuses = []

    @property
    def pid(self):
        return self.child.pid

    def is_running(self):
        return self.child is not None and self.child.poll() is None

    def start(self):
        for path in self.sockets:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        env = dict(os.environ, **{MARK: self.cluster.mark, **self.env})
        env.setdefault("ASAN_OPTIONS", "quarantine_size_mb=8:abort_on_error=0")
        argv = list(map(str, self.argv))
        if self.user is not None:
            argv = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--no-new-privs", *argv]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                          cwd=self.cluster.dir, start_new_session=True)
        return self

    def signal(self, number):
        if self.is_running():
            self.child.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.child.wait()

    def stop(self, seconds=20):
        """TERM, then wait; the exit status, or None when it had to be killed."""
        if self.child is None:
            return 0
        self.signal(signal.SIGTERM)
        try:
            status = self.child.wait(soon(seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            status = None
        self.statuses.append(status)
        return status

    def events(self, event=None):
        """Its log lines that are JSON."""
        rows = []
        for line in read_text(self.log).splitlines():
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict) and (event is None or row.get("event") == event):
                    rows.append(row)
        return rows


def metric(port, name):
    """As the process with this port tells it now; None when it tells nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    said = re.search(rf"^{name} (\d+)", text, re.M)
    return int(said[1]) if said else None


class Standby(Process):
    """A scheduler of several on one Redis, of which one leads.  One that is `apart` is in a PID namespace of its own, as on another host: whether it
    lives nobody sees, so its time must run out."""

    APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

    def __init__(self, cluster, n, argv, user=None):
        super().__init__(cluster, f"scheduler{n or ''}", argv, None, user)
        self.n, self.apart, self.extra, self.base = n, False, (), argv
        self.tcp, self.metrics = free_port(), free_port()

    @property
    def api(self):
        return f"unix:{self.cluster.dir}/api{self.n or ''}.sock"

    @property
    def worker_api(self):
        return f"unix:{self.cluster.dir}/worker{self.n or ''}.sock"

    @property
    def pid(self):
        if not self.apart:
            return self.child.pid
        inner = read_text(f"/proc/{self.child.pid}/task/{self.child.pid}/children").split()
        return int(inner[0]) if inner else self.child.pid

    def start(self):
        own = ["--listen", self.api, "--worker-listen", self.worker_api, "--tcp", f"127.0.0.1:{self.tcp}", "--metrics", f"127.0.0.1:{self.metrics}"]
        self.argv = [*(self.APART if self.apart else ()), *self.base, *own, *self.extra]
        return super().start()

    def signal(self, number):
        if self.is_running():
            os.kill(self.pid, number)

    def leads(self):
        """None when it tells nothing, as one that stands still."""
        said = metric(self.metrics, "cloche_scheduler_leads")
        return None if said is None else bool(said)


REDIS_CONF = """
port 0
unixsocket {socket}
unixsocketperm 700
dir {dir}
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
save ""
maxmemory-policy noeviction
daemonize no
"""


def has_image(name):
    """Whether it is there; one that test.sh is building is waited for."""
    builder = IMAGES / f".{name}.building"
    while read_text(builder).strip() and pathlib.Path("/proc", read_text(builder).strip()).exists():
        time.sleep(1)
    return (IMAGES / name / "current" / "manifest.json").exists()


signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that clusters are stopped by those who have begun them


def is_long():
    """Whether this run has the time for what is long and seldom breaks: ./test.sh alone shall stay short."""
    return os.environ.get("CI") == "true" or LONG


def only_in_ci(seconds):
    if not is_long():
        skip(f"takes {seconds} s; runs with CI=true or CLOCHE_LONG=1")


def only_in_ci_as_a_twin(name):
    if os.environ.get("CLOCHE_TWIN") == "1" and not is_long():
        skip(f"as e2e/{name}, emulated; runs with CI=true or CLOCHE_LONG=1")


@functools.cache
def uid_slot():
    """A number that no other test process of this machine has now: its VMs' uids lie in a range of their own."""
    for n in range(os.getpid() % 200, 400):
        fd = os.open(f"{tempfile.gettempdir()}/cloche-e2e-uids-{n % 200}.lock", os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return n % 200
        os.close(fd)
    raise RuntimeError("200 test processes run at once")


class Cluster:
    """Start with `with Cluster("name") as c:`; leaving checks that nothing is left behind."""

    count = 0

    def __init__(self, name, workers=1, lease=None, scheduler_args=(), worker_args=(), audit_args=(), templates="base",
                 warm=2, slots=0, user=None, redis_env=None, worker_env=None, state_dir=None, audit_dir=None, standbys=0, at=None):
        """at: the folder of an earlier one, which this one goes on with; made if it is not there."""
        Cluster.count += 1
        self.dir = pathlib.Path(at or tempfile.mkdtemp(prefix=f"cloche-e2e-{name}."))
        self.mark = f"{os.getpid()}-{Cluster.count}"
        self.user, self.clients, self.workers, self.suite = user, [], [], None
        self.gateway, self.reader, self.worker_env = None, None, worker_env
        self.uid_base = 0x71000000 + uid_slot() * 0x10000 + Cluster.count * 0x2000
        for sub in ("log", "redis", "audit-keys", "sched"):
            (self.dir / sub).mkdir(parents=True, exist_ok=True)
        self.audit_dir = pathlib.Path(audit_dir or self.dir / "audit")
        self.audit_dir.mkdir(exist_ok=True)
        self.audits = [(self.audit_dir, self.dir / "audit-keys" / "audit.key.pub")]  # each log and its public key
        self.state_dir = state_dir
        self._stage_images()
        if user is not None:
            for path in [self.dir, *self.dir.rglob("*"), self.audit_dir]:
                os.chown(path, user, user)
        self.lease, self.worker_args, self.templates, self.warm, self.slots = lease, worker_args, templates, warm, slots
        self.schedulers, self.others = [], []
        self._define(scheduler_args, audit_args, redis_env, standbys)
        for _ in range(workers):
            self.add_worker()

    def _stage_images(self):
        if not (IMAGES / "base" / "current" / "manifest.json").exists() or not (IMAGES / "signing.pub").exists():
            shutil.rmtree(self.dir)
            skip(f"no images in {IMAGES} (images/build.sh base --out DIR --key KEY, or set CLOCHE_IMAGES)")
        shutil.copy(IMAGES / "signing.pub", self.dir / "signing.pub")
        os.chmod(self.dir / "signing.pub", 0o644)

    def _define(self, scheduler_args, audit_args, redis_env, standbys):
        d = self.dir
        (d / "redis.conf").write_text(REDIS_CONF.format(socket=d / "redis.sock", dir=d / "redis"))
        if self.user is not None:
            os.chown(d / "redis.conf", self.user, self.user)
        self.redis = Process(self, "redis", [shutil.which("redis-server") or skip("no redis-server"), d / "redis.conf"],
                             redis_env, self.user, [d / "redis.sock"])
        self.audit = Process(self, "audit", [BUILD / "cloche-audit", "--socket", d / "audit.sock", "--dir", self.audit_dir,
                                             "--key", d / "audit-keys" / "audit.key", *audit_args], None, self.user)
        common = [BUILD / "cloche-scheduler", "--redis", f"unix:{d}/redis.sock", "--audit-socket", d / "audit.sock", "--audit-reader", d / "reader.sock", "--pepper-file", d / "sched" / "pepper",
                  "--bootstrap-key-file", d / "admin.key", *self._lease_args(), *scheduler_args]
        if standbys:
            self.schedulers = [Standby(self, n, common, self.user) for n in range(1 + standbys)]
            self.scheduler = self.schedulers[0]
        else:
            self.scheduler = Process(self, "scheduler", [*common, "--listen", f"unix:{d}/api.sock", "--worker-listen", f"unix:{d}/worker.sock"], None, self.user)
            self.schedulers = [self.scheduler]

    @property
    def has_standbys(self):
        return len(self.schedulers) > 1

    @property
    def endpoint(self):
        """Where programs of ours look for a scheduler."""
        return ",".join(s.api for s in self.schedulers) if self.has_standbys else f"unix:{self.dir}/api.sock"

    @property
    def worker_endpoint(self):
        return ",".join(s.worker_api for s in self.schedulers) if self.has_standbys else f"unix:{self.dir}/worker.sock"

    @property
    def target(self):
        """The same for grpcio, which knows lists of IP addresses."""
        return "ipv4:" + ",".join(f"127.0.0.1:{s.tcp}" for s in self.schedulers) if self.has_standbys else self.endpoint

    def leader(self, seconds=30):
        """The one that leads, once there is one; None when there is none for so long."""
        return until(lambda: next((s for s in self.schedulers if s.is_running() and s.leads()), None), seconds)

    def _lease_args(self):
        if not self.lease:
            return []
        return ["--lease-ttl", self.lease[0], "--renew-every", self.lease[1], "--self-kill", self.lease[2]]

    def add_worker(self, target=None, extra=(), state_dir=None, worker_id=None):
        n = len(self.workers)
        state = pathlib.Path(state_dir or self.state_dir or self.dir / f"worker{n}")
        state.mkdir(exist_ok=True)
        if worker_id:
            (state / "id").write_text(worker_id)
        if self.user is not None:
            os.chown(state, self.user, self.user)
        argv = [BUILD / "cloche-worker", "--scheduler", target or self.worker_endpoint, "--state-dir", state, "--paused-keys", self.dir / "keys", "--pause-on-stop=no",
                "--template-dir", IMAGES, "--template-key", self.dir / "signing.pub", "--templates", self.templates,
                "--instance", self.instance(n), "--warm", self.warm, "--slots", self.slots, "--vcpus", VCPUS, "--memory", MEMORY,
                "--vm-uid-base", self.uid_base + n * 0x800, "--driver", "auto" if self.user else isolating_drivers(),
                "--snapshot-cache", "" if self.user else SNAPSHOTS, *self.worker_args, *extra]
        p = Process(self, f"worker{n}", argv, self.worker_env, self.user)
        p.state_dir = state
        self.workers.append(p)
        return p

    def instance(self, n):
        return f"e2e-{self.mark}-{n}"

    @property
    def worker(self):
        return self.workers[0]

    # --- life

    def start(self):
        self.redis.start()
        self.audit.start()
        self.await_socket("redis.sock")
        self.await_socket("audit.sock")
        self.scheduler.start()
        for s in self.schedulers[1:]:
            if not until(self.scheduler.leads, 20):
                raise RuntimeError(f"the first scheduler does not lead\n{self.tails()}")
            s.start()
        for w in self.workers:
            w.start()
        self.await_ready(60 * len(self.templates.split(",")))
        return self

    def template_rows(self):
        """Its templates by name, as the scheduler tells them: none is there before a worker's first report of it."""
        return {t.name: t for t in self.admin.templates.List(pb.TemplateServiceListRequest(), timeout=5).templates}

    def warm_vms(self, template="base"):
        return self.template_rows().get(template, pb.Template()).warm

    def await_socket(self, name, seconds=20):
        if not until(lambda: (self.dir / name).exists(), seconds):
            raise RuntimeError(f"no {name} after {seconds} s\n{self.tails()}")

    def await_ready(self, seconds=60):
        """The scheduler answers, and every running worker shows its templates warm."""
        if not until(lambda: (self.dir / "admin.key").exists() and read_text(self.dir / "admin.key").strip(), seconds):
            raise RuntimeError(f"no admin.key after {seconds} s\n{self.tails()}")
        self.admin_key = read_text(self.dir / "admin.key").strip()
        self.admin = self.client(self.admin_key)
        names = [t for t in self.templates.split(",") if t]
        want = sum(w.is_running() for w in self.workers)

        def warm():
            if sum(w.is_running() for w in self.workers) < want:
                raise RuntimeError(f"a worker has ended\n{self.tails()}")
            try:
                rows = self.template_rows()
            except grpc.RpcError:
                return False
            return all(n in rows and rows[n].workers >= want and rows[n].warm >= min(self.warm, 1) * want for n in names)
        if not until(warm, seconds):
            raise RuntimeError(f"not ready after {seconds} s\n{self.tails()}")

    def add_gateway(self, *extra, program="cloche-gateway"):
        """Start the MCP gateway; its URL."""
        self.gateway = Process(self, "gateway", [
            BUILD / program, "--listen", "127.0.0.1:0", "--scheduler", self.endpoint,
            "--secret-file", self.dir / "sched" / "gateway.secret", *extra], None, self.user)
        before = len(self.gateway.events("LISTENING"))
        self.gateway.start()
        if not until(lambda: len(self.gateway.events("LISTENING")) > before, 20):
            raise RuntimeError(f"the gateway does not listen\n{self.tails()}")
        return f"http://127.0.0.1:{self.gateway.events('LISTENING')[-1]['port']}/mcp"

    def define_reader(self, *extra):
        self.reader = Process(self, "audit-reader", [BUILD / "cloche-audit-reader", "--dir", self.audit_dir, "--socket", self.dir / "reader.sock",
                                                    "--public-key", self.dir / "audit-keys" / "audit.key.pub", *extra], None, self.user)
        self.others.append(self.reader)

    def add_reader(self):
        """Start the reader of the audit log, and wait until the scheduler has found it."""
        if not self.reader:
            self.define_reader()
        self.reader.start()
        if not until(lambda: self.reads_log(self.admin), 20):
            raise RuntimeError(f"the log is not read\n{self.tails()}")

    @staticmethod
    def reads_log(client):
        try:
            return list(client.audit.Query(pb.AuditServiceQueryRequest(stream="tenant/local", newest=1), timeout=5))
        except grpc.RpcError:
            return False

    def await_answer(self, seconds=30):
        """The scheduler serves again."""
        def answers():
            try:
                self.admin.tenants.GetUsage(pb.GetUsageRequest(tenant="local"), timeout=2)
                return True
            except grpc.RpcError:
                return False
        return until(answers, seconds)

    def processes(self):
        front = [self.gateway] if self.gateway else []
        return [self.redis, self.audit, *self.others, *self.schedulers, *self.workers, *front]

    def stop(self):
        """In the order of dependence; {name: exit status}."""
        for c in self.clients:
            with contextlib.suppress(Exception):
                c.close()
        for p in self.processes():
            p.signal(signal.SIGCONT)
        front = [self.gateway] if self.gateway else []
        running = [p for p in [*front, *self.workers, *reversed(self.schedulers), *self.others, self.audit, self.redis] if p.is_running()]
        return {p.name: p.stop() for p in running}

    # --- tenants and clients

    def client(self, key=None, target=None, credentials=None):
        patient = PATIENT if self.has_standbys and not target else ()
        c = Client(target or self.target, key if key is not None else self.admin_key, credentials, patient)
        self.clients.append(c)
        return c

    def tenant(self, name, scopes=("run", "read"), separation="shared-ok" if IS_SHARED else "isolated", **limits):
        """A tenant with these limits and a client with a key of it."""
        self.admin.tenants.PutTenant(pb.PutTenantRequest(name=name, limits=pb.TenantLimits(**limits), guest_separation=separation))
        return self.client(self.key(name, scopes).secret)

    def key(self, tenant, scopes=("run", "read"), ttl=0):
        return self.admin.tenants.CreateKey(pb.CreateKeyRequest(tenant=tenant, scopes=list(scopes), ttl_ns=int(ttl * SECOND)))

    def usage(self, tenant):
        return self.admin.tenants.GetUsage(pb.GetUsageRequest(tenant=tenant))

    def tenant_names(self):
        return [t.name for t in self.admin.tenants.ListTenants(pb.ListTenantsRequest(page_size=100)).tenants]

    # --- what there is on the host

    def vms(self):
        """pids of the monitors of this cluster that are alive."""
        monitors = ("qemu-system-x86_64", "cloche-vmm")
        return [pid for pid in self.leftovers() if os.path.basename(read_text(f"/proc/{pid}/cmdline").split("\0")[0]) in monitors
                and "\nState:\tZ" not in read_text(f"/proc/{pid}/status")]

    def vm_of(self, unit_id):
        """pid of the monitor that serves this unit, by its worker's state files; None when there is none."""
        for w in self.workers:
            for path in (w.state_dir / "vms").iterdir():
                state = dict(line.split("=", 1) for line in read_text(path).splitlines() if "=" in line)
                if state.get("unit_id") == unit_id:
                    children = read_text(f"/proc/{state['guard_pid']}/task/{state['guard_pid']}/children").split()
                    return int(children[0]) if children else None
        return None

    def leftovers(self):
        """pids that belong to the cluster by mark, uid or cgroup, besides the daemons themselves."""
        own = {pid for p in self.processes() if p.child for pid in (p.pid, p.child.pid)}
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if pid not in own and pid != os.getpid() and self._is_ours(pid)]

    def _is_ours(self, pid):
        if f"{MARK}={self.mark}\0" in read_text(f"/proc/{pid}/environ") + "\0":
            return True
        if f"/cloche/e2e-{self.mark}-" in read_text(f"/proc/{pid}/cgroup"):
            return True
        with contextlib.suppress(OSError):
            uid = os.stat(f"/proc/{pid}").st_uid
            return self.uid_base <= uid < self.uid_base + 0x2000 or uid == self.user
        return False

    def cgroup_roots(self):
        """A group of each worker, below each controller; those of another suite may go while they are looked at, which walk() takes."""
        return [pathlib.Path(path, name) for path, names, _ in os.walk("/sys/fs/cgroup") if os.path.basename(path) == "cloche"
                for name in names if name.startswith(f"e2e-{self.mark}-")]

    def cgroups(self):
        return [p for root in self.cgroup_roots() for p in root.iterdir() if p.is_dir()]

    def remove_cgroups(self):
        for root in self.cgroup_roots():
            with contextlib.suppress(OSError):
                root.rmdir()

    def drift(self):
        return {name: drift for name in self.tenant_names() if (drift := self.usage(name).drift) != 0}

    def held(self):
        """{tenant: dimensions in use} that are not 0, of what is held at one time."""
        held = {}
        for name in self.tenant_names():
            rows = {q.dimension: q.used for q in self.usage(name).quotas
                    if q.used and q.dimension in ("vcpu_milli", "memory_mib", "sandboxes", "disk_mib")}
            if rows:
                held[name] = rows
        return held

    def audit_records(self, stream=None):
        """Every record of the audit log, stream by stream, as written."""
        rows = []
        for path, log in sorted((p, log) for log, _ in self.audits for p in log.rglob("*") if p.is_file()):
            if stream and stream not in str(path.relative_to(log)):
                continue
            for line in read_text(path).splitlines():
                with contextlib.suppress(ValueError):
                    rows.append(json.loads(line))
        return rows

    def unit_ends(self, ids):
        """{unit: how many ends of it the log has}; what a later scheduler told from the books counts where no other told it."""
        told = [r["fields"] for r in self.audit_records() if r["event"] == "unit.end"]
        first_hand = collections.Counter(f["unit"] for f in told if not f.get("recovered"))
        recovered = {f["unit"] for f in told if f.get("recovered")}
        return {i: first_hand[i] or int(i in recovered) for i in ids}

    def verify_audit(self):
        """(exit status, text) of the verifier over the audit log; the worst, when there are several."""
        return max(self._verify_log(*log) for log in self.audits)

    @staticmethod
    def _verify_log(log, key):
        done = subprocess.run([str(BUILD / "e2e_verify"), str(log), str(key)], capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).strip()

    def tails(self, lines=15):
        """The last lines of each log, and before them what its process died of, which a sanitizer's report may have pushed away."""
        logs = {p.name: read_text(p.log).splitlines() for p in self.processes()}
        return "\n".join("\n".join([f"--- {name}", *[x for x in log[:-lines] if '"FATAL"' in x], *log[-lines:]]) for name, log in logs.items())

    def sanitizer_reports(self):
        """Of each process that said such a thing: from there on, with the stacks."""
        marks = re.compile("ERROR: AddressSanitizer|runtime error:|LeakSanitizer|assertion failed")
        said = {p.name: marks.search(text) for p in self.processes() for text in [read_text(p.log)]}
        return [f"{name}: {m.string[m.start():m.start() + 4000]}" for name, m in said.items() if m]


# --- checks ----------------------------------------------------------------------------------------

class Suite:
    """Checks in order; a scenario that raises is a failed check and the next one goes on."""

    def __init__(self, name):
        self.name, self.passed, self.failed, self.scenarios, self.left_out = name, 0, 0, [], set()
        self.begin = time.monotonic()
        only_in_ci_as_a_twin(name)

    def check(self, sentence, ok, detail=""):
        ok = bool(ok)
        self.passed, self.failed = self.passed + ok, self.failed + (not ok)
        detail = detail if isinstance(detail, str) else str(detail).replace("\n", " ")  # reports show one line
        print(f"{'ok  ' if ok else 'FAIL'} {sentence}" + (f": {detail}" if detail and not ok else ""), flush=True)
        return ok

    def equal(self, sentence, got, want):
        return self.check(sentence, got == want, f"got {got!r}, want {want!r}")

    def scenario(self, fn):
        self.scenarios.append(fn)
        return fn

    def long_scenario(self, fn):
        """One that waits for half a minute: a counted skip where is_long() says no."""
        self.scenarios.append(fn)
        if not is_long():
            self.left_out.add(fn)
        return fn

    def play(self, cluster, only=()):
        for fn in self.scenarios:
            if only and not any(name in fn.__name__ for name in only):
                continue
            if fn in self.left_out:
                print(f"left out: {fn.__name__} takes long; runs with CI=true or CLOCHE_LONG=1", flush=True)
                continue
            begin = time.monotonic()
            try:
                fn(cluster)
            except Exception as err:  # noqa: BLE001
                where = traceback.format_exc()
                what = f"{err.code().name}: {err.details()}" if isinstance(err, grpc.Call) else err
                self.check(f"{fn.__name__} runs to its end", False, f"{what}\n{where}\n{cluster.tails()}")
            print(f"     {fn.__name__}: {time.monotonic() - begin:.1f} s", flush=True)

    def close(self, c, clean=True):
        """Stop the cluster and check what every cluster must leave behind: nothing."""
        if clean and any(s.is_running() for s in c.schedulers) and c.redis.is_running():
            held = until(lambda: not c.held(), 15) or c.held()
            self.check("every lease is given back", held is True or not held, held)
            self.equal("the books show no drift", c.drift(), {})
        statuses = c.stop()
        self.check("every process ends in order when asked", all(s == 0 for s in statuses.values()), statuses)
        until(lambda: not c.leftovers(), 10)
        self.check("no process, VM or uid is left over", not c.leftovers(),
                   [(p, read_text(f"/proc/{p}/cmdline").replace("\0", " ")[:160]) for p in c.leftovers()])
        self.check("no cgroup is left over", not c.cgroups(), c.cgroups())
        status, text = c.verify_audit()
        self.check("the audit log verifies", status == 0, f"{status} {text}")
        self.check("no sanitizer or assertion spoke", not c.sanitizer_reports(), "\n".join(c.sanitizer_reports()))
        for pid in c.leftovers():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        c.remove_cgroups()
        if os.environ.get("CLOCHE_KEEP") == "1" or self.failed and os.environ.get("CLOCHE_KEEP_FAILED") == "1":
            print(f"     kept: {c.dir}")
        else:
            shutil.rmtree(c.dir, ignore_errors=True)

    def finish(self):
        print(f"{self.name}: {self.passed} passed, {self.failed} failed ({time.monotonic() - self.begin:.0f} s)", flush=True)
        sys.exit(1 if self.failed else 0)

    def main(self, cluster=Cluster, **kw):
        """The usual file: one cluster, every scenario (or those named on the command line)."""
        c = cluster(self.name, **kw)
        try:
            c.start()
            self.play(c, sys.argv[1:])
        except Exception as err:  # noqa: BLE001
            self.check("the cluster starts", False, f"{err}\n{traceback.format_exc()}")
        finally:
            self.close(c)
        self.finish()


def random_bytes(n, seed=1):
    return random.Random(seed).randbytes(n)


def sha256(data):
    return hashlib.sha256(data).digest()
