#!/bin/sh
# images/build.sh - build one bootable, signed, reproducible image.
#
# Usage: build.sh NAME --out DIR [--agent PATH] [--key PEM] [--locked | --update-lock] [--mirror URL]
#        build.sh NAME --out DIR --image SOURCE [--memory MIB] [--vcpus N] [--warm-up TEXT]...
#                 [--no-contexts] [--plain-http] [--max-size MIB] [--agent PATH] [--key PEM] [--mirror URL]
#
# The first form takes NAME.recipe, the second a container image (docs/templates.md): SOURCE is what
# `docker pull` takes, a file that `docker save` wrote, a folder with an OCI layout, or a name with a
# transport of skopeo.  Without --image NAME is built from what it was built from before.
#
# Result: DIR/NAME/<key>/{vmlinux,initrd,rootfs.img,manifest.json,manifest.sig}, and the link
# DIR/NAME/current.  Everything is made in a temporary folder and renamed; a build that fails
# leaves what was there.  DIR/.cache holds the kernel and finished root file systems; when nothing
# changed the second run only looks.
#
# A mirror keeps a package's newest version alone.  When it has not all that a lock names any more,
# the newest are taken instead, each difference is told, and DIR/.cache/locks pins them from then on,
# until the lock itself is another one; with --locked the build fails.  Exit: 0; 75 when the mirror
# failed though it was tried again; 1 for every other error.
set -eu
umask 022 # who unpacks a container image is another user
here=$(cd "$(dirname "$0")" && pwd)
started=$(date +%s)
: "${SOURCE_DATE_EPOCH:=1767225600}" # 2026-01-01
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
export ID_BASE=30000                 # AGENT_ID_BASE of agent/ids.h
protocol_major=1                     # GUEST_PROTOCOL_MAJOR of proto/guest_frame.h
kernel_meta=linux-image-cloud-amd64
# the channel is a port of virtio_console (QEMU) or a vsock connection (cloche-vmm)
kernel_modules="virtio_mmio virtio_blk virtio_console vmw_vsock_virtio_transport virtio-rng virtio_balloon virtio_net dm-verity erofs overlay ext4"
cmdline="console=ttyS0 panic=-1 quiet cryptomgr.notests random.trust_cpu=on no_timer_check lsm=bpf audit=0 ipv6.disable=1 numa=off nowatchdog 8250.nr_uarts=1 pci=off mitigations=off"
# a thousand idle guests share a host: nobody wakes twice a second to compare clocks, or to look whether memory should be compacted
cmdline="$cmdline tsc=nowatchdog sysctl.vm.compaction_proactiveness=0"
mirror_tries=3                           # of a whole run; apt tries each file four times within 7 s
: "${CLOCHE_MIRROR_PAUSE:=10}"           # s before the second try, twice that before the third
fault_around=262144 # bytes; what page faults cost a guest is told in docs/results/vmm.md

# shellcheck source=images/common.sh
. "$here/common.sh"
timed() { # timed TEXT COMMAND...: a line with the seconds it took
    text=$1; shift; begin=$(date +%s); "$@"; say "$text: $(($(date +%s) - begin)) s"
}

CONTEXTS='[]' # of a recipe without code contexts
name= out= key= locked= update_lock= agent=$here/../build/cloche-agent mirror=
from= memory= vcpus= warm_ups= contexts= plain= max_mib= recalled= # of a container image
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=${2:?}; shift ;;
    --agent) agent=${2:?}; shift ;;
    --key) key=${2:?}; shift ;;
    --mirror) mirror=${2:?}; shift ;;
    --locked) locked=1 ;;
    --update-lock) update_lock=1 ;;
    --image) from=${2:?}; one_line "$@"; shift ;;
    --memory) memory=${2:?}; shift ;;
    --vcpus) vcpus=${2:?}; shift ;;
    --warm-up) one_line "$1" "${2:?}"
        warm_ups="$warm_ups$2
"; shift ;;
    --no-contexts) contexts=no ;;
    --plain-http) plain=yes ;;
    --max-size) max_mib=${2:?}; shift ;;
    -*) die "unknown option $1" "see the first lines of $0" ;;
    *) [ -z "$name" ] || die "two names: $name and $1"; name=$1 ;;
    esac
    shift
