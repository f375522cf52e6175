"""A guest under QEMU, driven through the agent's protocol: what the tests share.

Boot one image, speak GuestFrame over the virtio port, keep each stream's frames apart.
"""
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
FACTOR = float(os.environ.get("CLOCHE_TIME_FACTOR", "1"))  # how much longer to wait on a slow machine
# Emulation runs everywhere, but inside of an emulated machine (tools/lab) it takes minutes to boot.
KVM = os.environ.get("CLOCHE_DRIVER") in ("kvm", "qemu/kvm")
CPU = ["-accel", "kvm", "-cpu", "host"] if KVM else ["-accel", "tcg,thread=single", "-cpu", "max"]
WINDOW = 262144
DATA_MAX = 32768


def load_protocol():
    """Generate the Python form of guest.proto and import it."""
    out = tempfile.mkdtemp(prefix="cloche-pb-")
    subprocess.run(["protoc", "-I", os.path.join(ROOT, "proto"), "--python_out=" + out,
                    "cloche/v1/guest.proto"], cwd=os.path.join(ROOT, "proto"), check=True)
    sys.path.insert(0, out)
    from cloche.v1 import guest_pb2
    shutil.rmtree(out, ignore_errors=True)
    return guest_pb2


pb = load_protocol()


def tsc_khz():
    """The host's TSC rate: under load the guest cannot calibrate it by itself."""
    for line in open("/proc/cpuinfo"):
        if line.startswith("cpu MHz"):
            return int(float(line.split(":")[1]) * 1000)
    return 0


class Ended(Exception):
    """The VM closed its side."""


