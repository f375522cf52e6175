#!/bin/sh
# test.sh - every test, from a fresh clone: installs what tests need, builds with sanitizers, runs
# all suites, prints the counts.
#
# usage: ./test.sh [--quick] [-L LABEL]
#   --quick     no package or tool installation, no fuzzing beyond the corpus
#   -L LABEL    only suites with this label: gate unit fuzz sim fault integration e2e escape
#               regress lab
# Environment: CI=true fuzzes, runs the tests under ThreadSanitizer too, and a test that lacks its
# tool, package or image fails;
# FUZZ_SECONDS all targets together (with CI what is left of 38 minutes, 120 to 720; else none, and
# the targets take their corpus only); CLOCHE_IMAGES folder of test images
# (out/images); JOBS parallel tests (3).
# The last line is `N passed, N failed, N skipped`; the reason of each skip stands above it.
set -eu
cd "$(dirname "$0")"
quick= label=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    -L) label=${2:?}; shift ;;
    --help | -h) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
ci=${CI:-false}
export CLOCHE_IMAGES="${CLOCHE_IMAGES:-$PWD/out/images}" CLOCHE_TEST_TOOLS="${CLOCHE_TEST_TOOLS:-$PWD/out/tools}"
export CLOCHE_SNAPSHOTS="$PWD/out/snapshots" # a template is booted by the first test that needs it so
rm -rf "$CLOCHE_SNAPSHOTS"
began=$(date +%s)
say() { printf '[%4d s] %s\n' "$(($(date +%s) - began))" "$*"; }
mkdir -p out
rm -f out/.*.building # of a run that was interrupted
passed=0 failed=0 skipped=0
: >out/skips
: >out/failures
: >out/table
: >out/times
count() { # count PASSED FAILED SKIPPED
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}
step() { # step NAME COMMAND...: one check of its own
    name=$1
    shift
    say "$name"
    if "$@" >"out/step.log" 2>&1; then
        count 1 0 0
    else
        count 0 1 0
        echo "$name" >>out/failures
        tail -40 out/step.log
    fi
}

tools=
if [ -z "$quick" ]; then
    say "packages"
    tools/packages.sh build run image test
    tools/test_tools.sh >out/tools.log 2>&1 & # most of it waits for registries
    tools=$!
fi
say "build (gcc, ASan and UBSan)"
cmake --preset dev >out/build.log 2>&1 || { cat out/build.log; exit 1; }
cmake --build --preset dev --target cloche-agent >out/build.log 2>&1 || { tail -60 out/build.log; exit 1; }

# Images are kept between runs; an unchanged one takes no time.  They are made beside the build.
if [ ! -f "$CLOCHE_IMAGES/signing.key" ]; then
    mkdir -p "$CLOCHE_IMAGES"
    (umask 077 && openssl genpkey -algorithm ed25519 -out "$CLOCHE_IMAGES/signing.key")
    openssl pkey -in "$CLOCHE_IMAGES/signing.key" -pubout -out "$CLOCHE_IMAGES/signing.pub"
fi
image() {
    images/build.sh "$1" --agent out/dev/cloche-agent --out "$CLOCHE_IMAGES" --key "$CLOCHE_IMAGES/signing.key"
}
(image base && image python) >out/images.log 2>&1 &
images=$!
cmake --build --preset dev >out/build.log 2>&1 || { tail -60 out/build.log; exit 1; }
is_built() { # is_built PID LOG
    wait "$1" || { tail -60 "$2" && false; }
}
fuzzers=
if [ -z "$quick" ] && [ "$ci$label" = false ] && [ -z "${FUZZ_SECONDS:-}" ]; then # clang's build of it all takes minutes
    echo "fuzzing: with CI=true, FUZZ_SECONDS=N or -L fuzz; the corpus has been tried" >>out/skips
    count 0 0 1
elif [ -z "$quick" ] && { [ -z "$label" ] || [ "$label" = fuzz ]; }; then # the images leave a processor idle
    echo >out/.fuzz.building
    warnings=true
    [ "$ci" != true ] || warnings="tools/clang_warnings.py out/fuzz"
    (status=0; nice sh -c 'cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers && $0' "$warnings" || status=$?; rm -f out/.fuzz.building; exit $status) >out/build-fuzz.log 2>&1 &
    fuzzers=$!
fi

