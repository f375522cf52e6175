"""What the tests of this folder share: a registry of container images, and checks that are counted."""
import contextlib
import pathlib
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
FAILED = []


def check(sentence, ok, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {sentence}" + (f": {detail}" if not ok else ""), flush=True)
    if not ok:
        FAILED.append(sentence)
    return ok


def equal(sentence, got, want):
    return check(sentence, got == want, f"got {got!r}, want {want!r}")


@contextlib.contextmanager
def registry(work, http="", more=""):
    """Debian's own docker-registry, on a port of loopback; work/registry.log has a line for each answer.  More of its configuration."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (work / "registry.yml").write_text(f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {work}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}{http}}}\n{more}")
    with open(work / "registry.log", "wb") as log:
        p = subprocess.Popen(["docker-registry", "serve", work / "registry.yml"], stdout=log, stderr=log)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.1)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(30)


def skopeo(*args):
    subprocess.run(["skopeo", "--insecure-policy", *args], check=True, capture_output=True)
