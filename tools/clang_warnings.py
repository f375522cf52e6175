#!/usr/bin/env python3
"""clang's warnings of every C file, without making anything of it: clang_warnings.py BUILD

BUILD is a folder that CMake made for clang (compile_commands.json); what is generated into it must be there.
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


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    files = {row["file"]: row for row in rows}  # one that is in several programs is checked once
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        done = list(two.map(check, files.values()))
    said = "".join(p.stderr for p in done)
    print(said, end="")
    print(f"{len(files)} files, {sum(p.returncode != 0 for p in done)} with warnings")
    sys.exit(bool(said) or any(p.returncode for p in done))


if __name__ == "__main__":
    main()
