#!/usr/bin/env python3
"""Building templates by E2B's API: what is asked of the scheduler, and what becomes of its answers."""
import concurrent.futures
import contextlib
import http.client
import json
import threading
import urllib.parse

from made_up_scheduler import BOX, KEY, grpc, play
from harness import Suite, pb, until

suite = Suite("gateway-templates")
check, equal = suite.check, suite.equal
C = grpc.StatusCode
HASH = "0a" * 32


def api(w, method, path, body=None, **headers):
    h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    h.request(method, path, data, {k.replace("_", "-"): v for k, v in (headers or {"X_API_Key": KEY}).items()})
    r = h.getresponse()
    text = r.read()
    h.close()
    return r.status, json.loads(text) if text else None


class Build:
    """One that waits for its recipe."""

    def __init__(self, w, name):
        self.w, self.name = w, name
        self.id = api(w, "POST", "/v3/templates", {"name": name})[1]["buildID"]

    def run(self, **recipe):
        return api(self.w, "POST", f"/v2/templates/{self.name}/builds/{self.id}", recipe)[0]

    def status(self):
        return api(self.w, "GET", f"/templates/{self.name}/builds/{self.id}/status")[1]

    def end(self):
        until(lambda: self.status()["status"] in ("ready", "error"), 20)
        return self.status()

    def upload(self, digest=HASH, data=b"x"):
        link = api(self.w, "GET", f"/templates/{self.name}/files/{digest}")[1]
        return api(self.w, "PUT", urllib.parse.urlsplit(link["url"]).path, data, **link["headers"])[0]


@contextlib.contextmanager
def world(w, on_create=None, on_snapshot=None, **images):
    s = w.s
    s.creates, s.kills, s.asked, s.writes, s.images, s.on_create, s.on_snapshot = [], [], [], [], images, on_create, on_snapshot
    yield s
    s.on_create, s.on_snapshot = None, None


@suite.scenario
def of_an_image(w):
    with world(w, python="", node22="docker.io/library/node:22-slim", app="registry.test:5000/app") as s:
        for image, template in (("node:22-slim", "node22"), ("registry.test:5000/app:latest", "app")):
            s.creates.clear()
            b = Build(w, "mine")
            equal("the recipe is taken", b.run(fromImage=image), 202)
            equal(f"{image}: its template", (b.end()["status"], [m.template for m in s.creates]), ("ready", [template]))
        b = Build(w, "mine")
        b.run(fromImage="node:20")
        said = b.end()
        check("an image that no template was made of", said["status"] == "error" and "cloche template build NAME --image node:20" in said["reason"]["message"] and
              said["reason"]["step"] == "base", said)
        equal("… costs no sandbox", len(s.creates), 1)


@suite.scenario
def a_build_without_steps(w):
    with world(w) as s:
        b = Build(w, "plain")
        equal("it waits", b.status()["status"], "waiting")
        b.run(fromTemplate="python")
        equal("it is ready", b.end()["status"], "ready")
        (made,) = s.creates
        equal("in a sandbox that is known to be for it", ([(x.key, x.value) for x in made.labels], made.ttl_ns), ([("e2b-build", b.id)], 600 * 10**9))
        (kept,) = [m for what, m in s.asked if what == "Create"]
        equal("whose snapshot has the name, and takes it over", (kept.sandbox_id, kept.name, kept.replace, {x.key: x.value for x in kept.labels}),
              (BOX, "plain", True, {"e2b-build": b.id, "e2b-template": "plain"}))
        check("and which is ended then", until(lambda: s.kills == [BOX], 10), s.kills)


@suite.scenario
def what_goes_wrong_is_told_and_leaves_nothing(w):
    def refuses(what):
        def answer(method, _request, context):
            if method == what:
                context.abort(C.RESOURCE_EXHAUSTED, "says why")
        return answer
    with world(w, on_snapshot=refuses("Create")) as s:
        b = Build(w, "no-room")
        b.run(fromTemplate="python")
        said = b.end()
        equal("a snapshot that cannot be made", (said["status"], said["reason"]["step"], "says why" in said["reason"]["message"]), ("error", "finalize", True))
        check("its sandbox is ended", until(lambda: s.kills == [BOX], 10), s.kills)

    def denies(_m, context):
        context.abort(C.PERMISSION_DENIED, "no scope")
    with world(w, on_create=denies) as s:
        b = Build(w, "denied")
        b.run(fromTemplate="python")
        said = b.end()
        equal("no sandbox", (said["status"], said["reason"]), ("error", {"message": "no scope", "step": "base"}))
        equal("and nothing to end", s.kills, [])

    def lost(method, _request, context):
        if method == "Templates":
            context.abort(C.UNAVAILABLE, "gone")
    with world(w, on_snapshot=lost) as s:
        b = Build(w, "lost")
        b.run(fromImage="a")
        check("what ends it elsewhere ends it", "gone" in b.end()["reason"]["message"], b.status())


@suite.scenario
def files_wait_in_one_sandbox(w):
    go = threading.Event()
    with world(w, on_create=lambda _m, _context: go.wait(20)) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        b = Build(w, "files")
        uploads = [pool.submit(b.upload, f"{n:064x}") for n in range(5)]
        check("one is made", until(lambda: len(s.creates) == 1, 10), s.creates)
        go.set()
        equal("several archives at once", [u.result() for u in uploads], [200] * 5)
        equal("… are in one sandbox", (len(s.creates), {m.box for m in s.writes}, sorted(m.path for m in s.writes)),
              (1, {BOX}, [f"/tmp/.cloche-{n:064x}.tar" for n in range(5)]))
        equal("by root", {m.user for m in s.writes}, {"root"})
    failed = []

    def fails_once(_m, context):
        if not failed:
            failed.append(True)
            context.abort(C.RESOURCE_EXHAUSTED, "no sandbox left")
    with world(w, on_create=fails_once) as s:
        b = Build(w, "again")
        check("where there is no room it is told", b.upload() in (413, 429, 503))
        equal("… and may be tried again", b.upload(), 200)
    gone = threading.Event()
    with world(w, on_create=lambda _m, _context: gone.wait(20)) as s:
        b = Build(w, "left")
        link = api(w, "GET", f"/templates/left/files/{HASH}")[1]
        h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
        h.putrequest("PUT", urllib.parse.urlsplit(link["url"]).path)
        for name, value in {**link["headers"], "Content-Length": "5"}.items():
            h.putheader(name, value)
        h.endheaders()
        check("a client begins", until(lambda: len(s.creates) == 1, 10))
        h.close()
        gone.set()
        equal("it left: another may send them", b.upload(), 200)


@suite.scenario
def who_asks_for_too_much(w):
    go = threading.Event()
    with world(w, on_create=lambda _m, _context: go.wait(20)):
        first = Build(w, "first")
        many = [Build(w, f"n{n}") for n in range(8)]
        equal("one that waits makes room for others", [api(w, "GET", f"/templates/{b.name}/builds/{b.id}/status")[0] for b in (first, many[0])], [404, 200])
        equal("they run", [b.run(fromTemplate="python") for b in many], [202] * 8)
        status, said = api(w, "POST", "/v3/templates", {"name": "more"})
        check("no more at once", status == 429 and "builds of this tenant run" in said["message"], said)
        go.set()
        equal("and end", {b.end()["status"] for b in many}, {"ready"})
        equal("then there is room", api(w, "POST", "/v3/templates", {"name": "more"})[0], 202)


if __name__ == "__main__":
    play(suite)
