"""Templates built by E2B's Python SDKs, unmodified, for a tenant with room for four sandboxes.  One JSON line on stdout.

usage: e2b_template_client.py BASE      (run by e2e_e2b.py with the tools' venv; E2B_* say where)
"""
import asyncio
import http.client
import json
import os
import pathlib
import sys
import tempfile
import time
import urllib.parse

from e2b import AsyncSandbox, AsyncTemplate, BuildException, Sandbox, Template, wait_for_file, wait_for_port, wait_for_process
from e2b.template.logger import LogEntry
from e2b_code_interpreter import Sandbox as CodeSandbox

BASE = sys.argv[1]
SERVER = '''import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    n = 0
    def do_GET(self):
        H.n += 1
        body = f"{os.environ['GREETING']} {H.n} {os.getcwd()}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
print("begins", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
'''


def raised(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as e:  # noqa: BLE001 - which one is the question
        return [type(e).__name__, str(e)]
    return [None, ""]


def folder():
    """What is copied: files, a folder, a link, a mode, many bytes that do not become less."""
    root = pathlib.Path(tempfile.mkdtemp())
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "server.py").write_text(SERVER)
    (root / "src" / "deep" / "ü b.txt").write_text("deep")
    (root / "src" / "link").symlink_to("server.py")
    (root / "one.txt").write_text("one")
    (root / "two.txt").write_text("two")
    (root / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (root / "left-out.log").write_text("no")
    (root / ".dockerignore").write_text("*.log\n")
    (root / "large").write_bytes(os.urandom(5 << 20))
    return root


def builds(out, root):
    lines = []
    t = (Template(file_context_path=root).from_template(BASE)
         .set_envs({"GREETING": "hello", "QUOTED": "a 'b' \"c\" ü"})
         .set_workdir("app")
         .copy("src", "lib")
         .copy("*.txt", "texts/")
         .copy("one.txt", "renamed.txt", mode=0o600)
         .copy("tool.sh", "/usr/local/bin/tool", user="root", mode=0o755)
         .copy("large", "/opt/")
         .copy("one.txt", "same/").copy("one.txt", "same/")
         .copy("*", "all/")
         .run_cmd(["id -un > who", "pwd >> who", "echo $GREETING >> who", "echo said; echo grumbled >&2"])
         .run_cmd("id -un > /root/who", user="root")
         .set_user("root").set_workdir("/srv/x")
         .run_cmd("echo $(id -un) $(pwd) > who")
         .set_user("user").set_workdir("/home/user/app")
         .set_start_cmd("python3 lib/server.py", wait_for_port(8000)))
    began = time.monotonic()
    built = Template.build(t, "my-app", cpu_count=1, memory_mb=512, min_free_disk_mb=600, on_build_logs=lambda e: lines.append(e))
    out["seconds"] = round(time.monotonic() - began, 1)
    out["built"] = [built.name, built.template_id, len(built.build_id)]
    text = [e.message for e in lines if isinstance(e, LogEntry)]
    out["log"] = [any(want in line for line in text) for want in ("[base] FROM", "] COPY src", "said", "grumbled", "begins", "is ready")]
    out["levels"] = [e.level for e in lines if isinstance(e, LogEntry) and e.message in ("said", "grumbled")]
    out["exists"] = [Template.exists("my-app"), Template.exists("not-my-app")]


def get(s, port):
    """What a server in it answers; the names are not in any DNS here."""
    host, gateway = s.get_host(port), urllib.parse.urlsplit(os.environ["E2B_SANDBOX_URL"])
    c = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=60)
    c.request("GET", "/", headers={"Host": host})
    return c.getresponse().read().decode()


