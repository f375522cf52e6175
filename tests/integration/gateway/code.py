#!/usr/bin/env python3
"""Cells by E2B's API: the environment of one /execute, and what no environment is."""
import http.client
import json
import struct

from made_up_scheduler import BOX, KEY, grpc, play
from harness import Suite

suite = Suite("gateway-code")
check, equal = suite.check, suite.equal
ODD = "q'\"$(x)`\\\n\tü€ = "


def post(w, path, body, kind="application/json"):
    """(status, text)"""
    h = http.client.HTTPConnection("127.0.0.1", w.g.port, timeout=60)
    h.request("POST", path, body, {"X-API-Key": KEY, "E2b-Sandbox-Id": BOX, "Content-Type": kind})
    r = h.getresponse()
    text = r.read().decode(errors="replace")  # the head of an envelope is no text
    h.close()
    return r.status, text


def execute(w, **body):
    w.s.cells, w.s.on_cell = [], None
    return post(w, "/execute", json.dumps({"code": "1", **body}))


def heard(w):
    return [[(v.name, v.value) for v in m.env] for m in w.s.cells]


@suite.scenario
def it_is_passed_on(w):
    status, text = execute(w, env_vars={"A": "1", "ODD": ODD, "EMPTY": ""})
    check("a cell with an environment runs", status == 200 and '"end_of_execution"' in text, (status, text))
    equal("and has it", heard(w), [[("A", "1"), ("ODD", ODD), ("EMPTY", "")]])
    for what, body in (("none", {}), ("null, as the SDK for Python says", {"env_vars": None}), ("an empty one", {"env_vars": {}})):
        equal(what, (execute(w, **body)[0], heard(w)), (200, [[]]))


@suite.scenario
def it_is_asked_again_with_it(w):
    """While another cell runs."""
    def busy_once(_m, context):
        if len(w.s.cells) == 1:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the context runs another cell")
    w.s.cells, w.s.on_cell = [], busy_once
    status, _ = post(w, "/execute", json.dumps({"code": "1", "env_vars": {"A": "1"}}))
    equal("the second time, too", (status, heard(w)), (200, [[("A", "1")]] * 2))


@suite.scenario
def what_is_none(w):
    for what, env in (("a list", ["A=1"]), ("a text", "A=1"), ("a number in it", {"A": 1}), ("null in it", {"A": None}), ("NUL in a value", {"A": "1\0002"})):
        equal(f"{what} is refused, and nothing runs", (execute(w, env_vars=env)[0], w.s.cells), (400, []))


@suite.scenario
def what_the_scheduler_says(w):
    for code, status in ((grpc.StatusCode.UNIMPLEMENTED, 501), (grpc.StatusCode.INVALID_ARGUMENT, 400)):
        w.s.cells, w.s.on_cell = [], lambda _m, context, code=code: context.abort(code, "says why")
        got, text = post(w, "/execute", json.dumps({"code": "1", "env_vars": {"A=": "1"}}))
        check(f"{code.name} is told", got == status and "says why" in text, (got, text))


@suite.scenario
def a_command_has_no_half_of_a_value(w):
    """NUL ended the value, and the command ran."""
    body = json.dumps({"process": {"cmd": "true", "envs": {"A": "1\0002"}}}).encode()
    status, text = post(w, "/process.Process/Start", b"\0" + struct.pack(">I", len(body)) + body, "application/connect+json")
    check("it is refused", '"invalid_argument"' in text, (status, text))


if __name__ == "__main__":
    play(suite)
