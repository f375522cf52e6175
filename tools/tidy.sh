#!/bin/sh
# tools/tidy.sh - clang-tidy's checks of .clang-tidy over the C files of the project.
#
# usage: tools/tidy.sh [FILE...]     (default: every file; needs the preset `clang` configured)
# Not part of test.sh: it takes minutes.  Exit 1 on any finding.  One kind is left out: clang-tidy 14
# takes `cl_zalloc_array(n, sizeof *list)` of a list of pointers for a slip.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in --help | -h) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
command -v clang-tidy-14 > /dev/null || { echo "tidy: clang-tidy-14 is missing (apt install clang-tidy-14)"; exit 77; }
[ -f out/clang/build.ninja ] || cmake --preset clang > /dev/null
cmake --build --preset clang --target cl_proto_gen cl_rpc_proto > /dev/null
[ $# -gt 0 ] || set -- $(git ls-files '*.c' ':!tests' ':!bench')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf '%s\n' "$@" | grep -vx base/err.c | xargs -P "${JOBS:-2}" -n 4 clang-tidy-14 -p out/clang --quiet \
    --warnings-as-errors='*' --extra-arg=-include --extra-arg="$PWD/tools/tidy.h" > "$log" 2>&1 || true
grep -A3 ': error: ' "$log" | grep -v "pointer to aggregate" | grep -A3 ': error: ' && exit 1
if ! grep -q 'warnings generated' "$log"; then cat "$log"; exit 1; fi # it did not run
echo "tidy: no findings"