def used(out):
    s = Sandbox.create("my-app", timeout=300, envs={"OF_BOX": "b", "GREETING": "mine"}, metadata={"of": "app"})
    run = lambda text, **options: s.commands.run(text, **options).stdout
    out["info"] = [s.get_info().template_id, s.get_info().name, s.get_info().metadata]
    out["who"] = [run("cat who; cat /srv/x/who"), run("cat /root/who", user="root")]
    out["place"] = [run("id -un; pwd; echo $GREETING $OF_BOX; printenv QUOTED"), run("pwd", cwd="/"), run("id -un; pwd", user="root")]
    out["copied"] = [run("find . -printf '%P %y %m %u\\n' | sort | grep -v ^all"), run("ls all; ls -A all | grep -c log || true"), run("tool; stat -c '%a %U' /usr/local/bin/tool"),
                     run("[ $(df -m --output=avail / | tail -1) -ge 600 ] && stat -c %s /opt/large; stat -c '%U %a' /opt /usr /srv/x; ls -A /tmp | grep -c cloche || true")]
    out["files"] = [s.files.read("renamed.txt"), s.files.exists("lib/deep/ü b.txt"), s.files.write("new", "n").path]
    out["server"] = [get(s, 8000), get(s, 8000)]
    again = Sandbox.connect(s.sandbox_id)
    out["connected"] = again.commands.run("pwd; echo $GREETING $OF_BOX").stdout
    other = Sandbox.create("my-app", timeout=300)
    out["other"] = [get(other, 8000), other.commands.run("echo $GREETING").stdout]
    fork = s.fork(count=1)[0] if hasattr(s, "fork") else None
    out["fork"] = fork.sandbox.commands.run("pwd; echo $GREETING").stdout if hasattr(fork, "sandbox") else fork.commands.run("pwd; echo $GREETING").stdout
    snap = s.create_snapshot(name="of-my-app")
    s.kill()
    third = Sandbox.create("of-my-app", timeout=300)
    out["snapshot"] = [third.commands.run("pwd; echo $GREETING; cat new").stdout, get(third, 8000)]
    Sandbox.delete_snapshot(snap.snapshot_id)
    for box in (other, third, fork.sandbox if hasattr(fork, "sandbox") else fork):
        box.kill()


def layers(out, root):
    """One that is built of one, replaces itself, and has code contexts."""
    def build(text, name="layer"):
        Template.build(Template(file_context_path=root).from_template("my-app").run_cmd(f"echo {text} > layer").set_envs({"LAYER": text}), name)
    build("first")
    build("second")
    s = CodeSandbox.create("layer", timeout=300)
    out["layer"] = [s.commands.run("cat layer; echo $LAYER $GREETING; pwd").stdout, get(s, 8000)]
    context = s.create_code_context()
    out["context"] = s.run_code("import os; (os.environ['LAYER'], os.getcwd())", context=context).text
    s.kill()


def fails(out, root):
    def build(t, name="bad"):
        return raised(Template.build, t, name)
    new = lambda: Template(file_context_path=root).from_template(BASE)
    out["step"] = build(new().run_cmd("true").run_cmd("echo why >&2; exit 3"))
    out["ended"] = build(new().set_start_cmd("echo no such thing >&2; exit 4", wait_for_file("/tmp/never")))
    out["no_user"] = build(new().set_user("app"))
    out["no_base"] = build(Template().from_template("nothing-of-that-name"))
    out["image"] = build(Template().from_python_image("3.12"))
    out["tag"] = build(new(), "bad:v1")
    out["taken"] = build(new(), "python")
    out["not_copied"] = build(new().copy("one.txt", "/proc/nothing/x"))
    out["not_there"] = Template.exists("bad")
    left = []
    pages = Sandbox.list()
    while pages.has_next:
        left += pages.next_items()
    out["left"] = len(left)


async def in_asyncio(out, root):
    t = AsyncTemplate(file_context_path=root).from_template(BASE).copy("one.txt", "/home/user/").set_start_cmd("sleep 1000", wait_for_process("sleep"))
    info = await AsyncTemplate.build_in_background(t, "of-asyncio")
    while (status := await AsyncTemplate.get_build_status(info)).status.value in ("waiting", "building"):
        await asyncio.sleep(0.3)
    out["async"] = [status.status.value, status.reason.message if status.reason else ""]
    if status.status.value == "ready":
        s = await AsyncSandbox.create("of-asyncio")
        out["async"].append((await s.commands.run("cat one.txt")).stdout)
        await s.kill()


def main():
    out, root = {}, folder()
    for part in (builds, used, layers, fails):
        if part is used:
            part(out)
        else:
            part(out, root)
    asyncio.run(in_asyncio(out, root))
    out["deleted"] = [Sandbox.delete_snapshot(name) for name in ("my-app", "layer", "of-asyncio", "my-app")]
    print(json.dumps(out))


main()
