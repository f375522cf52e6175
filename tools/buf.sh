#!/bin/sh
# tools/buf.sh - buf lint, and buf breaking against the last tag.    usage: buf.sh lint|breaking|self-test
#   self-test   in a copy with a tag: `breaking` lets it pass as it is, and refuses a field that is gone
set -eu
cd "$(dirname "$0")/.."
buf=${CLOCHE_TEST_TOOLS:-$PWD/out/tools}/bin/buf
[ -x "$buf" ] || { echo "skip: buf is missing (tools/test_tools.sh installs it)"; exit 77; }
case ${1:?usage: buf.sh lint|breaking|self-test} in
lint) exec "$buf" lint proto ;;
breaking)
    tag=$(git describe --tags --abbrev=0 2>/dev/null) || { echo "skip: there is no tag to compare with yet"; exit 77; }
    exec "$buf" breaking proto --against ".git#tag=$tag,subdir=proto"
    ;;
self-test)
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    cp -r proto tools "$copy"
    git -C "$copy" init -q
    git -C "$copy" add proto
    git -C "$copy" -c user.name=test -c user.email=test@localhost commit -qm before
    git -C "$copy" tag before
    export CLOCHE_TEST_TOOLS="${buf%/bin/buf}"
    "$copy/tools/buf.sh" breaking || { echo "refused what did not change" >&2; exit 1; }
    sed -i '/^ *string job_id = 1;/d' "$copy/proto/cloche/v1/job.proto"
    ! "$copy/tools/buf.sh" breaking || { echo "let a field go" >&2; exit 1; }
    ;;
*) echo "usage: buf.sh lint|breaking|self-test" >&2; exit 2 ;;
esac
