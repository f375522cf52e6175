#!/usr/bin/env python3
"""Forks by E2B's API: what one request makes of many calls, whatever those are answered, and who leaves in the middle."""
import contextlib
import http.client
import json
import socket
import time

from made_up_scheduler import BOX, KEY, SECRET, grpc, play
from harness import Suite, until

suite = Suite("gateway-forks")
check, equal = suite.check, suite.equal
PATH = f"/sandboxes/{BOX}/fork"
C = grpc.StatusCode


def api(w, body, path=PATH, **headers):
    h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    h.request("POST", path, data, {"X-API-Key": KEY, **{k.replace("_", "-"): v for k, v in headers.items()}})
    r = h.getresponse()
    text = r.read()
    h.close()
    return r.status, json.loads(text)


@contextlib.contextmanager
def world(w, on_fork=None, labels=()):
    """A scheduler that has heard nothing, and answers forks so."""
    s = w.s
    s.forks, s.kills, s.links, s.most, s.on_fork, s.labels = [], [], [], 0, on_fork, dict(labels)
    yield s
    s.on_fork, s.labels, s.link_error = None, {}, None


def refuses(code, text="no", which=lambda n: True):
    def answer(n, context):
        if which(n):
            context.abort(code, text)
    return answer


@suite.scenario
def one_by_default(w):
    with world(w) as s:
        status, made = api(w, b"")
        equal("without a body it is one", (status, len(made), list(made[0])), (201, 1, ["sandbox"]))
        box = made[0]["sandbox"]
        equal("what it is", {k: v for k, v in box.items() if not k.endswith("Token")},
              {"templateID": "python", "sandboxID": f"sbx_{1:026d}", "clientID": "cloche", "envdVersion": box["envdVersion"], "alias": "python",
               "domain": f"{SECRET}.localhost:{w.g.port}"})
        equal("asked for as the only one, so of a moment of its own",
              [(m.sandbox_id, m.ttl_ns, m.moment, m.idempotency_key, list(m.labels)) for m in s.forks], [(BOX, 15 * 10**9, "", "", [])])
        check("its token opens it, and no other does", box["envdAccessToken"] == box["trafficAccessToken"] != "", box)


@suite.scenario
def many_are_of_one_moment(w):
    with world(w, lambda n, _: time.sleep(0.05), {"m-user-49d": "ü", "mcp-owner": "x", "app": "y"}) as s:
        status, made = api(w, {"timeout": 60, "count": 20})
        equal("20 were asked for", (status, len(made), len(s.forks)), (201, 20, 20))
        boxes = [e["sandbox"] for e in made]
        equal("each is another", len({b["sandboxID"] for b in boxes} & {f"sbx_{n:026d}" for n in range(1, 21)}), 20)
        equal("with a token of its own", len({b["envdAccessToken"] for b in boxes}), 20)
        equal("and a link of its own", {b["domain"] for b in boxes}, {f"{SECRET}.localhost:{w.g.port}"})
        equal("… made for it", sorted(x[0] for x in s.links), sorted(b["sandboxID"] for b in boxes))
        moments = {m.moment for m in s.forks}
        check("all are of one moment", len(moments) == 1 and len(moments.copy().pop()) == 32, moments)
        equal("with E2B's metadata, and no other labels", {tuple((x.key, x.value) for x in m.labels) for m in s.forks}, {(("m-user-49d", "ü"),)})
        equal("and the time that was asked for", {m.ttl_ns for m in s.forks}, {60 * 10**9})
        check("no more than four calls at once", 2 <= s.most <= 4, s.most)
        api(w, {"count": 2})
        check("another request is of another moment", s.forks[-1].moment not in moments | {""}, s.forks[-1].moment)


@suite.scenario
def the_first_goes_alone(w):
    for code, status in ((C.NOT_FOUND, 404), (C.FAILED_PRECONDITION, 409), (C.UNIMPLEMENTED, 501), (C.PERMISSION_DENIED, 403),
                         (C.UNAUTHENTICATED, 401), (C.INVALID_ARGUMENT, 400), (C.ALREADY_EXISTS, 409)):
        with world(w, refuses(code, "says why")) as s:
            got, said = api(w, {"count": 5})
            equal(f"{code.name} of the first is the answer", (got, said["code"], len(s.forks)), (status, status, 1))
            check("… and says why", "says why" in said["message"] or status == 404 and BOX in said["message"], said)


