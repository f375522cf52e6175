#!/bin/sh
# quickstart.sh - from a fresh clone on Debian 12 to the output of a job in a microVM.
#
# usage: ./quickstart.sh        Installs packages (root or sudo), builds, builds the templates `base`
#                               and `python`, starts Cloche, runs a job; `code` is built in the
#                               background.  Safe to run again.
set -eu
cd "$(dirname "$0")"
case ${1:-} in --help | -h) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
began=$(date +%s)
say() { printf '[%3d s] %s\n' "$(($(date +%s) - began))" "$*" >&2; }
die() { echo "quickstart: error: $1" >&2; echo "quickstart: remedy: $2" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "this is $(uname -s) on $(uname -m)" "use x86-64 Linux; Cloche runs on nothing else"
say "packages"
tools/packages.sh build run
version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null; }
at_least() { # at_least PACKAGE VERSION WHY
    dpkg --compare-versions "$(version "$1")" ge "$2" || die "$1 is $(version "$1"), $2 is the least ($3)" "apt-get update && apt-get install $1"
}
at_least libnghttp2-14 1.52.0-1+deb12u3 "fixes of HTTP/2 floods"
at_least redis-server 5:7.0.15 "functions, and fixes of its Lua"

say "build"
cmake --preset release >out.log 2>&1 || { cat out.log >&2; die "cmake failed" "see above"; }
cmake --build --preset release >out.log 2>&1 || { tail -40 out.log >&2; die "the build failed" "see above"; }
rm -f out.log

for template in base python; do
    say "template $template"
    build/cloche template build "$template"
done
say "start"
build/cloche up
say "a job"
echo "\$ build/cloche run python -- python3 -c 'print(6*7)'"
build/cloche run python -- python3 -c 'print(6*7)'
# IPython, numpy, pandas, matplotlib and node: some minutes, and nobody needs to wait for them.
say "template code, in the background (build/code-template.log)"
nohup build/cloche template build code > build/code-template.log 2>&1 &
say "done"
cat >&2 <<'EOF'

Try next:
  echo hello | build/cloche run base -- tr a-z A-Z
  build/cloche run -it python -- bash
  build/cloche repl
  build/cloche sandbox create python --ttl 10m
  build/cloche audit tail
  build/cloche dashboard
  build/cloche doctor
  build/cloche down
EOF
