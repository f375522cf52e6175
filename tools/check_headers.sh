#!/bin/sh
# tools/check_headers.sh - every header compiles alone.    usage: check_headers.sh BUILD_DIR
set -eu
build=$(cd "${1:?usage: check_headers.sh BUILD_DIR}" && pwd)
cd "$(dirname "$0")/.."
bad=0 n=0
for header in $(git ls-files '*.h' 2>/dev/null || find . -name '*.h' -not -path './out/*' -not -path './build/*'); do
    n=$((n + 1))
    if ! gcc -std=gnu17 -D_GNU_SOURCE -DCLOCHE_VERSION='""' -fsyntax-only -I. -isystem "$build/gen" -isystem /usr/include/hiredis -x c "$header" 2>out.headers; then
        echo "$header does not compile alone; include what its declarations need:"
        head -5 out.headers
        bad=$((bad + 1))
    fi
done
rm -f out.headers
echo "check_headers: $n headers, $bad bad"
[ "$bad" -eq 0 ] && [ "$n" -gt 0 ]
