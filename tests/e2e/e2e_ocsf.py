#!/usr/bin/env python3
"""Findings as events of OCSF, read by models of it that others made; and rules of one's own."""
import json
import os
import pathlib
import subprocess

from harness import BUILD, REPO, Suite, code_of, error_of, pb, skip, soon, until

TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve()
if not list((TOOLS / "venv").glob("lib/python*/site-packages/py_ocsf_models")):
    skip(f"no models of OCSF in {TOOLS} (tools/test_tools.sh)")
suite = Suite("ocsf")
check, equal = suite.check, suite.equal
READ = """
import json, sys
from py_ocsf_models.events.findings.detection_finding import DetectionFinding
for line in sys.stdin:
    event = json.loads(line)
    e = DetectionFinding.model_validate(event)
    unknown = set(event) - set(DetectionFinding.model_fields) | set(event["finding_info"]) - set(type(e.finding_info).model_fields)
    at = e.finding_info.attacks[0]
    print(json.dumps({"name": e.finding_info.title, "severity": e.severity_id.name.lower(), "subject": e.resources[0].uid, "stream": e.metadata.log_name,
                      "seq": e.metadata.sequence, "count": e.count, "value": e.evidences[0].data["value"], "what": e.finding_info.desc,
                      "then": e.remediation.desc, "technique": at.sub_technique.uid if at.sub_technique else at.technique.uid, "type": int(e.type_uid),
                      "ms": [e.start_time, e.end_time, e.time], "tenant": e.metadata.tenant_uid, "unknown": sorted(unknown)}))
"""


def findings(c, *flags):
    return subprocess.run([BUILD / "cloche", "audit", "findings", *flags, "--dir", c.audit_dir], capture_output=True, text=True, timeout=soon(60)).stdout


@suite.scenario
def each_is_one_of_its_detection_findings(c):
    guesser = c.client("clk_" + "0" * 16 + "_" + "0" * 64)
    for _ in range(12):
        error_of(guesser.sandboxes.List, pb.SandboxServiceListRequest())
    reader = c.client(c.tenant("prober", scopes=["read"]).key)
    for _ in range(6):
        equal("a scope that the key lacks", code_of(error_of(reader.sandboxes.Create, pb.CreateRequest(template="base"))), "PERMISSION_DENIED")
    for _ in range(21):
        error_of(reader.sandboxes.Get, pb.SandboxServiceGetRequest(sandbox_id="sbx_" + "0" * 26))
    names = {"key-guessing", "scope-probing", "id-probing"}
    check("all three are in the log", until(lambda: names <= {json.loads(row)["name"] for row in findings(c, "--json").splitlines()}, 20))
    ours = [json.loads(row) for row in findings(c, "--json").splitlines()]
    read = subprocess.run([TOOLS / "venv" / "bin" / "python", "-c", READ], input=findings(c, "--ocsf"), capture_output=True, text=True, timeout=soon(60))
    check("the models read all of it", read.returncode == 0, read.stderr[-800:])
    theirs = [json.loads(row) for row in read.stdout.splitlines()]
    for own, event in zip(ours, theirs):
        equal(f"{own['name']}: they say the same", {k: event[k] for k in own if k in event}, {k: own[k] for k in own if k in event})
        equal("… of the right class, with nothing that it does not know", (event["type"], event["unknown"]), (200401, []))
        check("… of that time", event["ms"][0] <= event["ms"][1] == event["ms"][2] and abs(event["ms"][2] / 1000 - os.stat(c.audit_dir).st_mtime) < 3600, event)
    equal("none is missing", len(theirs), len(ours))
    equal("the tenant is named where there is one", {e["name"]: e["tenant"] for e in theirs}["id-probing"], "prober")


@suite.scenario
def and_so_are_those_of_rules_of_ones_own(c):
    rules = c.dir / "rules.json"
    rules.write_text(json.dumps({"rules": [{"name": "busy-reader", "severity": "medium", "event": "api.call", "where": {"method": ["*/ListWorkers", "*/GetUsage"], "code": "OK"},
                                            "subject": "key", "value": "method", "of": 2, "within_s": 60, "technique": "T1082", "what": "looks around", "then": "ask"}]}))
    key = c.admin.tenants.CreateKey(pb.CreateKeyRequest(tenant="local", scopes=["admin"]))
    client = c.client(key.secret)
    client.fleet.ListWorkers(pb.ListWorkersRequest())

    def found(*flags):
        rows = [json.loads(row) for row in findings(c, "--rules", rules, *flags).splitlines()]
        return [r for r in rows if key.key.id in json.dumps(r)]
    until(lambda: any(r["event"] == "api.call" and r["fields"].get("key") == key.key.id for r in c.audit_records()), 20)
    equal("one is not enough", found("--json"), [])
    client.tenants.GetUsage(pb.GetUsageRequest(tenant="local"))
    check("two are", until(lambda: len(found("--json")) == 1, 20), found("--json"))
    own, = found("--json")
    equal("with what the rule says", (own["name"], own["severity"], own["what"], own["then"], own["technique"]), ("busy-reader", "medium", "looks around", "ask", "T1082"))
    event, = found("--ocsf")
    equal("as an event, too", (event["finding_info"]["title"], event["finding_info"]["attacks"]), ("busy-reader", [{"technique": {"uid": "T1082", "name": "T1082"}}]))
    rules.write_text('{"rules": [{"name": "x", "severity": "low", "event": "api.cal", "what": "w"}]}')
    p = subprocess.run([BUILD / "cloche", "audit", "findings", "--rules", rules, "--dir", c.audit_dir], capture_output=True, text=True)
    check("a rule that is none is named", p.returncode == 1 and "rule 'x'" in p.stderr and "api.cal" in p.stderr, (p.returncode, p.stderr))


if __name__ == "__main__":
    suite.main(workers=0, templates="")
