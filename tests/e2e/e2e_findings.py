#!/usr/bin/env python3
"""`cloche audit findings` over the log of a real cluster: attacks are found, ordinary work is not, and each with what it needs to be looked at."""
import json
import os
import signal
import subprocess

from harness import BUILD, SECOND, Suite, code_of, command, error_of, follow, pb, run, soon, until

suite = Suite("findings")
check, equal = suite.check, suite.equal
ORDINARY = """
import json, os, sqlite3, subprocess, sys, tempfile, threading, urllib.parse
threads = [threading.Thread(target=lambda: sum(range(1000))) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
    f.write("print(6 * 7)"); f.flush()
    subprocess.run([sys.executable, f.name], check=True)
subprocess.run("ls -l / | sort | head -3; ps aux > /dev/null; id", shell=True, check=True)
sqlite3.connect("/tmp/db").execute("create table t (x)")
import socket
s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname()).close()
"""
ATTACK = """
import ctypes, os, shutil, socket, subprocess
libc = ctypes.CDLL(None)
libc.syscall(321, 0, 0, 0)                      # bpf
libc.unshare(0x10000000)                        # CLONE_NEWUSER
child = subprocess.Popen(["sleep", "100"])
libc.ptrace(16, child.pid, 0, 0)                # PTRACE_ATTACH
def knock(address, port):
    s = socket.socket(); s.settimeout(0.05)
    try: s.connect((address, port))
    except OSError: pass
knock("169.254.169.254", 80)
for port in range(30): knock("192.0.2.1", 1000 + port)
for host in range(6): knock(f"10.0.0.{host}", 22)
shutil.copy("/bin/true", "/tmp/brought"); os.chmod("/tmp/brought", 0o755)
os.rename("/tmp/brought", "/tmp/moved")
subprocess.run(["/tmp/moved"]); child.kill()
for n in range(25):
    open(f"/tmp/{n}", "w").close()
    os.rename(f"/tmp/{n}", f"/tmp/{n}.locked")
os.mkdir("/tmp/.aws")
open("/tmp/.aws/credentials", "w").write("x"); open("/tmp/.aws/credentials").read()
"""


def findings(c, *flags):
    p = subprocess.run([BUILD / "cloche", "audit", "findings", "--json", "--dir", c.audit_dir, *flags], capture_output=True, text=True, timeout=soon(120))
    return p.returncode, [json.loads(line) for line in p.stdout.splitlines()]


def program(client, code):
    """Its unit, once all that it did is in the log."""
    box = client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=300 * SECOND), timeout=120).sandbox.id
    job = client.execs.Start(pb.StartRequest(sandbox_id=box, command=command("python3", "-c", code))).exec_id
    done = follow(client.execs.Attach(pb.AttachRequest(sandbox_id=box, exec_id=job), timeout=120))
    check("the program runs to its end", done.result and done.result.exit_code == 0, done)
    client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
    return box


@suite.scenario
def ordinary_work_is_none(c):
    box = program(c.admin, ORDINARY)
    equal("a job", run(c.admin, "python3", "-c", "print(1)", template="python").outcome, "EXITED")
    until(lambda: any(r["event"] == "guest.count" and r["fields"]["unit"] == box for r in c.audit_records()), 20)
    status, found = findings(c)
    equal("threads, files, pipes, children, a server of its own: nothing is found, exit code 0", (status, found), (0, []))


@suite.scenario
def attacks_are(c):
    live = subprocess.Popen([BUILD / "cloche", "audit", "findings", "-f", "--json", "--dir", c.audit_dir], stdout=subprocess.PIPE, text=True)
    box = program(c.admin, ATTACK)
    want = {"kernel-surface": "high", "new-namespace": "medium", "process-injection": "medium", "cloud-metadata": "high", "port-scan": "medium",
            "private-network": "medium", "dropped-program": "low", "same-ending": "medium", "credentials-read": "low"}
    ours = lambda: {f["name"]: f for f in findings(c)[1] if f["subject"].split()[0] == box}
    until(lambda: set(want) <= set(ours()), 20)
    got = ours()
    equal("each is found, with its severity", {n: f["severity"] for n, f in got.items()}, want)
    check("the call, the address, the program are named", "bpf" in got["kernel-surface"]["value"] and "169.254.169.254" in got["cloud-metadata"]["value"] and
          got["dropped-program"]["value"] == "/tmp/moved" and got["same-ending"]["subject"] == f"{box} .locked", got)
    equal("a finding leads to its record", [r["event"] for r in c.audit_records() if (r["stream"], r["seq"]) == (got["kernel-surface"]["stream"], got["kernel-surface"]["seq"])],
          ["guest.denied"])
    check("... and to what to do", all(f["then"] and f["what"] for f in got.values()))
    status, grave = findings(c, "--severity", "high", "--unit", box)
    equal("the gravest alone, exit code 3", (status, {f["name"] for f in grave}), (3, {"kernel-surface", "cloud-metadata"}))
    order = [f["severity"] for f in findings(c)[1]]
    equal("the gravest first", order, sorted(order, key=["high", "medium", "low"].index))
    text = subprocess.run([BUILD / "cloche", "audit", "findings", "--dir", c.audit_dir], capture_output=True, text=True).stdout
    check("people read it, too", f"high    kernel-surface  {box}" in text and "then: " in text, text)
    seen = {json.loads(live.stdout.readline())["name"] for _ in want}
    equal("with -f each came as it was made", seen, set(want))
    live.send_signal(signal.SIGINT)
    live.wait(soon(30))


