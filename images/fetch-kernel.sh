#!/bin/sh
# images/fetch-kernel.sh - download the guest's kernel package, inside mmdebstrap's namespace.
#
# fetch-kernel.sh ROOT META PACKAGE VERSION: the package of that version, or with `-` the one that
# META depends on now.  Leaves ROOT/.kernel.deb.
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
