#!/bin/sh
# tools/coverage.sh - which lines of vmm/ the native tests run.
#
# usage: tools/coverage.sh [--missing] [--least PERCENT]
#   --missing        also print the lines that nothing ran
#   --least PERCENT  exit status 1 when fewer lines of all are covered (90)
# Builds the preset `coverage` (clang, out/coverage), runs unit/vmm, fault/vmm, the fuzz corpora
# vmm_* and integration/vmm, and prints file, lines, covered, percent; every file of vmm/ counts.
# The counters of a process are a file that it maps at its start (LLVM's continuous mode), so those
# of cloche-vmm, which ends by _exit or by its seccomp filter, count without a change to it.
# A line is one of a function's body, as llvm-cov counts them.  Needs /dev/kvm.  Not part of test.sh.
# Environment: JOBS parallel compilers and tests (2).
set -eu
cd "$(dirname "$0")/.."
missing=0 least=90
while [ $# -gt 0 ]; do
    case $1 in
    --missing) missing=1 ;;
    --least) least=${2:?}; shift ;;
    --help | -h) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "coverage: unknown option $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
for tool in clang-14 llvm-profdata-14 llvm-cov-14; do
    command -v $tool >/dev/null || { echo "coverage: $tool is missing (tools/packages.sh test)" >&2; exit 77; }
done
[ -w /dev/kvm ] || { echo "coverage: no /dev/kvm; without a machine the figure says nothing" >&2; exit 77; }
out=$PWD/out/coverage
logged() { # logged NAME COMMAND...: its output only when it fails
    name=$1
    shift
    "$@" >"$out/$name.log" 2>&1 || { tail -40 "$out/$name.log" >&2; exit 1; }
}

mkdir -p "$out"
[ -f "$out/build.ninja" ] || logged configure cmake --preset coverage
logged configure ninja -C "$out" build.ninja
programs=$(ninja -C "$out" -t targets all | sed -nE 's/^(test_(unit|fault|integration)_vmm_\w+|fuzz_vmm_\w+): phony$/\1/p')
# shellcheck disable=SC2086
logged build ninja -C "$out" -j "${JOBS:-2}" cloche-vmm vmm_boot vmm_clone vmm_ticks $programs
rm -rf "$out/profiles" # the counters of an older build
mkdir "$out/profiles"
logged test ctest --test-dir "$out" -j "${JOBS:-2}" --output-on-failure -R '^((unit|fault|integration)/vmm/|(fuzz|fault)/vmm_)'
grep -E 'tests passed|Skipped' "$out/test.log"

set -- "$out"/profiles/*.profraw
[ -f "$1" ] || { echo "coverage: no process left counters; remove out/coverage and try again" >&2; exit 1; }
llvm-profdata-14 merge -sparse -o "$out/all.profdata" "$@"
set -- "$out/cloche-vmm"
for program in $programs; do
    set -- "$@" -object "$(find "$out/tests" -type f -name "$program")"
done
llvm-cov-14 export -format=lcov -instr-profile "$out/all.profdata" "$@" >"$out/lcov"
awk -F '[:,]' -v missing="$missing" -v least="$least" '
    function row(name, lines, hit) { printf "%-24s %6d %6d %6.1f %%\n", name, lines, hit, 100 * hit / lines }
    $1 == "SF" { file = $2; sub(/^.*\/\.\//, "", file) }
    file !~ /^vmm\// { next }
    $1 == "DA" && $3 == 0 && missing { print file ":" $2 }
    $1 == "LF" { lines[file] = $2; order[++n] = file }
    $1 == "LH" { hit[file] = $2 }
    END {
        for (i = 1; i <= n; i++) if (lines[order[i]]) {
            row(order[i], lines[order[i]], hit[order[i]])
            all += lines[order[i]]
            all_hit += hit[order[i]]
        }
        if (!all) { print "coverage: no line of vmm/ in the report"; exit 1 }
        row("vmm/", all, all_hit)
        exit 100 * all_hit < least * all
    }' "$out/lcov"
