#!/usr/bin/env python3
"""Templates of container images: what images/build.sh makes of them, from where it takes them, and what it refuses.

usage: container.py AGENT    CLOCHE_IMAGES has the kernel that is built already; without it, or without skopeo and umoci: 77.
"""
import hashlib
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "e2e"))
from oci_image import device, file, folder, hard_link, image, layer, link, pipe  # noqa: E402
from registry import FAILED, ROOT, check, equal, registry, skopeo  # noqa: E402

IMAGES = pathlib.Path(os.environ.get("CLOCHE_IMAGES", ROOT / "out/images"))
AGENT = pathlib.Path(sys.argv[1]).resolve()


def build(out, name, *args, user=None, rest="30"):
    """(status, what it said)."""
    argv = [ROOT / "images/build.sh", name, "--out", out, "--agent", AGENT, *args]
    p = subprocess.run(argv, capture_output=True, text=True, user=user, group=user, extra_groups=[] if user else None, env=os.environ | {"HOME": str(out), "CLOCHE_UNPACK_REST": rest})
    return p.returncode, p.stdout + p.stderr


def built(out, name):
    return out / name / "current"


def tree(out, name):
    """Path -> (type, owner, group, mode, text) of a root file system, its owners as programs see them."""
    at = pathlib.Path(tempfile.mkdtemp(dir=out)) / "tree"
    subprocess.run(["fsck.erofs", f"--extract={at}", "--preserve", built(out, name) / "rootfs.img"], check=True, capture_output=True)
    found = {}
    for path in [at, *at.rglob("*")]:
        s = path.lstat()
        kind = "l" if path.is_symlink() else "d" if path.is_dir() else "f"
        text = os.readlink(path) if kind == "l" else path.read_bytes() if kind == "f" else b""
        found["/" + str(path.relative_to(at)).lstrip(".")] = (kind, s.st_uid - 30000, s.st_gid - 30000, s.st_mode & 0o7777, text)
    shutil.rmtree(at.parent)
    return found


def conf(out, name):
    """The records that the agent reads at boot: they are in the initramfs."""
    text = subprocess.run(["cpio", "-i", "--to-stdout", "--quiet", "image", "./image"], stdin=open(built(out, name) / "initrd", "rb"), capture_output=True, check=True).stdout
    return text.decode().split("\0")[:-1]


def manifest(out, name):
    return json.loads((built(out, name) / "manifest.json").read_text())


def an_app(work, text="1"):
    """What a Dockerfile usually makes: a base, what is changed, what is taken away; its own user."""
    passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\nold:x:1000:1000::/home/old:/bin/sh\napp:x:500:500::/srv/app:/bin/sh\n"
    lower = layer(folder("bin"), file("bin/sh", "#!", mode=0o755), folder("etc"), file("etc/passwd", passwd), file("etc/group", "root:x:0:\nold:x:1000:\napp:x:500:\n"),
                  folder("srv"), folder("srv/app", (500, 500), 0o700), file("srv/app/main", text, (500, 500), 0o4755), file("srv/app/gone", "1"),
                  folder("opt"), file("opt/hidden", "1"), folder("home"), folder("home/old", (1000, 1000)), file("home/old/x", "1", (1000, 1000)), folder("usr"),
                  folder("usr/lib"), link("lib", "usr/lib"), hard_link("bin/ash", "bin/sh"), file("srv/nobodys", "1", (65534, 65534)), file("srv/far", "1", (60000, 0)))
    upper = layer(file("srv/app/.wh.gone"), folder("opt"), file("opt/.wh..wh..opq"), file("opt/new", "1"), file("lib/x.so", "1"))
    return image(work, [lower, upper], {"Env": ["PATH=/srv/app:/bin", "MODE=a b", "EMPTY="], "User": "app", "WorkingDir": "/srv/app/data", "Entrypoint": ["/srv/app/main"], "Cmd": ["--port", "80 81"]})


