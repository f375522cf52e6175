# images/extract-vmlinux.sh - the ELF file in a bzImage; to be read by a script that has die().
extract_vmlinux() { # extract_vmlinux BZIMAGE OUT; offsets: Documentation/x86/boot.rst
    number() { od -An -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }
    start=$((($(number "$1" 497 1) + 1) * 512 + $(number "$1" 584 4)))
    length=$(($(number "$1" 588 4) - 4)) # the last 4 bytes are the size, not part of the stream
    magic=$(od -An -t x1 -j $start -N 4 "$1" | tr -d ' ')
    case $magic in
    fd377a58) unpack="xz -dc" ;;
    1f8b*) unpack="gzip -dc" ;;
    28b52ffd) unpack="zstd -dcq" ;;
    02214c18) unpack="lz4 -dcq" ;;
    *) die "the kernel is packed in an unknown way ($magic)" ;;
    esac
    tail -c +$((start + 1)) "$1" | head -c $length | $unpack > "$2"
    [ "$(od -An -t x1 -N 4 "$2" | tr -d ' ')" = 7f454c46 ] || die "no ELF file came out of the kernel"
}
