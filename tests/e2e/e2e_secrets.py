#!/usr/bin/env python3
"""Seeded secrets: none of them may be found in any log, audit stream or file name of the service.

Exempt, because they must hold it: Redis (the job's record is what will run) and the spools of output
that the job itself printed.
"""
import os
import pathlib

from harness import Suite, command, follow, pb, read_text, run, spec

suite = Suite("secrets")
check, equal = suite.check, suite.equal

SEEDS = {name: f"hunter2{name}{'x' * 12}" for name in
         ("env", "token", "password", "apikey", "bearer", "header", "code", "stdin", "sbxenv", "sbxarg", "file", "spoolfree", "note")}


def find(c, places):
    """[(seed, file)] of every hit below these folders, in names too."""
    hits = []
    for place in places:
        for path in [p for p in pathlib.Path(place).rglob("*") if p.is_file()]:
            text = read_text(path) + str(path)
            hits += [(name, str(path.relative_to(c.dir))) for name, seed in SEEDS.items() if seed in text]
    return hits


@suite.scenario
def seeded(c):
    s = SEEDS
    f = run(c.admin, "sh", "-c", "test -n \"$API_TOKEN\" && echo ok", env={"API_TOKEN": s["env"], "PLAIN": s["env"]})
    check("a secret in the environment reaches the job", bytes(f.out) == b"ok\n", f)
    run(c.admin, "true", f"--token={s['token']}", "--password", s["password"], f"--api-key={s['apikey']}", "-H", f"Authorization: Bearer {s['bearer']}")
    run(c.admin, "env", f"SECRET_HEADER={s['header']}", "true")
    run(c.admin, "python3", "-c", f"password = '{s['code']}'", template="python")
    stream = c.admin.jobs.Run(pb.RunRequest(spec=spec("sh", "-c", "cat > /dev/null", stdin=True)), timeout=30)
    job = next(stream).accepted.job_id
    c.admin.jobs.WriteStdin(iter([pb.WriteStdinRequest(job_id=job, data=s["stdin"].encode(), eof=True)]))
    for _ in stream:
        pass
    box = c.admin.sandboxes.Create(pb.CreateRequest(template="base")).sandbox.id
    for argv, env in ((["true", f"--auth-token={s['sbxarg']}"], {}), (["true"], {"TOKEN": s["sbxenv"]})):
        e = c.admin.execs.Start(pb.StartRequest(sandbox_id=box, command=command(*argv, env=env))).exec_id
        follow(c.admin.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=e)))
    c.admin.files.Write(iter([pb.WriteRequest(sandbox_id=box, path="/tmp/key", data=s["file"].encode(), commit=True)]))
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
    run(c.admin, "no-such-program", f"--password={s['spoolfree']}")


@suite.scenario
def refused_too(c):
    s = SEEDS["token"]
    for argv in (["true", f"--token={s}"], ["", s]):
        try:
            run(c.admin, *argv, template="No Such Template")
        except Exception:  # noqa: BLE001
            pass
    wrong = c.client(f"clk_{'0' * 16}_{'ab' * 32}")
    try:
        wrong.jobs.List(pb.ListRequest())
    except Exception:  # noqa: BLE001
        pass


@suite.scenario
def nothing_found(c):
    hits = find(c, [c.dir / "log"])
    check("no log has a seed in it", not hits, hits)
    hits = find(c, [c.audit_dir])
    check("no audit stream has a seed in it", not hits, hits)
    hits = find(c, [w.state_dir for w in c.workers])
    check("no spool and no state file has a seed in it", not hits, hits)
    keys = [c.admin_key.split("_")[2], "ab" * 32]
    files = [p for p in c.dir.rglob("*") if p.is_file() and p.name != "admin.key"]
    hits = [str(p) for p in files for k in keys if k in read_text(p)]
    check("no file but the administrator's has an API key in it, Redis included", not hits, hits)
    modes = {p.name: oct(os.stat(p).st_mode & 0o777) for p in (c.dir / "admin.key", c.dir / "sched" / "pepper", c.dir / "audit-keys" / "audit.key")}
    equal("keys are readable by their owner only", set(modes.values()) <= {"0o600", "0o400"}, True)
    aof = "".join(read_text(p) for p in (c.dir / "redis").rglob("*.aof"))
    check("Redis alone has the job's record, as it must", SEEDS["env"] in aof)
    cmdlines = " ".join(read_text(f"/proc/{p.pid}/cmdline") for p in c.processes())
    check("no command line of the service has a key in it", all(k not in cmdlines for k in keys))


if __name__ == "__main__":
    suite.main(templates="base,python")
