#!/usr/bin/env python3
"""`cloche audit traces`: what was asked of Cloche, and what came of it, at the receiver of OpenTelemetry's collector; in the callers' traces, once, over failures of either side."""
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

from box import Box
from harness import BUILD, REPO, SECOND, Cluster, Suite, command, follow, free_port, pb, run, skip, soon, until

suite = Suite("traces")
check, equal = suite.check, suite.equal
RECEIVER = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve() / "bin" / "otlp_receiver"
ERROR = 2  # Status.StatusCode


def context(n, flags="01"):
    """A caller's trace and span, and how they are written."""
    trace, span = f"{n:032x}", f"{n:016x}"
    return trace, span, (("traceparent", f"00-{trace}-{span}-{flags}"),)


class Receiver:
    """OpenTelemetry's own OTLP receiver; `mood` says whether it takes anything."""

    def __init__(self, c, *files, port=0):
        self.mood = c.dir / "mood"
        self.mood.write_text("")
        self.port = port or free_port()
        self.requests = []  # (headers, traces)
        self.process = c.helper([RECEIVER, f"127.0.0.1:{self.port}", self.mood, *files], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the collector's receiver does not begin")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            got = json.loads(line)
            self.requests.append((got["headers"], got["traces"]))

    def url(self, scheme="http"):
        return f"{scheme}://127.0.0.1:{self.port}"

    def all(self):
        return spans_of(t for _, t in list(self.requests))

    def of(self, unit):
        """Its spans by name, of which there is one each."""
        return {s["name"]: s for s in self.all() if attributes(s).get("cloche.unit") == unit}

    def stop(self):
        self.process.terminate()
        self.process.wait(soon(20))


class Exporter:
    """`cloche audit traces -f --to`, whose state is kept from one to the next."""

    def __init__(self, c, to, *more, **env):
        self.said = c.dir / "exporter.log"
        self.state = c.dir / "traces.json"
        with open(self.said, "a") as log:
            self.process = c.helper([BUILD / "cloche", "audit", "traces", "-f", "--to", to, "--dir", c.audit_dir, "--state", self.state, *more],
                                    stdout=log, stderr=log, env={**os.environ, **env})
        until(lambda: self.state.exists() or self.process.poll() is not None, 20)

    def log(self):
        return self.said.read_text()

    def has_noted(self, c):
        """All that is in the tenant's stream by now."""
        last = max(r["seq"] for r in c.audit_records("tenant/local") if r["event"] != "checkpoint")
        return check("how far it got is noted", until(lambda: json.loads(self.state.read_text())["seen"].get("tenant/local", 0) >= last, 20), self.state.read_text()[:300])

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(soon(20))


def spans_of(traces):
    return [s for t in traces for r in t["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]


def attributes(of):
    """{key: value} of a span or an event."""
    def plain(v):
        return [plain(x) for x in v["arrayValue"]["values"]] if "arrayValue" in v else next(iter(v.values()))
    return {a["key"]: plain(a["value"]) for a in of.get("attributes", [])}


def place(span):
    return span["traceId"], span.get("parentSpanId", "")


def length_ms(span):
    return (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e6


def settled(r, unit, *names):
    """Once these spans of it are there."""
    until(lambda: set(names) <= set(r.of(unit)), 20)
    return r.of(unit)


class Asked(Box):
    """A sandbox whose calls name their trace."""

    def __init__(self, client, metadata, **kw):
        self.client = client
        request = pb.CreateRequest(template="python", ttl_ns=300 * SECOND, **kw)
        self.id = client.sandboxes.Create(request, timeout=60, metadata=metadata).sandbox.id

    def exec_in(self, metadata, *argv):
        request = pb.StartRequest(sandbox_id=self.id, command=command(*argv))
        return follow(self.attach(self.client.execs.Start(request, metadata=metadata).exec_id))

    def code_in(self, metadata, code):
        return list(self.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=self.id, code=code, language=pb.LANGUAGE_PYTHON), timeout=60, metadata=metadata))


@suite.scenario
def callers_traces_go_on(c):
    made, first, cell = context(1), context(2), context(3)
    r = Receiver(c)
    x = Exporter(c, r.url(), OTEL_EXPORTER_OTLP_HEADERS="x-key=a%20secret,x-other=1")
    box = Asked(c.admin, made[2])
    said = box.exec_in(first[2], "sh", "-c", "echo $TRACEPARENT; touch /tmp/x; ls /tmp; exit 3")
    equal("a process knows the trace of the call that it comes of", said.out.split()[0].decode(), first[2][0][1])
    equal("... and else that of its sandbox", box.exec("sh", "-c", "echo $TRACEPARENT").out.strip().decode(), made[2][0][1])
    box.code_in(cell[2], "import os; os.listdir('/')\n1 / 0")
    box.kill()
    got = settled(r, box.id, "sandbox python", "queue", "start", "exec sh", "code python")
    unit, exec_, code = got["sandbox python"], got["exec sh"], got["code python"]
    own = [s for s in r.all() if s["name"] == "exec sh"]
    equal("the sandbox is in its caller's trace, below the caller's span", place(unit), made[:2])
    equal("... a command in its own", [place(s) for s in own], [first[:2], (made[0], unit["spanId"])])
    equal("... and a cell in its own", place(code), cell[:2])
    equal("what came with no trace is not linked, the others lead to the sandbox", [s.get("links", [{}])[0].get("spanId") for s in (*own, code)],
          [unit["spanId"], None, unit["spanId"]])
    equal("how long it waited and started are parts of it", [place(got[n]) for n in ("queue", "start")], 2 * [(made[0], unit["spanId"])])
    check("... in the order of time", int(unit["startTimeUnixNano"]) <= int(got["start"]["startTimeUnixNano"]) <= int(got["start"]["endTimeUnixNano"]) <=
          int(own[0]["startTimeUnixNano"]) <= int(unit["endTimeUnixNano"]), got)
    equal("the command's words and its end", [attributes(own[0])[k] for k in ("process.command_args", "process.exit.code", "cloche.tenant")],
          [["sh", "-c", "echo $TRACEPARENT; touch /tmp/x; ls /tmp; exit 3"], "3", "local"])
    equal("one that fails is an error, as is a cell", [s["status"] for s in (own[0], code)],
          [{"code": ERROR, "message": "exit code 3"}, {"code": ERROR, "message": "error"}])
    check("... and a sandbox that was ended is none", "code" not in unit.get("status", {}), unit)
    events = [(e["name"], attributes(e).get("process.command_args", attributes(e).get("file.path"))) for e in own[0]["events"]]
    check("what the guest's kernel saw stands in it", ("guest.exec", ["ls", "/tmp"]) in events and ("guest.write", "/tmp/x") in events, events)
    (start,) = [e["fields"] for e in c.audit_records() if e["event"] == "vm.start" and e["fields"]["unit"] == box.id]
    equal("the sandbox's span says what ran it", [attributes(unit)[f"cloche.{n}"] for n in ("driver", "guest_separation")], [start["driver"], start["guest_separation"]])
    resource = r.requests[0][1]["resourceSpans"][0]
    equal("whose spans they are", (attributes(resource["resource"])["service.name"], resource["scopeSpans"][0]["scope"]["name"]), ("cloche", "cloche.audit"))
    equal("headers that the environment names are sent", [r.requests[0][0].get(n) for n in ("x-key", "x-other")], [["a secret"], ["1"]])
    check("... and told to nobody", "secret" not in x.log() + x.state.read_text(), x.log())
    x.stop()
    r.stop()


@suite.scenario
def jobs_and_the_command_line(c):
    r = Receiver(c)
    x = Exporter(c, r.url())
    trace, span, _ = context(4)
    p = subprocess.run([BUILD / "cloche", "run", "python", "--", "sh", "-c", "echo $TRACEPARENT"], capture_output=True, text=True, timeout=soon(60),
                       env={**os.environ, "CLOCHE_ENDPOINT": c.endpoint, "CLOCHE_API_KEY": c.admin.key, "TRACEPARENT": f"00-{trace}-{span}-01"})
    equal("a job of the command line has its environment's trace", p.stdout.strip(), f"00-{trace}-{span}-01")
    until(lambda: any(s["name"] == "job python" for s in r.all()), 20)
    (job,) = [s for s in r.all() if s["name"] == "job python"]
    equal("... and so has its span", place(job), (trace, span))
    equal("... which says what was run", attributes(job)["process.command_args"], ["sh", "-c", "echo $TRACEPARENT"])
    none = run(c.admin, "sh", "-c", "echo ${TRACEPARENT-none}; exit 4", template="python")
    equal("a job without one has none", none.out.strip(), b"none")
    until(lambda: len([s for s in r.all() if s["name"] == "job python"]) == 2, 20)
    other = [s for s in r.all() if s["name"] == "job python"][1]
    check("... but a trace of its own in the tracing system", place(other)[1] == "" and re.fullmatch("[0-9a-f]{32}", other["traceId"]) and other["traceId"] != trace, other)
    equal("... and its exit code", other["status"], {"code": ERROR, "message": "exit code 4"})
    before = len(r.all())
    run(c.admin, "true", template="python")  # so that what comes behind it is known to have been looked at
    quiet = Asked(c.admin, context(5, "00")[2])
    quiet.kill()
    run(c.admin, "true", template="python")
    until(lambda: len([s for s in r.all()[before:] if s["name"] == "job python"]) == 2, 20)
    equal("what its caller does not sample is left out", r.of(quiet.id), {})
    x.stop()
    r.stop()


@suite.scenario
def nothing_is_lost_and_nothing_told_twice(c):
    r = Receiver(c)
    port = r.port
    x = Exporter(c, r.url())
    trace, span, metadata = context(6)
    box = Asked(c.admin, metadata)
    sleeper = box.start("sleep", "1000")
    box.exec("true")
    settled(r, box.id, "exec true")
    x.has_noted(c)
    check("... and what is open", box.id in x.state.read_text() and sleeper in x.state.read_text(), x.state.read_text()[:500])
    x.stop(signal.SIGKILL)
    box.exec("uname")
    x = Exporter(c, r.url())
    settled(r, box.id, "exec uname")
    r.mood.write_text("busy")
    box.exec("whoami")
    check("a collector that is busy is asked again", until(lambda: "status 503" in x.log() and "again" in x.log(), 20), x.log())
    r.stop()
    box.exec("hostname")
    r2 = Receiver(c, port=port)
    got = settled(r2, box.id, "exec whoami", "exec hostname")
    equal("nothing is lost meanwhile, nor when it was not there at all", {"exec whoami", "exec hostname"} <= set(got), True)
    check("... which is said", until(lambda: "takes spans again" in x.log(), 20), x.log())
    r2.mood.write_text("never")
    box.exec("id")
    check("spans that it will never take are left out, and that is said", until(lambda: "left out" in x.log() and "status 500" in x.log(), 20), x.log())
    x.has_noted(c)
    r2.mood.write_text("")
    x.stop()
    x = Exporter(c, r2.url())
    box.kill()
    got = settled(r2, box.id, "sandbox python", "exec sleep")
    equal("a command that ran over all of it is one span", place(got["exec sleep"]), (trace, got["sandbox python"]["spanId"]))
    check("... as long as it ran", length_ms(got["exec sleep"]) > length_ms(got["exec hostname"]) + 1000 and
          length_ms(got["sandbox python"]) >= length_ms(got["exec sleep"]), got)
    equal("... that did not end by itself", (attributes(got["exec sleep"])["cloche.outcome"], got["exec sleep"]["status"]["code"]), ("FAILED", ERROR))
    x.stop()
    names = [s["name"] for s in [*r.all(), *r2.all()] if attributes(s).get("cloche.unit") == box.id]
    want = ["queue", "start", "exec true", "exec uname", "exec whoami", "exec hostname", "exec sleep", "sandbox python"]
    equal("each was told once", sorted(names), sorted(want))
    r2.stop()


@suite.scenario
def a_wrong_address_ends_it(c):
    r = Receiver(c)
    x = Exporter(c, f"{r.url()}/nowhere")
    run(c.admin, "true", template="python")
    equal("an address where no traces are taken: it ends", x.process.wait(soon(20)), 1)
    check("... and says which, why, and what to do", "nowhere" in x.log() and "status 404" in x.log() and "remedy" in x.log(), x.log())
    x = Exporter(c, r.url())
    check("what was not taken is sent by the next", until(lambda: any(s["name"] == "job python" for s in r.all()), 20), x.log())
    x.stop()
    x.state.write_text('{"version": 1, "since": "x"}')
    x = Exporter(c, r.url())
    equal("a state that is none is refused", x.process.wait(soon(20)), 1)
    check("... with its name and what to do", "move '" in x.log() and "is no state of traces" in x.log(), x.log())
    x.state.unlink()
    for to, env, says in (("127.0.0.1:4318", {}, "is no address of a collector"), (r.url(), {"OTEL_EXPORTER_OTLP_HEADERS": "x"}, "header 1 is none"),
                          (r.url("https"), {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/dev/null"}, "holds no certificates")):
        p = Exporter(c, to, **env)
        equal(f"{says}: it does not begin", p.process.wait(soon(20)), 1)
        check("... and says so", says in p.log(), p.log())
    r.stop()


@suite.scenario
def over_tls(c):
    key, cert = c.dir / "otlp.key", c.dir / "otlp.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    r = Receiver(c, cert, key)
    x = Exporter(c, r.url("https"))
    run(c.admin, "true", template="python")
    check("a collector whose certificate nobody vouches for gets nothing", until(lambda: "not as its certificate should" in x.log(), 20), x.log())
    equal("... at all", r.requests, [])
    x.stop()
    x = Exporter(c, r.url("https"), OTEL_EXPORTER_OTLP_CERTIFICATE=str(cert))
    check("one that OTEL_EXPORTER_OTLP_CERTIFICATE vouches for gets it", until(lambda: any(s["name"] == "job python" for s in r.all()), 20), x.log())
    x.stop()
    x.state.unlink()
    r.stop()


@suite.scenario
def from_the_service_to_a_file(c):
    acme, other = c.tenant("acme", ("run", "read", "audit")), c.tenant("other", ("run", "read", "audit"))
    box, theirs = Box(acme, template="python"), Box(other, template="python")
    box.exec("uname")
    theirs.exec("uname")
    done = lambda client: any(json.loads(line)["event"] == "exec.end" for m in client.audit.Query(pb.AuditServiceQueryRequest(), timeout=60) for line in m.records)
    until(lambda: done(acme) and done(other), 20)

    def read(*argv):
        env = {**os.environ, "CLOCHE_ENDPOINT": c.endpoint, "CLOCHE_API_KEY": acme.key}
        p = subprocess.run([BUILD / "cloche", "audit", "traces", *argv], capture_output=True, text=True, env=env, timeout=soon(60))
        equal("a tenant reads its own", (p.returncode, p.stderr), (0, ""))
        return spans_of(json.loads(line) for line in p.stdout.splitlines())
    spans = read()
    equal("... and nobody else's", {attributes(s)["cloche.tenant"] for s in spans}, {"acme"})
    equal("what still runs ends now, and says so", {s["name"]: attributes(s).get("cloche.end") for s in spans},
          {"queue": None, "start": None, "exec uname": None, "sandbox python": "unfinished"})
    equal("told again it has the same ids", [(s["name"], place(s), s["spanId"]) for s in read("--unit", box.id)], [(s["name"], place(s), s["spanId"]) for s in spans])
    for b in (box, theirs):
        b.kill()


class WithReader(Cluster):
    helpers = ()

    def start(self):
        super().start()
        self.add_reader()
        return self

    def helper(self, argv, **kw):
        """A process that is none of the cluster's, and ends with it however a scenario ends."""
        self.helpers = [*self.helpers, subprocess.Popen(argv, **kw)]
        return self.helpers[-1]

    def stop(self):
        for p in self.helpers:
            p.kill()
            p.wait()
        return super().stop()


if not RECEIVER.exists():
    skip("the receiver of OpenTelemetry's collector is not there: tools/test_tools.sh")
suite.main(WithReader, templates="python", warm=2)
