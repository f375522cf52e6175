#!/bin/sh
# bench/rpc.sh - requests a second of the RPC server: 8 connections of 32 streams, one unary call
# of a few bytes, h2c and TLS 1.3.    usage: bench/rpc.sh [BUILD_DIR [REQUESTS]]
set -eu
build=${1:-build}
requests=${2:-400000}
command -v h2load >/dev/null || { echo "rpc.sh: h2load is not installed (nghttp2-client)"; exit 77; }
tmp=$(mktemp -d)
trap 'kill $pid 2>/dev/null || true; rm -rf "$tmp"' EXIT
# A SimpleRequest {response_size: 4}: flag, length, field 2 = 4.
printf '\000\000\000\000\002\020\004' >"$tmp/req"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -keyout "$tmp/key" -out "$tmp/cert" -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    2>/dev/null
run() { # name port scheme [cert key]
    name=$1 port=$2 scheme=$3
    shift 3
    "$build/rpc_bench" "$port" "$@" &
    pid=$!
    sleep 0.5
    h2load -n "$requests" -c 8 -m 32 -d "$tmp/req" -H 'content-type: application/grpc' \
        -H 'te: trailers' "$scheme://localhost:$port/grpc.testing.TestService/UnaryCall" >"$tmp/out"
    echo "$name: $(grep '^finished' "$tmp/out")"
    echo "$name: $(grep '^requests:' "$tmp/out")"
    echo "$name: $(grep '^time for request' "$tmp/out")  (min max mean sd)"
    echo "$name: server peak RSS $(awk '/VmHWM/ {print $2 " " $3}' "/proc/$pid/status")"
    kill $pid
    wait $pid 2>/dev/null || true
}
run h2c 17171 http
run tls 17172 https "$tmp/cert" "$tmp/key"
