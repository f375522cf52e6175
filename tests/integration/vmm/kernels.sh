#!/bin/sh
# tests/integration/vmm/kernels.sh - which of Debian's kernels boot by Xen PV: a table, one row a kernel.
#
# usage: tests/integration/vmm/kernels.sh [BUILD_DIR [PACKAGE...]]       (default: out/dev, and the matrix:)
#   6.1 cloud and generic, the newest and the two before; 6.12 of backports and of Debian 13, cloud and generic
#
# Downloads the packages as they are in Debian's mirrors now, some 50 MB each, into out/kernels (kept there), takes
# the kernels out and boots each with the checks of xenpv_init.c, shared and isolated, one vCPU, 256 MiB.
# Needs a KVM without VMX/SVM.  Exit status: 0 all have booted, 1 some have not, 77 this host is none for it.
set -eu
case ${1:-} in --help | -h) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/../../.."
build=$(realpath "${1:-out/dev}") work=$PWD/out/kernels
[ $# -eq 0 ] || shift
case $("$build/cloche-worker" --probe) in *'"xenpv_can":true'*) ;; *) echo "kernels: this host boots nothing by Xen PV (cloche doctor says why)" >&2; exit 77 ;; esac
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/initrd"

# --- packages: a list of sources of our own, nothing of the host's -------------------------------------------
keys=/usr/share/keyrings/debian-archive-keyring.gpg
{
    for suite in bookworm bookworm-updates bookworm-backports trixie; do
        echo "deb [signed-by=$keys] http://deb.debian.org/debian $suite main"
    done
    for suite in bookworm-security trixie-security; do
        echo "deb [signed-by=$keys] http://deb.debian.org/debian-security $suite main"
    done
} > "$work/sources.list"
apt() { # apt PROGRAM ARGUMENT...
    program=$1
    shift
    "$program" -q -o "Dir::State=$work/state" -o "Dir::Cache=$work/cache" -o "Dir::Etc::sourcelist=$work/sources.list" \
        -o Dir::Etc::sourceparts=- -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=root "$@"
}
newest() { # newest N PATTERN: that many packages whose whole name is so
    apt apt-cache pkgnames linux-image- | grep -xE "$2" | sort -V | tail -"$1" | tac
}
apt apt-get update > "$work/update.log" 2>&1 || { tail -3 "$work/update.log" >&2; exit 1; }
if [ $# -eq 0 ]; then
    for flavour in cloud-amd64 amd64; do
        set -- "$@" $(newest 3 "linux-image-6\.1\.0-[0-9]+-$flavour") \
            $(newest 1 "linux-image-6\.12\.[0-9.]+\+deb12[0-9.]*-$flavour") $(newest 1 "linux-image-6\.12\.[0-9.]+\+deb13[0-9.]*-$flavour")
    done
fi

# --- kernels -------------------------------------------------------------------------------------------------
# shellcheck source=images/extract-vmlinux.sh
. images/extract-vmlinux.sh
die() { echo "kernels: error: $1" >&2; exit 1; }
kernel_of() { # kernel_of PACKAGE: its vmlinux, in $work/PACKAGE
    [ ! -f "$work/$1/vmlinux" ] || return 0
    rm -rf "$work/$1"
    mkdir "$work/$1"
    (cd "$work/$1" && apt apt-get download "$1") > "$work/download.log" 2>&1 || { tail -3 "$work/download.log" >&2; return 1; }
    dpkg-deb --fsys-tarfile "$work/$1"/*.deb | tar -x -C "$work/$1" --wildcards './boot/vmlinuz-*'
    dpkg-deb -f "$work/$1"/*.deb Version > "$work/$1/version"
    rm "$work/$1"/*.deb
    extract_vmlinux "$work/$1"/boot/vmlinuz-* "$work/$1/vmlinux"
}
cp "$(find "$build" -name xenpv_init -type f | head -1)" "$work/initrd/init"
mkdir -p "$work/initrd/dev" "$work/initrd/proc" "$work/initrd/tmp"
(cd "$work/initrd" && find . | LC_ALL=C sort | cpio -o -H newc --quiet) > "$work/initrd.cpio"

failed=0
boot() { # boot PACKAGE MODE [OPTION]: one word, "boots" or how it ended
    log=$work/$1/$2.log
    began=$(date +%s%N)
    timeout -k 5 120 "$build/vmm_boot" --xenpv ${3:-} 256 1 "$2 quiet" "$work/$1/vmlinux" "$work/initrd.cpio" > "$log" 2>&1 || true
    took=$((($(date +%s%N) - began) / 1000000))
    if grep -q '^xenpv: all is well' "$log" && ! grep -q FAILED "$log"; then
        printf 'boots, %s checks (%s ms)' "$(grep -c '^xenpv: ok' "$log")" "$took"
    else
        printf 'FAILED: %s' "$(tail -1 "$log" | cut -c1-120)"
    fi
}
echo "host: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | uniq -c | sed 's/^ *//')"
echo "| kernel | version | shared | isolated |"
echo "|---|---|---|---|"
for package in "$@"; do
    kernel_of "$package" || { echo "| $package | not to be had | | |"; failed=1; continue; }
    row="| $package | $(cat "$work/$package/version") | $(boot "$package" shared) | $(boot "$package" isolated --isolated) |"
    echo "$row"
    case $row in *FAILED*) failed=1 ;; esac
done
exit $failed
