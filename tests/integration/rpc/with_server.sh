#!/bin/sh
# tests/integration/rpc/with_server.sh - run one foreign client against interop_server.
#
#   with_server.sh BUILD_DIR hostile|python|node|grpcurl|buf|ghz|h2spec [tls]
#
# Tools come from CLOCHE_TEST_TOOLS (default: out/tools of the source tree): venv/ with grpcio and
# grpcio-tools, node_modules/ with @grpc/grpc-js and @grpc/proto-loader, bin/ with buf, ghz,
# grpcurl and h2spec.  Exits 77 and says why when a tool is not there.  tools/test_tools.sh fetches them.
set -eu
build=$1 client=$2 mode=${3:-plain}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
tools=${CLOCHE_TEST_TOOLS:-$root/out/tools}
python=$tools/venv/bin/python

skip() { echo "skipped: $1 (tools/test_tools.sh fetches it)"; exit 77; }
case $client in
hostile) command -v python3 >/dev/null || skip "python3 is not installed" ;;
python) [ -x "$python" ] || skip "no grpcio in $tools/venv" ;;
node) [ -d "$tools/node_modules/@grpc/grpc-js" ] || skip "no @grpc/grpc-js in $tools/node_modules" ;;
*) [ -x "$tools/bin/$client" ] || skip "no $client in $tools/bin" ;;
esac

tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$tmp"' EXIT
ca= tls_args=
if [ "$mode" = tls ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -keyout "$tmp/key" -out "$tmp/cert" -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost 2>/dev/null
    ca=$tmp/cert tls_args="$tmp/cert $tmp/key"
fi
# shellcheck disable=SC2086
"$build/interop_server" 0 $tls_args --set "$build/gen/tests/integration/rpc/interop.set" >"$tmp/out" &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    grep -q '^port' "$tmp/out" && break
    sleep 0.25
done
port=$(awk '/^port/ {print $2}' "$tmp/out")
[ -n "$port" ] || { echo "interop_server did not start"; exit 1; }

rc=0
case $client in
hostile) python3 "$here/hostile.py" "$port" "$pid" || rc=$? ;;
python)
    "$python" -m grpc_tools.protoc -I"$here" -I"$root/rpc/proto" --python_out="$tmp" interop.proto health.proto
    "$python" "$here/interop_client.py" "$port" "$tmp" $ca || rc=$?
    ;;
node) NODE_PATH=$tools/node_modules node "$here/interop_client.js" "$port" "$here" $ca || rc=$? ;;
grpcurl)
    flags=-plaintext
    [ -z "$ca" ] || flags="-cacert $ca"
    "$tools/bin/grpcurl" $flags "localhost:$port" list | grep -q grpc.testing.TestService || rc=1
    "$tools/bin/grpcurl" $flags "localhost:$port" describe grpc.testing.SimpleRequest | grep -q response_size || rc=1
    "$tools/bin/grpcurl" $flags -d '{"response_size":3}' "localhost:$port" \
        grpc.testing.TestService/UnaryCall | grep -q AAAA || rc=1
    ;;
buf)
    flags="--http2-prior-knowledge" url="http://localhost:$port"
    [ -z "$ca" ] || flags="--cacert $ca" url="https://localhost:$port"
    # The schema comes by reflection: there is no --schema.
    "$tools/bin/buf" curl --protocol grpc $flags --list-methods "$url" | grep -q grpc.testing.TestService/UnaryCall || rc=1
    "$tools/bin/buf" curl --protocol grpc $flags -d '{"responseSize":3}' "$url/grpc.testing.TestService/UnaryCall" | grep -q AAAA || rc=1
    "$tools/bin/buf" curl --protocol grpc $flags -d '{"responseParameters":[{"size":1},{"size":2}]}' \
        "$url/grpc.testing.TestService/StreamingOutputCall" >"$tmp/buf" || rc=1
    [ "$(grep -c '"body"' "$tmp/buf")" -eq 2 ] || rc=1
    if "$tools/bin/buf" curl --protocol grpc $flags -d '{"responseStatus":{"code":9,"message":"on purpose"}}' \
        "$url/grpc.testing.TestService/UnaryCall" 2>"$tmp/buf"; then rc=1; fi
    grep -q failed_precondition "$tmp/buf" && grep -q 'on purpose' "$tmp/buf" || rc=1
    ;;
ghz)
    flags=--insecure
    [ -z "$ca" ] || flags="--cacert $ca"
    for load in "UnaryCall 4000 {\"response_size\":100}" "StreamingOutputCall 500 {\"response_parameters\":[{\"size\":1000},{\"size\":1000}]}"; do
        read -r method n data << LINE
$load
LINE
        "$tools/bin/ghz" $flags --call "grpc.testing.TestService/$method" -d "$data" -n "$n" -c 40 --connections 4 \
            --timeout 20s -O json "localhost:$port" >"$tmp/ghz" || rc=1
        python3 - "$tmp/ghz" "$n" << 'SCRIPT' || rc=1
import json, sys
report = json.load(open(sys.argv[1]))
print("%(count)d calls, %(rps).0f/s, slowest %(slowest).0f ms" % {**report, "slowest": report["slowest"] / 1e6}, report["statusCodeDistribution"])
sys.exit(report["statusCodeDistribution"] != {"OK": int(sys.argv[2])} or bool(report["errorDistribution"]))
SCRIPT
    done
    ;;
h2spec)
    flags=
    [ -z "$ca" ] || flags="-t -k"
    "$tools/bin/h2spec" $flags -h localhost -p "$port" generic hpack http2 >"$tmp/h2spec" || rc=$?
    grep -E '×|tests,' "$tmp/h2spec" || true
    # The one failure that stands: nghttp2 1.52 ignores a HEADERS frame on a lower, never opened
    # stream id, because it cannot tell it from a late one on a stream that we reset.
    if [ "$rc" -ne 0 ] && grep -q ', 1 failed' "$tmp/h2spec" &&
        grep -q '× 2: Sends stream identifier that is numerically smaller' "$tmp/h2spec"; then
        rc=0
    fi
    ;;
esac
kill "$pid"
server=0
wait "$pid" || server=$?
pid=
[ "$server" -eq 0 ] || { echo "interop_server ended with $server"; rc=1; }
exit "$rc"
