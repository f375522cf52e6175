#!/bin/sh
# tools/format.sh - clang-format over every C file.    usage: format.sh [--check]
set -eu
cd "$(dirname "$0")/.."
command -v clang-format-14 >/dev/null || { echo "format: clang-format-14 is missing (apt install clang-format-14)"; exit 77; }
if [ "${1:-}" = --check ]; then
    git ls-files '*.c' '*.h' | xargs clang-format-14 --dry-run --Werror 2>out.format || {
        grep -oE '^[^:]+:[0-9]+' out.format | sort -u | head -20
        rm -f out.format
        echo "format: the lines above are not formatted; run tools/format.sh"
        exit 1
    }
    rm -f out.format
else
    git ls-files '*.c' '*.h' | xargs clang-format-14 -i
fi