done
[ -z "$locked" ] || [ -z "$update_lock" ] || die "--locked keeps the lock, --update-lock renews it" "choose one"
[ -n "$name" ] && [ -n "$out" ] || die "NAME and --out DIR are needed" "build.sh base --out /var/lib/cloche/images"
# shellcheck source=images/container.sh
. "$here/container.sh"
export RECIPE="$here/$name.recipe"
if [ -z "$from" ] && [ ! -f "$RECIPE" ]; then
    [ -f "$out/$name/current/source" ] ||
        die "no recipe $RECIPE" "choose one of: $(cd "$here" && echo *.recipe | sed 's/\.recipe//g'); or name a container image: --image python:3.13-slim"
    container_recall "$out/$name/current/source"
    [ -n "$from" ] || die "'$name' was built elsewhere and pulled" "cloche template pull $name"
fi
if [ -n "$from" ]; then
    [ ! -f "$RECIPE" ] || die "'$name' is built from a recipe, so --image needs another name"
    [ -z "$locked$update_lock" ] || die "--locked and --update-lock are for recipes" "an image is pinned by its digest: NAME@sha256:..."
    for tool in skopeo umoci; do
        command -v $tool > /dev/null || die "$tool is missing" "apt install --no-install-recommends skopeo umoci"
    done
else
    [ -z "$memory$vcpus$warm_ups$contexts$plain$max_mib" ] || die "--memory, --vcpus, --warm-up, --no-contexts, --plain-http and --max-size are for --image" "a recipe says these itself"
fi
[ -f "$agent" ] || die "no agent at $agent" "build it (ninja cloche-agent) or pass --agent PATH"
for tool in mmdebstrap mkfs.erofs mke2fs veritysetup cpio depmod openssl xz perl gcc make; do
    PATH=$PATH:/usr/sbin:/sbin command -v $tool > /dev/null ||
        die "$tool is missing" "apt install mmdebstrap erofs-utils e2fsprogs cryptsetup-bin cpio kmod openssl xz-utils perl gcc make libelf1"
