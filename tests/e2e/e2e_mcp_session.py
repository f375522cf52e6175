#!/usr/bin/env python3
"""A whole session of an agent, as a data analyst has it: state over calls, a figure, files, failures, a
server, a loop that is cancelled, a quota; and what the audit log tells of it.  Two users with tokens beside."""
import base64
import collections
import hashlib
import pathlib
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import zlib

from harness import BUILD, IMAGES, Suite, folder, has_image, pb, skip, soon, until
from issuer import RULES, Issuer, key_set
from mcp_client import LEGACY, Mcp

if not has_image("code"):
    skip(f"no template code in {IMAGES}: images/build.sh code (CI=true ./test.sh builds it)")
suite = Suite("mcp_session")
check, equal = suite.check, suite.equal
FOLDER = folder("session-keys")
issuer = Issuer("k1")
(FOLDER / "jwks.json").write_text(key_set(issuer))

MAKE_DATA = """
import numpy as np
rng = np.random.default_rng(7)
x = np.linspace(0, 10, 200)
y = 3 * x + 2 + rng.normal(0, .5, x.size)
x.size
"""
FIT = "slope, offset = np.polyfit(x, y, 1)\nprint(f'slope {slope:.1f}, offset {offset:.0f}')\nround(float(slope))"
PLOT = """
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(4, 3), dpi=100)
ax.plot(x, y, '.')
ax.plot(x, slope * x + offset)
ax.set_title('a line')
plt.show()
"""
SERVE = ["python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1"]


class Agent(Mcp):
    """Notes what it calls, for the audit log to be held against."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls = []

    def tool(self, name, meta=None, **arguments):
        self.calls.append((name, arguments))
        return super().tool(name, meta, **arguments)

    def called(self, *names):
        return [arguments for name, arguments in self.calls if name in names]


def url_of(c):
    if not c.gateway:
        c.mcp_url = c.add_gateway("--template", "code")
    return c.mcp_url


def png_size(data):
    """(width, height) of a PNG that is whole: signature, the checksum of each chunk, all its lines."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    at, size, packed, last = 8, None, b"", b""
    while at < len(data):
        (n,), last = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + n]
        if zlib.crc32(last + body) != struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0]:
            return None
        size = struct.unpack(">II", body[:8]) if last == b"IHDR" else size
        packed += body if last == b"IDAT" else b""
        at += 12 + n
    lines = size and len(zlib.decompress(packed)) == size[1] * (1 + 4 * size[0])  # 8-bit RGBA
    return size if last == b"IEND" and lines else None


def images(answer):
    return [i for i in answer.result["content"] if i["type"] == "image"]


@suite.scenario
def an_agent_at_work(c):
    c.tenant("analyst", sandboxes=1)
    key = c.key("analyst")
    a = Agent(url_of(c), key.secret, LEGACY)
    a.initialize()
    fits_and_plots(a)
    reads_and_writes(a)
    fails_and_goes_on(a)
    serves(a)
    cancels(a)
    meets_the_quota(a)
    the_log_shows_every_call(c, a, key.key.id)


def fits_and_plots(a):
    made = a.tool("run_code", code=MAKE_DATA)
    equal("first call: the data are there", (made.failed, made.data.get("result")), (False, "200"), )
    fit = a.tool("run_code", code=FIT)
    equal("second call: its variables are, and the fit is right", (fit.data["stdout"], fit.data["result"]), ("slope 3.0, offset 2\n", "3"))
    plot = a.tool("run_code", code=PLOT)
    pictures = images(plot)
    equal("third call: one picture, said so in the result too", (len(pictures), plot.data["images"], plot.failed), (1, 1, False))
    data = base64.b64decode(pictures[0]["data"], validate=True)
    size = png_size(data)
    check("it is a whole PNG of the figure's size", pictures[0]["mimeType"] == "image/png" and size and
          300 <= size[0] <= 440 and 230 <= size[1] <= 340, (pictures[0]["mimeType"], size, len(data)))
    pair = a.tool("run_code", code="for _ in range(2):\n    plt.plot(x); plt.show()", timeout_seconds=600)
    equal("two figures are two pictures", [i["mimeType"] for i in images(pair)], ["image/png"] * 2)
    crowd = a.tool("run_code", code="for _ in range(20):\n    plt.figure(figsize=(1, 1)); plt.plot([1, 2]); plt.show()", timeout_seconds=600)
    check("a loop that plots does not fill a context, and says so", len(images(crowd)) == 16 and "4 images left out" in crowd.text, crowd.text[-300:])
    saved = a.tool("run_code", code="fig.savefig('fit.png')")
    read = a.tool("file_read", path="fit.png")
    equal("a figure that was saved is read as a picture", (saved.failed, read.data["encoding"], png_size(base64.b64decode(images(read)[0]["data"]))),
          (False, "image", (400, 300)))


