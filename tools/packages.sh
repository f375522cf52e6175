#!/bin/sh
# tools/packages.sh - install the Debian packages of tools/packages.txt that are not there yet.
#
# usage: tools/packages.sh [--check] GROUP...     (groups: build run image test)
#   --check   install nothing; print what is missing and exit 1 when something is
# Needs root, or sudo, and only when something is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
check=
case ${1:-} in
--help | -h | '') sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
--check) check=1; shift ;;
esac

say() { echo "packages: $*" >&2; }
present() { # present PACKAGE [COMMAND]
    [ -n "${2:-}" ] && command -v "$2" > /dev/null && return
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}
command -v dpkg-query > /dev/null ||
    { say "error: this is not a Debian system; remedy: install what tools/packages.txt lists by hand"; exit 1; }

missing=
for group in "$@"; do
    while read -r in package command; do
        [ "$in" = "$group" ] || continue
        present "$package" "$command" || missing="$missing $package"
    done < "$here/packages.txt"
done
[ -n "$missing" ] || exit 0
if [ -n "$check" ]; then say "missing:$missing"; exit 1; fi

sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null ||
        { say "error: root is needed to install:$missing; remedy: run as root once, or install sudo"; exit 1; }
    sudo=sudo
fi
say "installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get -y -o DPkg::Lock::Timeout=300 \
        --no-install-recommends install $missing < /dev/null > "$log" 2>&1
}
# A fresh container has no package lists, an old machine has stale ones.
$sudo apt-get -o DPkg::Lock::Timeout=300 update < /dev/null > "$log" 2>&1 || say "apt-get update failed, ignoring"
install || { tail -20 "$log" >&2; say "error: apt-get install failed; remedy: see above, check the sources of apt"; exit 1; }
