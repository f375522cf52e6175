"""A sandbox and what tests do with it."""
import time

from harness import SECOND, code_of, command, error_of, follow, pb, soon, until

COUNTER = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.2; done"


class Box:
    """One sandbox and what one does with it."""

    def __init__(self, client, ttl=300, template="base", **kw):
        self.client = client
        self.id = client.sandboxes.Create(pb.CreateRequest(template=template, ttl_ns=int(ttl * SECOND), **kw), timeout=60).sandbox.id

    def get(self):
        return self.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=self.id)).sandbox

    def state(self):
        return pb.UnitState.Name(self.get().state).removeprefix("UNIT_STATE_")

    def pause(self, keep=0, **kw):
        return self.client.sandboxes.Pause(pb.PauseRequest(sandbox_id=self.id, keep_ns=int(keep * SECOND)), **kw).sandbox

    def resume(self, ttl=0, **kw):
        return self.client.sandboxes.Resume(pb.ResumeRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND)), **kw)

    def snapshot(self, name="", timeout=120, **kw):
        """It is kept as it is, for others to begin with: Box(client, template="", snapshot=...)."""
        request = pb.SnapshotServiceCreateRequest(sandbox_id=self.id, name=name, **kw)
        return self.client.snapshots.Create(request, timeout=timeout).snapshot

    def fork(self, ttl=0, timeout=120, **kw):
        """Another one, which begins as a copy of this one."""
        other = Box.__new__(Box)
        other.client = self.client
        other.id = self.client.sandboxes.Fork(pb.ForkRequest(sandbox_id=self.id, ttl_ns=int(ttl * SECOND), **kw), timeout=timeout).sandbox.id
        return other

    def kill(self):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))

    def start(self, *argv, **kw):
        return self.client.execs.Start(pb.StartRequest(sandbox_id=self.id, command=command(*argv, **kw))).exec_id

    def attach(self, exec_id, **kw):
        return self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.id, exec_id=exec_id, **kw), timeout=soon(300))

    def exec(self, *argv, **kw):
        return follow(self.attach(self.start(*argv, **kw)))

    def clock_error(self):
        """Seconds that its wall clock is wrong by at least, however long the question takes."""
        before, now, after = time.time(), float(self.exec("date", "+%s.%N").out), time.time()
        return max(before - now, now - after, 0)

    def clock_is_right(self):
        """Soon: on a busy host the worker asks its guest more than once."""
        return until(lambda: self.clock_error() < 0.3, 5)

    def wait(self, exec_id, timeout=60):
        return self.client.execs.Wait(pb.WaitRequest(sandbox_id=self.id, exec_id=exec_id), timeout=timeout).result

    def python(self, code):
        """The main result of a cell, as text."""
        request = pb.RunCodeRequest(sandbox_id=self.id, code=code, language=pb.LANGUAGE_PYTHON)
        results = [e.result for e in self.client.codes.RunCode(request, timeout=120) if e.WhichOneof("event") == "result" and e.result.is_main_result]
        return {d.mime_type: d.data for d in results[0].data}.get("text/plain", b"").decode() if results else None


def numbers(listener):
    return [int(line) for line in listener.lines()]


def quota(c, tenant):
    return {q.dimension: q.used for q in c.usage(tenant).quotas}


def refused(call, *args, **kw):
    """(code, text) of a refusal."""
    err = error_of(call, *args, **kw)
    return (code_of(err), err.details() if err else "")
