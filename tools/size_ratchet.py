#!/usr/bin/env python3
"""tools/size_ratchet.py - files and functions stay small; exceptions may only shrink.

usage: size_ratchet.py [--list] [ROOT]

Limits: .c 1000 lines, .h 300 lines; a function 80 lines, 6 parameters, 3 levels of nesting.
An exception is a line `PATH[:FUNCTION] LIMIT VALUE issue #N` in tools/size_exceptions.txt, with
LIMIT one of lines, params, nesting.  An exception that is larger than needed fails too: lower it,
or delete it when the limit is kept again.  --list prints every violation in that form.
The judge reads the layout that clang-format gives (braces of functions in column 0).
"""
import os
import re
import sys

LIMITS = {".c": 1000, ".h": 300}
FUNCTION_LINES, PARAMS, NESTING = 80, 6, 3
SKIP_DIRS = {"build", "out", ".git", "node_modules"}
CONTROL = re.compile(r"( *)(?:} )?(?:else )?(?:if|for|while|switch|do|else|CL_LIST_FOREACH)\b(?!.*\\$)")
NAME = re.compile(r"([A-Za-z_]\w*)\((?:.*)$", re.S)


def sources(root):
    for top, dirs, files in os.walk(root):
        dirs[:] = sorted(d for d in dirs if d not in SKIP_DIRS)
        for name in sorted(files):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(top, name), root)


def strip(text):
    """Blank out comments and literals; line numbers stay."""
    keep = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return keep.sub(lambda m: re.sub(r"[^\n]", "x" if m[0][0] in "\"'" else " ", m[0]), text)


def parameters(signature):
    """(name, number of parameters) of a function's head, or None when it is none."""
    head = re.sub(r"__attribute__\(\(.*?\)\)|CL_\w+\([^()]*\)", "", signature)
    match = re.search(r"([A-Za-z_]\w*)\s*\(", head)
    if not match:
        return None
    depth, commas, inner = 0, 0, ""
    for char in head[match.end() - 1:]:
        depth += char in "(["
        depth -= char in ")]"
        if depth == 0:
            break
        commas += char == "," and depth == 1
        inner += char
    inner = inner[1:].strip()
    return match[1], 0 if inner in ("", "void") else commas + 1


def functions(lines):
    """Each function as (name, lines, params, nesting)."""
    for i, line in enumerate(lines):
        if line.rstrip() != "{":
            continue
        first = i
        while first > 0 and lines[first - 1].strip() and lines[first - 1][0] not in "}#/" and \
                not lines[first - 1].rstrip().endswith(";"):
            first -= 1
        found = parameters(" ".join(lines[first:i]))
        end = next((j for j in range(i, len(lines)) if lines[j].startswith("}")), len(lines) - 1)
        if not found or "=" in "".join(lines[first:i]):
            continue
        body = lines[i + 1:end]
        deep = [len(m[1]) // 4 for m in map(CONTROL.match, body) if m]
        yield found[0], end - first + 1, found[1], max(deep, default=0)


def measure(root):
    """Every violation as {(path[:function], limit): value}."""
    over = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = strip(f.read()).split("\n")
        if len(lines) - 1 > LIMITS[path[-2:]]:
            over[path, "lines"] = len(lines) - 1
        for name, length, params, nesting in functions(lines):
            for limit, value, most in (("lines", length, FUNCTION_LINES), ("params", params, PARAMS),
                                       ("nesting", nesting, NESTING)):
                if value > most:
                    over[path + ":" + name, limit] = max(value, over.get((path + ":" + name, limit), 0))
    return over


def exceptions(root):
    path = os.path.join(root, "tools/size_exceptions.txt")
    granted = {}
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if line.strip() and not line.startswith("#"):
            match = re.fullmatch(r"(\S+) (lines|params|nesting) (\d+) issue #\d+", line.strip())
            if not match:
                sys.exit("tools/size_exceptions.txt:%d: want `PATH[:FUNCTION] LIMIT VALUE issue #N`" % number)
            granted[match[1], match[2]] = int(match[3])
    return granted


def main():
    args = [a for a in sys.argv[1:] if a != "--list"]
    if any(a.startswith("-") for a in args):
        print(__doc__)
        return 0
    root = args[0] if args else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    over = measure(root)
    if "--list" in sys.argv:
        for (what, limit), value in sorted(over.items()):
            print("%s %s %d issue #3" % (what, limit, value))
        return 0
    granted, bad = exceptions(root), 0
    for (what, limit), value in sorted(over.items()):
        if value > granted.get((what, limit), 0):
            print("%s: %s is %d; remedy: split it" % (what, limit, value))
            bad += 1
    for (what, limit), value in sorted(granted.items()):
        need = over.get((what, limit))
        if need is None:
            print("%s: the exception for %s is not needed any more; remedy: delete its line" % (what, limit))
            bad += 1
        elif need < value:
            print("%s: the exception for %s may shrink to %d" % (what, limit, need))
            bad += 1
    print("size_ratchet: %d findings, %d exceptions" % (bad, len(granted)))
    return 1 if bad else 0


sys.exit(main())
