"""The messages come from the .proto files of this repository, as one set of descriptors."""
import pathlib
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"
# What clients speak; worker, guest and kept are between Cloche's own processes.
SERVICES = ("audit", "code", "exec", "file", "fleet", "function", "job", "port", "sandbox", "snapshot", "template", "tenant")


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


class BuildWithDescriptors(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # the package is where it is written
            out = HERE / "cloche"
        else:
            out = pathlib.Path(self.build_lib) / "cloche"
        protoc(f"-I{PROTO}", f"-I{HERE.parent}", "--include_imports", f"--descriptor_set_out={out / 'cloche.protoset'}",
               "status.proto", *(f"cloche/v1/{name}.proto" for name in SERVICES))


setup(cmdclass={"build_py": BuildWithDescriptors})