# --- CTest, most basic first ------------------------------------------------------------------------
run_ctest() { # run_ctest NAME ARGUMENT...: the results go to out/junit-NAME.xml
    junit=$PWD/out/junit-$1.xml
    shift
    (cd out/dev && ctest "$@" --output-on-failure --no-tests=ignore --output-junit "$junit" --test-output-size-passed 100000 \
        --test-output-size-failed 1000000)
}
# What fails once has failed.  Whether it fails alone too tells where to look: a race or a tight limit if it does not.
AGAIN_MAX=2
once_more() { # once_more NAME
    [ "$(grep -c . out/dev/Testing/Temporary/LastTestsFailed.log)" -le "$AGAIN_MAX" ] || return 0
    echo "--- the failed ones again, alone"
    run_ctest "$1-again" --rerun-failed -j 1 || true
}
suites() { # suites LABEL...: in one run of CTest, so that no processor waits for the last test of each label
    wanted=
    for kind in "$@"; do
        { [ -n "$label" ] && [ "$label" != "$kind" ]; } || wanted="$wanted${wanted:+ }$kind"
    done
    [ -n "$wanted" ] || return 0
    say "tests: $wanted"
    since=$(($(date +%s) - began))
    name=$(echo "$wanted" | tr ' ' '-')
    log=out/ctest-$name.log
    rm -f "out/junit-$name.xml" "out/junit-$name-again.xml"
    status=0
    run_ctest "$name" -L "^($(echo "$wanted" | tr ' ' '|'))\$" -j "$jobs" >"$log" 2>&1 || status=$?
    case $status-$wanted in
    0-*) ;;
    8-*integration* | 8-*e2e* | 8-*escape* | 8-*regress* | 8-*lab*) once_more "$name" >>"$log" 2>&1 ;;
    8-*) ;;
    *) cat "$log" # CTest itself failed
        echo "$wanted (CTest)" >>out/failures
        count 0 1 0 ;;
    esac
    # shellcheck disable=SC2046
    set -- $(tools/test_report.py "out/junit-$name.xml" out "out/junit-$name-again.xml")
    count "$1" "$2" "$3"
    [ "$2" -eq 0 ] || grep -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' "$log" | tail -120
    row=$(printf '%-18s %4d passed %4d failed %4d skipped %5d s' "$wanted" "$1" "$2" "$3" "$(($(date +%s) - began - since))")
    echo "$row" >>out/table
    echo "         $row"
}
jobs=${JOBS:-3} # four are 13 % faster on two processors, but some tests are in too much of a hurry for that
for kind in unit fuzz sim fault; do suites "$kind"; done
release=
if [ "$ci" = true ] && [ -z "$label" ]; then # the images leave a processor idle
    (cmake --preset release && cmake --build --preset release) >out/build-release.log 2>&1 &
    release=$!
fi
step "images base python" is_built "$images" out/images.log
code_image=
if [ "$ci" = true ]; then # it takes minutes: the few tests that need it wait for it (tests/e2e/harness.py)
    (status=0; image code || status=$?; rm -f "$CLOCHE_IMAGES/.code.building"; exit $status) >out/image-code.log 2>&1 &
    code_image=$!
    echo $code_image >"$CLOCHE_IMAGES/.code.building"
fi
if [ -n "$release" ]; then
    step "build (release), which is what quickstart.sh makes, and what the lab, which is slow, runs" \
        is_built "$release" out/build-release.log
    export CLOCHE_LAB_BUILD="$PWD/build"
fi
if [ -n "$tools" ]; then
    say "tools, which were fetched beside all that"
    wait "$tools" || say "some tools are missing: their tests are skipped"
    cat out/tools.log
fi
suites gate # buf is one of them
tsan=
if [ "$ci" = true ] && [ -z "$label" ]; then # with what the tests leave of the processors, one after the other
    echo >out/.tsan.building
    nice -n 19 sh -c 'while [ -e "$0/.code.building" ] || [ -e out/.fuzz.building ]; do sleep 2; done
        status=0; cmake --preset tsan && cmake --build --preset tsan || status=$?
        rm -f out/.tsan.building; exit $status' "$CLOCHE_IMAGES" >out/build-tsan.log 2>&1 &
    tsan=$!
fi
machine_image=
if [ "$ci" = true ]; then # of one test, which comes last
    (while [ -e "$CLOCHE_IMAGES/.code.building" ] || [ -e out/.tsan.building ]; do sleep 2; done
        status=0; nice -n 19 images/build.sh machine --agent out/dev/cloche-agent --out "$CLOCHE_IMAGES" --key "$CLOCHE_IMAGES/signing.key" || status=$?
        rm -f "$CLOCHE_IMAGES/.machine.building"; exit $status) >out/image-machine.log 2>&1 &
    machine_image=$!
    echo $machine_image >"$CLOCHE_IMAGES/.machine.building"
fi
suites integration lab e2e escape regress
[ -z "$fuzzers" ] || step "build (clang, for fuzzing; with CI its warnings of all files)" is_built "$fuzzers" out/build-fuzz.log
[ -z "$code_image" ] || step "image code" is_built "$code_image" out/image-code.log
[ -z "$machine_image" ] || step "image machine" is_built "$machine_image" out/image-machine.log
if [ -n "$tsan" ]; then
    step "build (TSan)" is_built "$tsan" out/build-tsan.log
    step "threads (tests/README.md): unit tests, rpc, redis and audit under TSan" ctest --preset tsan
fi

# --- fuzzing ------------------------------------------------------------------------------------------
seconds_to_fuzz() {
    left=$((2280 - $(date +%s) + began))
    if [ -n "${FUZZ_SECONDS:-}" ]; then echo "$FUZZ_SECONDS"
    elif [ "$ci" != true ]; then echo 120
    elif [ $left -lt 120 ]; then echo 120
    elif [ $left -gt 720 ]; then echo 720
    else echo $left; fi
}
if [ -n "$fuzzers" ]; then
    fuzz_seconds=$(seconds_to_fuzz)
    say "fuzz, $fuzz_seconds s"
    python3 tools/fuzz.py --seconds "$fuzz_seconds" >out/fuzz.log 2>&1 || { grep FAIL out/fuzz.log || echo "fuzz (out/fuzz.log)"; } >>out/failures
    cat out/fuzz.log
    # shellcheck disable=SC2046
    set -- $(tail -1 out/fuzz.log | tr -dc '0-9 ')
    count "${1:-0}" "${2:-1}" 0
    printf '%-18s %4d passed %4d failed\n' fuzzing "${1:-0}" "${2:-1}" >>out/table
fi

echo
[ ! -s out/failures ] || { echo "failed:"; sed 's/^/  /' out/failures; }
[ ! -s out/skips ] || { echo "skipped:"; sed 's/^/  /' out/skips; }
cat out/table
echo "slowest (seconds; all of them in out/times):"
sort -rn out/times | head -12
say "all done"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
