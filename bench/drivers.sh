#!/bin/sh
# bench/drivers.sh - the same jobs under two drivers of this host, in turn, in two instances that are up at once.
#
# usage: bench/drivers.sh [BUILD_DIR [DRIVER DRIVER]]      (default: build kvm/xenpv-shared qemu/tcg)
# Environment: CLOCHE_IMAGES (out/images), N samples a round (10), ROUNDS (3).
set -eu
case ${1:-} in --help | -h) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}") first=${2:-kvm/xenpv-shared} second=${3:-qemu/tcg}
images=$(realpath "${CLOCHE_IMAGES:-out/images}")
work=$(mktemp -d)
chmod o+x "$work" # for the users of the processes
at() { echo "$work/$(echo "$1" | tr / -)"; } # at DRIVER: its folder
cloche() { # cloche DRIVER VERB [OPTION...]
    dir=$(at "$1") verb=$2
    shift 2
    CLOCHE_TEMPLATE_DIR=$images CLOCHE_STATE_DIR=$dir/state CLOCHE_RUN_DIR=$dir/run "$build/cloche" "$verb" "$@"
}
finish() {
    for driver in "$first" "$second"; do cloche "$driver" down > "$work/down" 2>&1 || cat "$work/down"; done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "host: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | uniq -c | sed 's/^ *//'), load $(cut -d' ' -f1-3 /proc/loadavg)"
for driver in "$first" "$second"; do
    mkdir -p "$(at "$driver")"
    cloche "$driver" up --driver "$driver" --templates base,python > "$work/up" 2>&1 || { cat "$work/up" >&2; exit 1; }
    tail -1 "$work/up"
done
in_turn() { # in_turn TITLE KIND PAUSE_MS TEMPLATE COMMAND...
    echo "== $1"
    kind=$2 pause=$3
    shift 3
    for round in $(seq "${ROUNDS:-3}"); do
        for driver in "$first" "$second"; do
            dir=$(at "$driver")
            echo "-- round $round, $driver"
            "$build/path_bench" "unix:$dir/run/api.sock" "$(cat "$dir/state/admin.key")" "$kind" "${N:-10}" "$pause" "$@"
        done
    done
}
in_turn "a job in a warm VM: echo" run 1200 base /bin/echo x
in_turn "a job in a warm VM: python3, import json and re" run 1500 python python3 -c 'import json, re'
in_turn "a job in a warm VM: python3, 3,000,000 additions" run 1500 python python3 -c 'sum(i * i for i in range(3000000))'
in_turn "an exec in a live sandbox: echo" exec 0 base /bin/echo x
in_turn "a Python context: claim of a parked VM and RunCode, first byte" code 2000 python 'print(1)'
in_turn "a Python context: back to back, so most VMs are cloned when they are asked for" code 0 python 'print(1)'