def what_it_becomes(work, out):
    status, said = build(out, "app", "--image", an_app(work / "app"), "--memory", "320", "--vcpus", "2", "--warm-up", "echo \"it's\"", "--key", out / "key.pem")
    equal("an image becomes a template", status, 0) or print(said)
    check("its own command is told, as a shell takes it", "its own command is: /srv/app/main --port '80 81'" in said, said)
    check("owners that no guest has are told", "owners above 29999 are `nobody` now: 1" in said, said)
    t = tree(out, "app")
    check("whiteouts take away what is below", "/srv/app/gone" not in t and "/opt/hidden" not in t and "/opt/new" in t, sorted(t))
    check("… and are no files", not [p for p in t if ".wh." in p], sorted(t))
    check("a file below a link lands where that leads", "/usr/lib/x.so" in t and t["/lib"][0] == "l", sorted(t))
    equal("its user is `user`: what was his is", t["/srv/app/main"][:3], ("f", 1000, 1000))
    equal("… and who had that id has his", t["/home/old/x"][:3], ("f", 500, 500))
    check("… in passwd, too", b"app:x:1000:1000:" in t["/etc/passwd"][4] and b"old:x:500:500:" in t["/etc/passwd"][4], t["/etc/passwd"][4])
    equal("what is nobody's is", (t["/srv/nobodys"][1:3], t["/srv/far"][1:3]), ((35533, 35533), (35533, 0)))
    equal("setuid bits are gone", t["/srv/app/main"][3], 0o755)
    equal("modes are as they were", t["/srv/app"][3], 0o700)
    equal("WORKDIR is made, and his", t["/srv/app/data"][:3], ("d", 1000, 1000))
    equal("hard links stay", t["/bin/ash"][4], t["/bin/sh"][4])
    for path, mode in (("/tmp", 0o1777), ("/proc", 0o755), ("/run", 0o755), ("/dev", 0o755)):
        equal(f"{path} is there", t[path][:4], ("d", 0, 0, mode))
    equal("/home/user leads to his home", t["/home/user"][::4], ("l", "/srv/app"))
    equal("what the agent reads", conf(out, "app"), ["name=app", "home=/srv/app", "cwd=/srv/app/data", "env=EMPTY=", "env=MODE=a b", "env=PATH=/srv/app:/bin"])
    m = manifest(out, "app")
    equal("memory and vCPUs are as was said", (m["memory_mib"], m["vcpus"]), (320, 2))
    equal("what is run before the snapshot", m["warm_up"], [["/bin/sh", "-c", "echo \"it's\""]])
    equal("no Python, no context", m["contexts"], [])
    equal("the manifest says of what it is made", m["container"]["source"], f"oci:{work}/app")
    check("… and is signed", (built(out, "app") / "manifest.sig").exists())


