#!/usr/bin/env python3
"""Snapshots by E2B's API: what is asked of the scheduler, and what becomes of its answers."""
import contextlib
import http.client
import json
import socket

from made_up_scheduler import BOX, KEY, OTHER, grpc, play
from harness import SECOND, Suite, pb, until

suite = Suite("gateway-snapshots")
check, equal = suite.check, suite.equal
PATH = f"/sandboxes/{BOX}/snapshots"
C = grpc.StatusCode
NETWORK = {"allowOut": ["a.example"], "denyOut": ["0.0.0.0/0"]}


def snp(n):
    return f"snp_{n:026d}"


def api(w, method, path, body=None, key=KEY, **headers):
    """(status, JSON or None, the token of the next page)"""
    h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    h.request(method, path, data, {**({"X-API-Key": key} if key else {}), **{k.replace("_", "-"): v for k, v in headers.items()}})
    r = h.getresponse()
    text = r.read()
    h.close()
    return r.status, json.loads(text) if text else None, r.getheader("x-next-token")


@contextlib.contextmanager
def world(w, snapshots=(), on_snapshot=None, on_create=None):
    """A scheduler that has heard nothing."""
    s = w.s
    s.asked, s.creates, s.snapshots, s.on_snapshot, s.on_create = [], [], list(snapshots), on_snapshot, on_create
    yield s
    s.on_snapshot, s.on_create, s.labels = None, None, {}


def refuses(code, text, method="Create"):
    def answer(what, _request, context):
        if what == method:
            context.abort(code, text)
    return answer


def kept(n, name="", box=BOX, state=pb.UNIT_STATE_PAUSED):
    return pb.Snapshot(id=snp(n), name=name, sandbox_id=box, state=state, template="python")


@suite.scenario
def one_is_made(w):
    with world(w) as s:
        equal("without a name", api(w, "POST", PATH, {})[:2], (201, {"snapshotID": snp(1), "names": []}))
        equal("… nor a body", api(w, "POST", PATH)[0], 201)
        equal("with one", api(w, "POST", PATH, {"name": "numpy.ready", "memory": True}, Idempotency_Key="k")[:2],
              (201, {"snapshotID": snp(1), "names": ["numpy.ready"]}))
        equal("it is asked for so that a name goes over to the new one", [(m.sandbox_id, m.name, m.replace, m.idempotency_key, list(m.labels), m.keep_ns) for _, m in s.asked],
              [(BOX, "", True, "", [], 0)] * 2 + [(BOX, "numpy.ready", True, "k", [], 0)])


@suite.scenario
def none_is_made(w):
    for code, status in ((C.INVALID_ARGUMENT, 400), (C.UNAUTHENTICATED, 401), (C.PERMISSION_DENIED, 403), (C.NOT_FOUND, 404), (C.FAILED_PRECONDITION, 409),
                         (C.ALREADY_EXISTS, 409), (C.UNIMPLEMENTED, 501), (C.UNAVAILABLE, 503)):
        with world(w, on_snapshot=refuses(code, "says why")):
            got, said, _ = api(w, "POST", PATH, {"name": "Not a name"})
            equal(f"{code.name} has its status", (got, said["code"]), (status, status))
            check("… and says why", "says why" in said["message"] or status == 404 and BOX in said["message"], said)
    with world(w, on_snapshot=refuses(C.RESOURCE_EXHAUSTED, "no disk")):
        got, said, _ = api(w, "POST", PATH, {})
        check("a full quota is told", got in (413, 429, 503) and "no disk" in said["message"], (got, said))
    with world(w) as s:
        for body in ({"name": 1}, {"name": ["a"]}, {"name": "a\0b"}, {"memory": "full"}, [1], b"{"):
            got, said, _ = api(w, "POST", PATH, body)
            check(f"{body} is refused", got == 400 and said["message"], (got, said))
        got, said, _ = api(w, "POST", PATH, {"name": "a", "memory": False})
        check("without its memory there is none", got == 501 and "memory" in said["message"] and "not served" in said["message"], (got, said))
        equal("without a key", [api(w, *call, key=None)[0] for call in (("POST", PATH, {}), ("GET", "/snapshots"), ("DELETE", "/templates/" + snp(1)))], [401] * 3)
        equal("and nothing was asked for", s.asked, [])


