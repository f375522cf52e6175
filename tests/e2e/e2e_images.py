#!/usr/bin/env python3
"""Templates of container images: built by `cloche` beside a worker that runs, and what programs find in their VMs."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from box import Box
from harness import BUILD, IMAGES, Cluster, Suite, error_of, pb, run, skip, until
from oci_image import file, folder, image, layer, of_template

suite = Suite("images")
check, equal = suite.check, suite.equal
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(tempfile.mkdtemp(prefix="cloche-e2e-images."))
TEMPLATES = WORK / "templates"
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **argv) {
    char cwd[256];
    FILE *f = fopen("made", "w");
    printf("%d %d %s %s %s %s\n", getuid(), getgid(), getcwd(cwd, sizeof cwd), getenv("WHAT"), getenv("HOME"), f ? "writes" : "does not write");
    return n - 1;
}
"""


def stage():
    """A folder of templates of its own: what is built here is no other test's."""
    for tool in ("skopeo", "umoci", "fsck.erofs"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin"):
            shutil.rmtree(WORK)
            skip(f"{tool} is not installed")
    if os.geteuid() != 0 or not (IMAGES / ".cache/kernel").is_dir() or not (IMAGES / "signing.key").exists():
        shutil.rmtree(WORK)
        skip(f"not root, or no kernel or signing.key in {IMAGES}")
    os.chmod(WORK, 0o755)
    TEMPLATES.mkdir()
    for name in ("base", ".cache/kernel", ".cache/locks"):
        if (IMAGES / name).is_dir():
            shutil.copytree(IMAGES / name, TEMPLATES / name, symlinks=True)
    for name in ("signing.key", "signing.pub"):
        shutil.copy(IMAGES / name, TEMPLATES / name)


def cloche(*argv, at=TEMPLATES):
    env = os.environ | {"CLOCHE_TEMPLATE_DIR": str(at), "CLOCHE_SHARE": str(ROOT), "CLOCHE_STATE_DIR": str(WORK), "CLOCHE_RUN_DIR": str(WORK)}
    return subprocess.run([BUILD / "cloche", *argv], env=env, capture_output=True, text=True)


def build(name, source, *argv, at=TEMPLATES):
    p = cloche("template", "build", "--json", name, "--image", str(source), *argv, at=at)
    check(f"`cloche template build {name}` succeeds", p.returncode == 0 and json.loads(p.stdout)["name"] == name, f"{p.returncode} {p.stdout} {p.stderr}")


def appears(c, name):
    if not (TEMPLATES / name / "current").exists():
        return False
    return until(lambda: c.warm_vms(name) > 0, 120)


def said(job):
    return (job.result.exit_code, bytes(job.out).decode())


@suite.scenario
def one_program_and_nothing_else(c):
    (WORK / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-static", "-O", "-o", WORK / "program", WORK / "program.c"], check=True)
    source = image(WORK / "one", [layer(file("program", (WORK / "program").read_bytes(), mode=0o755))], {"User": "65532", "WorkingDir": "/data", "Env": ["WHAT=of the image", "PATH=/"]})
    build("one", source, "--memory", "192MiB")
    check("a worker that runs takes it by itself", appears(c, "one"))
    equal("its memory is as was said", c.template_rows()["one"].defaults.memory_mib, 192)
    equal("its user is `user`, its folder WORKDIR, its environment ENV", said(run(c.admin, "program", template="one")), (0, "1000 1000 /data of the image /home/user writes\n"))
    equal("arguments and exit codes go there and back", said(run(c.admin, "/program", "a", "b", template="one"))[0], 2)
    equal("a request's variables count more", said(run(c.admin, "program", template="one", env={"WHAT": "asked"})), (0, "1000 1000 /data asked /home/user writes\n"))
    equal("root is root there", said(run(c.admin, "program", template="one", user="root")), (0, "0 0 /data of the image /root writes\n"))
    job = run(c.admin, "sh", "-c", "true", template="one")
    equal("what is not in it is not found", job.outcome, "NOT_FOUND")
    records = until(lambda: [r for r in c.audit_records() if r["event"] == "guest.exec" and r["fields"].get("path") == "/program"], 20) or []
    check("what ran is in the audit log, as the guest's kernel saw it", len(records) >= 4, len(records))


@suite.long_scenario
def a_whole_system(c):
    """Debian with Python and an app in it, by root, as most Dockerfiles leave it."""
    shutil.copy(IMAGES / "python/current/rootfs.img", WORK / "rootfs")
    main = "import os, pathlib; pathlib.Path('out').write_text('kept'); print(os.environ['MODE'], os.getuid(), os.getcwd(), sorted(os.listdir()))"
    app = layer(folder("srv/app"), file("srv/app/main.py", main), file("srv/app/.wh.none"), folder("opt/bin"), file("opt/bin/hello", "#!/bin/sh\necho hello\n", mode=0o755))
    path = "PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin"
    source = image(WORK / "system", [of_template(WORK / "rootfs"), app], {"WorkingDir": "/srv/app", "Env": [path, "MODE=test"], "Cmd": ["python3", "main.py"]})
    build("system", source, "--warm-up", "python3 -c 'import json'")
    check("it is taken", appears(c, "system"))
    equal("the app runs where it is, and may write there", said(run(c.admin, "python3", "main.py", template="system")), (0, "test 1000 /srv/app ['main.py', 'out']\n"))
    equal("programs are found along the image's PATH", said(run(c.admin, "hello", template="system")), (0, "hello\n"))
    box = Box(c.admin, template="system")
    code = "import os; print(os.environ['MODE'], os.getcwd(), os.getuid())"
    events = list(c.admin.codes.RunCode(pb.RunCodeRequest(sandbox_id=box.id, language=pb.LANGUAGE_PYTHON, code=code), timeout=60))
    equal("a code context has all that, too", b"".join(e.output.data for e in events if e.HasField("output")), b"test /srv/app 1000\n")
    equal("packages and services want root, which is there to ask for", box.exec("sh", "-c", "id -u; touch /usr/bin/x && pwd", user="root").out, b"0\n/srv/app\n")
    c.admin.files.Write(iter([pb.WriteRequest(sandbox_id=box.id, path="sent", data=b"by a client", commit=True)]), timeout=60)
    equal("files by relative names are where commands are", box.exec("cat", "/srv/app/sent").out, b"by a client")
    copy = box.fork()
    equal("copies are made of it", copy.exec("sh", "-c", "cat sent; echo $MODE").out, b"by a clienttest\n")
    copy.kill()
    box.kill()


@suite.scenario
def built_again(c):
    (WORK / "one").rename(WORK / "one.before")
    source = image(WORK / "one", [layer(file("program", (WORK / "program").read_bytes(), mode=0o755))], {"Env": ["WHAT=new", "PATH=/"]})
    before = Box(c.admin, template="one")
    build("one", source, "--memory", "192MiB")
    new = (0, "1000 1000 /home/user new /home/user writes\n")
    equal("what is built again is what runs next, at once", said(run(c.admin, "program", template="one")), new)
    equal("… and after that", said(run(c.admin, "program", template="one")), new)
    check("what began before goes on", b"of the image" in before.exec("program").out)
    copy = before.fork()
    check("… and is copied", b"of the image" in copy.exec("program").out)
    copy.kill()
    before.kill()
    build("one", source, "--memory", "224MiB")
    check("without anybody's asking it is there within seconds, too", until(lambda: c.template_rows().get("one", pb.Template()).defaults.memory_mib == 224 and c.warm_vms("one") > 0, 60))
    current = os.readlink(TEMPLATES / "one/current")
    shutil.copytree(TEMPLATES / "one" / current, TEMPLATES / "one/0123456789abcdef")
    with open(TEMPLATES / "one/0123456789abcdef/manifest.json", "a") as f:
        f.write(" ")
    (TEMPLATES / "one/next").symlink_to("0123456789abcdef")
    (TEMPLATES / "one/next").rename(TEMPLATES / "one/current")
    check("a build that nobody signed is refused, and told", until(lambda: [e for e in c.worker.events("TEMPLATE_BAD") if e["template"] == "one" and "signature" in e["text"]], 30))
    equal("… and takes nobody's place", said(run(c.admin, "program", template="one")), new)
    p = cloche("template", "build", "one")
    check("what did not change is not built", p.returncode == 0 and "unchanged" in p.stderr, p.stderr)


@suite.scenario
def built_elsewhere(c):
    """By a host with a key of its own, which puts it into a store."""
    there, store = WORK / "elsewhere", str(WORK / "store")
    there.mkdir()
    shutil.copytree(TEMPLATES / ".cache", there / ".cache")
    source = image(WORK / "far", [layer(file("program", (WORK / "program").read_bytes(), mode=0o755))], {"Env": ["WHAT=from afar", "PATH=/"]})
    build("far", source, "--memory", "192MiB", at=there)
    p = cloche("template", "push", "far", "--to", store, at=there)
    equal("`cloche template push` puts it into a store", p.returncode, 0) or print(p.stderr)
    p = cloche("template", "pull", "far", "--from", store)
    check("who does not trust the builder does not take it", p.returncode == 1 and "fits no key" in p.stderr and not (TEMPLATES / "far").exists(), p.stderr)
    p = cloche("template", "pull", "far", "--from", store, "--key", str(there / "signing.key"))
    check("a private key is no reason to", p.returncode == 1 and "is a private key" in p.stderr, p.stderr)
    p = cloche("template", "pull", "far", "--from", store, "--key", str(there / "signing.pub"))
    equal("`cloche template pull --key` takes it", p.returncode, 0) or print(p.stderr)
    check("a worker that runs does so by itself", appears(c, "far"))
    equal("it is what was built there", said(run(c.admin, "program", template="far")), (0, "1000 1000 /home/user from afar /home/user writes\n"))
    equal("what was built here runs as before", said(run(c.admin, "program", template="one"))[0], 0)
    p = cloche("template", "build", "far")
    check("it is not built here, which is told", p.returncode == 1 and "cloche template pull far" in p.stderr, p.stderr)
    shutil.rmtree(WORK / "far")
    image(WORK / "far", [layer(file("program", (WORK / "program").read_bytes(), mode=0o755))], {"Env": ["WHAT=news", "PATH=/"]})
    build("far", source, "--memory", "192MiB", at=there)
    equal("a newer build is pushed", cloche("template", "push", "far", "--to", store, at=there).returncode, 0)
    p = cloche("template", "pull")
    check("`cloche template pull` looks at all that were pulled", p.returncode == 0 and "far: fetching" in p.stderr, p.stderr)
    equal("the next claim has it", said(run(c.admin, "program", template="far")), (0, "1000 1000 /home/user news /home/user writes\n"))
    equal("it is taken away like all", (cloche("template", "remove", "--purge", "far").returncode, (TEMPLATES / "far").exists()), (0, False))


def pruned(*argv, at=TEMPLATES):
    """Build -> what is said of it."""
    p = cloche("template", "prune", "--json", *argv, at=at)
    return {row["build"]: row["state"] for row in json.loads(p.stdout)} if p.returncode == 0 else p.stderr


@suite.scenario
def what_nothing_needs(c):
    def newer(mib):
        build("one", WORK / "one", "--memory", f"{mib}MiB")
        check("a newer build is taken", until(lambda: c.template_rows().get("one", pb.Template()).defaults.memory_mib == mib and c.warm_vms("one") > 0, 60))

    link = TEMPLATES / "one/current"
    newer(216)
    check("builds that nothing needs any more go, the current one stays", until(lambda: pruned("one") == {}, 30) and link.exists(), pruned("one"))
    box = Box(c.admin, template="one")
    box.pause()
    needed = os.readlink(link)
    newer(208)
    equal("what something rests with stays", pruned("one"), {needed: "in use"})
    equal("the worker ends in order", c.worker.stop(), 0)
    check("without a worker nobody knows what rests", "no worker runs" in pruned("one"), pruned("one"))
    c.worker.start()
    check("another worker knows", until(lambda: pruned("one") == {needed: "in use"}, 60), pruned("one"))
    check("so what rested goes on", until(lambda: not error_of(box.resume), 60) and b"new" in box.exec("program").out)
    box.kill()
    check("after its end the build goes", until(lambda: pruned("one") == {needed: "removed"}, 30), pruned("one"))
    equal("… and the template is there", sorted(os.listdir(TEMPLATES / "one")), sorted(["current", os.readlink(link)]))


@suite.scenario
def taken_away(c):
    boxes = [Box(c.admin, template="one"), Box(c.admin, template="one")]
    boxes[1].pause()
    equal("`cloche template remove` takes it away", cloche("template", "remove", "one").returncode, 0)
    check("within seconds no worker has it", until(lambda: "one" not in c.template_rows(), 60))
    err = error_of(run, c.admin, "program", template="one", attempts=1) or run(c.admin, "program", template="one", attempts=1)
    check("nothing begins with it", "no template 'one'" in str(err), err)
    check("what runs goes on", b"new" in boxes[0].exec("program").out)
    boxes[1].resume()
    check("so does what rested", b"new" in boxes[1].exec("program").out)
    for box in boxes:
        box.kill()
    p = cloche("template", "remove", "one")
    check("a second time there is none", p.returncode == 1 and "no template 'one' in" in p.stderr, p.stderr)
    build("one", WORK / "one", "--memory", "192MiB")
    check("built again, it is there", appears(c, "one"))
    equal("… for all", said(run(c.admin, "program", template="one"))[0], 0)
    equal("--purge takes its files away, too", (cloche("template", "remove", "--purge", "one").returncode, (TEMPLATES / "one").exists()), (0, False))


@suite.long_scenario
def what_cannot_start(c):
    """Its error is the image's own business: who asks for it hears it, and nobody else is held up."""
    source = image(WORK / "bad", [layer(folder("bin"), file("bin/true", "no program", mode=0o755))], {})
    build("bad", source, "--memory", "192MiB")
    job = run(c.admin, "x", template="bad", attempts=1)
    check("a template whose warm-up fails says so", "warm-up of template 'bad' failed" in job.result.message, job)
    equal("another one runs", said(run(c.admin, "echo", "1", template="base")), (0, "1\n"))
    p = cloche("template", "build", "bad", "--image", str(WORK / "none.tar"))
    check("an image that is not there is told, with a remedy", p.returncode == 1 and "remedy:" in p.stderr and "none.tar" in p.stderr, p.stderr)


stage()
try:
    suite.main(worker_args=("--template-dir", TEMPLATES, "--template-key", TEMPLATES / "signing.pub", "--templates", "base,images"))
finally:
    with contextlib.suppress(OSError):
        shutil.rmtree(WORK)
