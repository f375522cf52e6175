#!/bin/sh
# tests/integration/vmm/xenpv_agent.sh IMAGE - an image's kernel, entered by Xen PV, finds its disks and comes as far as
# an agent that speaks.  IMAGE is a folder of images/build.sh.
set -eu
skip() {
    echo "skipped: $*"
    exit 77
}
[ -r "$1/manifest.json" ] || skip "no image at $1 (images/build.sh; cmake -DCLOCHE_IMAGES=)"
[ -w /dev/kvm ] || skip "/dev/kvm cannot be opened"
! grep -qwE 'vmx|svm' /proc/cpuinfo || skip "Xen PV is for hosts without VMX and SVM so far"
cmdline=$(/usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["cmdline"])' "$1/manifest.json")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$1/scratch.img" "$work"
"$CLOCHE_BUILD/vmm_boot" --xenpv 256 1 "$cmdline" "$1/vmlinux" "$1/initrd" "$1/rootfs.img" "$work/scratch.img" > "$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
cat "$work/log"
grep -q "^vmm_boot: .*, the agent spoke after " "$work/log"
