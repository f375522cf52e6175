"""What calls answer with.  All of it is plain data; times are seconds, sizes bytes."""
import dataclasses
import datetime
from typing import Dict, List, Optional

from ._wire import name_of

SECOND = 10**9


def time_of(message, field):
    """None where it is not set."""
    if not message.HasField(field):
        return None
    return datetime.datetime.fromtimestamp(getattr(message, field).unix_ns / SECOND, datetime.timezone.utc)


@dataclasses.dataclass
class Result:
    """What became of a command.

    outcome  EXITED, SIGNALED, TIMED_OUT, OOM_KILLED, NOT_FOUND, NOT_EXECUTABLE, CANCELLED or FAILED (common.proto)
    reason   where the service ended it: WORKER_LOST, QUEUE_DEADLINE, EXPIRED, REQUESTED ...
    """
    outcome: str
    exit_code: int
    signal: int
    reason: str
    message: str
    cpu: float
    wall: float
    peak_memory: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False  # more was written than is kept

    @classmethod
    def of(cls, message, output):
        return cls(name_of("Outcome", message.outcome), message.exit_code, message.signal, name_of("Reason", message.reason), message.message,
                   message.usage.cpu_ns / SECOND, message.usage.wall_ns / SECOND, message.usage.peak_memory_bytes,
                   bytes(output.stdout), bytes(output.stderr), message.stdout.truncated or message.stderr.truncated)

    @property
    def ok(self) -> bool:
        return self.outcome == "EXITED" and self.exit_code == 0

    @property
    def text(self) -> str:
        """Of stdout."""
        return self.stdout.decode(errors="replace")

    @property
    def ended_as(self) -> str:
        """In words."""
        if self.outcome == "EXITED":
            return f"exit status {self.exit_code}"
        what = f"signal {self.signal}" if self.outcome == "SIGNALED" else self.outcome
        return f"{what} ({self.message})" if self.message else what


@dataclasses.dataclass
class CodeError:
    """What code raised."""
    name: str
    value: str
    traceback: str

    @classmethod
    def of(cls, message):
        return cls(message.name, message.value, message.traceback)


@dataclasses.dataclass
class CodeResult:
    """One thing that a cell showed: in each form that it has, by MIME type."""
    data: Dict[str, bytes]
    is_main: bool  # what the last line is worth, not what was displayed

    @property
    def text(self) -> str:
        return self.data.get("text/plain", b"").decode(errors="replace")


@dataclasses.dataclass
class Cell:
    """What became of code: outcome is OK, ERROR, INTERRUPTED, TIMED_OUT, EXITED, OOM_KILLED, RESTARTED or FAILED (code.proto)."""
    outcome: str
    message: str
    execution_count: int
    wall: float
    context: str
    results: List[CodeResult]
    error: Optional[CodeError]
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        return self.outcome == "OK"

    @property
    def text(self) -> Optional[str]:
        """What its last line is worth, as text; None when it is worth nothing."""
        return next((r.text for r in self.results if r.is_main), None)


@dataclasses.dataclass
class SandboxInfo:
    id: str
    template: str
    state: str  # QUEUED, STARTING, RUNNING, PAUSED or ENDED
    vcpus: int
    memory_mib: int
    labels: Dict[str, str]
    created: Optional[datetime.datetime]
    expires: Optional[datetime.datetime]
    reason: str  # why it ended
    worker: str
    driver: str

    @classmethod
    def of(cls, message):
        return cls(message.id, message.template, name_of("UnitState", message.state), message.resources.vcpus, message.resources.memory_mib,
                   {label.key: label.value for label in message.labels}, time_of(message, "created"), time_of(message, "expires"),
                   name_of("Reason", message.reason), message.worker_id, message.driver)


@dataclasses.dataclass
class Snapshot:
    id: str
    name: str
    template: str
    sandbox: str  # whose it is; that may be gone
    labels: Dict[str, str]
    created: Optional[datetime.datetime]
    size: int
    entry: str  # what a call calls; "" where it is no function

    @classmethod
    def of(cls, message):
        return cls(message.id, message.name, message.template, message.sandbox_id, {label.key: label.value for label in message.labels},
                   time_of(message, "created"), message.image_bytes, message.function.entry)


@dataclasses.dataclass
class FileInfo:
    name: str
    kind: str  # REGULAR, DIRECTORY, SYMLINK or OTHER
    size: int
    mode: int
    modified: Optional[datetime.datetime]
    link_target: str

    @classmethod
    def of(cls, message):
        return cls(message.name, name_of("FileType", message.type), message.size, message.mode, time_of(message, "modified"), message.link_target)


@dataclasses.dataclass
class FileChange:
    kind: str  # CREATED, WRITTEN, REMOVED, MOVED or ATTRIBUTES; LOST: there were more than could be told
    path: str


@dataclasses.dataclass
class Template:
    name: str
    driver: str
    warm: int  # virtual machines that wait for work
    workers: int