done
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$out/.cache" "$out/$name"
out=$(cd "$out" && pwd)
cache=$out/.cache
if [ -n "$update_lock" ]; then rm -f "$here/$name.lock" "$here/kernel.lock"; fi
successor() { # successor NAME: the file that pins what is taken instead of what NAME.lock says
    echo "$cache/locks/$(digest "$here/$1.lock" | cut -c1-16)/$1.lock"
}
lock_of() { # lock_of NAME: the file that counts
    if [ -z "$locked" ] && [ -f "$here/$1.lock" ] && [ -f "$(successor "$1")" ]; then
        successor "$1"
    else
        echo "$here/$1.lock"
    fi
}
lock=$(lock_of "$name")
kernel_lock=$(lock_of kernel) # one kernel for all images
modules_digest() { for file in "$here"/module/*.c; do digest "$file"; done | text_digest; } # of our own ones
if [ -n "$from" ]; then
    SUITE=bookworm # of the kernel's packages
    number --memory "${memory:=512}" 64 65536 # these two as in worker/template.c
    number --vcpus "${vcpus:=1}" 1 64
    number --max-size "${max_mib:=16384}" 1 16777216
    : "${contexts:=auto}" "${plain:=no}"
    MEMORY_MIB=$memory VCPUS=$vcpus
    SALT=$(echo "cloche-image-$name" | text_digest)
    UUID=$(echo "$SALT" | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{3\}\)\(.\{3\}\)\(.\{12\}\).*/\1-\2-4\3-8\4-\5/')
    container_source
else
    # shellcheck source=/dev/null
    . "$RECIPE"
fi
# shellcheck source=images/extract-vmlinux.sh
. "$here/extract-vmlinux.sh"
export UUID

work=$(mktemp -d "$out/.work.XXXXXX")
trap 'rm -rf "$work"; rmdir "$out/$name" 2> /dev/null || true' EXIT
trap 'exit 130' INT TERM
chmod 0755 "$work"
[ -z "$from" ] || container_id

# --- what the result depends on --------------------------------------------------------------------
inputs() { # of the root file system
    [ -z "$from" ] || { container_inputs; return; }
    echo "root file system 1" # raise it when bootstrap, build_root or add_verity change
    for file in "$here/finish.sh" "$here"/*.recipe "$here"/files/*; do digest "$file"; done
    [ ! -f "$lock" ] || digest "$lock"
    echo "$name $SOURCE_DATE_EPOCH $ID_BASE $mirror"
    mkfs.erofs -V 2>&1 | head -1
}
all_inputs() { # of the image; no lock, no inputs
    [ -n "$from" ] || [ -f "$lock" ] || return 0
    [ -f "$kernel_lock" ] || return 0
    (inputs | text_digest; [ -z "$from" ] || container_remember; digest "$0"; digest "$here/extract-vmlinux.sh"; modules_digest; digest "$agent"; cat "$kernel_lock"; [ -z "$key" ] || echo signed) | text_digest
}
if [ -f "$out/$name/current/inputs" ] && [ "$(cat "$out/$name/current/inputs")" = "$(all_inputs)" ]; then
    say "$name: unchanged, $(readlink "$out/$name/current")"
    exit 0
fi

# --- kernel ----------------------------------------------------------------------------------------
bootstrap() { # bootstrap VARIANT INCLUDE HOOKS...: one run of mmdebstrap; nothing but the hooks' files stays.  1: the mirror has not $gone
    variant=$1 include=$2; shift 2
    mode=root
    [ "$(id -u)" = 0 ] || mode=unshare
    try=1 # not --quiet: only its progress says which file apt could not fetch, and why
    until mmdebstrap --variant=$variant --mode=$mode --format=null --architectures=amd64 \
        --aptopt='Apt::Install-Recommends false' --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --include="$include" "$@" \
        "$SUITE" /dev/null ${mirror:+"$mirror"} > "$work/mmdebstrap.log" 2>&1; do
        cause=$(sed -n 's/^E: Failed to fetch //p' "$work/mmdebstrap.log" | head -1)
        gone=$(sed -n "s/^E: Version '\(.*\)' for '\(.*\)' was not found$/\2 \1/p; s/^E: Unable to locate package //p" "$work/mmdebstrap.log" | paste -sd,)
        if [ -z "$cause$gone" ]; then
            tail -20 "$work/mmdebstrap.log" | cut -c1-400 >&2
            die "mmdebstrap failed" "see above; without root, newuidmap and a subuid range are needed"
        fi
        [ -n "$cause" ] || return 1
        [ $try -lt $mirror_tries ] ||
            die "the mirror failed $try times: $cause" "try again later, or name another one by --mirror" $EX_TEMPFAIL
        pause=$((try * CLOCHE_MIRROR_PAUSE))
        say "the mirror failed, the next try is in $pause s: $cause"
        sleep $pause
        try=$((try + 1))
    done
}

move_on() { # move_on NAME: the mirror has not all that NAME.lock names; sets `next`, the lock that is to be written
    [ -f "$here/$1.lock" ] || die "the mirror has not $gone" "another one may have it: --mirror URL"
    [ -z "$locked" ] || die "the mirror has not what $1.lock names: $gone" "without --locked the newest versions are taken; --update-lock renews the lock, --mirror of snapshot.debian.org may have the old ones"
    say "$1.lock: the mirror has not $gone; the newest versions are taken instead"
    next=$(successor "$1")
    mkdir -p "${next%/*}"
    rm -f "$next"
}
tell_changes() { # tell_changes FROM TO: a line for each package that is not as it was
    awk '/^#/ {next} NR == FNR {was[$1] = $2; next} {is[$1] = $2}
        END {for (p in was) if (was[p] != is[p]) print p, was[p], "->", p in is ? is[p] : "none"
             for (p in is) if (!(p in was)) print p, "none ->", is[p]}' "$1" "$2" | sort | while read -r line; do say "  $line"; done
}

build_modules() { # build_modules RELEASE: our own ones, into $work/module, for the kernel of that release
    for deb in headers common kbuild; do
        dpkg-deb -x "$work/$deb.deb" "$work/headers"
        rm -f "$work/$deb.deb"
    done
    tree=$work/headers/usr/src/linux-headers-$1
    sed -i "s#/usr/src/#$work/headers/usr/src/#" "$tree/Makefile" # where the package would have put the common ones
    mkdir "$work/module"
    cp "$here"/module/*.c "$work/module/"
    echo "obj-m := $(cd "$here/module" && echo *.c | sed 's/\.c/.o/g')" > "$work/module/Makefile"
    # Without debugging data: it names this folder, and so would the build's identity.
    make -C "$tree" M="$work/module" CC=gcc KCFLAGS=-g0 modules > "$work/make.log" 2>&1 && return
    tail -20 "$work/make.log" >&2
    die "the modules for Xen PV do not build" "see above; it wants the compiler of Debian's kernel, gcc 12"
}

add_module() { # add_module PATH: the next one to be loaded
    install -m 0644 "$1" "$work/k/modules/"
    strip --strip-debug "$work/k/modules/${1##*/}"
    echo "${1##*/}" >> "$work/k/modules/list"
}