def reads_and_writes(a):
    table = "day,sold\n" + "".join(f"{i},{i * i}\n" for i in range(50))
    equal("a file is written", a.tool("file_write", path="in/sales.csv", content=table).data["bytes"], len(table))
    total = a.tool("run_code", code="import pandas as pd\nframe = pd.read_csv('in/sales.csv')\nint(frame.sold.sum())")
    equal("and the code reads it", total.data["result"], str(sum(i * i for i in range(50))))
    a.tool("run_code", code="frame.describe().to_csv('in/summary.csv')")
    back = a.tool("file_read", path="in/summary.csv").data
    check("what the code wrote is read", back["content"].startswith(",day,sold\ncount,50.0,50.0\n"), back)
    equal("both are listed", sorted(e["name"] for e in a.tool("file_list", path="in").data["entries"]), ["sales.csv", "summary.csv"])


def fails_and_goes_on(a):
    bad = a.tool("run_code", code="def total(column):\n    return frame[column].sum()\ntotal('price')")
    check("an exception is told with its kind, its line and its cause", bad.failed and bad.data["error"]["name"] == "KeyError" and
          "total" in bad.text and "price" in bad.text, bad.text[-600:])
    equal("mended, it runs, with all that was there before", a.tool("run_code", code="int(total('sold'))").data["result"], "40425")


def serves(a):
    started = a.tool("exec_start", argv=SERVE, cwd="/home/user/in").data
    exec_id, sandbox = started["exec_id"], started["sandbox_id"]

    def poll(**args):
        return a.tool("exec_poll", sandbox_id=sandbox, exec_id=exec_id, **args)
    check("a server in the background comes up", until(lambda: "Serving" in poll(wait_seconds=1).data["stdout"], 20, 0.5), poll().text)
    cursor = poll().data["cursor"]
    got = a.tool("run_code", code="import urllib.request\nurllib.request.urlopen('http://127.0.0.1:8000/sales.csv').read()[:8]")
    equal("the code talks to it", got.data.get("result"), "b'day,sold'")
    check("it is polled: only what is new", until(lambda: "GET /sales.csv" in poll(cursor=cursor).data["stderr"], 10, 0.5) and
          "Serving" not in poll(cursor=cursor).data["stdout"], poll(cursor=cursor).data)
    a.tool("exec_signal", sandbox_id=sandbox, exec_id=exec_id)
    ended = poll(wait_seconds=10).data
    equal("and ended", (ended["running"], ended["outcome"]), (False, "signalled"))