class Guest:
    def __init__(self, image, memory=None, scratch=None, extra_append="", restore=None, disk=None):
        """restore: a file that snapshot() wrote; scratch: a tmpfs of that size instead of the disk of
        `disk` bytes (512 MiB)."""
        self.dir = tempfile.mkdtemp(prefix="cloche-vm-")
        self.manifest = json.load(open(os.path.join(image, "manifest.json")))
        mine, theirs = socket.socketpair()
        memory = memory or self.manifest["memory_mib"]
        append = "%s tsc_early_khz=%d %s" % (self.manifest["cmdline"], tsc_khz(), extra_append)
        if scratch:
            append = append.replace("cloche.disk=1", "") + " cloche.scratch=%d" % scratch
        self.disk = os.path.join(self.dir, "scratch")
        if os.path.exists(os.path.join(image, "scratch.img")):
            subprocess.run(["cp", "--sparse=always", os.path.join(image, "scratch.img"), self.disk], check=True)
        with open(self.disk, "ab") as f:
            f.truncate(disk or 512 << 20)
        self.serial = os.path.join(self.dir, "serial")
        args = ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=off,memory-backend=ram",
                *CPU, "-smp", "1", "-m", str(memory),
                "-object", "memory-backend-memfd,id=ram,size=%dM" % memory,
                "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-kernel", os.path.join(image, "vmlinux"), "-initrd", os.path.join(image, "initrd"),
                "-append", append,
                "-drive", "id=d0,file=%s,format=raw,if=none,readonly=on" % os.path.join(image, "rootfs.img"),
                "-drive", "id=scratch,file=%s,format=raw,if=none,cache=unsafe,discard=unmap,detect-zeroes=unmap" % self.disk,
                "-device", "virtio-blk-device,drive=d0", "-device", "virtio-blk-device,drive=scratch,serial=scratch",
                "-device", "virtio-serial-device",
                "-chardev", "socket,id=c0,fd=%d" % theirs.fileno(),
                "-device", "virtserialport,chardev=c0,name=cloche.agent",
                "-serial", "file:" + self.serial]
        self.qmp, monitor = socket.socketpair()
        args += ["-chardev", "socket,id=mon,fd=%d" % monitor.fileno(), "-mon", "chardev=mon,mode=control"]
        if restore:
            args += ["-incoming", "exec:cat " + restore]
        self.spawned = time.monotonic()
        self.process = subprocess.Popen(args, pass_fds=[theirs.fileno(), monitor.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        monitor.close()
        self.sock = mine
        self.buffer = b""
        self.next_stream = 1
        self.inbox = {}  # stream -> frames not taken yet
        self.credit = {}  # stream -> bytes that we may send
        self.auto_window = set()  # streams whose data is acknowledged at once
        self.kept = None  # what must not be sent before Release
        self.events = []  # GuestEvent, in the order of their frames
        self.seen = self.lost = 0  # as the newest GuestEvents says
        if restore:
            while self.command("query-status")["status"] == "inmigrate":
                time.sleep(0.01)
            self.command("cont")  # it was saved while it stood still

    # --- frames
    def send(self, stream=0, **body):
        frame = pb.GuestFrame(stream=stream, **body)
        self.send_raw(frame.SerializeToString())

    def send_raw(self, payload):
        self.sock.sendall(struct.pack("<I", len(payload)) + payload)

    def pump(self, timeout):
        """Read what is there and sort it; False when nothing came in time."""
        ready, _, _ = select.select([self.sock], [], [], max(0, timeout))
        if not ready:
            return False
        try:
            data = self.sock.recv(262144)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Ended()
        self.buffer += data
        while len(self.buffer) >= 4:
            n = struct.unpack_from("<I", self.buffer)[0]
            if len(self.buffer) < 4 + n:
                break
            frame = pb.GuestFrame()
            frame.ParseFromString(self.buffer[4:4 + n])
            self.buffer = self.buffer[4 + n:]
            kind = frame.WhichOneof("body")
            if kind == "window":
                self.credit[frame.stream] = self.credit.get(frame.stream, 0) + frame.window.bytes
                continue
            if kind == "events":
                self.events += frame.events.events
                self.seen, self.lost = frame.events.seen, frame.events.lost
                continue
            if kind == "data" and frame.stream in self.auto_window and frame.data.bytes:
                window = {"window": pb.GuestWindow(bytes=len(frame.data.bytes))}
                if self.kept is None:
                    self.send(frame.stream, **window)
                else:
                    self.kept.append((frame.stream, window))
            self.inbox.setdefault(frame.stream, []).append(frame)
        return True

    def take(self, stream, timeout=30):
        """The next frame of a stream."""
        deadline = time.monotonic() + timeout * FACTOR
        while not self.inbox.get(stream):
            left = deadline - time.monotonic()
            if left <= 0 or (not self.pump(left) and time.monotonic() >= deadline):
                raise TimeoutError("no frame on stream %d in %d s" % (stream, timeout * FACTOR))
        return self.inbox[stream].pop(0)

    # --- conversations
    def hello(self, timeout=60):
        frame = self.take(0, timeout)
        assert frame.WhichOneof("body") == "hello", frame
        self.hello_seconds = time.monotonic() - self.spawned
        return frame.hello

    def identify(self, hostname="sbx-test", pids=0, scratch=0, entropy=None, wall_ns=None, watch=False, count_calls=False):
        self.send(identity=pb.GuestIdentity(
            entropy=os.urandom(32) if entropy is None else entropy,
            wall_clock_ns=time.time_ns() if wall_ns is None else wall_ns,
            hostname=hostname, machine_id="0123456789abcdef" * 2,
            limits=pb.GuestLimits(pids=pids, scratch_bytes=scratch), watch=watch, count_calls=count_calls))
        frame = self.take(0)
        assert frame.WhichOneof("body") == "identity_done", frame
        return frame.identity_done

    def open_stream(self):
        stream = self.next_stream
        self.next_stream += 1
        self.credit[stream] = WINDOW
        return stream

    def start(self, argv, auto=True, **fields):
        stream = self.open_stream()
        if auto:
            self.auto_window.add(stream)
        fields.setdefault("user", pb.GUEST_USER_USER)
        env = [pb.GuestEnv(name=k, value=v) for k, v in fields.pop("env", {}).items()]
        self.send(stream, exec=pb.GuestExec(argv=argv, env=env, **fields))
        return stream

    def push(self, stream, data, channel, eof=True, timeout=120):
        """Send data under flow control."""
        at = 0
        while at < len(data):
            while self.credit[stream] == 0:
                if not self.pump(timeout * FACTOR):
                    raise TimeoutError("no credit")
            n = min(DATA_MAX, self.credit[stream], len(data) - at)
            self.credit[stream] -= n
            self.send(stream, data=pb.GuestData(channel=channel, bytes=data[at:at + n]))
            at += n
        if eof:
            self.send(stream, data=pb.GuestData(channel=channel, eof=True))

    def finish(self, stream, timeout=60):
        """Collect an exec to its end: (ended, stdout, stderr)."""
        out = {pb.GUEST_CHANNEL_STDOUT: b"", pb.GUEST_CHANNEL_STDERR: b""}
        while True:
            frame = self.take(stream, timeout)
            kind = frame.WhichOneof("body")
            if kind == "data":
                out[frame.data.channel] += frame.data.bytes
            elif kind == "exec_ended":
                return (frame.exec_ended, out[pb.GUEST_CHANNEL_STDOUT], out[pb.GUEST_CHANNEL_STDERR])
            else:
                assert kind == "exec_started", frame

    def run(self, argv, stdin=None, timeout=60, **fields):
        if isinstance(argv, str):
            argv = ["/bin/sh", "-c", argv]
        stream = self.start(argv, no_stdin=stdin is None, **fields)
        if stdin is not None:
            self.push(stream, stdin, pb.GUEST_CHANNEL_STDIN)
        return self.finish(stream, timeout)

    def clock(self):
        """(least, most) of how many seconds the guest's clock is behind the host's."""
        before = time.time()
        told = self.ping_told() / 1e9
        return before - told, time.time() - told

    def ping(self, timeout=10):
        begin = time.monotonic()
        self.ping_told(timeout)
        return time.monotonic() - begin

    def ping_told(self, timeout=10):
        token = int.from_bytes(os.urandom(7), "little")
        self.send(ping=pb.GuestPing(token=token))
        frame = self.take(0, timeout)
        assert frame.WhichOneof("body") == "pong" and frame.pong.token == token, frame
        return frame.pong.wall_clock_ns

    def command(self, name, **arguments):
        """One QMP command and its answer."""
        if not hasattr(self, "qmp_lines"):
            self.qmp_lines = self.qmp.makefile("rw")
            self.qmp_lines.readline()
            self.command("qmp_capabilities")
        self.qmp_lines.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self.qmp_lines.flush()
        while True:
            answer = json.loads(self.qmp_lines.readline())
            if "error" in answer:
                raise RuntimeError(answer)
            if "return" in answer:
                return answer["return"]

    def snapshot(self, path):
        """Save the running VM to a file; it is left stopped."""
        self.command("stop")  # of what a busy guest writes meanwhile some gets lost under emulation
        self.command("migrate", uri="exec:cat > " + path)
        while True:
            status = self.command("query-migrate").get("status")
            if status == "completed":
                return
            if status == "failed":
                raise RuntimeError("migration failed")
            time.sleep(0.01)

    def wait_gone(self, timeout=20):
        """Wait for the VM to end by itself."""
        try:
            self.process.wait(timeout * FACTOR)
            return True
        except subprocess.TimeoutExpired:
            return False

    def console(self):
        try:
            return open(self.serial, errors="replace").read()
        except OSError:
            return ""

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.sock.close()
        self.qmp.close()
        shutil.rmtree(self.dir, ignore_errors=True)