fetch_kernel() { # fetch_kernel PACKAGE VERSION, each `-` for the newest one
    bootstrap extract base-files --extract-hook="$here/fetch-kernel.sh"' "$1"'" $kernel_meta $1 $2 headers" \
        --extract-hook="download /.kernel.deb $work/kernel.deb" --extract-hook="download /.headers.deb $work/headers.deb" \
        --extract-hook="download /.common.deb $work/common.deb" --extract-hook="download /.kbuild.deb $work/kbuild.deb"
}

unpack_kernel() { # into DIR/.cache/kernel
    package=- version=- want=-
    [ ! -f "$kernel_lock" ] || read -r package version want < "$kernel_lock"
    if ! fetch_kernel "$package" "$version"; then
        move_on kernel
        want=- kernel_lock=$next
        fetch_kernel - - || die "the mirror has not $gone" "another one may have it: --mirror URL"
    fi
    [ -f "$work/kernel.deb" ] || die "no kernel package came out of mmdebstrap"
    sum=$(digest "$work/kernel.deb")
    [ "$want" = - ] || [ "$want" = "$sum" ] ||
        die "$package has SHA-256 $sum, $kernel_lock says $want" "check the mirror, or --update-lock"
    package=$(dpkg-deb -f "$work/kernel.deb" Package)
    version=$(dpkg-deb -f "$work/kernel.deb" Version)
    if [ "$want" = - ]; then
        echo "$package $version $sum" > "$kernel_lock"
        [ "$kernel_lock" = "$here/kernel.lock" ] || tell_changes "$here/kernel.lock" "$kernel_lock"
    fi
    kernel_folder
    set -- "$kernel" "$work/kernel.deb"
    dpkg-deb -x "$2" "$work/kernel"
    rm -f "$2"
    release=${package#linux-image-}
    depmod -b "$work/kernel" "$release"
    build_modules "$release"
    mkdir -p "$work/k/modules"
    echo "$sum" > "$work/k/sha256"
    extract_vmlinux "$work/kernel/boot/vmlinuz-$release" "$work/k/vmlinux"
    for module in $kernel_modules; do
        modprobe -d "$work/kernel" -S "$release" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
    done | awk '!seen[$0]++' | while read -r path; do
        # The processor's own CRC instruction is not on every machine; the plain C one is built in.
        case $path in */crc32c-intel.ko) continue ;; esac
        add_module "$path"
        case $path in */virtio_mmio.ko) add_module "$work/module/cloche_xenpv.ko" ;; esac # it tells that one of devices
    done
    add_module "$work/module/cloche_prefault.ko"
    mkdir -p "$cache/kernel"
    mv "$work/k" "$1" 2> /dev/null || [ -f "$1/sha256" ]
    rm -rf "$work/kernel" "$work/headers" "$work/module"
}

kernel_folder() { # of this kernel with these modules
    [ -f "$kernel_lock" ] && read -r package version want < "$kernel_lock" &&
        kernel=$cache/kernel/$package-$version-$( (echo "$kernel_modules"; modules_digest) | text_digest | cut -c1-8)
}
kernel=
kernel_folder || true
[ -n "$kernel" ] && [ -f "$kernel/sha256" ] || timed kernel unpack_kernel
kernel_folder
kernel_package=$package kernel_version=$version

