# tests/lab/common.sh - what the tests of this folder share; sourced from the repository's root.
# shellcheck shell=sh

images=${CLOCHE_IMAGES:-$PWD/out/images}

skip() {
    echo "skipped: $*"
    exit 77
}

need_images() {
    [ -f "$images/base/current/manifest.json" ] || skip "no images in $images (images/build.sh base --out DIR --key KEY)"
}

# there SECONDS COMMAND...: under the host's own KVM where it has VMX or SVM, else in the lab, at most that long.
# The lab is slow: CLOCHE_LAB=1 starts it for any test, CI=true for what has said it_is_short.
starts=${CLOCHE_LAB:-}
more_of_the_lab= # options of tools/lab run
it_is_short() {
    [ "${CI:-}" != true ] || starts=1
}
there() {
    seconds=$1
    shift
    if ! tools/lab need; then
        "$@"
        return
    fi
    [ "$starts" = 1 ] || skip "no VMX or SVM here, and the lab takes minutes: CLOCHE_LAB=1 starts it"
    said=$(tools/lab build 2>&1) || skip "the lab cannot be built: $(echo "$said" | grep -E 'error|remedy' | paste -sd' ')"
    # shellcheck disable=SC2086
    tools/lab run --time "$seconds" $more_of_the_lab --build "$CLOCHE_BUILD" --images "$images" -- "$@"
}

# natively COMMAND...: under the host's own KVM where that interprets ring 0, which is what Xen PV is for.
natively() {
    [ -w /dev/kvm ] || skip "/dev/kvm cannot be opened"
    tools/lab need > /dev/null || skip "Xen PV is for hosts without VMX and SVM so far"
    "$@"
}

# where HOW SECONDS COMMAND...: natively when HOW is --xenpv, else there.
where() {
    how=$1 limit=$2
    shift 2
    case $how in
    --xenpv) natively "$@" ;;
    *) there "$limit" "$@" ;;
    esac
}