@suite.scenario
def alarms_are_told_once(c):
    told, state, fails = c.dir / "told", c.dir / "alarm.json", c.dir / "fails"

    def alarm():
        words = f'cat >> {told}; echo "$CLOCHE_FINDING" >> {told}.names; ! rm {fails} 2> /dev/null'
        return subprocess.Popen([BUILD / "cloche", "audit", "alarm", "--dir", c.audit_dir, "--state", state, "--severity", "high", "--", "sh", "-c", words],
                                stderr=subprocess.PIPE, text=True)

    def rows():
        return [(f["subject"], f["name"]) for f in map(json.loads, told.read_text().splitlines())] if told.exists() else []

    def both(box):
        return {(box, "kernel-surface"), (box, "cloud-metadata")}
    first = alarm()
    check("it is there", until(state.exists, 20))
    fails.touch()
    box = program(c.admin, ATTACK)
    check("both grave ones are told", until(lambda: set(rows()) == both(box), 30), rows())
    equal("one twice, as the program failed", len(rows()), 3)
    check("that is noted", until(lambda: f"cloud-metadata {box}" in state.read_text(), 20), state.read_text())
    first.kill()
    check("it says why one was told again", "ended with 1" in first.communicate()[1])
    meanwhile = program(c.admin, ATTACK)
    second = alarm()
    check("what came meanwhile is told", until(lambda: both(meanwhile) <= set(rows()), 30), rows())
    last = program(c.admin, ATTACK)
    check("… and what comes", until(lambda: both(last) <= set(rows()), 30), rows())
    equal("nothing twice, and nothing else", sorted(rows()[3:]), sorted(both(meanwhile) | both(last)))
    names, told_names = lambda: (c.dir / "told.names").read_text().split(), [name for _, name in rows()]
    until(lambda: len(names()) >= len(told_names), 20)  # the program writes it behind the finding
    equal("the name is in the environment", names(), told_names)
    second.send_signal(signal.SIGTERM)
    second.wait(soon(30))
    p = subprocess.run([BUILD / "cloche", "audit", "alarm", "--dir", c.audit_dir, "--state", state], capture_output=True, text=True)
    check("without a program: usage", p.returncode == 2 and "PROGRAM" in p.stderr, (p.returncode, p.stderr))


@suite.scenario
def credentials(c):
    secret = "clk_" + "0" * 16 + "_" + "0" * 64
    guesser = c.client(secret)
    for _ in range(12):
        equal("a guess", code_of(error_of(guesser.sandboxes.List, pb.SandboxServiceListRequest())), "UNAUTHENTICATED")
    key = c.admin.tenants.CreateKey(pb.CreateKeyRequest(tenant="local", scopes=["read"]))
    reader = c.client(key.secret)
    for _ in range(6):
        error_of(reader.sandboxes.Create, pb.CreateRequest(template="python"))
    for _ in range(21):
        error_of(reader.sandboxes.Get, pb.SandboxServiceGetRequest(sandbox_id="sbx_" + "0" * 26))
    names = lambda: {f["name"]: f["subject"] for f in findings(c)[1]}
    until(lambda: {"key-guessing", "scope-probing", "id-probing"} <= set(names()), 20)
    got = names()
    check("guessed keys, probed scopes and ids are found", {"key-guessing", "scope-probing", "id-probing"} <= set(got), got)
    equal("... with the key that did it", (got.get("scope-probing"), got.get("id-probing")), (key.key.id, key.key.id))


@suite.scenario
def words(c):
    p = subprocess.run([BUILD / "cloche", "audit", "findings", "--severity", "dire", "--dir", c.audit_dir], capture_output=True, text=True)
    check("a severity that is none: usage", p.returncode == 2 and "low, medium or high" in p.stderr, p.stderr)
    p = subprocess.run([BUILD / "cloche", "audit", "findings", "--dir", "/nowhere"], capture_output=True, text=True)
    check("no log: an error, and no good news", p.returncode == 1 and "cannot be read" in p.stderr, (p.returncode, p.stderr))
    equal("nothing yet of tomorrow", findings(c, "--since", "2100-01-01"), (0, []))


if __name__ == "__main__":
    os.environ.pop("CLOCHE_ENDPOINT", None)
    suite.main(templates="python")
