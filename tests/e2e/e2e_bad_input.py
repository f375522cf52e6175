#!/usr/bin/env python3
"""What clients must not send: each is refused with a precise status, and the service goes on."""
import time

from harness import (MIB, Client, Suite, code_of, command, error_of, grpc, pb, run, soon, spec, until)

suite = Suite("bad-input")
check, equal = suite.check, suite.equal

JOB, BOX, EXEC = "job_" + "0" * 26, "sbx_" + "0" * 26, "exec_" + "0" * 26


def run_request(**kw):
    s = spec("true")
    for path, value in kw.items():
        target, names = s, path.split("__")
        for name in names[:-1]:
            target = getattr(target, name)
        field = getattr(target, names[-1])
        if hasattr(field, "extend"):
            del field[:]
            field.extend(value)
        else:
            setattr(target, names[-1], value)
    return pb.RunRequest(spec=s)


INVALID = [
    ("no spec", pb.RunRequest(), "spec"),
    ("an empty template", run_request(template=""), "template"),
    ("a template with a path", run_request(template="../base"), "template"),
    ("a template in capitals", run_request(template="Base"), "template"),
    ("a template of 64 characters", run_request(template="a" * 64), "template"),
    ("no argv", run_request(command__argv=[]), "argv"),
    ("an empty argv[0]", run_request(command__argv=[""]), "argv"),
    ("an unknown user", run_request(command__user="nobody"), "user"),
    ("an environment name with =", run_request(command__env=[pb.EnvVar(name="A=B", value="x")]), "env"),
    ("an empty environment name", run_request(command__env=[pb.EnvVar(name="", value="x")]), "env"),
    ("a label key with a space", run_request(labels=[pb.Label(key="a b", value="x")]), "label"),
    ("a label value of 257 bytes", run_request(labels=[pb.Label(key="a", value="x" * 257)]), "label"),
    ("33 labels", run_request(labels=[pb.Label(key=f"k{i}", value="x") for i in range(33)]), "label"),
    ("the same label twice", run_request(labels=[pb.Label(key="a", value="x")] * 2), "label"),
    ("a time limit over 24 h", run_request(command__timeout_ns=25 * 3600 * 10**9), "timeout"),
    ("an output cap over 1 GiB", run_request(command__output_max_bytes=(1 << 30) + 1), "output"),
    ("11 attempts", run_request(max_attempts=11), "attempts"),
    ("a network", run_request(network=7), "network"),
    ("5 vCPUs", pb.RunRequest(spec=spec("true", resources=(5, 256, 0))), "vcpu"),
    ("5 GiB of memory", pb.RunRequest(spec=spec("true", resources=(1, 5120, 0))), "mem"),
    ("9 GiB of disk", pb.RunRequest(spec=spec("true", resources=(1, 256, 9000))), "disk"),
    ("a folder of 5000 bytes", run_request(command__cwd="/" + "x" * 5000), "cwd"),
    ("a terminal of 20000 rows", pb.RunRequest(spec=spec("true", pty=(20000, 80))), "pty"),
    ("an idempotency key of 256 bytes", pb.RunRequest(spec=spec("true"), idempotency_key="k" * 256), "idempotency"),
]


@suite.scenario
def invalid_requests(c):
    for name, request, word in INVALID:
        err = error_of(c.admin.jobs.Run, request, timeout=10)
        check(f"{name} is INVALID_ARGUMENT and named", code_of(err) == "INVALID_ARGUMENT" and word in err.details().lower(), err)
    err = error_of(c.admin.jobs.Run, pb.RunRequest(spec=spec("true", *["x" * 1000] * 1100)), timeout=10)
    check("argv over 1 MiB is refused with its size", code_of(err) in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT") and "bytes" in err.details(), err)
    for name, call in {
        "a job id of another kind": lambda: c.admin.jobs.Get(pb.GetRequest(job_id=BOX)),
        "an empty job id": lambda: c.admin.jobs.Get(pb.GetRequest()),
        "a sandbox id with a quote": lambda: c.admin.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id="sbx_'; --")),
        "a page token from nowhere": lambda: c.admin.jobs.List(pb.ListRequest(page_token="\x7f not a token")),
        "signal 65": lambda: c.admin.execs.Signal(pb.SignalRequest(sandbox_id=BOX, exec_id=EXEC, signal=65)),
        "a TTL over 24 h": lambda: c.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=25 * 3600 * 10**9)),
        "a tenant name with a colon": lambda: c.admin.tenants.PutTenant(pb.PutTenantRequest(name="a:b")),
        "a tenant without a name": lambda: c.admin.tenants.PutTenant(pb.PutTenantRequest()),
        "an unknown scope": lambda: c.admin.tenants.CreateKey(pb.CreateKeyRequest(tenant="local", scopes=["everything"])),
        "a weight of 1001": lambda: c.admin.tenants.PutTenant(pb.PutTenantRequest(name="heavy", limits=pb.TenantLimits(weight=1001))),
    }.items():
        err = error_of(call)
        check(f"{name} is refused precisely", code_of(err) in ("INVALID_ARGUMENT", "NOT_FOUND") and err.details(), err)