# --- root file system ------------------------------------------------------------------------------
bootstrap_root() { # bootstrap_root PACKAGE...: into $work/rootfs.img, $work/lock
    bootstrap custom "$(echo "$*" | tr ' ' ',')" --customize-hook="$here/finish.sh"' "$1"' \
        --customize-hook="download /.rootfs.img $work/rootfs.img" \
        --customize-hook="download /.packages $work/lock"
}

build_root() {
    pinned=
    [ ! -f "$lock" ] || pinned=$(awk '$1 !~ /^#/ {print $1 "=" $2}' "$lock" | paste -sd' ')
    # shellcheck disable=SC2086
    bootstrap_root ${pinned:-$PACKAGES} && return
    move_on "$name"
    lock=$next
    # shellcheck disable=SC2086
    bootstrap_root $PACKAGES || die "the mirror has not $gone" "another one may have it: --mirror URL"
}

add_verity() { # sets data_blocks, verity_root; appends the hash tree
    size=$(stat -c %s "$work/rootfs.img")
    data_blocks=$(((size + 4095) / 4096))
    truncate -s $((data_blocks * 4096)) "$work/rootfs.img"
    verity_root=$(veritysetup format --no-superblock --format=1 --hash=sha256 --data-block-size=4096 \
        --hash-block-size=4096 --data-blocks=$data_blocks --hash-offset=$((data_blocks * 4096)) \
        --salt="$SALT" "$work/rootfs.img" "$work/rootfs.img" | awk '/^Root hash:/ {print $3}')
    [ ${#verity_root} = 64 ] || die "veritysetup gave no root hash"
    echo "$data_blocks $verity_root" > "$work/verity"
}

root_cache=$cache/rootfs/$name-$(inputs | text_digest)
if [ -n "$from" ] && [ ! -f "$root_cache/verity" ]; then
    timed "root file system of $name" container_root
    timed "verity tree" add_verity
    rm -rf "$root_cache"
    mkdir -p "$root_cache"
    mv "$work/rootfs.img" "$work/conf" "$work/warm_up" "$work/contexts" "$root_cache/"
    mv "$work/verity" "$root_cache/"
elif [ -z "$from" ] && { [ ! -f "$root_cache/verity" ] || [ ! -f "$lock" ]; }; then
    timed "root file system of $name" build_root
    if [ ! -f "$lock" ]; then
        (echo "# package version SHA-256; written by build.sh --update-lock"; cat "$work/lock") > "$work/lock.new"
        mv "$work/lock.new" "$lock"
        say "wrote $lock ($(wc -l < "$work/lock") packages)"
        [ "$lock" = "$here/$name.lock" ] || tell_changes "$here/$name.lock" "$lock"
    elif ! grep -v '^#' "$lock" | cmp -s - "$work/lock"; then
        grep -v '^#' "$lock" | diff - "$work/lock" >&2 || true
        die "the packages are not those of $lock" "see the difference above; accept it by --update-lock"
    fi
    timed "verity tree" add_verity
    root_cache=$cache/rootfs/$name-$(inputs | text_digest)
    rm -rf "$root_cache"
    mkdir -p "$root_cache"
    mv "$work/rootfs.img" "$work/lock" "$root_cache/"
    mv "$work/verity" "$root_cache/" # last: it marks the folder as whole
fi
read -r data_blocks verity_root < "$root_cache/verity"
if [ -n "$from" ]; then
    WARM_UP=$(container_warm_ups "$root_cache/warm_up")
    CONTEXTS=$(cat "$root_cache/contexts")
fi

# --- initramfs, manifest, signature ----------------------------------------------------------------
image=$work/image
mkdir -p "$image" "$work/initrd"
make_initrd() {
    cp -r "$kernel/modules" "$work/initrd/modules"
    install -m 0755 "$agent" "$work/initrd/init"
    [ ! -f "$root_cache/conf" ] || install -m 0644 "$root_cache/conf" "$work/initrd/image"
    mkdir -m 0755 "$work/initrd/dev" "$work/initrd/proc" "$work/initrd/sys"
    find "$work/initrd" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    (cd "$work/initrd" && find . | sort | cpio -o -H newc --reproducible --owner=0:0 --quiet) > "$image/initrd"
}
# A small empty file system; the guest grows it to the size of its disk.  No journal: it never
# outlives its VM.  8192 inodes a group of 128 MiB.
make_scratch() {
    truncate -s 16M "$image/scratch.img"
    E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH mke2fs -q -t ext4 -b 4096 -N 8192 -m 0 -U "$UUID" \
        -O ^has_journal,^resize_inode,^metadata_csum,uninit_bg,64bit \
        -E "hash_seed=$UUID,lazy_itable_init=1,nodiscard,root_owner=0:0" "$image/scratch.img" 4096
}
make_initrd
make_scratch
ln "$kernel/vmlinux" "$image/vmlinux" 2> /dev/null || cp "$kernel/vmlinux" "$image/vmlinux"
ln "$root_cache/rootfs.img" "$image/rootfs.img" 2> /dev/null || cp "$root_cache/rootfs.img" "$image/rootfs.img"
all_inputs > "$image/inputs"

agent_sha=$(digest "$agent")
vmlinux_sha=$(digest "$image/vmlinux")
initrd_sha=$(digest "$image/initrd")
rootfs_sha=$(digest "$image/rootfs.img")
scratch_sha=$(digest "$image/scratch.img")
if [ -n "$from" ]; then
    container_remember > "$image/source"
    made_of='"container": {"source": '"$(json "$source")"', "id": "sha256:'$image_id'"}'
else
    made_of='"packages": {"count": '$(wc -l < "$root_cache/lock")', "sha256": "'$(digest "$root_cache/lock")'"}'
fi
full_cmdline="$cmdline cloche.verity=$verity_root:$data_blocks:$data_blocks:$SALT cloche.disk=1 cloche.fault_around=$fault_around"
image_key=$(printf '%s\n' "cloche image 1" "$agent_sha" "$vmlinux_sha" "$kernel_version" "$initrd_sha" \
    "$verity_root" "$full_cmdline" "$protocol_major" "$scratch_sha" "$WARM_UP" "$CONTEXTS" "$MEMORY_MIB" "$VCPUS" | text_digest)
cat > "$image/manifest.json" << EOF
{
  "version": 1,
  "name": "$name",
  "key": "$image_key",
  "created": $SOURCE_DATE_EPOCH,
  "protocol_major": $protocol_major,
  "agent_sha256": "$agent_sha",
  "kernel": {"package": "$kernel_package", "version": "$kernel_version", "file": "vmlinux", "sha256": "$vmlinux_sha"},
  "initrd": {"file": "initrd", "sha256": "$initrd_sha"},
  "rootfs": {"file": "rootfs.img", "sha256": "$rootfs_sha", "bytes": $(stat -c %s "$image/rootfs.img")},
  "scratch": {"file": "scratch.img", "sha256": "$scratch_sha"},
  "verity": {"root": "$verity_root", "salt": "$SALT", "data_blocks": $data_blocks, "hash_start": $data_blocks},
  "cmdline": "$full_cmdline",
  "memory_mib": $MEMORY_MIB,
  "vcpus": $VCPUS,
  "warm_up": $WARM_UP,
  "contexts": $CONTEXTS,
  $made_of
}
EOF
[ "$(stat -c %s "$image/manifest.json")" -le 65536 ] || die "the manifest has more than 64 KiB" "shorter warm-ups" # TEMPLATE_MANIFEST_MAX
if [ -n "$key" ]; then
    if [ ! -f "$key" ]; then
        (umask 077 && openssl genpkey -algorithm ed25519 -out "$key" 2> /dev/null) || die "cannot make the key $key"
        say "made the signing key $key"
    fi
    openssl pkeyutl -sign -inkey "$key" -rawin -in "$image/manifest.json" -out "$image/manifest.sig" ||
        die "cannot sign with $key" "it must be an Ed25519 private key in PEM form"
else
    say "no --key: the manifest is not signed"
fi

# --- put it there ----------------------------------------------------------------------------------
put_build "$name" "$image" "$image_key"
say "$name: $short, verity $verity_root, $(($(date +%s) - started)) s"
