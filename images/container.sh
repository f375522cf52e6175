# images/container.sh - a template's root file system from a container image; read by build.sh.
# shellcheck shell=sh disable=SC2154
#
# skopeo fetches it, from a registry or a file, and compares the digests; images/container.pl makes
# the tree.  An image is named by its id, the SHA-256 of its configuration, which has those of its
# layers: who builds again what did not change only asks for that.

# Sets source: a name as people write it, as skopeo wants it; a file or folder of that name comes first.
# Sets of_inspect and of_copy, what skopeo's two commands are told of the way to it.
container_source() {
    case $from in
    docker://* | docker-daemon:* | containers-storage:*) source=$from ;;
    oci:* | oci-archive:* | docker-archive:* | dir:*) source=${from%%:*}:$(realpath "${from#*:}" 2> /dev/null || echo "${from#*:}") ;;
    *)
        if [ -d "$from" ]; then
            [ -f "$from/oci-layout" ] || die "'$from' is a folder, but no OCI image layout" "skopeo copy SOURCE oci:FOLDER makes one"
            source=oci:$(realpath "$from")
        elif [ -f "$from" ]; then
            kind=docker-archive
            if tar -tf "$from" 2> /dev/null | grep -qx 'manifest.json'; then :; elif tar -tf "$from" 2> /dev/null | grep -qx 'oci-layout'; then kind=oci-archive; else
                die "'$from' is no archive of an image" "docker save IMAGE -o FILE makes one; so does skopeo copy SOURCE oci-archive:FILE"
            fi
            source=$kind:$(realpath "$from")
        else
            source=docker://$from
        fi
        ;;
    esac
    of_inspect= of_copy=
    if [ "$plain" = yes ]; then of_inspect=--tls-verify=false of_copy=--src-tls-verify=false; fi
    case $source in
    docker-daemon:*) [ -z "${DOCKER_HOST:-}" ] || of_inspect=--daemon-host=$DOCKER_HOST of_copy=--src-daemon-host=$DOCKER_HOST ;;
    esac
}

# Who asks a registry by a timer has no session, in which `skopeo login` would find him.
if [ -z "${REGISTRY_AUTH_FILE:-}" ] && [ -r /etc/cloche/registries.json ]; then export REGISTRY_AUTH_FILE=/etc/cloche/registries.json; fi

skopeo_run() { # skopeo_run COMMAND ARGUMENT...: its errors go to $work/skopeo.log; without a policy of this host any image may come
    set -- --override-os linux --override-arch amd64 "$@"
    [ -f /etc/containers/policy.json ] || [ -f "${HOME:-/root}/.config/containers/policy.json" ] || set -- --insecure-policy "$@"
    perl "$here/container.pl" within "$work" "$max_mib" skopeo "$@" 2> "$work/skopeo.log"
}

container_failed() { # container_failed [WHAT]: what skopeo said, without its frame
    if grep '^images: ' "$work/skopeo.log" >&2; then exit 1; fi
    cause=$(sed -n 's/^time=.* level=fatal msg="\(.*\)"$/\1/p; s/^FATA\[[0-9]*\] *//p' "$work/skopeo.log" | tail -1 | sed 's/\\"/"/g')
    remedy="look at the name; for a registry that wants to know you: skopeo login REGISTRY"
    case $cause in
    *"server gave HTTP response to HTTPS client"*) remedy="--plain-http, for a registry that you trust and reach by a way that you trust" ;;
    *"no such host"* | *"connection refused"* | *"i/o timeout"*) remedy="is the registry's name right, and does this host reach it?" ;;
    *"no such file or directory"*) remedy="look at the path" ;;
    esac
    die "${1:-the image '$source' cannot be read}: ${cause:-$(tail -1 "$work/skopeo.log")}" "$remedy"
}

# Sets image_id.
container_id() {
    skopeo_run inspect $of_inspect --config --raw "$source" > "$work/config" || container_failed
    image_id=$(digest "$work/config")
}

# What the root file system depends on.
container_inputs() {
    echo "container image 1"
    digest "$here/container.pl"
    echo "$name $image_id $SOURCE_DATE_EPOCH $ID_BASE $contexts"
    mkfs.erofs -V 2>&1 | head -1
}

container_fetch() {
    fetched=$image_id
    skopeo_run copy --quiet --retry-times 3 --dest-compress-format gzip $of_copy "$source" "oci:$work/layout:image" || container_failed # umoci reads no zstd
    container_id # a copy from Docker's format has another
    [ $image_id = $fetched ] || die "the image changed while it was fetched" "build again"
}

container_root() { # into $work/rootfs.img, conf, warm_up, contexts
    say "fetching $source"
    container_fetch
    mkdir -p "$work/tree"
    CONTEXTS=$contexts perl "$here/container.pl" "$work/layout" "$work/tree" "$max_mib" || exit 1 # it has said why
    for file in rootfs.img conf warm_up contexts; do
        [ -f "$work/tree/$file" ] && [ ! -L "$work/tree/$file" ] || die "no $file came of the image" # another user made it
        cp "$work/tree/$file" "$work/$file"
    done
    rm -rf "$work/tree" "$work/layout"
}

# The same image, with what was said of it, when a later build does not say.
container_remember() { # into the image's folder
    printf '%s\n' "image=$source" "memory=$memory" "vcpus=$vcpus" "contexts=$contexts" "plain_http=$plain" "max_mib=$max_mib"
    printf '%s' "$warm_ups" | sed 's/^/warm_up=/'
}

container_recall() { # container_recall FILE
    while IFS='=' read -r field value; do
        case $field in
        image) : "${from:=$value}" ;;
        memory) : "${memory:=$value}" ;;
        vcpus) : "${vcpus:=$value}" ;;
        contexts) : "${contexts:=$value}" ;;
        plain_http) : "${plain:=$value}" ;;
        max_mib) : "${max_mib:=$value}" ;;
        warm_up) recalled="$recalled$value
" ;;
        esac
    done < "$1"
    : "${warm_ups:=$recalled}"
}

json() { # json TEXT: as a string of JSON
    perl -MJSON::PP -e 'my $text = shift; utf8::decode($text); binmode STDOUT, ":utf8"; print JSON::PP->new->allow_nonref->encode($text)' "$1"
}

# The image's own warm-ups, then the user's.
container_warm_ups() {
    perl -MJSON::PP -e 'my ($own, $texts) = @ARGV; utf8::decode($texts); my $list = JSON::PP->new->decode($own);
        push @$list, map { ["/bin/sh", "-c", $_] } grep { length } split /\n/, $texts;
        binmode STDOUT, ":utf8"; print JSON::PP->new->encode($list)' "$(cat "$1")" "$warm_ups"
}
