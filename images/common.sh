# images/common.sh - what build.sh and store.sh share; read by both, which set `out`.
# shellcheck shell=sh disable=SC2154

EX_TEMPFAIL=75 # of sysexits.h

say() { echo "images: $*" >&2; }
die() { # die CAUSE [REMEDY [STATUS]]
    echo "images: error: $1" >&2
    [ $# -lt 2 ] || echo "images: remedy: $2" >&2
    exit "${3:-1}"
}
number() { # number OPTION VALUE LEAST MOST
    case $2 in '' | *[!0-9]* | ?????????*) die "$1: '$2' is no number" "--memory and --max-size take MiB" ;; esac
    [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] || die "$1: $2 is not from $3 to $4"
}
one_line() { # one_line OPTION VALUE
    case $2 in *"
"*) die "$1 has more than one line" ;; esac
}
digest() { sha256sum "$1" | cut -d' ' -f1; }
text_digest() { sha256sum | cut -d' ' -f1; }

# put_build NAME FOLDER KEY: the build becomes the current one; it is whole before it is seen.  Sets short.
put_build() {
    short=$(echo "$3" | cut -c1-16)
    chmod 0755 "$2"
    chmod 0644 "$2"/*
    (
        flock 8 # cli/prune.c takes builds away that are not current
        rm -rf "$out/$1/$short.old"
        if [ -d "$out/$1/$short" ]; then mv "$out/$1/$short" "$out/$1/$short.old"; fi
        mv "$2" "$out/$1/$short"
        rm -rf "$out/$1/$short.old"
        ln -sfn "$short" "$out/$1/current.new"
        mv -T "$out/$1/current.new" "$out/$1/current"
    ) 8>> "$out/.putting"
}
