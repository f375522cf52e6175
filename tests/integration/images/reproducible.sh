#!/bin/sh
# tests/integration/images/reproducible.sh - two builds of the same packages give the same verity
# root, also when one of them began with locks whose versions have left the mirror: that one tells
# what it takes instead, and pins it; --locked refuses.
#
# usage: reproducible.sh AGENT [NAME]   Exit 77 when images cannot be built here, and unless CI=true or
# CLOCHE_LONG=1 asks for it: a build from nothing takes a minute or two.
set -eu
if [ "${CI:-}" != true ] && [ "${CLOCHE_LONG:-}" != 1 ]; then
    echo "skipped: a build from nothing takes a minute or two: CI=true or CLOCHE_LONG=1 runs it"
    exit 77
fi
agent=$(realpath "$1") name=${2:-base}
root=$(cd "$(dirname "$0")/../../.." && pwd)
for tool in mmdebstrap mkfs.erofs veritysetup; do
    PATH=$PATH:/usr/sbin:/sbin command -v $tool > /dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # build DIR OPTION...: by the recipes of $work/images; sets status; its words are in $work/log
    dir=$1
    shift
    status=0
    "$work/images/build.sh" "$name" --out "$work/$dir" --agent "$agent" --key "$work/key.pem" "$@" > "$work/log" 2>&1 || status=$?
}
fail() { cat "$work/log"; echo "FAIL: $*"; exit 1; }
says() { grep -qE "$1" "$work/log" || fail "no line with '$1'"; }
is() { [ "$1" = "$2" ] || fail "$3: '$1', not '$2'"; echo "ok    $3"; }
built() { # built TEXT
    [ $status != 75 ] || { cat "$work/log"; echo "SKIP: the mirror failed, its cause stands above"; exit 77; }
    is $status 0 "$1"
}
packages() { grep -v '^#' "$1"; }

# --- a mirror, and locks, that are not what they were ---------------------------------------------
cp -r "$root/images" "$work/"
CLOCHE_MIRROR_PAUSE=0 build none --mirror http://127.0.0.1:1/
says "mirror failed 3 times: http://127.0.0.1:1/.*refused"
is $status 75 "a mirror that is not there: its name, the cause, status 75"
read -r kernel version sum < "$root/images/kernel.lock"
echo "$kernel 0.1-gone $sum" > "$work/images/kernel.lock"
sed -i 's/^dash [^ ]*/dash 0.1-gone/' "$work/images/$name.lock"
cp "$work/images/$name.lock" "$work/images/kernel.lock" "$work/"
build 2 --locked
says "error: the mirror has not what kernel.lock names: $kernel 0.1-gone"
is $status 1 "--locked refuses a kernel that is gone, by name"
[ ! -e "$work/2/$name/current" ] || fail "it left an image"
build 2
built "without it the newest are taken"
says "^images:   $kernel 0.1-gone -> |^images:   linux-image-.* none -> "
says "^images:   dash 0.1-gone -> 0\.[0-9]"
echo "ok    each difference is told"
cmp "$work/images/$name.lock" "$work/$name.lock" && cmp "$work/images/kernel.lock" "$work/kernel.lock"
echo "ok    the recipes' own locks are as they were"
cat "$work"/2/.cache/locks/*/"$name.lock" > "$work/pinned.lock"
cat "$work"/2/.cache/locks/*/kernel.lock > "$work/pinned.kernel"
read -r kernel version sum < "$work/pinned.kernel"
is "$(grep -o '"kernel": {"package": "[^"]*", "version": "[^"]*"' "$work/2/$name/current/manifest.json")" \
    "\"kernel\": {\"package\": \"$kernel\", \"version\": \"$version\"" "the manifest names the kernel that is in it"

# --- the same again: what the tests have was built from nothing, too; where the mirror went on since, another build ----
there=${CLOCHE_IMAGES:-$root/out/images}/$name/current
if [ "$(packages "$root/images/$name.lock")" = "$(packages "$work/pinned.lock")" ] && cmp -s "$root/images/kernel.lock" "$work/pinned.kernel" &&
    [ "$(readlink "$there")" = "$(readlink "$work/2/$name/current")" ]; then
    mkdir -p "$work/1/$name" && cp -rL "$there" "$work/1/$name/current"
    echo "ok    compared with $(readlink "$there") of the tests' images"
else
    build 1 # two caches: nothing of the first build helps the second
    built "built again"
fi
for file in vmlinux initrd rootfs.img manifest.json; do
    cmp "$work/1/$name/current/$file" "$work/2/$name/current/$file" || fail "$file differs"
    echo "ok    $file"
done
openssl pkey -in "$work/key.pem" -pubout -out "$work/pub.pem"
openssl pkeyutl -verify -pubin -inkey "$work/pub.pem" -rawin -in "$work/2/$name/current/manifest.json" \
    -sigfile "$work/2/$name/current/manifest.sig" > /dev/null || fail signature
[ "$(stat -c %a "$work/key.pem")" = 600 ] || fail "the key is not private"
echo "ok    signature"

# --- the second time --------------------------------------------------------------------------------
begin=$(date +%s%N)
build 2
took=$((($(date +%s%N) - begin) / 1000000))
says "unchanged, $(readlink "$work/2/$name/current")"
[ $took -lt 1000 ] || fail "an unchanged build took $took ms"
echo "ok    unchanged build: $took ms"
cp "$work/pinned.lock" "$work/images/$name.lock" # the locks are renewed, as a release would
cp "$work/pinned.kernel" "$work/images/kernel.lock"
build 2 --locked
built "renewed locks count again"
is "$(readlink "$work/2/$name/current")" "$(readlink "$work/1/$name/current" 2> /dev/null || readlink "$there")" "... for the same image"