@suite.scenario
def on_the_wire(c):
    err = error_of(c.admin.jobs.Submit, pb.SubmitRequest(spec=spec("true", *["y" * MIB] * 5)), timeout=20)
    check("a message over 4 MiB is RESOURCE_EXHAUSTED", code_of(err) == "RESOURCE_EXHAUSTED", err)
    good = pb.SubmitRequest(spec=spec("true")).SerializeToString()
    answer = c.admin.jobs.Submit(good + b"\xfa\x3f\x03abc", timeout=20)
    check("an unknown field is passed over", answer.job_id.startswith("job_"), answer)
    bad = pb.SubmitRequest(spec=spec("XXXX")).SerializeToString()
    err = error_of(c.admin.jobs.Submit, bad.replace(b"XXXX", b"\xff\xfe\xfdX"), timeout=20)
    equal("bytes that are not UTF-8 are INVALID_ARGUMENT", code_of(err), "INVALID_ARGUMENT")
    err = error_of(c.admin.jobs.Submit, bad.replace(b"XXXX", b"a\0bc"), timeout=20)
    equal("a NUL in a string is INVALID_ARGUMENT", code_of(err), "INVALID_ARGUMENT")
    err = error_of(c.admin.jobs.Submit, b"\x0a\xff\xff\xff\xff\x0f", timeout=20)
    check("a message that is cut is refused", code_of(err) in ("INVALID_ARGUMENT", "INTERNAL"), err)
    err = error_of(c.admin.jobs.Submit, b"\x0a\x80" * 3, timeout=20)
    check("a message that is no message is refused", code_of(err) in ("INVALID_ARGUMENT", "INTERNAL"), err)
    err = error_of(c.admin.jobs.Run, pb.RunRequest(spec=spec("sleep", "30")), timeout=0.3)
    equal("a deadline that passes is DEADLINE_EXCEEDED", code_of(err), "DEADLINE_EXCEEDED")
    raw = c.admin.channel.unary_unary("/cloche.v1.JobService/Explode")
    equal("an unknown method is UNIMPLEMENTED", code_of(error_of(raw, b"", timeout=5)), "UNIMPLEMENTED")
    raw = c.admin.channel.unary_unary("/cloche.v1.WorkerService/Session")
    equal("workers' methods are not served to clients", code_of(error_of(raw, b"", timeout=5)), "UNIMPLEMENTED")
    check("after all this a job runs as ever", run(c.admin, "true").outcome == "EXITED")


