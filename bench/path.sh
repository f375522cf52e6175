#!/bin/sh
# bench/path.sh - the whole path on this machine: warm claims, clones, execs, jobs/s, memory.
#
# usage: bench/path.sh [BUILD_DIR]      (default: build; a running `cloche up` is used)
set -eu
build=${1:-build}
key=$(cat "${CLOCHE_STATE_DIR:-/var/lib/cloche}/admin.key")
run=${CLOCHE_RUN_DIR:-/run/cloche}
api=unix:$run/api.sock
grep -m1 'model name' /proc/cpuinfo
"$build/cloche" status --json | grep -E '"(driver|durability)"'
echo "== jobs in warm VMs (claim of a parked VM; 1.2 s between them so that the pool refills)"
"$build/path_bench" "$api" "$key" run "${N:-40}" 1200 base /bin/echo x
echo "== jobs back to back (clones once the pool is empty)"
"$build/path_bench" "$api" "$key" run "${N:-40}" 0 base /bin/echo x
echo "== python3 in warm VMs"
"$build/path_bench" "$api" "$key" run "${N:-20}" 2000 python python3 -c 'print(1)'
echo "== Python contexts: claim of a parked VM and RunCode, first byte; then cells in a live one"
"$build/path_bench" "$api" "$key" code "${N:-40}" 2000 python 'print(1)'
"$build/path_bench" "$api" "$key" cell "${N:-200}" 0 python '1+1'
echo "== execs in a live sandbox"
"$build/path_bench" "$api" "$key" exec "${N:-100}" 0 base /bin/echo x
echo "== memory of parked VMs"
for pid in $(pgrep -x qemu-system-x86); do
    awk -v p="$pid" '/^Pss:/{s=$2} /^Pss_Anon:/{a=$2} END{printf "pid %s: PSS %.1f MiB, anonymous %.1f MiB\n", p, s/1024, a/1024}' /proc/$pid/smaps_rollup
done
