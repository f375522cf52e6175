#!/bin/sh
# tests/lab/driver.sh DRIVER - lab_basics.py with that driver under real KVM.
set -eu
cd "$(dirname "$0")/../.."
. tests/lab/common.sh
tools/lab need || [ "$(id -u)" = 0 ] || skip "a uid for each VM needs root"
need_images
[ "$1" != kvm ] || it_is_short
CLOCHE_BUILD=${CLOCHE_LAB_BUILD:-$CLOCHE_BUILD} # without sanitizers the lab takes half the time
there 1200 /usr/bin/python3 tests/lab/lab_basics.py "$1"
