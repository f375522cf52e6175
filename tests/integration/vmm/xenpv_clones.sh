#!/bin/sh
# tests/integration/vmm/xenpv_clones.sh VMLINUX - a stock kernel entered by Xen PV, saved while it runs, goes on in clones.
set -eu
skip() {
    echo "skipped: $*"
    exit 77
}
[ -r "$1" ] || skip "no kernel at $1 (images/build.sh; cmake -DCLOCHE_IMAGES=)"
[ -w /dev/kvm ] || skip "/dev/kvm cannot be opened"
! grep -qwE 'vmx|svm' /proc/cpuinfo || skip "Xen PV is for hosts without VMX and SVM so far"
command -v cpio > /dev/null || skip "cpio is missing (apt install cpio)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$CLOCHE_BUILD/vmm_ticks" "$work/init"
mkdir "$work/dev"
(cd "$work" && printf 'dev\ninit\n' | cpio -o -H newc --owner=0:0 --quiet) > "$work/initrd"
"$CLOCHE_BUILD/vmm_clone" --xenpv 256 1 "$1" "$work/initrd" 10
