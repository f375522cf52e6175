#!/bin/sh
# bench/jobs.sh - jobs a second through scheduler, Redis (appendfsync always) and audit log, with a
# worker that does nothing.    usage: bench/jobs.sh [BUILD_DIR [SECONDS]]
set -eu
build=${1:-build}
seconds=${2:-10}
tmp=$(mktemp -d)
trap 'kill $pids 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$tmp"' EXIT
cat >"$tmp/redis.conf" <<EOF
port 0
unixsocket $tmp/redis.sock
dir $tmp
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
save ""
maxmemory-policy noeviction
EOF
redis-server "$tmp/redis.conf" >"$tmp/redis.log" &
pids=$!
"$build/cloche-audit" --socket "$tmp/audit.sock" --dir "$tmp/audit" --key "$tmp/audit.key" 2>"$tmp/audit.log" &
pids="$pids $!"
sleep 0.5
"$build/cloche-scheduler" --listen "unix:$tmp/api.sock" --worker-listen "unix:$tmp/worker.sock" \
    --redis "unix:$tmp/redis.sock" --audit-socket "$tmp/audit.sock" --pepper-file "$tmp/pepper" \
    --bootstrap-key-file "$tmp/admin.key" --log-level error 2>"$tmp/scheduler.log" &
scheduler=$!
pids="$pids $scheduler"
for _ in $(seq 100); do [ -s "$tmp/admin.key" ] && break; sleep 0.1; done
export CLOCHE_ENDPOINT="unix:$tmp/api.sock" CLOCHE_API_KEY
CLOCHE_API_KEY=$(cat "$tmp/admin.key")
"$build/cloche" tenant create bench --max-sandboxes 100000 --max-vcpus 1000 --max-memory 16000GiB --max-disk 1000000GiB --cpu-time 10000d \
    --rate 1000000/s --burst 1000000 >/dev/null
key=$("$build/cloche" key create bench --json | sed -n 's/.*"key": "\(clk_[^"]*\)".*/\1/p')
grep -m1 'model name' /proc/cpuinfo
for in_flight in 1 32 128 512; do
    "$build/jobs_bench" "unix:$tmp/api.sock" "unix:$tmp/worker.sock" "$key" "$in_flight" "$seconds"
done
echo "scheduler: $(awk '/VmHWM/ {print $2 " " $3}' /proc/$scheduler/status) peak RSS; $(awk '{print ($14+$15)/100 " s CPU"}' /proc/$scheduler/stat)"
