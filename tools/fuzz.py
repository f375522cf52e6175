#!/usr/bin/env python3
"""tools/fuzz.py - run every libFuzzer target for its share of a time budget.

usage: fuzz.py [--seconds N | --each N | --runs N] [--max-len N] [--jobs N] [--build DIR] [TARGET...]
  --seconds N  wall clock for all of them together (default 120); targets whose code changed since
               the last tag, or in the last ten commits, come first and get a double share
  --each N     this many seconds for each one (tools/fuzz-all: 60)
  --runs N     so many runs of each one, however long they take (docs/results/fuzz.md: 10000000)
  --max-len N  bytes of the longest input (default: libFuzzer's, 4096 or what the corpus has); a run
               costs as much as its input is long
  --jobs N     at one time (default 2)
  --build DIR  where the preset `fuzz` is built (default out/fuzz)
What is found goes to out/fuzz-corpus/TARGET, inputs that crash to out/fuzz-corpus/crash-TARGET-*;
such a file becomes a unit test.  One line a target; the last line is `N passed, N failed`.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def git(*args):
    done = subprocess.run(("git", "-C", str(ROOT)) + args, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def changed_files():
    since = git("describe", "--tags", "--abbrev=0") or git("rev-parse", "--verify", "-q", "HEAD~10")
    return set(git("diff", "--name-only", since[0])) if since else set()


def is_changed(target, changed):
    source = ROOT / "tests/fuzz" / (target + ".c")
    own = "tests/fuzz/" + target + ".c"
    headers = re.findall(r'#include "([^"]+)\.h"', source.read_text()) if source.exists() else []
    return own in changed or any(h + end in changed for h in headers for end in (".h", ".c"))


def run(build, target, limits):
    name = target[len("fuzz_"):]
    corpus = ROOT / "out/fuzz-corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    command = [str(build / "tests/fuzz" / target), *limits, "-timeout=60", "-rss_limit_mb=2048",
               "-print_final_stats=1", "-artifact_prefix=%s/crash-%s-" % (corpus.parent, name), str(corpus)]
    seeds = ROOT / "tests/fuzz/corpus" / name
    command += [str(seeds)] if seeds.is_dir() else []
    began = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", done.stdout)
    if done.returncode:
        print(done.stdout[-6000:])
    print("%-4s fuzz %-18s %5.0f s %12s runs" % ("FAIL" if done.returncode else "ok", name, time.monotonic() - began,
                                                 runs[1] if runs else "?"), flush=True)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--each", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--max-len", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "out/fuzz")
    parser.add_argument("targets", nargs="*")
    args = parser.parse_args()
    found = sorted(p.name for p in (args.build / "tests/fuzz").glob("fuzz_*") if p.is_file())
    targets = [t for t in found if not args.targets or t in args.targets or t[len("fuzz_"):] in args.targets]
    if not targets:
        print("no fuzz target in %s; remedy: cmake --preset fuzz && cmake --build --preset fuzz" % args.build)
        return 1
    changed = changed_files()
    share = {t: 2 if is_changed(t, changed) else 1 for t in targets}
    total = sum(share.values())

    def limits(target):
        seconds = args.each or max(1, args.seconds * args.jobs * share[target] // total)
        until = "-runs=%d" % args.runs if args.runs else "-max_total_time=%d" % seconds
        return [until, "-max_len=%d" % args.max_len] if args.max_len else [until]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda t: run(args.build, t, limits(t)), sorted(targets, key=lambda t: -share[t])))
    print("%d passed, %d failed" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


sys.exit(main())
