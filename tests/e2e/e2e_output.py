#!/usr/bin/env python3
"""Output and stdin in bulk: intact, capped, bounded in memory, and nobody waits for a slow reader."""
import os
import threading
import time

from harness import (MIB, Followed, Suite, follow, grpc, pb, read_text, rss_bytes, run, sha256, soon, spec, until)

suite = Suite("output")
check, equal = suite.check, suite.equal
# Room for sanitizers: what must not show is growth by the amount of the data.
RSS_GROWTH = 48 * MIB


class Memory:
    """Highest RSS of scheduler and workers while the block runs, over what it was before."""

    def __init__(self, c):
        self.processes = [c.scheduler, *c.workers]

    def __enter__(self):
        self.base = {p.name: rss_bytes(p.pid) for p in self.processes}
        self.peak, self.over = dict(self.base), threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def _look(self):
        while not self.over.wait(0.05):
            for p in self.processes:
                self.peak[p.name] = max(self.peak[p.name], rss_bytes(p.pid))

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.growth = {n: (self.peak[n] - self.base[n]) // MIB for n in self.base}

    def is_bounded(self):
        return all(v * MIB < RSS_GROWTH for v in self.growth.values())


@suite.scenario
def intact(c):
    f = run(c.admin, "sh", "-c", "head -c 5242880 /dev/urandom > r; sha256sum r >&2; cat r")
    want = f.err.split()[0].decode()
    check("5 MiB of random stdout arrive intact", len(f.out) == 5 * MIB and sha256(bytes(f.out)).hex() == want and f.gaps == 0, (len(f.out), f.gaps, f.outcome))
    check("the totals and the digest in the result agree", f.result.stdout.bytes == 5 * MIB and f.result.stdout.sha256.hex() == want
          and f.result.stdout.kept_bytes == 5 * MIB and not f.result.stdout.truncated, f.result.stdout)
    g = follow(c.admin.jobs.Watch(pb.WatchRequest(job_id=f.job_id)))
    check("Watch gives the same bytes again", g.out == f.out and g.err == f.err)


@suite.scenario
def capped(c):
    size, cap = 48 * MIB, 2 * MIB
    with Memory(c) as memory:
        f = run(c.admin, "sh", "-c", f"head -c {size} /dev/zero; echo end >&2", cap=cap)
    total = f.result.stdout
    check("output over the cap is cut, and said so", total.truncated and total.bytes == size and total.kept_bytes <= cap and len(f.out) == total.kept_bytes, (total, len(f.out)))
    check("… with the digest of all bytes", total.sha256 == sha256(bytes(size)), total.sha256.hex())
    check("… and memory stays bounded", memory.is_bounded(), memory.growth)
    f = run(c.admin, "sh", "-c", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2", cap=4_000_000)
    check("the cap is of both streams together", f.result.stdout.kept_bytes + f.result.stderr.kept_bytes <= 4_000_000
          and f.result.stdout.bytes == f.result.stderr.bytes == 3_000_000 and f.result.stderr.truncated, f.result)


@suite.scenario
def slow_reader(c):
    with Memory(c) as memory:
        stream = c.client().jobs.Run(pb.RunRequest(spec=spec("sh", "-c", "head -c 33554432 /dev/zero"), detach_on_disconnect=True), timeout=120)
        f = Followed()
        while f.take(next(stream)) != "output":
            pass
        begin = time.monotonic()
        others = [run(c.admin, "echo", str(i)) for i in range(5)]
        took = time.monotonic() - begin
        ended = until(lambda: c.admin.jobs.Get(pb.GetRequest(job_id=f.job_id)).job.state == pb.UNIT_STATE_ENDED, 30)
    check("a reader that reads nothing does not hold its job up", ended)
    check("… nor anybody else's", all(o.outcome == "EXITED" for o in others) and took < soon(10), (took, [str(o) for o in others]))
    check("… and memory stays bounded", memory.is_bounded(), memory.growth)
    for event in stream:
        f.take(event)
    check("when it reads at last it gets every byte", len(f.out) == 32 * MIB and f.gaps == 0 and f.outcome == "EXITED", (len(f.out), f.gaps, f.outcome))


def write_stdin(client, job_id, size, piece):
    sent = [0]

    def requests():
        yield pb.WriteStdinRequest(job_id=job_id)
        while sent[0] < size:
            yield pb.WriteStdinRequest(data=piece)
            sent[0] += len(piece)
        yield pb.WriteStdinRequest(eof=True)
    try:
        return sent, client.jobs.WriteStdin(requests(), timeout=60), None
    except grpc.RpcError as err:
        return sent, None, err


@suite.scenario
def much_stdin(c):
    size = 1024 * MIB if os.environ.get("CLOCHE_LONG") == "1" else 96 * MIB
    client = c.client()
    stream = client.jobs.Run(pb.RunRequest(spec=spec("wc", "-c", stdin=True)), timeout=600)
    f = Followed()
    f.take(next(stream))
    with Memory(c) as memory:
        sent, answer, err = write_stdin(c.client(), f.job_id, size, bytes(MIB))
        for event in stream:
            f.take(event)
    check(f"{size // MIB} MiB of stdin are read by the process", answer is not None and answer.bytes == size and f.out.split() == [str(size).encode()], (err, f))
    check("… in bounded memory", memory.is_bounded(), memory.growth)
    stream = client.jobs.Run(pb.RunRequest(spec=spec("sleep", "6", stdin=True)), timeout=60)
    f = Followed()
    f.take(next(stream))
    with Memory(c) as memory:
        sent, answer, err = write_stdin(c.client(), f.job_id, 1024 * MIB, bytes(MIB))
        for event in stream:
            f.take(event)
    check("1 GiB for a process that does not read is held back, not buffered", sent[0] < 64 * MIB and memory.is_bounded(), (sent[0] // MIB, memory.growth))
    check("… and the writer learns how much the process was given", answer is not None and answer.bytes < 64 * MIB, (answer, err))
    equal("… which is the job's own", f.outcome, "EXITED")


@suite.scenario
def spools_go(c):
    box = c.worker.state_dir / "spool"
    names = sorted(os.listdir(box)) if box.exists() else []
    check("what is kept of output are files that nobody else can read", all((box / n).stat().st_mode & 0o077 == 0 for n in names), names)
    check("the scheduler's log has no output in it", "\\u0000\\u0000" not in read_text(c.scheduler.log))


if __name__ == "__main__":
    suite.main(templates="base")
