#!/bin/sh
# images/store.sh - templates from host to host, by a store: a registry of container images, or a folder.
#
# Usage: store.sh push NAME --out DIR --store STORE [--tag TAG] [--plain-http]
#        store.sh pull NAME... --out DIR --trusted PEM [--store STORE] [--tag TAG] [--plain-http] [--max-size MIB]
#
# STORE is where repositories are: registry.example.com/cloche, or a folder of OCI layouts; that of a template has its
# name (docs/templates.md).  Without --store each NAME, or each template that was pulled, comes from where it came from.
#
# In a store a template is an OCI artifact.  Its configuration is the template's manifest.json, its
# layers are the files that this names, compressed; the signature is an annotation.  So who pulls
# checks the signature before anything else is fetched, knows what each file must be, and fetches
# only those that no build here has.
#
# Result of a pull: DIR/NAME/<key> and the link `current`, as of build.sh; `source` in it says from
# where.  A pull that fails leaves what was there.  Exit: 0; 1 for every error.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
# shellcheck source=images/common.sh
. "$here/common.sh"
# shellcheck source=images/container.sh
. "$here/container.sh"

files="vmlinux initrd rootfs.img scratch.img" # worker/template.c opens these
oci=application/vnd.oci.image.manifest.v1+json
ours=application/vnd.cloche.template
FILE_MIB=1024 # most of a file of which the manifest does not say how long it is

verb= names= out= store= tag= plain= max_mib= trusted=
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=${2:?}; shift ;;
    --store) store=${2:?}; one_line "$@"; shift ;;
    --tag) tag=${2:?}; shift ;;
    --trusted) trusted=${2:?}; shift ;;
    --plain-http) plain=yes ;;
    --max-size) max_mib=${2:?}; shift ;;
    -*) die "unknown option $1" "see the first lines of $0" ;;
    push | pull) if [ -z "$verb" ]; then verb=$1; else names="$names $1"; fi ;;
    *) names="$names $1" ;;
    esac
    shift
done
[ -n "$verb" ] && [ -n "$out" ] || die "push or pull, and --out DIR are needed" "see the first lines of $0"
number --max-size "${max_mib:=16384}" 1 16777216
case $tag in *[!A-Za-z0-9._-]* | [.-]*) die "--tag: '$tag' is no tag" "letters, digits, dots, dashes and underscores" ;; esac
command -v skopeo > /dev/null || die "skopeo is missing" "apt install --no-install-recommends skopeo"
for tool in perl openssl gzip; do command -v $tool > /dev/null || die "$tool is missing" "apt install $tool"; done
if [ $verb = pull ]; then # it is renamed, so it must be there
    mkdir -p "$out"
    work=$(mktemp -d "$out/.work.XXXXXX")
    exec 9> "$out/.pulling"
    flock 9 # one at a time: a timer's, and somebody's by hand
else
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/cloche-push.XXXXXX")
fi
out=$(cd "$out" && pwd)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Sets source, and what skopeo is told of the way to it.
address() { # address NAME
    case $store in
    docker://* | oci:*) source=$store/$1:${tag:=latest} ;;
    *) if [ -d "$store" ] || [ "${store#[./]}" != "$store" ]; then
        source=oci:$(realpath -m "$store")/$1:${tag:=latest}
    else
        source=docker://$store/$1:${tag:=latest}
    fi ;;
    esac
    of_inspect= of_copy= of_push=
    if [ "$plain" = yes ]; then of_inspect=--tls-verify=false of_copy=--src-tls-verify=false of_push=--dest-tls-verify=false; fi
}

# bounded BYTES FILE: what comes, if it is no more than that
bounded() {
    head -c $(($1 + 1)) > "$2"
    [ "$(stat -c %s "$2")" -le "$1" ]
}

