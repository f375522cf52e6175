#!/usr/bin/env python3
"""Templates in stores: what images/store.sh sends, what it takes, and from whom.

usage: store.py    Without skopeo: 77.  The files are no kernels, but what is said of them is true.
"""
import base64
import contextlib
import crypt
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "e2e"))
from oci_image import file, image, layer  # noqa: E402
from registry import FAILED, ROOT, check, equal, registry, skopeo  # noqa: E402

MIB = 1 << 20


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def store(*args, user=None, env=None):
    """(status, what it said)."""
    p = subprocess.run([ROOT / "images/store.sh", *map(str, args)], capture_output=True, text=True, user=user, group=user, extra_groups=[] if user else None, env=os.environ | (env or {}))
    return p.returncode, p.stdout + p.stderr


def push(out, name, to, *args, **how):
    return store("push", name, "--out", out, "--store", to, *args, **how)


def pull(out, *args, **how):
    return store("pull", *args, "--out", out, "--trusted", out / "signing.pub", **how)


class Builder:
    """A host that builds: a folder of templates, and the key that signs them."""

    def __init__(self, work, name):
        self.out = work / name
        self.out.mkdir()
        self.key, self.pub = self.out / "signing.key", self.out / "signing.pub"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key], check=True)
        subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout", "-out", self.pub], check=True)

    def sign(self, at):
        subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", self.key, "-rawin", "-in", at / "manifest.json", "-out", at / "manifest.sig"], check=True)

    def build(self, name, text, kernel=b"kernel", **changes):
        """What build.sh leaves; the root file system has text in it."""
        files = {"vmlinux": kernel * 1000, "initrd": b"initrd" * 1000, "rootfs.img": text.encode() * 20000, "scratch.img": bytes(MIB)}
        manifest = {"version": 1, "name": name, "key": sha256(repr(sorted(files.items())).encode()), "kernel": {"sha256": sha256(files["vmlinux"])},
                    "initrd": {"sha256": sha256(files["initrd"])}, "rootfs": {"sha256": sha256(files["rootfs.img"]), "bytes": len(files["rootfs.img"])},
                    "scratch": {"sha256": sha256(files["scratch.img"])}, **changes}
        at = self.out / name / manifest["key"][:16]
        at.mkdir(parents=True)
        for file, data in files.items():
            (at / file).write_bytes(data)
        (at / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        self.sign(at)
        link = at.parent / "current"
        link.unlink(missing_ok=True)
        link.symlink_to(at.name)
        return at


def files(at):
    return {p.name: sha256(p.read_bytes()) for p in at.iterdir() if p.name != "source"}


def host(work, name, trusts=None):
    out = work / name
    out.mkdir()
    if trusts:
        shutil.copy(trusts, out / "signing.pub")
    return out


def asked(work):
    """How often the registry was asked for a blob's bytes since the last time."""
    log = work / "registry.log"
    n = sum(1 for line in log.read_text().splitlines() if "/blobs/" in line and '"GET ' in line)
    os.truncate(log, 0)
    return n


def there_and_back(work, at):
    builder = Builder(work, "builder")
    built = builder.build("app", "one")
    other = builder.build("tool", "tool")
    status, said = push(builder.out, "app", f"{at}/cloche", "--plain-http")
    equal("a template goes to a registry", status, 0) or print(said)
    check("… which is told", f"{built.name}, to docker://{at}/cloche/app:latest" in said, said)
    status, said = push(builder.out, "tool", f"{at}/cloche", "--plain-http")
    equal("… and another", status, 0) or print(said)
    out = host(work, "there", builder.pub)
    status, said = pull(out, "app", "tool", "--store", f"{at}/cloche", "--plain-http")
    equal("another host takes both", status, 0) or print(said)
    equal("… with the same files", (files(out / "app/current"), files(out / "tool/current")), (files(built), files(other)))
    equal("… in a folder of the same name", os.readlink(out / "app/current"), built.name)
    equal("a file that both have is there once", os.stat(out / "app/current/vmlinux").st_ino, os.stat(out / "tool/current/vmlinux").st_ino)
    check("a disk of zeros takes no room", os.stat(out / "app/current/scratch.img").st_blocks < 64, os.stat(out / "app/current/scratch.img").st_blocks)
    equal("nothing else is left there", sorted(p.name for p in out.iterdir()), [".pulling", ".putting", "app", "signing.pub", "tool"])
    asked(work)
    status, said = pull(out)
    check("all of them are looked at again by one word; nothing is new", status == 0 and said.count("unchanged") == 2, said)
    equal("… which fetches what each is, nothing of what is in it", asked(work), 2)
    newer = builder.build("app", "two")
    equal("a newer one is sent", push(builder.out, "app", f"{at}/cloche", "--plain-http")[0], 0)
    asked(work)
    status, said = pull(out)
    check("… and taken", status == 0 and os.readlink(out / "app/current") == newer.name and "tool: unchanged" in said, said)
    equal("… with its files", files(out / "app/current"), files(newer))
    check("the one before stays for what rests", (out / "app" / built.name / "rootfs.img").exists())
    equal("of it only what is new is fetched: manifest (twice), root file system; and the manifest of the other", asked(work), 4)
    (out / "tool/current/vmlinux").write_bytes(b"spoiled")  # one file with both of app's
    builder.build("app", "three")
    equal("another newer one is sent", push(builder.out, "app", f"{at}/cloche", "--plain-http")[0], 0)
    status, said = pull(out)
    check("what is spoiled here is fetched", status == 0 and files(out / "app/current") == files(builder.out / "app/current"), said)
    for name in ("app", "tool"):
        shutil.rmtree(out / name)
    status, said = pull(out)
    check("where nothing was pulled, that is told", status == 0 and "no template here was pulled" in said, said)
    status, said = pull(out, "app")
    check("a name alone wants a store", status == 1 and "--from STORE" in said, said)


def tags(work, at):
    builder = Builder(work, "tags")
    out = host(work, "tagged", builder.pub)
    first = builder.build("app", "one")
    for tag in ("stable", "latest"):
        equal(f"it is sent as {tag}", push(builder.out, "app", f"{at}/tags", "--plain-http", "--tag", tag)[0], 0)
    second = builder.build("app", "two")
    equal("the next one is latest", push(builder.out, "app", f"{at}/tags", "--plain-http")[0], 0)
    status, said = pull(out, "app", "--store", f"{at}/tags", "--plain-http", "--tag", "stable")
    check("what is stable is the first", status == 0 and os.readlink(out / "app/current") == first.name, said)
    status, said = pull(out)
    check("… and stays what is looked at", status == 0 and f"unchanged, {first.name}" in said, said)
    status, said = pull(out, "app", "--tag", "latest", "--max-size", "8")
    check("another tag is another build", status == 0 and os.readlink(out / "app/current") == second.name, said)
    status, said = pull(out, "app", "--tag", "../x")
    check("what is no tag is refused", status == 1 and "is no tag" in said, said)


def a_folder(work, _):
    """Without a network: a stick, a share; and by somebody who may not write where the templates are."""
    builder = Builder(work, "folders")
    built = builder.build("app", "one")
    stick = work / "stick"
    stick.mkdir(mode=0o777)
    stick.chmod(0o777)
    status, said = push(builder.out, "app", stick, user=65534)
    equal("a template goes to a folder, sent by an ordinary user", status, 0) or print(said)
    out = host(work, "unplugged", builder.pub)
    moved = work / "moved"
    stick.rename(moved)
    status, said = pull(out, "app", "--store", moved)
    check("… and from it to a host, wherever it is", status == 0 and files(out / "app/current") == files(built), said)
    shutil.rmtree(moved)
    status, said = pull(out)
    check("a folder that is gone is told", status == 1 and "cannot be read" in said and str(moved) in said, said)
    check("… and the template stays", files(out / "app/current") == files(built))


def whom_it_trusts(work, at):
    ours, theirs = Builder(work, "ours"), Builder(work, "theirs")
    ours.build("app", "ours")
    theirs.build("app", "theirs")
    for builder, name in ((ours, "ours"), (theirs, "theirs")):
        equal(f"each sends its own: {name}", push(builder.out, "app", f"{at}/{name}", "--plain-http")[0], 0)
    out = host(work, "wary")
    asked(work)
    status, said = pull(out, "app", "--store", f"{at}/ours", "--plain-http")
    check("who trusts nobody takes nothing, and is told what to do", status == 1 and "--key FILE" in said and not (out / "app").exists(), said)
    (out / "signing.pub").write_text(ours.pub.read_text())
    status, said = pull(out, "app", "--store", f"{at}/theirs", "--plain-http")
    check("what somebody else signed is not taken", status == 1 and "fits no key" in said and not (out / "app").exists(), said)
    equal("… nor fetched, but for its manifest", asked(work), 2)
    (out / "signing.pub").write_text("# two\n" + ours.pub.read_text() + theirs.pub.read_text())
    for name, builder in (("theirs", theirs), ("ours", ours)):
        status, said = pull(out, "app", "--store", f"{at}/{name}", "--plain-http")
        check(f"of two who are trusted each is: {name}", status == 0 and files(out / "app/current") == files(builder.out / "app/current"), said)
    status, said = pull(out, "app", "none", "--store", f"{at}/theirs", "--plain-http")
    check("one that is not there fails, the others are taken", status == 1 and "manifest unknown" in said and files(out / "app/current") == files(theirs.out / "app/current"), said)
    at_ours = ours.out / "app/current"
    (at_ours / "manifest.sig").unlink()
    status, said = push(ours.out, "app", f"{at}/ours", "--plain-http")
    check("what is not signed is not sent", status == 1 and "not signed" in said, said)
    ours.sign(at_ours)
    (at_ours / "initrd").write_bytes(b"spoiled")
    status, said = push(ours.out, "app", f"{at}/ours", "--plain-http")
    check("what is spoiled is not sent", status == 1 and "initrd is not what the manifest names" in said, said)
    status, said = push(ours.out, "none", f"{at}/ours", "--plain-http")
    check("what is not there is told", status == 1 and "no template 'none'" in said, said)


class Layout:
    """The OCI layout that a push made, to be changed as whoever writes to the store could."""

    def __init__(self, at):
        self.at = at
        self.index = json.loads((at / "index.json").read_text())
        self.artifact = json.loads(self.blob(self.index["manifests"][0]).read_bytes())

    def blob(self, descriptor):
        return self.at / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")

    def add(self, data):
        digest = sha256(data)
        (self.at / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def layer(self, title):
        return next(one for one in self.artifact["layers"] if one["annotations"]["org.opencontainers.image.title"] == title)

    def write(self):
        self.index["manifests"][0] |= self.add(json.dumps(self.artifact).encode())
        (self.at / "index.json").write_text(json.dumps(self.index))


def what_a_store_could_do(work, at):
    """It is hostile: it has what was signed, and may put anything beside it."""
    builder = Builder(work, "honest")
    good = builder.build("app", "good")
    builder.build("twin", "twin")
    for name in ("app", "twin"):
        equal(f"the honest one: {name}", push(builder.out, name, work / "honest-store")[0], 0)

    def spoil(name, change, *say, args=()):
        at = work / f"store-{name}"
        shutil.copytree(work / "honest-store", at)
        change(at)
        out = host(work, f"host-{name}", builder.pub)
        shutil.copytree(good, out / "app/0123456789abcdef")
        (out / "app/current").symlink_to("0123456789abcdef")
        for stale in ("manifest.json", "vmlinux", "initrd", "rootfs.img", "scratch.img"):
            (out / "app/current" / stale).write_text("before")
        status, said = pull(out, "app", "--store", at, *args)
        check(f"{name}: it is refused", status == 1 and all(word in said for word in say), said)
        check(f"{name}: what was there is there", os.readlink(out / "app/current") == "0123456789abcdef" and (out / "app/current/initrd").read_text() == "before", sorted(out.rglob("*")))
        equal(f"{name}: nothing is left of it", sorted(p.name for p in out.iterdir()), [".pulling", "app", "signing.pub"])

    def in_layout(change):
        def go(at):
            layout = Layout(at / "app")
            change(layout)
            layout.write()
        return go

    def other_bytes(title, data):
        return in_layout(lambda a: a.layer(title).update(a.add(data)))

    def changed_manifest(a):
        manifest = json.loads(a.blob(a.artifact["config"]).read_text()) | {"memory_mib": 1}
        a.artifact["config"].update(a.add(json.dumps(manifest).encode()))

    def rename(at):
        shutil.rmtree(at / "app")
        (at / "twin").rename(at / "app")

    spoil("another-file", other_bytes("initrd", gzip.compress(b"mine")), "initrd of app is not what its manifest names")
    spoil("no-gzip", other_bytes("vmlinux", b"mine"), "vmlinux of app is not what")
    spoil("longer", other_bytes("rootfs.img", gzip.compress(b"good" * 20000 + b"!")), "rootfs.img of app is not what")
    spoil("bomb", other_bytes("rootfs.img", gzip.compress(bytes(200 * MIB))), "rootfs.img of app is not what")
    spoil("changed-manifest", in_layout(changed_manifest), "fits no key")
    spoil("no-signature", in_layout(lambda a: a.artifact.pop("annotations")), "is no template")
    spoil("odd-signature", in_layout(lambda a: a.artifact.update(annotations={"cloche.signature": "."})), "is no template")
    spoil("another-signature", in_layout(lambda a: a.artifact["annotations"].update({"cloche.signature": base64.b64encode(bytes(64)).decode()})), "fits no key")
    spoil("another-name", rename, "is a template of another name")
    spoil("lacks-a-file", in_layout(lambda a: a.artifact["layers"].remove(a.layer("rootfs.img"))), "the store has no rootfs.img of app")
    spoil("no-layers", in_layout(lambda a: a.artifact.update(layers=[])), "the store has no vmlinux of app")
    spoil("odd-layers", in_layout(lambda a: a.artifact.update(layers={"a": 1})), "cannot be read")
    spoil("odd-title", in_layout(lambda a: a.layer("vmlinux")["annotations"].update({"org.opencontainers.image.title": "../vmlinux"})), "the store has no vmlinux of app")
    spoil("huge", in_layout(lambda a: a.artifact["layers"].append({"mediaType": "x", "annotations": {}} | a.add(os.urandom(12 * MIB)))), "more than 8 MiB", args=("--max-size", "8"))
    spoil("deep", in_layout(lambda a: a.artifact.update(deep=json.loads("[" * 400 + "]" * 400))), "is no template")
    spoil("long-manifest", in_layout(lambda a: a.artifact["config"].update(a.add(b" " * 70000))), "cannot be read")


def a_container_image(work, at):
    skopeo("copy", "--dest-tls-verify=false", f"oci:{image(work / 'image', [layer(file('x', '1'))], {})}", f"docker://{at}/images/app:latest")
    out = host(work, "confused")
    (out / "signing.pub").write_text("x")
    status, said = pull(out, "app", "--store", f"{at}/images", "--plain-http")
    check("a container image is no template, and the way to make one of it is told", status == 1 and "is no template" in said and "--image" in said, said)


def who_is_known(work, _):
    """A registry with TLS and a password, as most are."""
    there = work / "known"
    there.mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", there / "key.pem", "-out", there / "cert.pem"],
                   check=True, capture_output=True)
    (there / "htpasswd").write_text("fleet:" + crypt.crypt("secret", crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16)) + "\n")
    builder = Builder(there, "builder")
    built = builder.build("app", "one")
    out = host(there, "host", builder.pub)
    login = there / "auth.json"
    with registry(there, f", tls: {{certificate: {there}/cert.pem, key: {there}/key.pem}}", f"auth: {{htpasswd: {{realm: x, path: {there}/htpasswd}}}}\n") as at:
        status, said = push(builder.out, "app", f"{at}/cloche")
        check("a certificate that nobody signed is refused", status == 1 and "x509" in said, said)
        trusts = {"SSL_CERT_FILE": str(there / "cert.pem")}
        status, said = push(builder.out, "app", f"{at}/cloche", env=trusts)
        check("who is not known is told how to be", status == 1 and "skopeo login" in said, said)
        subprocess.run(["skopeo", "login", "--authfile", login, "-u", "fleet", "-p", "secret", at], check=True, capture_output=True, env=os.environ | trusts)
        known = trusts | {"REGISTRY_AUTH_FILE": str(login)}
        status, said = push(builder.out, "app", f"{at}/cloche", env=known)
        equal("who is known puts a template there", status, 0) or print(said)
        status, said = pull(out, "app", "--store", f"{at}/cloche", env=known)
        check("… and takes it", status == 0 and files(out / "app/current") == files(built), said)
        status, said = pull(out, env=trusts)
        check("who is known no more is told", status == 1 and "skopeo login" in said, said)


def main():
    if not shutil.which("skopeo") or not shutil.which("docker-registry"):
        print("SKIP: no skopeo, or no docker-registry")
        return 77
    wanted = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.chmod(0o755)
        at = stack.enter_context(registry(work))
        for scenario in (there_and_back, tags, a_folder, whom_it_trusts, what_a_store_could_do, a_container_image, who_is_known):
            if not wanted or scenario.__name__ in wanted:
                begin = time.monotonic()
                scenario(work, at)
                print(f"     {scenario.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    print(f"store: {len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
