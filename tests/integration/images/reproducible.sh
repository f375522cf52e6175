#!/bin/sh
# tests/integration/images/reproducible.sh - two builds from one lock give the same verity root.
#
# usage: reproducible.sh AGENT [NAME]   Exit 77 when images cannot be built here, and unless CI=true or
# CLOCHE_LONG=1 asks for it: two builds from nothing take two minutes.
set -eu
if [ "${CI:-}" != true ] && [ "${CLOCHE_LONG:-}" != 1 ]; then
    echo "skipped: two builds from nothing take two minutes: CI=true or CLOCHE_LONG=1 runs it"
    exit 77
fi
agent=$1 name=${2:-base}
root=$(cd "$(dirname "$0")/../../.." && pwd)
for tool in mmdebstrap mkfs.erofs veritysetup; do
    PATH=$PATH:/usr/sbin:/sbin command -v $tool > /dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
CLOCHE_MIRROR_PAUSE=0 "$root/images/build.sh" "$name" --out "$work/none" --agent "$agent" --key "$work/key.pem" \
    --mirror http://127.0.0.1:1/ > "$work/none.log" 2>&1 || status=$?
[ $status = 75 ] && grep "mirror failed 3 times: http://127.0.0.1:1/.*refused" "$work/none.log" ||
    { cat "$work/none.log"; echo "FAIL: a mirror that is not there: status $status"; exit 1; }
echo "ok    a mirror that is not there: its name, the cause, status 75"
# The images of the tests were built from nothing, too, if they are of the same key; else two builds are compared.
# Two caches: nothing of the first build helps the second.
for n in 2 1; do
    there=${CLOCHE_IMAGES:-$root/out/images}/$name/current
    if [ $n = 1 ] && [ "$(readlink "$there")" = "$(readlink "$work/2/$name/current")" ]; then
        mkdir -p "$work/1/$name" && cp -rL "$there" "$work/1/$name/current"
        echo "ok    compared with $(readlink "$there") of the tests' images"
        continue
    fi
    status=0
    "$root/images/build.sh" "$name" --out "$work/$n" --agent "$agent" --key "$work/key.pem" || status=$?
    case $status in
    0) ;;
    75) echo "SKIP: the mirror failed, its cause stands above"; exit 77 ;;
    *) echo "FAIL: the build ended with $status"; exit 1 ;;
    esac
done
for file in vmlinux initrd rootfs.img manifest.json; do
    cmp "$work/1/$name/current/$file" "$work/2/$name/current/$file" || { echo "FAIL: $file differs"; exit 1; }
    echo "ok    $file"
done
openssl pkey -in "$work/key.pem" -pubout -out "$work/pub.pem"
openssl pkeyutl -verify -pubin -inkey "$work/pub.pem" -rawin -in "$work/2/$name/current/manifest.json" \
    -sigfile "$work/2/$name/current/manifest.sig" > /dev/null || { echo "FAIL: signature"; exit 1; }
[ "$(stat -c %a "$work/key.pem")" = 600 ] || { echo "FAIL: the key is not private"; exit 1; }
echo "ok    signature"
begin=$(date +%s%N)
"$root/images/build.sh" "$name" --out "$work/2" --agent "$agent" --key "$work/key.pem"
took=$((($(date +%s%N) - begin) / 1000000))
[ $took -lt 1000 ] || { echo "FAIL: an unchanged build took $took ms"; exit 1; }
echo "ok    unchanged build: $took ms"
