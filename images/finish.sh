#!/bin/sh
# images/finish.sh - from an installed tree to an EROFS file, inside mmdebstrap's namespace.
#
# finish.sh ROOT LIST: ROOT is the tree; LIST is the package list to write (name version sha256).
# The EROFS file becomes ROOT/.rootfs.img.  Environment: RECIPE SOURCE_DATE_EPOCH ID_BASE UUID.
set -eu
root=$1

# Name, version and SHA-256 of every package, while apt still knows them.
query() { dpkg-query --admindir="$root/var/lib/dpkg" -W -f "$1" | LC_ALL=C sort; }
# shellcheck disable=SC2046 # one word a package
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-cache show $(query '${Package}=${Version}\n') |
    awk '/^Package:/ {p = $2} /^Version:/ {v = $2} /^SHA256:/ {print p, v, $2}' |
    LC_ALL=C sort -u > "$root/.packages"

# The user of the sandbox, and places that user code expects.
echo 'user:x:1000:1000:user:/home/user:/bin/bash' >> "$root/etc/passwd"
echo 'user:x:1000:' >> "$root/etc/group"
echo 'user:!:19000:0:99999:7:::' >> "$root/etc/shadow"
rm -f "$root/etc/passwd-" "$root/etc/group-" "$root/etc/shadow-" "$root/etc/gshadow-"
install -d -m 0755 -o 1000 -g 1000 "$root/home/user"
install -d -m 1777 "$root/tmp"
echo localhost > "$root/etc/hostname"
: > "$root/etc/machine-id"
printf '127.0.0.1 localhost\n' > "$root/etc/hosts"
: > "$root/etc/resolv.conf"

# shellcheck source=/dev/null
. "$RECIPE"
if command -v finish > /dev/null; then finish "$root"; fi

# What no program needs, and what differs from build to build.
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* \
    "$root"/usr/share/locale/* "$root"/usr/share/lintian "$root"/usr/share/bug \
    "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/var/log/* "$root"/var/tmp/* \
    "$root"/var/lib/dpkg/*-old "$root"/run/* "$root"/tmp/* "$root"/boot/* \
    "$root"/etc/ld.so.cache~ "$root"/var/lib/systemd
find "$root" -xdev -name __pycache__ -type d -prune -exec rm -rf {} +
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/apt/sources.list.d/*
if [ -x "$root/usr/bin/python3" ]; then # byte code that depends on no time stamp
    PYTHONHASHSEED=0 chroot "$root" /usr/bin/python3 -I -m compileall -q -j 1 \
        --invalidation-mode unchecked-hash -x '/(test|tests|idlelib|lib2to3)/' \
        /usr/lib/python3* > /dev/null || true # a few files are templates, not programs
fi
mv "$root/.packages" "$root/usr/share/cloche-packages"

# Owners move to the ids of user code (agent/ids.h); setuid bits would then mean nothing.
find "$root" -xdev -type f -perm /6000 -exec chmod a-s {} +
perl -MFile::Find -MPOSIX -e '
    my ($root, $base) = @ARGV; my $dev = (lstat $root)[0]; my %seen;
    my $not_into_others = sub { (lstat ".")[0] == $dev ? @_ : () }; # /proc changes meanwhile
    finddepth({preprocess => $not_into_others, wanted => sub {
        my ($d, $inode, $mode, $uid, $gid) = (lstat $_)[0, 1, 2, 4, 5];
        return if $d != $dev || $seen{$inode}++; # a hard link moves once
        die "id over 29999 at $File::Find::name\n" if $uid >= 30000 || $gid >= 30000;
        POSIX::lchown($uid + $base, $gid + $base, $_) or die "$File::Find::name: $!\n";
        chmod($mode & 07777, $_) if !-l $_;
    }}, $root);' "$root" "$ID_BASE"

cp "$root/usr/share/cloche-packages" "$root/.packages"
mkfs.erofs -d0 --quiet -zlz4hc -T"$SOURCE_DATE_EPOCH" -U"$UUID" -x-1 \
    --exclude-path=.rootfs.img --exclude-path=.packages \
    --exclude-regex='^(dev|proc|sys)/.+' "$root/.rootfs.img" "$root" > /dev/null
