#!/usr/bin/env python3
"""tools/gen_docs.py - docs/errors.md, docs/limits.md, docs/metrics.md, docs/audit-events.md, docs/detections.md and docs/vm-counters.md from the
tables, and the seccomp tables at the end of PRIVSEP.md.

usage: gen_docs.py [--check]       --check: exit 1 when a file in docs/ is not what the tables say
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(path, macro):
    text = re.sub(r"/\*.*?\*/", "", (ROOT / path).read_text(), flags=re.S)
    for body in re.findall(macro + r"\(((?:[^()\"]|\"(?:\\.|[^\"\\])*\")*)\)", text):
        parts = re.findall(r"\"(?:\\.|[^\"\\])*\"(?:\s*\"(?:\\.|[^\"\\])*\")*|[^,\s][^,]*", body)
        yield ["".join(re.findall(r"\"((?:\\.|[^\"\\])*)\"", p)).replace('\\"', '"') if p.startswith('"') else p.strip() for p in parts]


def table(head, lines):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines]
    return "\n".join(out) + "\n"


def errors():
    text = "# Errors\n\nOne table (base/errors.def) feeds gRPC status, HTTP status, the CLI and this page.\n\n"
    return text + table(("name", "gRPC", "HTTP", "retry", "cause", "remedy"),
                        [(n, g, h, "yes" if r == "1" else "", c, m) for n, g, h, r, c, m in rows("base/errors.def", "CL_ERR")])


def limits():
    text = ("# Limits\n\nOf a tenant (policy/limits.def); `cloche tenant create` and TenantService.PutTenant set them.\n"
            "A request that could never fit is refused at once; one that does not fit now waits or is refused (DECISIONS: admission\n"
            "is not reservation).\n\n")
    return text + table(("limit", "default", "least", "most", "unit", "meaning"), list(rows("policy/limits.def", "LIMIT")))


def metrics():
    text = "# Metrics\n\nServed by each process on its `--metrics` address (observability/metrics.def).\n\n"
    lines = [(f"`{n}`", k.lower(), ", ".join(x for x in (a, b) if x), h) for _, k, n, a, b, h in rows("observability/metrics.def", "METRIC")]
    return text + table(("name", "kind", "labels", "meaning"), lines)


def events():
    text = ("# Audit events\n\nEvery record of the audit log has one of these names (audit/events.def). Types: s string, u unsigned, b bool,\n"
            "l list; `?` = may be absent.\n\n")
    lines = [(f"`{n}`", f.replace(",", ", "), t) for _, n, f, t in rows("audit/events.def", "AUDIT_EVENT")]
    return text + table(("event", "fields", "meaning"), lines)


def detections():
    text = ("# Detections\n\nWhat `cloche audit findings` looks for in the audit log (trail/detections.def). `of` is how many different values of one subject (a\n"
            "job or sandbox, a key, a caller's address) make a finding, within the window. It reads the log where it lies, or asks the service ([reading.md](reading.md)),\n"
            "and again finds the same. It sees what is recorded: `blinded`, `not-watched` and `log-gap` say where that is not all. Who knows the\n"
            "thresholds stays below them. Rules of your own: [rules.md](rules.md); a program that is run for each finding: [alarms.md](alarms.md).\n\n")
    lines = [(f"`{n}`", s.lower(), f"{t} in {w} s" if w != "0" else t, m or "", what, then)
             for _, n, s, t, w, m, what, then in rows("trail/detections.def", "DETECTION")]
    return text + table(("finding", "severity", "of", "ATT&CK", "what", "then"), lines)


def counters():
    text = ("# Counters of a VM\n\nWhat `cloche vm stats` and SandboxService.Stats show of a VM of the drivers `kvm` and `kvm/xenpv`, from the start of its\n"
            "process on (vmm/counts.def); a clone begins at 0. `exits` and `kicks`: a vCPU came out of the guest to the monitor, once each.\n"
            "`kvm`: what the host's KVM says of its vCPUs (absent where it has no statistics, KVM_CAP_BINARY_STATS_FD); most of these never\n"
            "come to the monitor. The numbers are the monitor's word, and that is no better than its guest: bounded, not true.\n\n")
    return text + table(("counter", "meaning"), [(f"`{n}`", m) for _, n, m in rows("vmm/counts.def", "COUNT")])


PROFILES = (
    ("cloche-scheduler: may call", "scheduler/seccomp.c", "rows"),
    ("cloche-audit: may call", "audit/writer/seccomp.c", "rows"),
    ("cloche-audit-reader: may call", "trail/reader/seccomp.c", "rows"),
    ("cloche-gateway: may call", "gateway/seccomp.c", "rows"),
    ("cloche-net: may call", "net/seccomp.c", "rows"),
    ("cloche-guard: may call", "worker/guard_seccomp.c", "rows"),
    ("cloche-vmm, a vCPU's thread: may call", "vmm/seccomp.c", "vcpu_rows"),
    ("cloche-vmm, its main thread: may call", "vmm/seccomp.c", "main_rows"),
    ("cloche-worker, and with it guardian and QEMU: may not call", "worker/seccomp.c", "refused"),
)
MARK = "## Seccomp tables\n"


def privileges():
    text = (ROOT / "PRIVSEP.md").read_text().split(MARK)[0] + MARK + "\nWritten by tools/gen_docs.py from the code.\n"
    for title, path, name in PROFILES:
        body = re.search(r"struct cl_(?:allow|filter_row) " + name + r"\[\] = \{(.*?)\n\};", (ROOT / path).read_text(), re.S).group(1)
        lines = re.findall(r'(SCMP_SYS|CL_CALL|CL_IOCTL)\((\w+)\)?,\s*"([^"]*)"', body)
        calls = [(f"`ioctl({call})`" if kind == "CL_IOCTL" else f"`{call}`", why) for kind, call, why in lines]
        text += f"\n### {title}\n\n" + table(("call", "why"), calls)
    return text


def main():
    if sys.argv[1:2] not in ([], ["--check"]):
        print(__doc__)
        return 0
    stale = []
    for name, make in (("errors", errors), ("limits", limits), ("metrics", metrics), ("audit-events", events), ("detections", detections),
                       ("vm-counters", counters), ("PRIVSEP", privileges)):
        path = ROOT / ("" if name.isupper() else "docs") / f"{name}.md"
        text = make()
        if text.count("\n") < 12:
            print(f"{path}: the table came out nearly empty")
            return 1
        if sys.argv[1:] == ["--check"]:
            stale += [path] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    for path in stale:
        print(f"{path.relative_to(ROOT)}: not what the tables say; run tools/gen_docs.py")
    return 1 if stale else 0


sys.exit(main())
