#!/bin/sh
# images/fetch-kernel.sh - download the guest's kernel package, inside mmdebstrap's namespace.
#
# fetch-kernel.sh ROOT META PACKAGE VERSION [HEADERS]: the package of that version, or with `-` the
# one that META depends on now.  Leaves ROOT/.kernel.deb; with HEADERS also what a module is built
# with, ROOT/.headers.deb, .common.deb and .kbuild.deb.
set -eu
root=$1 meta=$2 package=$3 version=$4
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
if [ "$package" = - ]; then
    package=$(apt-cache depends "$meta" | awk '/Depends: linux-image/ {print $2; exit}')
    version=$(apt-cache policy "$package" | awk '/Candidate:/ {print $2}')
fi
cd "$root"
apt-get -q download "$package=$version"
mv linux-image-*.deb .kernel.deb
[ -n "${5:-}" ] || exit 0
headers=linux-headers-${package#linux-image-}
apt-cache depends "$headers=$version" | awk '/Depends: linux-(headers|kbuild)-/ {print $2}' |
    while read -r name; do
        case $name in # the tools may be newer than the headers; the mirror keeps the newest of them alone
        linux-kbuild-*) apt-get -q download "$name" ;;
        *) apt-get -q download "$name=$version" ;;
        esac
    done
mv linux-headers-*-common_*.deb .common.deb
mv linux-kbuild-*.deb .kbuild.deb
apt-get -q download "$headers=$version"
mv linux-headers-*.deb .headers.deb
