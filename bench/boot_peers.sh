#!/bin/sh
# bench/boot_peers.sh - a stock kernel and the agent: cloche-vmm beside QEMU's microvm (bench/boot_peers.c).
#
# usage: bench/boot_peers.sh [BUILD_DIR [N [TEMPLATE [ENTRY]]]]     (default: build 10 base native)
#   native               both by KVM: the host's own where it has VMX or SVM, else in the lab (tools/lab), for minutes.
#                        In there a millisecond is 500,000 instructions (tools/lab run --count).
#   xenpv, xenpv-shared  on this host: cloche-vmm by Xen PV, isolated or not, QEMU by emulation
# Environment: CLOCHE_IMAGES (out/images), CLOCHE_LAB_SECONDS time limit in the lab (600).
set -eu
case ${1:-} in --help | -h) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}") n=${2:-10} template=${3:-base} entry=${4:-native}
images=$(realpath "${CLOCHE_IMAGES:-out/images}")
[ -f "$images/$template/current/manifest.json" ] || { echo "boot_peers: no image $images/$template (images/build.sh)" >&2; exit 77; }
qemu=/usr/bin/qemu-system-x86_64-microvm # it cannot emulate
[ "$entry" = native ] || qemu=/usr/bin/qemu-system-x86_64
set -- "$build/boot_peers" "$build/cloche-vmm" "$qemu" "$images" "$template" "$n" "$entry"
if [ "$entry" != native ] || ! tools/lab need; then
    exec "$@"
fi
echo "host: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | uniq -c | sed 's/^ *//'), load $(cut -d' ' -f1-3 /proc/loadavg)"
tools/lab run --count --time "${CLOCHE_LAB_SECONDS:-600}" --build "$build" --images "$images" -- "$@"