def who_owns_its_work(work, out):
    """An image without a user expected to be root there; Cloche's commands are not."""
    rows = layer(folder("app"), folder("app/sub"), file("app/sub/x", "1"), folder("etc"), file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n"))
    for name, cwd, owner in (("rootly", "/app", 1000), ("sources", "/usr/src/app", 1000), ("system", "/usr/lib", 0)):
        status, said = build(out, name, "--image", image(work / name, [rows, layer(folder("usr"), folder("usr/lib"))], {"WorkingDir": cwd, "User": "0"}))
        equal(f"an image of root with WORKDIR {cwd} becomes a template", status, 0) or print(said)
        t = tree(out, name)
        equal(f"… which {'its user' if owner else 'root'} owns", (t[cwd][1], t["/app/sub/x"][1]), (owner, 1000 if cwd == "/app" else 0))
        equal("… who is who has the id 1000 in it", conf(out, name)[:2], ["name=node", "home=/home/node"])
    status, said = build(out, "named", "--image", image(work / "named", [layer(folder("etc"), file("etc/passwd", "a\0env=X=1:x:1000:1000::/home/a:/bin/sh\n"))], {}))
    equal("a name that is none is not taken", (status, conf(out, "named")), (0, ["name=user", "home=/home/a"]))
    status, said = build(out, "scratch", "--image", image(work / "scratch", [layer(file("prog", "x", mode=0o755))], {"User": "65532:65532"}))
    equal("an image of one program, by a user that it does not name, becomes a template", status, 0) or print(said)
    check("… with a user that has a name", b"user:x:1000:1000:" in tree(out, "scratch")["/etc/passwd"][4])
    equal("… and a home", conf(out, "scratch"), ["name=user", "home=/home/user"])
    equal("nothing is run in it", manifest(out, "scratch")["warm_up"], [])


def again(work, out):
    key = lambda: os.readlink(built(out, "app"))  # noqa: E731
    first = key()
    status, said = build(out, "app", "--key", out / "key.pem")
    check("without --image it is built of what it was built of; unchanged, it is not", status == 0 and f"app: unchanged, {first}" in said, said)
    shutil.rmtree(work / "app")
    an_app(work / "app", "2")
    status, said = build(out, "app", "--key", out / "key.pem")
    check("a changed image is another template", status == 0 and key() != first, said)
    equal("… with what was said of it", (manifest(out, "app")["memory_mib"], len(manifest(out, "app")["warm_up"])), (320, 1))
    status, said = build(out, "app", "--image", work / "app", "--key", out / "key.pem")
    check("what is said anew counts: nothing", status == 0 and manifest(out, "app")["memory_mib"] == 512 and manifest(out, "app")["warm_up"] == [], said)


def every_way_to_it(work, out):
    """The same image by each: the same files."""
    source = an_app(work / "ways")
    skopeo("copy", f"oci:{source}", f"oci-archive:{work}/ways.oci.tar:image")
    skopeo("copy", f"oci:{source}", f"docker-archive:{work}/ways.docker.tar:app:1")
    skopeo("copy", "--dest-compress", "--dest-compress-format", "zstd", f"oci:{source}", f"dir:{work}/ways.dir")
    sums = {}
    with registry(work) as at:
        skopeo("copy", "--dest-tls-verify=false", f"oci:{source}", f"docker://{at}/team/app:1")
        status, said = build(out, "secure", "--image", f"{at}/team/app:1")
        check("a registry without TLS is refused, with the remedy", status == 1 and "--plain-http" in said, said)
        for name, args in {"folder": [source], "oci": [work / "ways.oci.tar"], "docker": [work / "ways.docker.tar"], "dir": [f"dir:{work}/ways.dir"],
                           "pulled": [f"{at}/team/app:1", "--plain-http"], "by-transport": [f"docker://{at}/team/app:1", "--plain-http"]}.items():
            status, said = build(out, name, "--image", *args)
            check(f"an image by {name} becomes a template", status == 0, said)
            sums[name] = hashlib.sha256(repr(sorted(tree(out, name).items())).encode()).hexdigest()
        status, said = build(out, "none", "--image", f"{at}/team/none:1", "--plain-http")
        check("what the registry has not is told", status == 1 and "cannot be read" in said and "manifest unknown" in said, said)
    equal("all of them have the same files", len(set(sums.values())), 1)
    status, said = build(out, "pulled")
    check("a registry that is gone is told, with its address", status == 1 and "connection refused" in said and at in said, said)
    check("… and the template stays", built(out, "pulled").is_dir())


def what_is_refused(work, out):
    rows = layer(folder("etc"))
    other = image(work / "arm", [rows], {}, architecture="arm64")
    spoiled = image(work / "spoiled", [rows, layer(file("x", "1"))], {})
    blob = max((spoiled / "blobs/sha256").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    index = json.loads((spoiled / "index.json").read_text())
    layers = json.loads((spoiled / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())["layers"]
    blob = spoiled / "blobs/sha256" / layers[1]["digest"][7:]
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    (work / "text").write_text("hello")
    env = [f"V{i}=1" for i in range(257)]
    for sentence, name, args, says in (
            ("an image of another architecture", "x", [other], "arm64"),
            ("an image whose layer is another", "x", [spoiled], "cannot be read"),
            ("a file that is no archive", "x", [work / "text"], "is no archive of an image"),
            ("a folder that is no layout", "x", [work], "no OCI image layout"),
            ("a path that is not there", "x", [f"docker-archive:{work}/none.tar"], "no such file"),
            ("the name of a recipe", "base", [other], "built from a recipe"),
            ("too many variables", "x", [image(work / "env", [rows], {"Env": env})], "257 variables, at most 256"),
            ("a folder that is a file", "x", [image(work / "cwd", [layer(folder("etc"), file("etc/x"))], {"WorkingDir": "/etc/x/y"})], "cannot be made"),
            ("an owner beyond all bounds", "x", [image(work / "far", [layer(file("x", "1", (1 << 30, 0)))], {})], "beyond the ids that can be had"),
            ("a user that is not in it", "x", [image(work / "user", [rows], {"User": "ghost"})], "umoci cannot unpack"),
            ("memory that is no number", "x", [other, "--memory", "much"], "is no number"),
            ("memory that no guest has", "x", [other, "--memory", "1"], "1 is not from 64 to 65536"),
            ("more vCPUs than there are", "x", [other, "--vcpus", "65"], "65 is not from 1 to 64"),
            ("a warm-up of two lines", "x", [other, "--warm-up", "a\nb"], "more than one line"),
            ("warm-ups without end", "x", [image(work / "warm", [rows], {}), "--warm-up", "x" * 66000], "more than 64 KiB")):
        status, said = build(out, name, "--image", *args)
        check(f"{sentence} is refused", status == 1 and says in said and "Traceback" not in said, said)
    status, said = build(out, "none")
    check("without an image or a recipe the error names both", status == 1 and "no recipe" in said and "--image" in said, said)
    status, said = build(out, "base", "--memory", "512")
    check("what is for images is refused for recipes", status == 1 and "are for --image" in said, said)


def what_is_hostile(work, out):
    canary = out / "canary"
    canary.write_text("as it was")
    before = {p: pathlib.Path(p).read_bytes() for p in ("/etc/passwd", "/etc/group", "/etc/hostname", "/etc/resolv.conf")}
    up = "../" * 12
    traps = layer(folder("etc"), link("etc/passwd", "/etc/passwd"), link("etc/group", f"{up}etc/group"), pipe("etc/hosts"), link("etc/hostname", str(canary)), link("etc/resolv.conf", f"{up}{canary}"),
                  link("tmp", "/etc"), link("run", "/etc"), link("dev", str(out)), link("out", str(out)), file(f"{up}{out}/escaped", "1"), device("dev2"), file("abs", "1"),
                  link("home", str(out)), folder("a"), link("a/b", f"{up}{out}"), file("a/b/through", "1"), link("loop", "loop"))
    over = layer(file("out/canary", "changed"), file("/etc/canary-of-cloche", "1"), file("a/.wh.b"), file("out/.wh.canary"))
    status, said = build(out, "traps", "--image", image(work / "traps", [traps, over], {"WorkingDir": "/loop"}))
    check("a WORKDIR that leads in a circle is refused", status == 1 and "cannot be made" in said, said)
    status, said = build(out, "traps", "--image", image(work / "traps2", [traps, over], {"WorkingDir": f"{up}{out}/made", "Env": ["PATH=/out", "A\0B=1", "B=\0"]}))
    equal("an image full of traps becomes a template", status, 0) or print(said)
    equal("no file of the host is changed", {p: pathlib.Path(p).read_bytes() for p in before}, before)
    equal("… nor one beside it", canary.read_text(), "as it was")
    check("… and none is new", not (out / "escaped").exists() and not (out / "through").exists() and not (out / "made").exists() and not os.path.exists("/etc/canary-of-cloche"), os.listdir(out))
    t = tree(out, "traps")
    check("places that the agent needs are folders", all(t[p][0] == "d" for p in ("/tmp", "/run", "/dev", "/etc", "/proc", "/sys")), {p: t[p][0] for p in ("/tmp", "/run", "/dev", "/etc")})
    check("passwd is its own", t["/etc/passwd"][0] == "f" and t["/etc/passwd"][4].count(b"\n") == 1, t["/etc/passwd"])
    equal("… and group and hosts, which were a link and a pipe", (t["/etc/group"][0], t["/etc/hosts"][4]), ("f", b"127.0.0.1 localhost\n"))
    status, said = build(out, "still", "--image", image(work / "still", [layer(folder("etc"), pipe("etc/group"))], {"User": "1:1"}), rest="3")
    check("an image that has its unpacker wait for ever is ended", status == 1 and "umoci stands still for 3 s" in said, said)
    equal("a device is an empty file", t["/dev2"][::4], ("f", b""))
    check("variables that are none are left out", conf(out, "traps")[-1] == "env=PATH=/out", conf(out, "traps"))

    zeros = layer(file("zeros", bytes(300 << 20)))  # 300 KiB, compressed
    begin = time.monotonic()
    status, said = build(out, "bomb", "--image", image(work / "bomb", [zeros] * 3, {}), "--max-size", "200")
    check("an image that grows without end is ended", status == 1 and "takes more than 200 MiB" in said and "--max-size" in said, said)
    many = layer(*[file(f"d/{i}") for i in range(20000)])
    status, said = build(out, "many", "--image", image(work / "many", [many], {}), "--max-size", "200")
    check("… and one of countless empty files", status == 1 and "12800 files" in said, said)
    check("nothing of either stays", not (out / "bomb").exists() and not (out / "many").exists() and not list(out.glob(".work*")), os.listdir(out))
    print(f"     both in {time.monotonic() - begin:.1f} s")


def without_root(work, out):
    """As a user with ranges of ids: the same bytes."""
    name = "cloche-test-images"
    subprocess.run(["userdel", name], capture_output=True)  # of a run that was killed
    subprocess.run(["useradd", "--no-create-home", "--add-subids-for-system", "--system", name], check=True, capture_output=True)
    mine = pathlib.Path(tempfile.mkdtemp(prefix="cloche-images."))
    try:
        user = pwd.getpwnam(name)
        shutil.copytree(out / ".cache/kernel", mine / ".cache/kernel")
        subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", mine], check=True)
        source = an_app(work / "mine")
        status, said = build(mine, "mine", "--image", source, user=user.pw_uid)
        check("a user without root builds it, too", status == 0, said)
        equal("so does root", build(out, "mine", "--image", source)[0], 0)
        equal("… the same", os.readlink(built(mine, "mine")), os.readlink(built(out, "mine")))
        check("… and nothing of another owner is left", not [p for p in mine.rglob("*") if p.lstat().st_uid != user.pw_uid])
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        subprocess.run(["userdel", name], check=True, capture_output=True)


def main():
    for tool in ("skopeo", "umoci", "docker-registry", "fsck.erofs", "cpio"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            print(f"SKIP: {tool} is not installed")
            sys.exit(77)
    if not (IMAGES / ".cache/kernel").is_dir() or os.geteuid() != 0:
        print(f"SKIP: no kernel in {IMAGES}/.cache (images/build.sh base --out {IMAGES}), or not root")
        sys.exit(77)
    work = pathlib.Path(tempfile.mkdtemp(prefix="cloche-container."))
    os.chmod(work, 0o755)
    out = work / "out"
    (out / ".cache").mkdir(parents=True)
    try:
        shutil.copytree(IMAGES / ".cache/kernel", out / ".cache/kernel", copy_function=os.link)
    except OSError:
        shutil.rmtree(out / ".cache/kernel", ignore_errors=True)
        shutil.copytree(IMAGES / ".cache/kernel", out / ".cache/kernel")
    if (IMAGES / ".cache/locks").is_dir():
        shutil.copytree(IMAGES / ".cache/locks", out / ".cache/locks")
    try:
        for scenario in (what_it_becomes, who_owns_its_work, again, every_way_to_it, what_is_refused, what_is_hostile, without_root):
            if len(sys.argv) > 2 and scenario.__name__ not in sys.argv[2:]:
                continue
            begin = time.monotonic()
            scenario(work, out)
            print(f"     {scenario.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    finally:
        shutil.rmtree(work)
    print(f"container: {len(FAILED)} failed")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