@suite.scenario
def each_may_fail_for_itself(w):
    with world(w, refuses(C.RESOURCE_EXHAUSTED, "over its quota")) as s:
        status, made = api(w, {"count": 3})
        equal("no room for any: each says so, and all were asked", (status, [list(e) for e in made], len(s.forks)), (201, [["error"]] * 3, 3))
        check("… as the SDKs know it", all(e["error"]["code"] in (413, 429, 503) and "over its quota" in e["error"]["message"] for e in made), made)
    with world(w, refuses(C.UNAVAILABLE, "no room there", lambda n: n % 2)) as s:
        status, made = api(w, {"count": 6})
        equal("half of them", (status, sorted(next(iter(e)) for e in made)), (201, ["error"] * 3 + ["sandbox"] * 3))
        equal("… with its code", {e["error"]["code"] for e in made if "error" in e}, {503})
    with world(w, refuses(C.NOT_FOUND, "it has ended", lambda n: n > 2)) as s:
        status, made = api(w, {"count": 4})
        equal("the origin ends meanwhile: what was made is told", (status, sorted(e.get("error", {}).get("code", 201) for e in made)), (201, [201, 201, 404, 404]))
        equal("nothing of it was ended", s.kills, [])


@suite.scenario
def without_a_link(w):
    domain = f"localhost:{w.g.port}"
    with world(w) as s:
        s.link_error = C.FAILED_PRECONDITION, "no API key"
        status, made = api(w, {"count": 3})
        equal("a caller who gets none has the domain alone", (status, [e["sandbox"]["domain"] for e in made]), (201, [domain] * 3))
    with world(w, labels={"e2b-traffic": "token", "m-a": "b"}) as s:
        status, made = api(w, {"count": 3})
        equal("of a sandbox without public traffic there is none either", (status, [e["sandbox"]["domain"] for e in made], s.links), (201, [domain] * 3, []))
        equal("… and the copies stay so", {tuple(sorted((x.key, x.value) for x in m.labels)) for m in s.forks}, {(("e2b-traffic", "token"), ("m-a", "b"))})


@suite.scenario
def the_same_key_is_the_same_request(w):
    with world(w) as s:
        for _ in range(2):
            api(w, {"count": 3}, Idempotency_Key="k")
        equal("each has a key of its own", [sorted(m.idempotency_key for m in s.forks[i:i + 3]) for i in (0, 3)], [["k", "k.2", "k.3"]] * 2)
        equal("all are of the moment of the key", ({m.moment for m in s.forks}, len(s.forks[0].moment)), ({s.forks[0].moment}, 32))
        equal("one that is too long", (api(w, {"count": 3}, Idempotency_Key=255 * "k")[0], len(s.forks)), (400, 6))


@suite.scenario
def what_is_no_request(w):
    with world(w) as s:
        for body in ({"count": 0}, {"count": 21}, {"count": "2"}, {"count": True}, {"count": 1.5}, {"timeout": 0}, {"timeout": 86401}, {"timeout": "x"}, [1], b"{"):
            status, said = api(w, body)
            check(f"{body} is refused", status == 400 and said["message"], (status, said))
        equal("and nothing was asked for", s.forks, [])
        h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
        h.request("POST", PATH, b"{}")
        equal("without a key", h.getresponse().status, 401)
        h.close()


@suite.scenario
def who_leaves_in_the_middle(w):
    def waits(n, context):
        if n > 3:
            until(lambda: not context.is_active(), 20)
    with world(w, waits) as s, socket.create_connection(("127.0.0.1", w.g.port), timeout=20) as conn:
        data = b'{"count":12}'
        conn.sendall(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        check("some are made, some not yet", until(lambda: len(s.forks) == 7 and len(s.links) == 3, 20), (len(s.forks), len(s.links)))
        time.sleep(0.3)
        conn.close()
        check("those that were made are ended", until(lambda: len(s.kills) == 3, 20), s.kills)
        equal("… each once", sorted(s.kills), [f"sbx_{n:026d}" for n in (1, 2, 3)])
        check("the others are given up", until(lambda: s.now == 0, 20), s.now)
        equal("and no more are asked for", len(s.forks), 7)


if __name__ == "__main__":
    play(suite)
