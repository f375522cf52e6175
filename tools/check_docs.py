#!/usr/bin/env python3
"""tools/check_docs.py - the pages agree with the tree.

usage: check_docs.py [ROOT]
 - a folder that layers.txt names has a README.md of at most 80 lines with the six headings
 - ARCHITECTURE.md holds every line of layers.txt's table as it stands there
 - a relative link of a page leads to a file
 - each test of the build has one of the labels that test.sh runs, and what docs/threats.md names in the last column of
   its tables is a test of the build, and what stands in brackets behind it a scenario of its (with BUILD_DIR in CLOCHE_BUILD_DIR)
"""
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

HEADINGS = ("Job", "Process and privilege", "Owns", "Talks to", "States", "Start reading at")
LINES_MAX = 80
LABELS = {"gate", "unit", "fuzz", "sim", "fault", "integration", "e2e", "escape", "regress", "lab"}


def readmes(root, table):
    for name in [line.split("<-")[0].strip() for line in table] + ["images"]:
        page = root / name / "README.md"
        if not (root / name).is_dir() or not any((root / name).iterdir()):
            continue
        if not page.exists():
            yield "%s: missing; write it with the headings %s" % (page.relative_to(root), ", ".join(HEADINGS))
            continue
        text = page.read_text()
        if text.count("\n") > LINES_MAX:
            yield "%s: %d lines; at most %d" % (page.relative_to(root), text.count("\n"), LINES_MAX)
        found = tuple(re.findall(r"^## (.*)$", text, re.M))
        if found != HEADINGS:
            yield "%s: the headings are %s; want %s" % (page.relative_to(root), found, HEADINGS)


def links(root):
    pages = subprocess.run(["git", "-C", str(root), "ls-files", "*.md"], capture_output=True, text=True).stdout.split()
    for page in pages:
        if not (root / page).exists():
            continue
        for target in re.findall(r"\]\(([^)#\s:]+)[^)]*\)", (root / page).read_text()):
            if not ((root / page).parent / target).exists():
                yield "%s: the link to '%s' leads nowhere" % (page, target)


def tests_of(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True).stdout
    return json.loads(listed)["tests"]


def labels(tests):
    for test in tests:
        mine = {v for p in test.get("properties", ()) if p["name"] == "LABELS" for v in p["value"]}
        if len(mine & LABELS) != 1:
            yield "test %s: labels %s; want exactly one of %s, or test.sh does not run it once" % (
                test["name"], sorted(mine), sorted(LABELS))


def expand(name):
    """a/{b,c} -> a/b, a/c"""
    m = re.match(r"(.*)\{(.*)\}(.*)", name)
    return [m[1] + one + m[3] for one in m[2].split(",")] if m else [name]


def evidence(root, page, tests):
    """Tests that a page gives as proof."""
    names = [test["name"] for test in tests]
    kinds = "|".join(sorted(LABELS))
    for row in (root / page).read_text().splitlines():
        cells = row.strip("|").split("|")
        for name, scenarios in re.findall(r"((?:%s)[/\w*{},]*)(?: \(([\w, ]+)\))?" % kinds, cells[-1] if len(cells) == 3 else ""):
            for one in expand(name.rstrip(",")):
                if not fnmatch.filter(names, one if "/" in one else one + "/*"):
                    yield "%s: there is no test '%s'" % (page, one)
            files = [f for kind in ("e2e", "escape") for f in [root / "tests" / kind / (name.replace("/", "_") + ".py")] if f.exists()]
            for scenario in re.findall(r"\w+", scenarios):
                if not any("def %s(" % scenario in f.read_text() for f in files):
                    yield "%s: '%s' has no scenario '%s'" % (page, name, scenario)


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    table = [line.rstrip() for line in (root / "layers.txt").read_text().splitlines() if "<-" in line and line[0] != "#"]
    drawn = [line.strip() for line in (root / "ARCHITECTURE.md").read_text().splitlines()]
    bad = list(readmes(root, table)) + list(links(root))
    bad += ["ARCHITECTURE.md: layers.txt has the line '%s'; copy it" % line for line in table if line.strip() not in drawn]
    if "CLOCHE_BUILD_DIR" in os.environ:
        tests = tests_of(os.environ["CLOCHE_BUILD_DIR"])
        bad += list(labels(tests)) + list(evidence(root, "docs/threats.md", tests))
    print("\n".join(bad + ["check_docs: %d finds" % len(bad)]))
    return 1 if bad else 0


sys.exit(main())
