"""Container images made here, byte by byte, as OCI layouts: also those that no builder would make."""
import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import tarfile

PREFIX = "application/vnd.oci.image."
ROOT = (0, 0)


def file(name, data=b"", owner=ROOT, mode=0o644):
    return _entry(name, tarfile.REGTYPE, owner, mode, data=data if isinstance(data, bytes) else data.encode())


def folder(name, owner=ROOT, mode=0o755):
    return _entry(name, tarfile.DIRTYPE, owner, mode)


def link(name, to):
    return _entry(name, tarfile.SYMTYPE, ROOT, 0o777, to=to)


def hard_link(name, to):
    return _entry(name, tarfile.LNKTYPE, ROOT, 0o644, to=to)


def device(name):
    return _entry(name, tarfile.CHRTYPE, ROOT, 0o666)


def pipe(name):
    return _entry(name, tarfile.FIFOTYPE, ROOT, 0o666)


def _entry(name, kind, owner, mode, to="", data=b""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, to, len(data)
    info.uid, info.gid = owner
    return info, data


def layer(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def of_template(rootfs):
    """A layer of all that is in a template's root file system, its owners moved back to what they are for programs."""
    out, tree = io.BytesIO(), pathlib.Path(f"{rootfs}.tree")
    subprocess.run(["fsck.erofs", f"--extract={tree}", "--preserve", rootfs], check=True, capture_output=True)

    def moved(info):
        info.uid, info.gid, info.uname, info.gname = max(info.uid - 30000, 0), max(info.gid - 30000, 0), "", ""  # /proc is the host's
        return info

    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(tree, ".", filter=moved)
    subprocess.run(["rm", "-rf", tree], check=True)
    return out.getvalue()


def image(folder_, layers, config, architecture="amd64"):
    """An OCI layout with one image, tagged `image`; answers the folder."""
    folder_ = pathlib.Path(folder_)
    (folder_ / "blobs/sha256").mkdir(parents=True)

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        (folder_ / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": PREFIX + kind, "digest": f"sha256:{digest}", "size": len(data)}

    rows = [blob("layer.v1.tar+gzip", gzip.compress(data, 1, mtime=0)) for data in layers]
    ids = ["sha256:" + hashlib.sha256(data).hexdigest() for data in layers]
    about = {"architecture": architecture, "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ids}}
    manifest = {"schemaVersion": 2, "mediaType": PREFIX + "manifest.v1+json", "config": blob("config.v1+json", json.dumps(about).encode()), "layers": rows}
    entry = blob("manifest.v1+json", json.dumps(manifest).encode())
    entry |= {"annotations": {"org.opencontainers.image.ref.name": "image"}, "platform": {"architecture": architecture, "os": "linux"}}
    (folder_ / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder_ / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder_
