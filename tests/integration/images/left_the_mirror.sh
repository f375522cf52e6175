#!/bin/sh
# tests/integration/images/left_the_mirror.sh - what a lock names has left the mirror: --locked
# refuses, else the newest versions are taken, told and pinned.
#
# usage: left_the_mirror.sh AGENT   Exit 77 when images cannot be built here, and unless CI=true or
# CLOCHE_LONG=1 asks for it: it asks a mirror, and builds a kernel's folder and a small image.
set -eu
if [ "${CI:-}" != true ] && [ "${CLOCHE_LONG:-}" != 1 ]; then
    echo "skipped: it builds a small image with the mirror's help: CI=true or CLOCHE_LONG=1 runs it"
    exit 77
fi
agent=$(realpath "$1")
root=$(cd "$(dirname "$0")/../../.." && pwd)
for tool in mmdebstrap mkfs.erofs veritysetup; do
    PATH=$PATH:/usr/sbin:/sbin command -v $tool > /dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/images" "$work/"
cat > "$work/images/small.recipe" << 'RECIPE'
SUITE=bookworm
PACKAGES="base-files base-passwd bash coreutils dash debianutils diffutils dpkg findutils grep gzip hostname init-system-helpers libc-bin login mawk passwd perl-base sed sysvinit-utils tar util-linux"
MEMORY_MIB=128
VCPUS=1
WARM_UP='[["/bin/true"]]'
SALT=636c6f6368652d736d616c6c0000000000000000000000000000000000000000
UUID=7c1d3f52-6d0e-4f1c-9b53-0c10c4e000ff
RECIPE
printf '# a lock of long ago\ndash 0.1-gone 00\n' > "$work/images/small.lock"
read -r kernel _ sum < "$root/images/kernel.lock"
echo "$kernel 0.1-gone $sum" > "$work/images/kernel.lock"
cp "$work/images/small.lock" "$work/images/kernel.lock" "$work/"

build() { # build OPTION...: sets status; its words are in $work/log
    status=0
    "$work/images/build.sh" small --out "$work/out" --agent "$agent" --key "$work/key.pem" "$@" > "$work/log" 2>&1 || status=$?
    [ $status != 75 ] || { cat "$work/log"; echo "SKIP: the mirror failed, its cause stands above"; exit 77; }
}
says() { grep -qE "$1" "$work/log" || { cat "$work/log"; echo "FAIL: $2: no line with '$1'"; exit 1; }; }
is() { [ "$1" = "$2" ] || { cat "$work/log"; echo "FAIL: $3: '$1', not '$2'"; exit 1; }; echo "ok    $3"; }

build --locked
says "error: the mirror has not what kernel.lock names: $kernel 0.1-gone" "--locked"
is $status 1 "--locked refuses a kernel that is gone, by name"
[ ! -e "$work/out/small/current" ] || { echo "FAIL: it left an image"; exit 1; }

build
is $status 0 "without it the newest are taken"
says "^images:   $kernel 0.1-gone -> |^images:   linux-image-.* none -> " "the kernel's change"
says "^images:   dash 0.1-gone -> 0\.[0-9]" "a package's change"
image=$(readlink "$work/out/small/current")
pinned=$(cat "$work"/out/.cache/locks/*/kernel.lock)
is "$(grep -o '"kernel": {"package": "[^"]*", "version": "[^"]*"' "$work/out/small/current/manifest.json")" \
    "\"kernel\": {\"package\": \"${pinned%% *}\", \"version\": \"$(echo "$pinned" | cut -d' ' -f2)\"" "the manifest names the kernel that is in it"
grep -q '^dash 0\.[0-9].* [0-9a-f]\{64\}$' "$work"/out/.cache/locks/*/small.lock || { echo "FAIL: the packages are not pinned"; exit 1; }
cmp "$work/images/small.lock" "$work/small.lock" && cmp "$work/images/kernel.lock" "$work/kernel.lock"
echo "ok    the recipes' own locks are as they were"

build
says "unchanged, $image" "again"
is $status 0 "a second build has nothing to do"
build --locked
is $status 1 "and --locked still refuses"

echo "$pinned" > "$work/images/kernel.lock" # the locks are renewed, as a release would
build
is $status 0 "a renewed lock counts again"
is "$(grep -c 'has not' "$work/log" || true)" 0 "... and nothing is missing"