@suite.scenario
def who_leaves_before_it_is_made(w):
    def waits(_what, _request, context):
        until(lambda: not context.is_active(), 20)
    with world(w, on_snapshot=waits) as s, socket.create_connection(("127.0.0.1", w.g.port), timeout=20) as conn:
        conn.sendall(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        check("it is being made", until(lambda: s.now == 1, 20), s.now)
        conn.close()
        check("then it is given up", until(lambda: s.now == 0, 10), s.now)


@suite.scenario
def lists(w):
    some = [kept(n, f"n{n}" if n % 2 else "", OTHER if n % 3 else BOX) for n in range(1, 10)]
    with world(w, some) as s:
        status, got, token = api(w, "GET", "/snapshots")
        equal("all, with the names that they have", (status, got, token), (200, [{"snapshotID": i.id, "names": [i.name] if i.name else []} for i in some], None))
        equal("asked for as one page", [(m.page_size, m.page_token, m.sandbox_id, m.include_ended) for _, m in s.asked], [(100, "", "", False)])
        ids, token = [], ""
        while token is not None:
            _, got, token = api(w, "GET", f"/snapshots?limit=4&nextToken={token}")
            ids.append([i["snapshotID"] for i in got])
        equal("by pages", ids, [[snp(n) for n in p] for p in ((1, 2, 3, 4), (5, 6, 7, 8), (9,))])
        status, got, token = api(w, "GET", f"/snapshots?sandboxID={BOX}&limit=2")
        equal("of one sandbox: a page of ours is full, whatever the scheduler's hold", ([i["snapshotID"] for i in got], token is not None), ([snp(3), snp(6)], True))
        equal("… and the next is the rest", [i["snapshotID"] for i in api(w, "GET", f"/snapshots?sandboxID={BOX}&limit=2&nextToken={token}")[1]], [snp(9)])
        equal("of a sandbox that has none", api(w, "GET", "/snapshots?sandboxID=sbx_0")[:2], (200, []))
    with world(w, [kept(1, "a"), kept(2, "b", OTHER), kept(3, "c", state=pb.UNIT_STATE_STARTING), kept(4, "d", state=pb.UNIT_STATE_ENDED)]):
        equal("what is not whole is not there yet", [i["names"] for i in api(w, "GET", "/snapshots")[1]], [["a"], ["b"]])
        for query, names in (("name=a", ["a"]), (f"name={snp(2)}", ["b"]), (f"name=a&sandboxID={BOX}", ["a"]), (f"name=b&sandboxID={BOX}", []),
                             ("name=c", []), ("name=d", []), ("name=nobody", []), ("name=team%2Fa%3Av1", [])):
            equal(f"by name: {query}", (lambda r: (r[0], [i["names"][0] for i in r[1]], r[2]))(api(w, "GET", "/snapshots?" + query)), (200, names, None))
    with world(w, [kept(n, box=OTHER) for n in range(1, 31)]) as s:
        status, got, token = api(w, "GET", f"/snapshots?sandboxID={BOX}&limit=1")
        equal("one request asks for no more than eight pages", (status, got, len(s.asked), token), (200, [], 8, "8"))
    with world(w) as s:
        for query in ("limit=0", "limit=x", "limit=1001", "nextToken=%00", "sandboxID=%zz", "name=" + 300 * "a"):
            equal(f"no query: {query[:20]}", api(w, "GET", "/snapshots?" + query)[0], 400)
        equal("and nothing was asked for", s.asked, [])
    for method, query in (("List", ""), ("Get", "?name=a")):
        with world(w, on_snapshot=refuses(C.UNAVAILABLE, "says why", method)):
            status, said, _ = api(w, "GET", "/snapshots" + query)
            equal(f"{method} that fails", (status, said), (503, {"code": 503, "message": "says why"}))


@suite.scenario
def deletes(w):
    with world(w, [kept(1, "numpy.ready"), kept(2, "b", state=pb.UNIT_STATE_ENDED)]) as s:
        for word in (snp(1), "numpy.ready"):
            s.asked.clear()
            equal(f"{word[:11]} is deleted", api(w, "DELETE", f"/templates/{word}")[:2], (204, None))
            equal("… by its id, whatever has the name by then", [(what, m.snapshot) for what, m in s.asked], [("Get", word), ("Delete", snp(1))])
        s.asked.clear()
        for word in (snp(2), snp(3), "python"):
            status, said, _ = api(w, "DELETE", f"/templates/{word}")
            check(f"{word[:11]} is not there", (status, said["code"]) == (404, 404) and word in said["message"], (status, said))
        equal("and nothing is deleted", {what for what, _ in s.asked}, {"Get"})
        for word in ("..", "a%2Fb", "a%3Av1", 64 * "a"):
            equal(f"no word: {word[:8]}", api(w, "DELETE", f"/templates/{word}")[0], 404)
        equal("no other call of templates is served", [api(w, m, "/templates/" + snp(1))[0] for m in ("GET", "POST")], [405] * 2)
    for method, code, status in (("Get", C.PERMISSION_DENIED, 403), ("Delete", C.PERMISSION_DENIED, 403), ("Delete", C.NOT_FOUND, 404), ("Delete", C.UNAVAILABLE, 503)):
        with world(w, [kept(1)], on_snapshot=refuses(code, "no", method)):
            equal(f"{method} is refused: {code.name}", api(w, "DELETE", f"/templates/{snp(1)}")[0], status)


@suite.scenario
def others_begin_with_it(w):
    def create(template, **more):
        w.s.asked.clear()
        w.s.creates.clear()
        status, said, _ = api(w, "POST", "/v2/sandboxes", {"templateID": template, **more}, Idempotency_Key="k")
        return status, [(m.template, m.snapshot) for m in w.s.creates], [what for what, _ in w.s.asked], said

    def no_such(m, context):
        if m.snapshot in ("nobody", "Team/x:v1", snp(9)) or m.template == "nobody":
            context.abort(C.NOT_FOUND, f"no {'snapshot' if m.snapshot else 'template'} of that name")
        if m.template == "Team/x:v1":
            context.abort(C.INVALID_ARGUMENT, "template: must match")
        if m.snapshot == snp(8):
            context.abort(C.FAILED_PRECONDITION, "it has no card")
    some = [kept(1), kept(2, "numpy.ready"), kept(3, "0"), kept(4, "ready"), kept(8)]
    with world(w, some, on_create=no_such) as s:
        for word in (snp(1), "numpy.ready", "0"):
            equal(f"{word[:11]} can be no template", create(word)[:3], (201, [("", word)], ["Get"]))
        equal("E2B's names are templates", [create(t)[:3] for t in ("base", "code-interpreter-v1")], [(201, [(t, "")], []) for t in ("python", "code")])
        equal("so is what a template is called", create("python")[:3], (201, [("python", "")], ["Template"]))
        equal("what none is called may be a snapshot", create("ready")[:3], (201, [("", "ready")], ["Template", "Get"]))
        status, asked, _, said = create("nobody")
        equal("what is neither is refused as a template", (status, asked, said["message"]), (404, [("nobody", "")], "no template of that name"))
        equal("… with the key that the caller gave", [m.idempotency_key for m in s.creates], ["k"])
        status, asked, _, said = create(snp(9))
        equal("one that is gone", (status, asked, said["message"]), (404, [("", snp(9))], "no snapshot of that name"))
        status, _, _, said = create(snp(8), network=NETWORK)
        equal("rules where it has no network", (status, said["message"]), (409, "it has no card"))
        status, _, _, said = create("Team/x:v1")
        equal("no word of either", (status, said["message"]), (400, "template: must match"))
        create("ready", timeout=60, metadata={"a": "b"}, envVars={"A": "1"}, autoPause=True, autoResume={"enabled": True}, network=NETWORK)
        (m,) = s.creates
        equal("all else is as of any", (m.ttl_ns, [(x.key, x.value) for x in m.labels], m.on_idle, m.wake_on_use, list(m.network_grant.allow), m.idempotency_key),
              (60 * SECOND, [("m-a", "b")], pb.IDLE_ACTION_PAUSE, True, ["a.example:*"], "k"))
        create("ready")
        check("without rules it is left to the snapshot", not s.creates[0].HasField("network_grant"), s.creates)
        equal("what cannot be had is refused before", create("ready", volumeMounts=[{"name": "a", "path": "/b"}])[:2], (501, []))
    labels = {"e2b-template": "app", "e2b-user": "root", "e2b-env-a": '{"A":', "e2b-env-b": '"1"}', "e2b-build": "b", "m-a": "of its maker"}
    built = kept(5, "app")
    built.labels.extend(pb.Label(key=k, value=v) for k, v in labels.items())
    with world(w, [built]) as s:
        create("app", metadata={"a": "b"})
        (m,) = s.creates
        equal("one that was built says how commands run", {x.key: x.value for x in m.labels}, {"e2b-template": "app", "e2b-user": "root", "e2b-env-a": '{"A":"1"}', "m-a": "b"})
        equal("without network it is left as it is", m.network, pb.NETWORK_UNSPECIFIED)
        built.network_grant.allow.append("of.its.build")
        create("app")
        equal("… what it had for its build nobody else has", (s.creates[0].network, s.creates[0].HasField("network_grant")), (pb.NETWORK_NONE, False))
        create("app", network=NETWORK)
        equal("… but what is asked for", (s.creates[0].network, list(s.creates[0].network_grant.allow)), (pb.NETWORK_UNSPECIFIED, ["a.example:*"]))
    for code, status in ((C.PERMISSION_DENIED, 403), (C.UNAVAILABLE, 503)):
        with world(w, [kept(1)], on_snapshot=refuses(code, "no", "Get")):
            equal(f"what it is must be known: {code.name}", create(snp(1))[:2], (status, []))
    for code in (C.PERMISSION_DENIED, C.UNAVAILABLE, C.UNIMPLEMENTED):
        with world(w, on_snapshot=refuses(code, "no", "Template")):
            equal(f"who may not look has templates alone: {code.name}", create("ready")[:3], (201, [("ready", "")], ["Template"]))


if __name__ == "__main__":
    play(suite)
