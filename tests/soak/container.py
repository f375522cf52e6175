#!/usr/bin/env python3
"""tests/soak/container.py - the package in a Docker container: jobs, the jail, what goes on over restarts and new containers.

usage: tests/soak/container.py [BASE]    (CLOCHE_BUILD: a release build, build; CLOCHE_IMAGES as of tests/e2e; DOCKER_HOST)

Needs root, a Docker daemon, /dev/kvm and the network of Debian packages.  BASE is an image of Debian 12 that is there; without
it one is made by mmdebstrap.  Uses the host's network: no other instance may have 127.0.0.1:7780.
Exit status: 0 all of it is as it should be; 1 not.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import uuid

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CLOCHE_BUILD", REPO / "build")).resolve()
IMAGES = pathlib.Path(os.environ.get("CLOCHE_IMAGES", REPO / "out" / "images")).resolve()
NAME = f"cloche-{uuid.uuid4().hex[:8]}"
JAIL = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--cgroupns", "host", "-v", "/sys/fs/cgroup:/sys/fs/cgroup"]
failed = 0


def check(sentence, ok, detail=""):
    global failed
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {sentence}" + (f": {detail}" if not ok else ""), flush=True)


def call(*argv, ok=True, **kw):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **kw)
    if ok and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}")
    return done


def docker(*argv, **kw):
    return call("docker", *argv, **kw)


def make_base():
    with tempfile.TemporaryFile() as tar:
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", "-"], stdout=tar, check=True)
        tar.seek(0)
        subprocess.run(["docker", "import", "-", f"{NAME}-base"], stdin=tar, stdout=subprocess.DEVNULL, check=True)
    return f"{NAME}-base"


def make_image(base):
    with tempfile.TemporaryDirectory() as folder:
        call("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder)
        docker("build", "--network", "host", "--build-arg", f"BASE={base}", "-t", NAME, "-f", REPO / "deploy/docker/Dockerfile", folder)
    print(f"     image: {int(docker('image', 'inspect', '-f', '{{.Size}}', NAME).stdout) // 10**6} MB")


def start(*options):
    docker("run", "-d", "--init", "--name", NAME, "--network", "host", "--device", "/dev/kvm", *options, "-e", "CLOCHE_TEMPLATE_DIR=/srv/templates",
           "-v", f"{IMAGES}:/srv/templates:ro", "-v", f"{NAME}-state:/var/lib/cloche", "-v", f"{NAME}-run:/run/cloche", NAME,
           "cloche", "up", "--foreground", "--log-to-stderr", "--templates", "base", "--warm", "1")
    for _ in range(600):
        if cloche("up").returncode == 0:
            return
        time.sleep(0.1)
    check("it comes up", False, docker("logs", NAME).stdout)


def cloche(*words):
    return docker("exec", NAME, "cloche", *words, ok=False)


def end():
    begin = time.monotonic()
    docker("stop", "-t", "60", NAME)
    status = docker("inspect", "-f", "{{.State.ExitCode}}", NAME).stdout.strip()
    check("it ends in order when asked", status == "0", status)
    log = docker("logs", NAME)
    check("what its processes logged is Docker's", '"process":"worker"' in log.stdout + log.stderr, log.stderr[-500:])
    print(f"     stopped in {time.monotonic() - begin:.1f} s")


def has(doctor, row, level):
    return any(line.startswith(level) and f" {row} " in line for line in doctor.splitlines())


def main():
    base = sys.argv[1] if len(sys.argv) > 1 else make_base()
    make_image(base)
    try:
        start()
        check("a job runs with no more than /dev/kvm", cloche("run", "base", "--", "echo", "hello").stdout == "hello\n", cloche("run", "base", "--", "true").stderr)
        doctor = cloche("doctor").stdout
        check("… and doctor says what the jail lacks, and the option for it", has(doctor, "namespaces", "warn") and "--cap-add SYS_ADMIN" in doctor, doctor)
        end()
        docker("rm", NAME)
        start(*JAIL)
        doctor = cloche("doctor").stdout
        check("with the guide's options nothing is lacking", has(doctor, "namespaces", "ok") and has(doctor, "cgroups", "ok"), doctor)
        box = cloche("sandbox", "create", "base", "--ttl", "1h").stdout.strip()
        look = ("exec", box, "--", "cat", "/tmp/file")
        check("a sandbox has a file", cloche("exec", box, "--", "sh", "-c", "echo kept > /tmp/file; cat /tmp/file").stdout == "kept\n")
        docker("restart", "-t", "60", NAME)
        check("it goes on when the container is restarted", any(cloche(*look).stdout == "kept\n" or time.sleep(0.5) for _ in range(60)), cloche(*look).stderr)
        end()
        docker("rm", NAME)
        start(*JAIL)
        check("… and in the next container", any(cloche(*look).stdout == "kept\n" or time.sleep(0.5) for _ in range(60)), cloche(*look).stderr)
        check("the audit log is whole", cloche("audit", "verify").returncode == 0, cloche("audit", "verify").stdout)
        end()
    finally:
        docker("rm", "-f", NAME, ok=False)
        docker("volume", "rm", f"{NAME}-state", f"{NAME}-run", ok=False)
        docker("rmi", NAME, *([] if len(sys.argv) > 1 else [base]), ok=False)
    print(f"container: {'passed' if not failed else f'{failed} failed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
