"""What escape tests share: the harness of the end-to-end tests, and changing one byte."""
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE.parent / "integration" / "agent"))

import harness  # noqa: E402


def flip(path, offset):
    """Change one byte in place."""
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1]))


def copy_image(to, name="base"):
    """A private copy of one image, laid out as a template folder."""
    source = harness.IMAGES / name / "current"
    if not (source / "manifest.json").exists():
        harness.skip(f"no image {source}")
    target = pathlib.Path(to) / name / "current"
    shutil.copytree(source.resolve(), target)
    return target
