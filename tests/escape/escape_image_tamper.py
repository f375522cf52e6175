#!/usr/bin/env python3
"""One byte of an image changed: whoever reads it refuses, the guest's kernel or the host, and says why.

Without the host's checks (a guest started by hand) dm-verity is alone: a block of data, a block of
the hash tree, the first block.  The same change under `cloche.noverity=1` shows what it keeps out.
With the host: each file of the image, its manifest and signature, while the worker is down and while it
runs; and an image that is wrong although it is signed.
"""
import hashlib
import json
import shutil
import subprocess
import tempfile

from common import copy_image, flip, harness
from guest import Ended, Guest

suite = harness.Suite("image-tamper")
check, equal = suite.check, suite.equal
VICTIM = "/usr/bin/sha512sum"  # nothing reads it before we do
BLOCK = 4096


def victim_offset(image):
    """Where in rootfs.img the first bytes of VICTIM lie."""
    tool = shutil.which("dump.erofs", path="/usr/sbin:/usr/bin:/sbin:/bin") or harness.skip("no dump.erofs (apt install erofs-utils)")
    rows = subprocess.run([tool, f"--path={VICTIM}", "-e", image / "rootfs.img"], check=True, capture_output=True, text=True).stdout
    first = next(row for row in rows.splitlines() if row.strip().startswith("0:"))
    return int(first.split(":")[2].split("..")[0])


def manifest(image):
    return json.loads((image / "manifest.json").read_text())


def read_victim(image, **kw):
    """(exit code, stdout and stderr, console) of reading VICTIM in a guest of this image; None when it does not boot."""
    g = Guest(str(image), **kw)
    try:
        g.hello()
        g.identify()
        ended, out, err = g.run(["/bin/sh", "-c", f"md5sum {VICTIM}"])
        return ended.exit_code, (out + err).decode(errors="replace"), g.console()
    except Ended:
        g.wait_gone()
        return None, "", g.console()
    finally:
        g.kill()


def without_verity(image):
    """The same image under a command line that no one signed: what dm-verity keeps out."""
    said = manifest(image)
    words = [word for word in said["cmdline"].split() if not word.startswith("cloche.verity=")]
    said["cmdline"] = " ".join([*words, "cloche.noverity=1"])
    (image / "manifest.json").write_text(json.dumps(said))


def without_host_checks(scratch):
    good = copy_image(f"{scratch}/good")
    code, right, _ = read_victim(good)
    equal("an untouched image is read", code, 0)

    data = copy_image(f"{scratch}/data")
    flip(data / "rootfs.img", victim_offset(data) + 100)
    code, said, _ = read_victim(data)
    check("a changed data block is not given out", code == 1 and "Input/output error" in said, (code, said))
    without_verity(data)
    code, said, _ = read_victim(data)
    check("(without dm-verity the same change reaches the reader)", code == 0 and said != right, (code, said, right))

    for what, offset in (("root of the hash tree", manifest(good)["verity"]["hash_start"] * BLOCK + 7), ("super block", 1024 + 40)):
        image = copy_image(f"{scratch}/{offset}")
        flip(image / "rootfs.img", offset)
        code, said, console = read_victim(image)
        check(f"a changed {what}: the guest does not boot, and says why", code is None and "boot: mount erofs" in console, (code, said, console[-500:]))


def start_with(c, image):
    """Start the worker on this folder of images; the log line that says what is wrong with it, or None."""
    c.worker.stop()
    c.worker.argv[c.worker.argv.index("--template-dir") + 1] = image.parents[1]
    c.worker.log.unlink()
    c.worker.start()
    said = harness.until(lambda: [row for event in ("TEMPLATE_BAD", "POOL_FAILED", "TEMPLATE_READY") for row in c.worker.events(event)], 30)
    return said[0].get("text") if said else "nothing"


def refuses(c, what, image, *words):
    text = start_with(c, image)
    check(f"{what}: the worker uses nothing of it, and names image, file and remedy",
          text and all(w in text for w in ("'base'", "cloche template build", *words)), text)
    f = harness.run(c.admin, "true", timeout_rpc=harness.soon(10))
    check(f"{what}: a job is not run, and is told why", f.reason == "NO_TEMPLATE" and "'base'" in f.result.message, f)


def with_host_checks(c):
    equal("with an untouched image a job runs", harness.run(c.admin, "true").outcome, "EXITED")
    for name, offset in (("rootfs.img", victim_offset(copy_image(c.dir / "probe"))), ("rootfs.img", None), ("vmlinux", 5000), ("initrd", 5000)):
        image = copy_image(c.dir / f"{name}{offset}")
        flip(image / name, manifest(image)["verity"]["hash_start"] * BLOCK if offset is None else offset)
        refuses(c, "the hash tree" if offset is None else name, image, f"'{name}'", "manifest names")
    image = copy_image(c.dir / "manifest")
    text = (image / "manifest.json").read_text()
    (image / "manifest.json").write_text(text.replace('"memory_mib": 256', '"memory_mib": 255'))
    refuses(c, "the manifest", image, "signature does not fit")
    image = copy_image(c.dir / "signature")
    flip(image / "manifest.sig", 3)
    refuses(c, "the signature", image, "signature does not fit")


def while_it_runs(c):
    """The digest was right at the start; the file changes under the running VMs."""
    image = copy_image(c.dir / "late")
    equal("an untouched image is taken again", start_with(c, image), None)
    right = harness.run(c.admin, "md5sum", "/usr/bin/sha256sum")
    equal("a clone reads its files", right.result.exit_code, 0)
    flip(image / "rootfs.img", victim_offset(image) + 100)
    f = harness.run(c.admin, "md5sum", VICTIM)
    check("a block that changed under a running VM is an error, not other bytes", f.result.exit_code == 1 and b"Input/output error" in f.err, f)
    f = harness.run(c.admin, "true", resources=(1, 224, 0), timeout_rpc=harness.soon(60))
    check("whoever opens the image anew, for another size, refuses it", f.reason == "NO_TEMPLATE" and "manifest names" in f.result.message, f)


def signed_again(c):
    """A builder's fault, or a key in wrong hands: signature and digests are right, the hash tree is not."""
    image = copy_image(c.dir / "signed")
    flip(image / "rootfs.img", manifest(image)["verity"]["hash_start"] * BLOCK + 7)
    said = manifest(image)
    said["rootfs"]["sha256"] = hashlib.sha256((image / "rootfs.img").read_bytes()).hexdigest()
    (image / "manifest.json").write_text(json.dumps(said))
    key, pub = c.dir / "other.key", c.dir / "other.pub"
    for argv in (["genpkey", "-algorithm", "ed25519", "-out", key], ["pkey", "-in", key, "-pubout", "-out", pub],
                 ["pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", image / "manifest.json", "-out", image / "manifest.sig"]):
        subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True)
    c.worker.argv[c.worker.argv.index("--template-key") + 1] = pub
    text = start_with(c, image)
    check("its guest does not boot; the log names image and remedy, and the guest's own words",
          "'base' does not boot" in text and "cloche template build base" in text and "mount erofs" in text, text)
    f = harness.run(c.admin, "true", attempts=1, timeout_rpc=harness.soon(60))
    check("a job is told the same", f.outcome == "FAILED" and "'base' does not boot" in f.result.message, f)


if __name__ == "__main__":
    harness.only_in_ci(40)
    with tempfile.TemporaryDirectory(prefix="cloche-tamper.") as scratch:
        without_host_checks(scratch)
    for scenario in (with_host_checks, while_it_runs, signed_again):
        suite.scenario(scenario)
    suite.main()