# One request for every method; {job}, {box} and {exec} stand for ids.
def requests(job, box, exec_id, tenant="local"):
    return {
        "jobs.Get": pb.GetRequest(job_id=job), "jobs.Watch": pb.WatchRequest(job_id=job), "jobs.Cancel": pb.CancelRequest(job_id=job),
        "jobs.WriteStdin": [pb.WriteStdinRequest(job_id=job, data=b"x", eof=True)], "jobs.Control": pb.ControlRequest(job_id=job, signal=10),
        "sandboxes.Get": pb.SandboxServiceGetRequest(sandbox_id=box), "sandboxes.Kill": pb.KillRequest(sandbox_id=box),
        "sandboxes.Extend": pb.ExtendRequest(sandbox_id=box, ttl_ns=60 * 10**9),
        "execs.Start": pb.StartRequest(sandbox_id=box, command=command("true")), "execs.Attach": pb.AttachRequest(sandbox_id=box, exec_id=exec_id),
        "execs.List": pb.ExecServiceListRequest(sandbox_id=box), "execs.Signal": pb.SignalRequest(sandbox_id=box, exec_id=exec_id, signal=10),
        "execs.WriteStdin": [pb.ExecServiceWriteStdinRequest(sandbox_id=box, exec_id=exec_id, data=b"x")],
        "execs.Resize": pb.ResizeRequest(sandbox_id=box, exec_id=exec_id, size=pb.Pty(rows=1, columns=1)),
        "execs.Wait": pb.WaitRequest(sandbox_id=box, exec_id=exec_id),
        "files.Read": pb.ReadRequest(sandbox_id=box, path="/etc/passwd"), "files.Write": [pb.WriteRequest(sandbox_id=box, path="/tmp/x", commit=True)],
        "files.List": pb.FileServiceListRequest(sandbox_id=box, path="/"), "files.Stat": pb.StatRequest(sandbox_id=box, path="/"),
        "files.MakeDir": pb.MakeDirRequest(sandbox_id=box, path="/tmp/y"), "files.Remove": pb.RemoveRequest(sandbox_id=box, path="/tmp/y"),
        "files.Rename": pb.RenameRequest(sandbox_id=box, to="/tmp/z", **{"from": "/tmp/y"}),
    }


OTHERS = {
    "jobs.Run": pb.RunRequest(spec=spec("true")), "jobs.Submit": pb.SubmitRequest(spec=spec("true")), "jobs.List": pb.ListRequest(),
    "sandboxes.Create": pb.CreateRequest(template="base"), "sandboxes.List": pb.SandboxServiceListRequest(),
    "templates.List": pb.TemplateServiceListRequest(), "templates.Get": pb.TemplateServiceGetRequest(name="base"),
    "tenants.PutTenant": pb.PutTenantRequest(name="other"), "tenants.GetTenant": pb.GetTenantRequest(name="local"),
    "tenants.ListTenants": pb.ListTenantsRequest(), "tenants.CreateKey": pb.CreateKeyRequest(tenant="local"),
    "tenants.ListKeys": pb.ListKeysRequest(tenant="local"), "tenants.RevokeKey": pb.RevokeKeyRequest(key_id="0" * 16),
    "tenants.GetUsage": pb.GetUsageRequest(tenant="local"),
}
OWN = {"tenants.GetTenant", "tenants.GetUsage"}
CHANGES = {"jobs.Run", "jobs.Submit", "jobs.Cancel", "jobs.WriteStdin", "jobs.Control", "sandboxes.Create", "sandboxes.Kill", "sandboxes.Extend",
           "execs.Start", "execs.Attach", "execs.Signal", "execs.WriteStdin", "execs.Resize", "execs.Wait",
           "files.Write", "files.MakeDir", "files.Remove", "files.Rename"}


def ask(client, method, request):
    service, name = method.split(".")
    return error_of(getattr(getattr(client, service), name), iter(request) if isinstance(request, list) else request, timeout=10)


@suite.scenario
def keys(c):
    every = {**requests(JOB, BOX, EXEC), **OTHERS}
    good = c.key("local", ("run", "read"))
    secret = good.secret
    wrong = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    clients = {"no key": c.client(""), "a key that is no key": c.client("hello"), "a wrong secret": c.client(wrong),
               "a key of an unknown id": c.client("clk_" + "0" * 16 + "_" + "0" * 64)}
    for name, client in clients.items():
        codes = {m: code_of(ask(client, m, r)) for m, r in every.items()}
        check(f"{name} is UNAUTHENTICATED to each of {len(codes)} methods", set(codes.values()) == {"UNAUTHENTICATED"}, {m: v for m, v in codes.items() if v != "UNAUTHENTICATED"})
    a, b = (ask(clients[n], "jobs.List", pb.ListRequest()).details() for n in ("a wrong secret", "a key of an unknown id"))
    equal("a wrong secret and an unknown id are answered alike", a, b)
    reader, runner = c.client(c.key("local", ("read",)).secret), c.client(c.key("local", ("run",)).secret)
    codes = {m: code_of(ask(reader, m, r)) for m, r in every.items()}
    equal("scope read may change nothing", {m for m, v in codes.items() if v == "PERMISSION_DENIED" and not m.startswith("tenants.")}, CHANGES)
    for name, client in (("read", reader), ("run", runner)):
        codes = {m: code_of(ask(client, m, r)) for m, r in every.items() if m.startswith("tenants.")}
        equal(f"scope {name} sees its own tenant and is no administrator", {m for m, v in codes.items() if v != "PERMISSION_DENIED"}, OWN)
    err = ask(reader, "jobs.Submit", OTHERS["jobs.Submit"])
    check("the refusal names the scope that is missing", "run" in err.details(), err)

    client = c.client(secret)
    check("a live key is taken", ask(client, "jobs.List", pb.ListRequest()) is None)
    c.admin.tenants.RevokeKey(pb.RevokeKeyRequest(key_id=good.key.id))
    begin = time.monotonic()
    gone = until(lambda: code_of(ask(client, "jobs.List", pb.ListRequest())) == "UNAUTHENTICATED", 5)
    check("a revoked key is refused within 1 s, or a sick machine's", gone and time.monotonic() - begin <= soon(1), time.monotonic() - begin)
    brief = c.client(c.key("local", ("read",), ttl=1).secret)
    check("a key with an end is taken before it", ask(brief, "jobs.List", pb.ListRequest()) is None)
    time.sleep(1.6)
    equal("… and refused after it", code_of(ask(brief, "jobs.List", pb.ListRequest())), "UNAUTHENTICATED")
    listed = c.admin.tenants.ListKeys(pb.ListKeysRequest(tenant="local"))
    check("no list of keys shows a secret", secret.split("_")[2] not in str(listed), "")