def cancels(a):
    endless = {"code": "while True:\n    pass"}
    body, headers = a.request("tools/call", {"name": "run_code", "arguments": endless})
    a.calls.append(("run_code", endless))
    answers = []
    began = time.monotonic()
    thread = threading.Thread(target=lambda: answers.append(a.raw(body, headers, connection=a.connect())), daemon=True)
    thread.start()
    time.sleep(2)
    check("an endless loop runs", thread.is_alive(), answers and answers[0].body)
    a.raw({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": body["id"]}}, headers)
    thread.join(soon(10))
    check("it is cancelled", answers and answers[0].failed and "Cancelled" in answers[0].text, answers)
    after = until(lambda: [r for r in [a.tool("run_code", code="round(float(slope))", timeout_seconds=20)] if not r.failed], 10, 0.3)
    equal("the interpreter is free again and remembers", after and (after[0].data["result"], after[0].data["fresh"], time.monotonic() - began < soon(20)),
          ("3", False, True))


def meets_the_quota(a):
    mine = a.tool("sandbox_list").data["sandboxes"]
    over = a.tool("sandbox_create")
    check("over the quota: a result with what is refused, which limit, and what to do", over.failed and not over.error and
          all(word in over.text for word in ("quota", "sandboxes", "sandbox_list", "sandbox_kill")), over.text)
    a.tool("sandbox_kill", sandbox_id=mine[0]["sandbox_id"])
    made = until(lambda: a.tool("sandbox_create").data, 10)
    check("what the text says helps: there is place again", made and made["state"] == "running", made)
    a.tool("sandbox_kill", sandbox_id=made["sandbox_id"])


def the_log_shows_every_call(c, a, key):
    ends = lambda: [r for r in c.audit_records("analyst") if r["event"] == "code.end"]
    until(lambda: len(ends()) >= len(a.called("run_code")), 10)
    time.sleep(1)  # nothing comes behind these
    with tempfile.TemporaryDirectory(prefix="cloche-e2e-session-log.") as copy:
        shutil.copytree(c.audit_dir, f"{copy}/audit")
        argv = [BUILD / "cloche", "audit", "verify", "--dir", f"{copy}/audit", "--key", c.dir / "audit-keys/audit.key.pub"]
        done = subprocess.run(argv, capture_output=True, text=True)
        equal("a copy of the log verifies with the public key alone", (done.returncode, done.stderr), (0, ""))
        path = next(p for p in pathlib.Path(copy).rglob("*") if p.is_file() and b"code.run" in p.read_bytes())
        path.write_bytes(path.read_bytes().replace(b'"event":"code.run"', b'"event":"code.rum"', 1))
        equal("and no more when one letter of it is another", subprocess.run(argv, capture_output=True).returncode, 1)
    records = [(r["event"], r["fields"]) for r in c.audit_records("analyst")]

    def of(event, *fields):
        return collections.Counter(tuple(str(f.get(n)) for n in fields) for e, f in records if e == event)
    equal("every piece of code is there, with its digest and who ran it", of("code.run", "code_sha256", "by"),
          collections.Counter((hashlib.sha256(x["code"].encode()).hexdigest(), key) for x in a.called("run_code")))
    equal("and how each ended", sum(of("code.end", "cell").values()), len(a.called("run_code")))
    equal("every command", of("exec.start", "argv"), collections.Counter((str(x["argv"]),) for x in a.called("exec", "exec_start")))
    equal("every file that was written, with its digest", of("file.write", "path", "sha256"), collections.Counter(
        (x["path"], hashlib.sha256(x["content"].encode()).hexdigest()) for x in a.called("file_write")))
    equal("every file that was read", of("file.read", "path"), collections.Counter((x["path"],) for x in a.called("file_read")))
    methods = of("api.call", "method", "code", "key")
    for tool, method in (("exec_signal", "ExecService/Signal"), ("sandbox_kill", "SandboxService/Kill"), ("sandbox_list", "SandboxService/List"),
                         ("file_list", "FileService/List"), ("exec_poll", "ExecService/Attach")):
        equal(f"every {tool}, with who called", sum(n for (m, _, who), n in methods.items() if (m, who) == (f"/cloche.v1.{method}", key)),
              len(a.called(tool)))
    refused = methods[("/cloche.v1.SandboxService/Create", "QUOTA", key)]
    check("every refusal, with who was refused and of what", refused > 0 and of("quota.refused", "dimension", "key") == {("sandboxes", key): refused},
          of("quota.refused", "dimension", "key"))
    equal("the loop that was cancelled, as such", methods[("/cloche.v1.CodeService/RunCode", "CANCELLED", key)], 1)
    equal("nobody else's name is in it", {f["key"] for e, f in records if e == "api.call"}, {key})


@suite.scenario
def two_users_of_a_tenant(c):
    c.tenant("acme")
    alice, bob = [Agent(url_of(c), issuer.token(sub=who)) for who in ("alice", "bob")]
    made = alice.tool("run_code", code="secret = 41\nopen('plan', 'w').write('x')").data
    box = made["sandbox_id"]
    equal("a token is enough to run code, and its state is kept", alice.tool("run_code", sandbox_id=box, code="secret + 1").data.get("result"), "42")
    job = alice.tool("exec_start", sandbox_id=box, command="sleep 100").data["exec_id"]
    unknown = "sbx_" + "0" * 26
    for tool, args in [("run_code", {"code": "secret"}), ("exec", {"command": "cat plan"}), ("exec_start", {"command": "id"}),
                       ("exec_poll", {"exec_id": job}), ("exec_signal", {"exec_id": job}), ("file_read", {"path": "plan"}),
                       ("file_write", {"path": "plan", "content": ""}), ("file_list", {}), ("sandbox_pause", {}), ("sandbox_resume", {}), ("sandbox_fork", {}), ("snapshot_create", {}), ("port_url", {"port": 80}), ("sandbox_kill", {})]:
        theirs, none = [bob.tool(tool, sandbox_id=s, **args) for s in (box, unknown)]
        check(f"{tool}: another's sandbox is answered like one that never was",
              theirs.failed and theirs.text.replace(box, "ID") == none.text.replace(unknown, "ID"), (theirs.text, none.text))
    equal("nor does he see it", bob.tool("sandbox_list").data["sandboxes"], [])
    equal("nothing was done to it", (alice.tool("exec_poll", sandbox_id=box, exec_id=job).data["running"],
                                     alice.tool("file_read", sandbox_id=box, path="plan").data["content"]), (True, "x"))
    renewed = Mcp(url_of(c), issuer.token(sub="alice", exp=int(time.time()) + 600))
    equal("a token that was renewed is the same user", renewed.tool("run_code", sandbox_id=box, code="secret").data.get("result"), "41")
    reader = Mcp(url_of(c), issuer.token(sub="alice", scope="sandbox:read"))
    equal("without the scope she may look and not run", (reader.tool("exec_poll", sandbox_id=box, exec_id=job).status,
                                                         reader.tool("exec", sandbox_id=box, command="id").status), (200, 403))
    for what, claims in (("expired", {"exp": int(time.time()) - 120}), ("for another service", {"aud": "https://other.test"})):
        got = Mcp(url_of(c), issuer.token(**claims)).tool("sandbox_list")
        check(f"a token that is {what} is refused with 401", got.status == 401 and "invalid_token" in got.headers["WWW-Authenticate"], got.status)
    subjects = lambda: {r["fields"]["subject"] for r in c.audit_records("acme") if r["event"] == "api.call"}
    until(lambda: len(subjects()) >= 2, 10)
    equal("the log tells the two apart", subjects(), {"jwt:alice", "jwt:bob"})
    alice.tool("sandbox_kill", sandbox_id=box)


if __name__ == "__main__":
    suite.main(templates="code", warm=1, scheduler_args=(*RULES, "--token-keys", FOLDER / "jwks.json"))
