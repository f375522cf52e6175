#!/bin/sh
# tests/lab/boot.sh --pvh | --xenpv [--isolated] - a stock kernel, entered so in a machine of vmm/, finds its disks, comes as far as an
# agent that speaks, and fills its balloon.  By Xen PV on the host's own KVM.
set -eu
cd "$(dirname "$0")/../.."
. tests/lab/common.sh
need_images
base=$(readlink -f "$images/base/current")
cmdline=$(/usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["cmdline"])' "$base/manifest.json")
where "$1" 300 sh -c '
    base=$1 cmdline=$2 vmm_boot=$3
    shift 3
    work=$(mktemp -d)
    trap "rm -rf $work" EXIT
    cp "$base/scratch.img" "$work"
    status=0
    "$vmm_boot" "$@" 256 1 "$cmdline" "$base/vmlinux" "$base/initrd" "$base/rootfs.img" "$work/scratch.img" > "$work/log" 2>&1 || status=$?
    cat "$work/log"
    [ "$status" = 0 ] && grep -q "^vmm_boot: .*, the agent spoke after " "$work/log"
' sh "$base" "$cmdline" "$CLOCHE_BUILD/vmm_boot" "$@"
