#!/bin/sh
# tests/lab/clones.sh VCPUS [--xenpv [--isolated]] - a stock kernel in a machine of vmm/, saved while it runs, goes on in clones.
# --xenpv enters it by Xen PV, on the host's own KVM, --isolated in that mode.
set -eu
cd "$(dirname "$0")/../.."
. tests/lab/common.sh
need_images
[ "$1" != 1 ] || it_is_short
command -v cpio > /dev/null || skip "cpio is missing (apt install cpio)"
work=$(mktemp -d) initrd=$CLOCHE_BUILD/vmm_ticks.$1${2:-}${3:-}.cpio
trap 'rm -rf "$work" "$initrd"' EXIT
cp "$CLOCHE_BUILD/vmm_ticks" "$work/init"
(cd "$work" && echo init | cpio -o -H newc --owner=0:0 --quiet) > "$initrd"
chmod +x "$initrd" # the lab takes along what is executable
where "${2:-}" 150 "$CLOCHE_BUILD/vmm_clone" ${2:+"$2"} ${3:+"$3"} 256 "$1" "$(readlink -f "$images/base/current/vmlinux")" "$initrd" 10
