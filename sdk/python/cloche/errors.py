"""What a call can fail with."""
import contextlib

import grpc

from . import _wire

# Of another call, later: nothing has to change for it (docs/errors.md).
RETRYABLE = frozenset(("NOMEM", "RATE", "QUOTA", "QUEUE", "UNAVAILABLE"))
# Where no Cloche answered.
_BY_STATUS = {"UNAVAILABLE": "UNAVAILABLE", "DEADLINE_EXCEEDED": "DEADLINE", "CANCELLED": "CANCELLED", "UNIMPLEMENTED": "UNIMPL"}


class Error(Exception):
    """A call failed.

    code         its name in docs/errors.md, as "NOTFOUND" or "QUOTA"
    message      what happened, and where there is a second line, what to do about it
    retry_after  seconds until it may be tried again; None where the service names no time
    """

    def __init__(self, code, message, retry_after=None):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.retry_after = code, message, retry_after

    @property
    def is_retryable(self):
        return self.code in RETRYABLE


class CommandFailed(Error):
    """A command with check=True did not end with exit status 0; `result` is what it did."""

    def __init__(self, result):
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        super().__init__("COMMAND", f"{result.ended_as}{': ' + lines[-1] if lines else ''}")
        self.result = result


class CodeFailed(Error):
    """What a function was called with, or it itself, raised; `name`, `value` and `traceback` say what."""

    def __init__(self, outcome, message, error, stdout=b"", stderr=b""):
        text = f"{error.name}: {error.value}" if error else message or outcome
        super().__init__(outcome, text)
        self.name, self.value, self.traceback = (error.name, error.value, error.traceback) if error else ("", "", "")
        self.stdout, self.stderr = stdout, stderr


def from_grpc(err):
    code = _BY_STATUS.get(err.code().name, err.code().name)
    retry_after = None
    packed = next((value for key, value in err.trailing_metadata() or () if key == "grpc-status-details-bin"), None)
    for detail in _wire.message("google.rpc.Status").FromString(packed).details if packed else ():
        if detail.type_url.endswith("/google.rpc.ErrorInfo"):
            code = _wire.message("google.rpc.ErrorInfo").FromString(detail.value).reason
        elif detail.type_url.endswith("/google.rpc.RetryInfo"):
            delay = _wire.message("google.rpc.RetryInfo").FromString(detail.value).retry_delay
            retry_after = delay.seconds + delay.nanos / 1e9
    return Error(code, err.details() or "", retry_after)


@contextlib.contextmanager
def raised():
    """Errors of gRPC leave it as ours."""
    try:
        yield
    except grpc.RpcError as err:
        raise from_grpc(err) from None