@suite.scenario
def other_tenants(c):
    owner, stranger = c.tenant("owner"), c.tenant("stranger")
    box = owner.sandboxes.Create(pb.CreateRequest(template="base")).sandbox.id
    exec_id = owner.execs.Start(pb.StartRequest(sandbox_id=box, command=command("sleep", "60"))).exec_id
    job = owner.jobs.Submit(pb.SubmitRequest(spec=spec("sleep", "60", stdin=True))).job_id
    until(lambda: owner.jobs.Get(pb.GetRequest(job_id=job)).job.state == pb.UNIT_STATE_RUNNING, 20)
    theirs, unknown = requests(job, box, exec_id), requests(JOB, BOX, EXEC)

    def answer(method, request, ids):
        err = ask(stranger, method, request)
        text = err.details() if err else ""
        for i in ids:
            text = text.replace(i, "ID")
        return code_of(err), text
    differ = {}
    for m in theirs:
        a, b = answer(m, theirs[m], (job, box, exec_id)), answer(m, unknown[m], (JOB, BOX, EXEC))
        if a != b or a[0] != "NOT_FOUND":
            differ[m] = (a, b)
    check(f"another tenant's id answers exactly like an unknown one, in {len(theirs)} methods", not differ, differ)
    check("the owner's are untouched", owner.jobs.Get(pb.GetRequest(job_id=job)).job.state == pb.UNIT_STATE_RUNNING
          and owner.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box)).sandbox.state == pb.UNIT_STATE_RUNNING)
    manager = c.client(c.key("stranger", ("tenant-admin",)).secret)
    codes = {m: code_of(ask(manager, m, r)) for m, r in {
        "tenants.ListKeys": pb.ListKeysRequest(tenant="owner"), "tenants.CreateKey": pb.CreateKeyRequest(tenant="owner"),
        "tenants.GetTenant": pb.GetTenantRequest(name="owner"), "tenants.GetUsage": pb.GetUsageRequest(tenant="owner"),
        "tenants.PutTenant": pb.PutTenantRequest(name="stranger", limits=pb.TenantLimits(sandboxes=100000))}.items()}
    check("a tenant's administrator manages no other tenant, nor its own limits", all(v in ("PERMISSION_DENIED", "NOT_FOUND") for v in codes.values()), codes)
    made = error_of(manager.tenants.CreateKey, pb.CreateKeyRequest(tenant="stranger", scopes=["admin"]))
    check("… and makes no key with more than it has", code_of(made) == "PERMISSION_DENIED", made)
    key_id = c.key("owner").key.id
    err = error_of(manager.tenants.RevokeKey, pb.RevokeKeyRequest(key_id=key_id))
    check("… and revokes no other tenant's key", code_of(err) in ("NOT_FOUND", "PERMISSION_DENIED"), err)
    owner.jobs.Cancel(pb.CancelRequest(job_id=job))
    owner.sandboxes.Kill(pb.KillRequest(sandbox_id=box))


if __name__ == "__main__":
    assert Client and grpc
    suite.main(templates="base")
