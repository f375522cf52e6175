#!/bin/sh
# tests/lab/driver.sh DRIVER - lab_basics.py with that driver under real KVM: the host's own where it has VMX or SVM, else in the lab.
# The lab takes minutes, and now and then stalls, so only CLOCHE_LAB=1 starts it.
set -eu
cd "$(dirname "$0")/../.."
skip() { echo "skipped: $*"; exit 77; }
images=${CLOCHE_IMAGES:-$PWD/out/images}
if ! tools/lab need; then
    [ "$(id -u)" = 0 ] || skip "a uid for each VM needs root"
    exec /usr/bin/python3 tests/lab/lab_basics.py "$1"
fi
[ "${CLOCHE_LAB:-}" = 1 ] || skip "no VMX or SVM here, and the lab takes minutes: CLOCHE_LAB=1 starts it"
[ -f "$images/base/current/manifest.json" ] || skip "no images in $images (images/build.sh base --out DIR --key KEY)"
said=$(tools/lab build 2>&1) || skip "the lab cannot be built: $(echo "$said" | grep -E 'error|remedy' | paste -sd' ')"
exec tools/lab run --time 420 --build "$CLOCHE_BUILD" --images "$images" -- /usr/bin/python3 tests/lab/lab_basics.py "$1"