# describe MANIFEST [ARTIFACT]: "key KEY", and for each file "FILE SHA256 BYTES BLOB COMPRESSED", BYTES 0 = it does not
# say, the last two - without ARTIFACT, and 0 for a blob that it has not.  They are hostile until the signature was compared.
describe() {
    perl -MJSON::PP -e '
        my ($files, @paths) = @ARGV;
        my ($manifest, $artifact) = map { open(my $in, "<", $_) or die "$_: $!\n"; local $/; JSON::PP->new->utf8->max_depth(16)->decode(<$in>) } @paths;
        my $hash = sub { ref $_[0] eq "HASH" ? $_[0] : {} };
        my $hex = sub { ($_[0] // "") =~ /^([0-9a-f]{64})\z/ ? $1 : die "no digest of $_[1]\n" };
        my $key = $hex->($manifest->{key}, "the build");
        my %of_title;
        for my $layer (map { $hash->($_) } @{ref $artifact->{layers} eq "ARRAY" ? $artifact->{layers} : []}) {
            my ($blob) = ($layer->{digest} // "") =~ /^sha256:([0-9a-f]{64})\z/;
            my ($size) = ($layer->{size} // "") =~ /^([0-9]{1,12})\z/;
            $of_title{$hash->($layer->{annotations})->{"org.opencontainers.image.title"} // ""} = "$blob $size" if $blob && $size;
        }
        print "key $key\n";
        my %part = ("vmlinux" => "kernel", "rootfs.img" => "rootfs", "scratch.img" => "scratch");
        for my $file (split / /, $files) {
            my $said = $hash->($manifest->{$part{$file} // $file});
            next if $file eq "scratch.img" && !%$said; # of an older image
            my ($bytes) = ($said->{bytes} // "") =~ /^([0-9]{1,15})\z/;
            print join(" ", $file, $hex->($said->{sha256}, $file), $bytes // 0, $artifact ? $of_title{$file} // "- 0" : ()), "\n";
        }' "$files" "$@" 2> "$work/describe.log"
}

# --- push ----------------------------------------------------------------------------------------------
add_blob() { # add_blob FILE: moved into the layout; sets blob, size
    blob=$(digest "$1") size=$(stat -c %s "$1")
    mv "$1" "$work/layout/blobs/sha256/$blob"
}

write_layout() { # of $build, into $work/layout
    mkdir -p "$work/layout/blobs/sha256"
    layers=
    describe "$build/manifest.json" > "$work/files" || die "$build/manifest.json: $(cat "$work/describe.log")" "build the template again"
    while read -r file sha bytes; do
        [ "$file" != key ] || continue
        [ "$(digest "$build/$file")" = "$sha" ] || die "$build/$file is not what the manifest names" "build the template again"
        gzip -1nc "$build/$file" > "$work/blob"
        add_blob "$work/blob"
        layers="$layers${layers:+, }{\"mediaType\": \"$ours.file.v1+gzip\", \"digest\": \"sha256:$blob\", \"size\": $size, \"annotations\": {\"org.opencontainers.image.title\": \"$file\"}}"
    done < "$work/files"
    cp "$build/manifest.json" "$work/config"
    add_blob "$work/config"
    config="{\"mediaType\": \"$ours.v1+json\", \"digest\": \"sha256:$blob\", \"size\": $size}"
    printf '{"schemaVersion": 2, "mediaType": "%s", "config": %s, "layers": [%s], "annotations": {"cloche.signature": "%s"}}' \
        $oci "$config" "$layers" "$(base64 -w0 "$build/manifest.sig")" > "$work/artifact"
    add_blob "$work/artifact"
    printf '{"schemaVersion": 2, "manifests": [{"mediaType": "%s", "digest": "sha256:%s", "size": %d, "annotations": {"org.opencontainers.image.ref.name": "template"}}]}' \
        $oci "$blob" "$size" > "$work/layout/index.json"
    echo '{"imageLayoutVersion": "1.0.0"}' > "$work/layout/oci-layout"
}

push() { # push NAME
    started=$(date +%s)
    build=$out/$1/current
    [ -d "$build" ] || die "no template '$1' in $out" "cloche template build $1"
    [ -f "$build/manifest.sig" ] || die "$1 is not signed, so nobody would take it" "build it again, with --key"
    build=$out/$1/$(readlink "$build")
    address "$1"
    say "$1: packing $(du -ch "$build"/* | awk 'END {print $1}')"
    write_layout
    say "$1: sending, what is not there yet, to $source"
    case $source in oci:*) mkdir -p "$store" ;; esac
    skopeo_run copy --quiet --preserve-digests --retry-times 3 $of_push "oci:$work/layout:template" "$source" || container_failed "$1 cannot be sent to '$source'"
    rm -rf "$work/layout"
    say "$1: ${build##*/}, to $source, $(($(date +%s) - started)) s"
}

# --- pull ----------------------------------------------------------------------------------------------
is_pulled() { grep -q '^store=' "$out/$1/current/source" 2> /dev/null; } # is_pulled NAME: not built here
recall() { # recall NAME: where it came from, unless it is said anew
    while IFS='=' read -r field value; do
        case $field in
        store) : "${store:=$value}" ;;
        tag) : "${tag:=$value}" ;;
        plain_http) : "${plain:=$value}" ;;
        esac
    done < "$out/$1/current/source"
}

remember() { printf '%s\n' "store=$store" "tag=$tag" "plain_http=$plain"; }

# The two texts that say what it is, into $work; nothing else is looked at before the signature was.
fetch_manifest() { # fetch_manifest NAME
    skopeo_run inspect $of_inspect --raw "$source" | bounded 1048576 "$work/artifact" && [ -s "$work/artifact" ] || container_failed "'$source' cannot be read"
    case $source in docker://*) exact=${source%:*}@sha256:$(digest "$work/artifact") ;; *) exact=$source ;; esac
    skopeo_run inspect $of_inspect --config --raw "$exact" | bounded 65536 "$work/manifest.json" && [ -s "$work/manifest.json" ] || # TEMPLATE_MANIFEST_MAX
        container_failed "'$exact' cannot be read"
    perl -MJSON::PP -MMIME::Base64 -e 'open(my $in, "<", shift) or die; local $/; my $artifact = JSON::PP->new->utf8->max_depth(16)->decode(<$in>);
        print decode_base64($artifact->{annotations}{"cloche.signature"} // "")' "$work/artifact" > "$work/manifest.sig" 2> "$work/describe.log" && [ -s "$work/manifest.sig" ] ||
        die "$source is no template" "cloche template push puts them into a store; container images: cloche template build $1 --image"
}

is_signed() { # by one of those whom we trust
    awk '/-----BEGIN PUBLIC KEY-----/ {n++} n {print > (prefix n)}' prefix="$work/trusted." "$trusted"
    for one in "$work"/trusted.*; do
        if openssl pkeyutl -verify -pubin -inkey "$one" -rawin -in "$work/manifest.json" -sigfile "$work/manifest.sig" > /dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

check_manifest() { # check_manifest NAME: sets key; $work/files lists what it needs
    [ -s "$trusted" ] || die "no public key says whom to trust" "--key FILE: signing.pub of the host that builds the templates"
    is_signed || die "the signature of $1 in $store fits no key in $trusted" "take signing.pub of whoever built it, if you trust it: --key FILE"
    describe "$work/manifest.json" "$work/artifact" > "$work/files" || die "$source: $(cat "$work/describe.log")" "push it again"
    key=$(sed -n 's/^key //p' "$work/files")
    perl -MJSON::PP -e 'my ($path, $name) = @ARGV; open(my $in, "<", $path) or die; local $/; exit(JSON::PP->new->utf8->decode(<$in>)->{name} eq $name ? 0 : 1)' "$work/manifest.json" "$1" ||
        die "what the store has as $1 is a template of another name" "who pushed it there?"
}

# What builds here have, by digest: a kernel is the same in all of them.
list_known() {
    for manifest in "$out"/*/*/manifest.json; do
        [ -f "$manifest" ] && [ ! -L "${manifest%/*}" ] || continue # not `current` once more
        describe "$manifest" 2> /dev/null | while read -r file sha bytes; do
            [ "$file" = key ] || echo "$sha ${manifest%/*}/$file"
        done || true
    done
}
find_known() { # find_known SHA256: a path, if its file is still what its manifest says
    path=$(awk -v sha="$1" '$1 == sha {print $2; exit}' "$work/known")
    [ -n "$path" ] && [ -f "$path" ] && [ "$(digest "$path")" = "$1" ] && echo "$path"
}

# A blob that is not needed is there before skopeo looks, as a hole of its size; it fetches the others.
fetch() { # fetch NAME: into $work/layout, and what is here already into $work/build
    list_known > "$work/known"
    mkdir -p "$work/layout/blobs/sha256" "$work/build"
    due=0
    while read -r file sha bytes blob size; do
        [ "$file" != key ] || continue
        if path=$(find_known "$sha"); then
            ln "$path" "$work/build/$file" 2> /dev/null || cp "$path" "$work/build/$file"
            [ "$blob" = - ] || truncate -s "$size" "$work/layout/blobs/sha256/$blob"
        else
            [ "$blob" != - ] || die "the store has no $file of $1" "push it again"
            due=$((due + size))
        fi
    done < "$work/files"
    say "$1: fetching $(((due + 524288) / 1048576)) MiB from $source"
    skopeo_run copy --quiet --preserve-digests --retry-times 3 $of_copy "$exact" "oci:$work/layout:template" || container_failed "'$exact' cannot be read"
    [ -f "$work/layout/blobs/sha256/$(digest "$work/artifact")" ] || die "$source changed while it was fetched" "pull again"
}

unpack() { # unpack NAME: each file, compared with what was signed
    while read -r file sha bytes blob size; do
        [ "$file" != key ] && [ ! -f "$work/build/$file" ] || continue
        [ "$bytes" -gt 0 ] || bytes=$(((max_mib < FILE_MIB ? max_mib : FILE_MIB) << 20))
        [ "$bytes" -le $((max_mib << 20)) ] || die "$file of $1 has $((bytes >> 20)) MiB" "allow more by --max-size"
        gzip -dc < "$work/layout/blobs/sha256/$blob" 2> /dev/null | bounded "$bytes" "$work/build/$file" && [ "$(digest "$work/build/$file")" = "$sha" ] ||
            die "$file of $1 is not what its manifest names" "push it again; if that does not help, who writes to $store?"
        fallocate --dig-holes "$work/build/$file" 2> /dev/null || true # a scratch disk is next to nothing else
        rm -f "$work/layout/blobs/sha256/$blob"
    done < "$work/files"
    rm -rf "$work/layout"
    mv "$work/manifest.json" "$work/manifest.sig" "$work/build/"
    remember > "$work/build/source"
}

pull() ( # pull NAME: in a process of its own, so that one that fails does not end the others
    set -e
    started=$(date +%s)
    if [ -z "$store" ]; then
        is_pulled "$1" || die "$1 was not pulled here before" "name the store that has it: --from STORE"
        recall "$1"
    fi
    case $store in docker://* | oci:*) ;; *) [ ! -d "$store" ] || store=$(realpath "$store") ;; esac
    address "$1"
    rm -rf "$work"/*
    fetch_manifest "$1"
    check_manifest "$1"
    if cmp -s "$work/manifest.json" "$out/$1/current/manifest.json"; then
        if is_pulled "$1"; then remember > "$out/$1/current/source"; fi
        say "$1: unchanged, $(readlink "$out/$1/current")"
        return
    fi
    fetch "$1"
    unpack "$1"
    mkdir -p "$out/$1"
    put_build "$1" "$work/build" "$key"
    say "$1: $short, from $source, $(($(date +%s) - started)) s"
)

status=0
case $verb in
push)
    set -- $names
    [ $# = 1 ] && [ -n "$store" ] || die "push takes one NAME and --store STORE" "see the first lines of $0"
    push "$1"
    ;;
pull)
    if [ -z "$names" ]; then
        for path in "$out"/*/current; do
            path=${path%/current}
            if is_pulled "${path##*/}"; then names="$names ${path##*/}"; fi
        done
        [ -n "$names" ] || say "no template here was pulled; name one, and the store that has it"
    fi
    set +e # not `pull || ...`, which would let its own errors pass
    for name in $names; do
        pull "$name"
        [ $? = 0 ] || status=1
    done
    ;;
esac
exit $status
