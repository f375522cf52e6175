#!/bin/sh
# tests/lab/clones.sh VCPUS - a stock kernel in a machine of vmm/, saved while it runs, goes on in clones: under the
# host's own KVM where it has VMX or SVM, else in the lab (which only CLOCHE_LAB=1 starts).
set -eu
cd "$(dirname "$0")/../.."
skip() { echo "skipped: $*"; exit 77; }
images=${CLOCHE_IMAGES:-$PWD/out/images}
vmlinux=$images/base/current/vmlinux
[ -f "$vmlinux" ] || skip "no images in $images (images/build.sh base --out DIR --key KEY)"
command -v cpio > /dev/null || skip "cpio is missing (apt install cpio)"
work=$(mktemp -d) initrd=$CLOCHE_BUILD/vmm_ticks.$1.cpio
trap 'rm -rf "$work" "$initrd"' EXIT
cp "$CLOCHE_BUILD/vmm_ticks" "$work/init"
(cd "$work" && echo init | cpio -o -H newc --owner=0:0 --quiet) > "$initrd"
chmod +x "$initrd" # the lab takes along what is executable
set -- "$CLOCHE_BUILD/vmm_clone" 256 "$1" "$(readlink -f "$vmlinux")" "$initrd" 10
if ! tools/lab need; then
    "$@"
    exit
fi
[ "${CLOCHE_LAB:-}" = 1 ] || skip "no VMX or SVM here, and the lab takes minutes: CLOCHE_LAB=1 starts it"
said=$(tools/lab build 2>&1) || skip "the lab cannot be built: $(echo "$said" | grep -E 'error|remedy' | paste -sd' ')"
tools/lab run --time 150 --build "$CLOCHE_BUILD" --images "$images" -- "$@"
