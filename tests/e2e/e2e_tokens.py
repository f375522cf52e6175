#!/usr/bin/env python3
"""Bearer tokens of an authorization server beside API keys: who they become, what is refused and how,
keys that change while the scheduler runs."""
import json
import os
import time

from issuer import RULES, Issuer, key_set
from harness import Suite, code_of, error_of, folder, pb, run, until

suite = Suite("tokens")
check, equal = suite.check, suite.equal
FOLDER = folder("tokens-keys")


def publish(*issuers):
    fresh = FOLDER / "jwks.json.new"
    fresh.write_text(key_set(*issuers))
    os.replace(fresh, FOLDER / "jwks.json")


first, second = Issuer("k1"), Issuer("k2")
publish(first)


def usage(client):
    return client.tenants.GetUsage(pb.GetUsageRequest(), timeout=20)


@suite.scenario
def a_token_is_a_principal(c):
    c.tenant("acme")
    alice = c.client(first.token())
    equal("a job runs with a token", bytes(run(alice, "echo", "hello").out), b"hello\n")
    me, key = alice.tenants.WhoAmI(pb.WhoAmIRequest()), c.tenant("acme").tenants.WhoAmI(pb.WhoAmIRequest())
    equal("WhoAmI tells tokens apart by subject", (me.tenant, me.subject, me.key_id, list(me.scopes)), ("acme", "jwt:alice", "", ["run"]))
    check("… and keys by id", key.tenant == "acme" and len(key.key_id) == 16, key)
    check("its tenant is the claim's", "acme" in json.dumps(c.audit_records("tenant")) and "jwt:alice" in json.dumps(c.audit_records("tenant")))
    reader = c.client(first.token(sub="bob", scope="sandbox:read"))
    check("a reader may look", usage(reader) is not None)
    equal("… and not run", code_of(error_of(lambda: run(reader, "true"))), "PERMISSION_DENIED")
    equal("a key still works", run(c.tenant("acme"), "true").outcome, "EXITED")


@suite.scenario
def refusals(c):
    c.tenant("acme")
    rows = (("an expired token", first.token(exp=int(time.time()) - 120), "UNAUTHENTICATED", "expired"),
            ("a token for another service", first.token(aud="https://other.test"), "UNAUTHENTICATED", "audience"),
            ("a token of another issuer", first.token(iss="https://evil.test"), "UNAUTHENTICATED", "issuer"),
            ("a token of an unknown key", second.token(), "UNAUTHENTICATED", "no key"),
            ("a forged token", first.token()[:-8] + "AAAAAAAA", "UNAUTHENTICATED", "signature"),
            ("a token for an unknown tenant", first.token(tenant="nobody"), "PERMISSION_DENIED", "nobody"),
            ("a token without a tenant", first.token(tenant=None), "PERMISSION_DENIED", "tenant"),
            ("a token without a known scope", first.token(scope="admin"), "PERMISSION_DENIED", "scopes"))
    for name, token, code, word in rows:
        err = error_of(lambda token=token: usage(c.client(token)))
        equal(f"{name} is {code}", code_of(err), code)
        check(f"{name}: the text says why", err is not None and word in err.details(), err and err.details())
        check(f"{name} is not quoted", err is not None and token[-40:] not in err.details())
    host = json.dumps(c.audit_records("host"))
    check("refusals are in the audit log, tokens are not", "key.refused" in host and "expired" in host and first.token()[:60] not in host)


@suite.long_scenario
def keys_change_while_it_runs(c):
    c.tenant("acme")
    equal("before: the new key is unknown", code_of(error_of(lambda: usage(c.client(second.token())))), "UNAUTHENTICATED")
    publish(first, second)

    def works(issuer):
        return error_of(lambda: usage(c.client(issuer.token()))) is None
    check("a published key is taken without a restart", until(lambda: works(second), 30, 0.5))
    check("… and the old one still", works(first))
    (FOLDER / "jwks.json").write_text("{ not json")
    check("a broken file is logged", until(lambda: c.scheduler.events("CONFIG_REFUSED"), 30, 0.5))
    check("… and changes nothing", works(first) and works(second))
    publish(second)
    check("a withdrawn key is refused", until(lambda: not works(first), 30, 0.5))
    publish(first)
    check("and taken again when it is back", until(lambda: works(first), 30, 0.5))


if __name__ == "__main__":
    suite.main(templates="base", scheduler_args=(*RULES, "--token-keys", FOLDER / "jwks.json"))
