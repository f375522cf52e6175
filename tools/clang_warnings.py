#!/usr/bin/env python3
"""clang's warnings of every C file, without making anything of it: clang_warnings.py BUILD

BUILD is a folder that CMake made for clang and Ninja; what is generated in it is made first.
Two at a time; prints what clang says, and fails if it says anything."""
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys


def check(row):
    argv = [word for word in shlex.split(row["command"]) if word not in ("-c", "-g") and not word.startswith("-fsanitize")]
    at = argv.index("-o")
    del argv[at:at + 2]
    return subprocess.run([*argv, "-fsyntax-only"], cwd=row["directory"], capture_output=True, text=True)


def generate(build, files):
    """Sources that are made, and headers that other files include."""
    targets = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    made = {line.partition(":")[0] for line in targets.splitlines() if line.startswith("gen/")}
    made |= {str(pathlib.Path(f).relative_to(build)) for f in files if pathlib.Path(f).is_relative_to(build)}
    subprocess.run(["ninja", "-C", build, "--quiet", *sorted(made)], check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    rows = json.loads((build / "compile_commands.json").read_text())
    files = {row["file"]: row for row in rows}  # one that is in several programs is checked once
    generate(build, files)
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        done = list(two.map(check, files.values()))
    said = "".join(p.stderr for p in done)
    print(said, end="")
    print(f"{len(files)} files, {sum(p.returncode != 0 for p in done)} with warnings")
    sys.exit(bool(said) or any(p.returncode for p in done))


if __name__ == "__main__":
    main()
