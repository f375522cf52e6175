#!/usr/bin/env python3
"""tools/check_banned.py - calls and marks that the project does without.

usage: check_banned.py [ROOT]
Exit 1 with one line a find: file:line: what, and what to use instead.
"""
import pathlib
import re
import sys

BANNED = {
    "strcpy": "snprintf or memcpy with a checked length",
    "strcat": "snprintf or cl_buf",
    "strncpy": "snprintf",
    "strncat": "snprintf",
    "sprintf": "snprintf",
    "vsprintf": "vsnprintf",
    "gets": "fgets",
    "atoi": "cl_parse_u64",
    "atol": "cl_parse_u64",
    "alloca": "a fixed array or cl_zalloc",
    "strtok": "strsep",
    "tmpnam": "mkstemp",
    "mktemp": "mkstemp",
    "system": "posix_spawn",
    "dup": "fcntl(F_DUPFD_CLOEXEC)",
    "longjmp": "an error value",
    "pthread_create": "the loop, or a process of its own (one loop a process, one thread)",
    "thrd_create": "the loop, or a process of its own (one loop a process, one thread)",
}
# Where a ban does not hold, and why.
ALLOWED = {
    ("vmm/vcpu.c", "pthread_create"): "KVM_RUN blocks its thread: a vCPU is a thread",
    ("tests/integration/vmm/xenpv_smp.c", "pthread_create"): "threads that share memory are what it tests",
}
EXIT_IN = re.compile(r"main[^/]*\.c$|_main\.c$")

def strip_text(line):
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return re.sub(r"//.*|/\*.*?\*/", "", line)


def check_file(root, path):
    rel = path.relative_to(root)
    in_comment = False
    for number, raw in enumerate(path.read_text(errors="replace").splitlines(), 1):
        where = f"{rel}:{number}"
        if re.search(r"\b(TODO|FIXME|XXX)\b", raw) and "#" not in raw:
            yield f"{where}: a mark without an issue number; write TODO #N or do it"
        line = strip_text(raw)
        if in_comment:
            if "*/" not in line:
                continue
            line, in_comment = line.split("*/", 1)[1], False
        if "/*" in line:
            line, in_comment = line.split("/*", 1)[0], True
        for name in re.findall(r"(?<![\w.>])(\w+)\s*\(", line):
            if name == "system" and rel.parts[0] == "tests":
                continue  # tests drive openssl(1)
            if name in BANNED and (str(rel), name) not in ALLOWED:
                yield f"{where}: {name}() is banned; use {BANNED[name]}"
        if re.search(r"(?<![\w_])exit\s*\(", line) and not EXIT_IN.search(str(rel)) and rel.parts[0] not in ("tests", "bench"):
            yield f"{where}: exit() outside of main; return an error"


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    finds, files = [], 0
    for path in sorted(root.rglob("*.[ch]")):
        if path.relative_to(root).parts[0] in ("build", "out", ".git"):
            continue
        files += 1
        finds += check_file(root, path)
    for find in finds:
        print(find)
    print(f"check_banned: {files} files, {len(finds)} finds")
    return 1 if finds or not files else 0


if __name__ == "__main__":
    sys.exit(main())
