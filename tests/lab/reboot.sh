#!/bin/sh
# tests/lab/reboot.sh - lab_reboot.py in three lives of one machine: it has to be the lab, also on a host with VMX or SVM.
set -eu
cd "$(dirname "$0")/../.."
. tests/lab/common.sh
need_images
[ -f "$images/python/current/manifest.json" ] || skip "no image python in $images (images/build.sh python --out DIR --key KEY)"
tools/lab need || skip "this host's own KVM is used, and it is not started anew for a test"
disk=$PWD/out/reboot.$$
more_of_the_lab="--keep $disk"
trap 'rm -f "$disk"' EXIT
CLOCHE_BUILD=${CLOCHE_LAB_BUILD:-$CLOCHE_BUILD} # without sanitizers the lab takes half the time
for life in 1 2 3; do
    there 900 env CLOCHE_DRIVER=kvm /usr/bin/python3 tests/lab/lab_reboot.py "$life"
done
