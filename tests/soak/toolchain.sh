#!/bin/sh
# tests/soak/toolchain.sh - gcc and Python in one sandbox, thousands of times, each result looked at.
#
# usage: tests/soak/toolchain.sh [DRIVER [ROUNDS [VCPUS [BUILD_DIR]]]]      (default: auto 1000 1 build)
# Each of VCPUS shells in the sandbox does ROUNDS times: compile a program of this round, run it, compare; the same
# sum by Python, compare.  Environment: CLOCHE_IMAGES (out/images) with the template `toolchain`.
# Exit status: 0 every result was right; 1 not, or the sandbox was lost.  An instance of its own; minutes to hours.
set -eu
case ${1:-} in --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/../.."
driver=${1:-auto} rounds=${2:-1000} vcpus=${3:-1} cloche=$(realpath "${4:-build}")/cloche
CLOCHE_TEMPLATE_DIR=$(realpath "${CLOCHE_IMAGES:-out/images}")
work=$(mktemp -d)
chmod o+x "$work" # for the users of the processes
export CLOCHE_TEMPLATE_DIR CLOCHE_STATE_DIR="$work/state" CLOCHE_RUN_DIR="$work/run"
finish() {
    "$cloche" down > "$work/down" 2>&1 || cat "$work/down"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

cat > "$work/soak" <<'END'
me=$1 n=$2 bad=0
cd "$(mktemp -d)"
for i in $(seq "$n"); do
    printf '#include <stdio.h>\nint main(void)\n{\n    long sum = 0;\n    for (long i = %d; i <= %d; i++)\n        sum += i;\n    printf("%%ld\\n", sum);\n    return 0;\n}\n' "$me" "$i" > sum.c
    want=$(((i - me + 1) * (i + me) / 2))
    [ "$i" -ge "$me" ] || want=0
    gcc -O2 -o sum sum.c && [ "$(./sum)" = "$want" ] || { bad=$((bad + 1)); echo "shell $me, round $i: gcc"; }
    [ "$(python3 -c "import json; print(json.loads(json.dumps(sum(range($me, $i + 1)))))")" = "$want" ] ||
        { bad=$((bad + 1)); echo "shell $me, round $i: python"; }
    [ $((i % 100)) -ne 0 ] || echo "shell $me: $i rounds, $bad bad results"
done
echo "shell $me ends: $n rounds, $bad bad results"
[ "$bad" -eq 0 ]
END

echo "host: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | uniq -c | sed 's/^ *//'), load $(cut -d' ' -f1-3 /proc/loadavg)"
"$cloche" up --driver "$driver" --templates toolchain > "$work/up" 2>&1 || { cat "$work/up" >&2; exit 1; }
began=$(date +%s)
box=$("$cloche" sandbox create toolchain --cpus "$vcpus" --ttl 24h)
"$cloche" cp "$work/soak" "$box:/tmp/soak"
for me in $(seq "$vcpus"); do
    "$cloche" exec --timeout 24h "$box" -- sh /tmp/soak "$me" "$rounds" > "$work/said.$me" 2>&1 &
done
while sleep 10 && [ "$(cat "$work"/said.* | grep -c ends:)" -lt "$vcpus" ]; do
    "$cloche" sandbox get "$box" --json | grep -q '"state": *"running"' || break
done
grep -hE 'round [0-9]+:|ends:' "$work"/said.* || true
kind=$("$cloche" sandbox get "$box" --json | sed -n 's/.*"guest_separation": *"\([^"]*\)".*/\1/p')
good=$(cat "$work"/said.* | grep -c 'ends: .* 0 bad' || true)
echo "$driver, $kind, $vcpus vCPUs: $((2 * rounds * vcpus)) runs in $(($(date +%s) - began)) s, $good of $vcpus shells without a bad result"
[ "$good" -eq "$vcpus" ]
