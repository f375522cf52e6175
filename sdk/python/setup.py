"""The messages come from the .proto files of this repository, as one set of descriptors; what waits in threads comes from what waits in an event loop."""
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"
# What clients speak; worker, guest and kept are between Cloche's own processes.
SERVICES = ("audit", "code", "exec", "file", "fleet", "function", "job", "port", "sandbox", "snapshot", "template", "tenant")


# A file of cloche/_async is one of cloche/_sync without these.
SYNC = ((r"\basync (def|for|with)\b", r"\1"), (r"\bawait ", ""), (r"(?<=__)a(?=(?:iter|next|enter|exit)__)", ""), (r"\baclose\b", "close"),
        (r"(?<=[^\w])_async", "_sync"), (r"\bAsync(?=[A-Z])", ""))


def without_async(text):
    for pattern, replacement in SYNC:
        text = re.sub(pattern, replacement, text)
    return text


def protoc(*args):
    try:
        from grpc_tools import protoc as own
    except ImportError:
        program = shutil.which("protoc")
        if not program:
            sys.exit("neither grpcio-tools nor protoc is here\n  remedy: pip install grpcio-tools, or apt install protobuf-compiler")
        subprocess.run([program, *args], check=True)
        return
    well_known = pathlib.Path(own.__file__).parent / "_proto"
    if own.main(["protoc", f"-I{well_known}", *args]):
        sys.exit("protoc failed")


class Build(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # the package is where it is written
            out = HERE / "cloche"
        else:
            out = pathlib.Path(self.build_lib) / "cloche"
        protoc(f"-I{PROTO}", f"-I{HERE.parent}", "--include_imports", f"--descriptor_set_out={out / 'cloche.protoset'}",
               "status.proto", *(f"cloche/v1/{name}.proto" for name in SERVICES))
        (out / "_sync").mkdir(exist_ok=True)
        for file in (HERE / "cloche" / "_async").glob("*.py"):
            (out / "_sync" / file.name).write_text(without_async(file.read_text()))


setup(cmdclass={"build_py": Build})
