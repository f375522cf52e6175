#!/bin/sh
# tools/test_tools.sh - fetch what tests need and Debian lacks, as tools/versions.lock pins it.
#
# usage: tools/test_tools.sh [DIR]      (default $CLOCHE_TEST_TOOLS, else out/tools)
# Result: DIR/venv (grpcio, protobuf, mcp, e2b), DIR/node_modules (@grpc/grpc-js, @modelcontextprotocol/*, @connectrpc/*, e2b, playwright-core), DIR/bin (buf, ghz,
# grpcurl, h2spec, otlp_receiver: OpenTelemetry's, by tests/e2e/otlp_receiver).  A part whose stamp matches its lines of the lock is left alone.  A part whose registry
# cannot be reached is reported; its tests are then skipped, and counted.  Exit 1 when a part is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
dir=${1:-${CLOCHE_TEST_TOOLS:-$here/../out/tools}}
lock=$here/versions.lock
otlp=$here/../tests/e2e/otlp_receiver
mkdir -p "$dir/bin"
dir=$(cd "$dir" && pwd)
failed=

say() { echo "tools: $*" >&2; }
part() { # part NAME COMMAND: run it unless NAME is as the lock says
    want=$( (grep "^$1" "$lock"; cat "$here/test_tools.sh"; cat "$here/npm/package-lock.json" "$here/go/go.sum" "$otlp"/*) | sha256sum)
    [ "$(cat "$dir/.$1.stamp" 2> /dev/null)" != "$want" ] || return 0
    began=$(date +%s)
    if (set -e; "$2") > "$dir/$1.log" 2>&1 < /dev/null; then
        echo "$want" > "$dir/.$1.stamp"
        say "$1: $(($(date +%s) - began)) s"
    else
        say "$1 failed, its tests will be skipped: $(tail -1 "$dir/$1.log") (all of it: $dir/$1.log)"
        return 1
    fi
}

fetch_pip() {
    awk '$1 == "pip" {printf "%s==%s", $2, $3; for (i = 4; i <= NF; i++) printf " --hash=%s", $i; print ""}' \
        "$lock" > "$dir/requirements.txt" || return 1
    rm -rf "$dir/venv"
    PATH=/usr/bin:$PATH python3 -m venv "$dir/venv" &&
        "$dir/venv/bin/pip" -q install --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -r "$dir/requirements.txt"
}

fetch_npm() {
    cp "$here/npm/package.json" "$here/npm/package-lock.json" "$dir/" || return 1
    (cd "$dir" && npm ci --no-audit --no-fund --ignore-scripts) || return 1
    awk '$1 == "npm" {print $2, $3}' "$lock" | while read -r name version; do
        grep -q "\"version\": \"$version\"" "$dir/node_modules/$name/package.json" ||
            { echo "$name is not $version: versions.lock and npm/package-lock.json differ"; exit 1; }
    done || return 1
    ln -sf ../node_modules/@bufbuild/buf-linux-x64/bin/buf "$dir/bin/buf"
}

fetch_go() {
    go=go
    command -v go || return 1
    minor=$(go version | sed 's/.*go1\.\([0-9]*\).*/\1/')
    export GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
    if [ "$minor" -lt 25 ] || [ -n "${CLOCHE_FORCE_TOOLCHAIN:-}" ]; then # Debian's: too old for these modules
        read -r version sum << LINE
$(awk '$1 == "gotoolchain" {print $2, $3}' "$lock")
LINE
        (cd "$dir" && go mod download -json "golang.org/toolchain@$version") > "$dir/module.json" ||
            { cat "$dir/module.json"; return 1; }
        grep -qF "\"Sum\": \"$sum\"" "$dir/module.json" || { echo "golang.org/toolchain has not the sum $sum"; return 1; }
        rm -rf "$dir/go"
        cp -r "$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' "$dir/module.json")" "$dir/go" || return 1
        chmod -R u+w "$dir/go" && chmod +x "$dir"/go/bin/* "$dir"/go/pkg/tool/*/* || return 1
        go=$dir/go/bin/go
        export GOROOT="$dir/go"
    fi
    rm -rf "$dir/gomod"
    mkdir "$dir/gomod" && cp "$here/go/go.mod" "$here/go/go.sum" "$dir/gomod/" && cd "$dir/gomod" || return 1
    awk '$1 == "go" {print $2, $3, $4}' "$lock" | while read -r module version package; do
        grep -q "$module $version" go.mod || { echo "$module is not $version: versions.lock and go/go.mod differ"; exit 1; }
        CGO_ENABLED=0 $go build -mod=readonly -o "$dir/bin/" "$module/$package" || exit 1
    done || return 1
    (cd "$otlp" && CGO_ENABLED=0 $go build -mod=readonly -o "$dir/bin/otlp_receiver" .)
}

parts= # beside each other: most of it is waiting, but for Go's
for name in go pip npm; do
    part $name fetch_$name &
    parts="$parts $!"
done
for part in $parts; do
    wait "$part" || failed=1
done
[ -z "$failed" ]
