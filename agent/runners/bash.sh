# The interpreter of a bash context; the rcfile of an interactive bash without a terminal.
#
# fd 3 is a socket to the agent (proto/code_frame.h).  Interactive, because only then does ^C drop
# what runs and go on with the next line of input; that input is one line for ever, made by yes(1),
# and each turn of it takes one cell.  The cell is evaluated at the top level, not in a function, so
# that what it declares stays.
exec 2>&4 4>&-
set +o history +H +m
unset HISTFILE MAILCHECK PROMPT_COMMAND
PS1= PS2=
__cloche_running= __cloche_status=0 __cloche_code=

# __cloche_frame KIND OUTCOME STATUS
__cloche_end() {
    local hex
    printf -v hex '\\x%02x\\x%02x' "$1" "$2"
    printf "\x05\x00\x00\x00\x04$hex\x00\x00\x00" >&3
}

# Wait for a cell; the status is that of the cell before, for its $?.
__cloche_next() {
    local verb count bytes
    if [ -n "$__cloche_running" ]; then # ^C brought us here
        __cloche_running= __cloche_status=130
        __cloche_end 3 130
    fi
    while IFS=' ' read -r -u 3 verb count bytes || exit 0; do
        case $verb in
        seed) # a clone has a name of its own, and random numbers
            RANDOM=$((16#${count:0:7}))
            IFS= read -r HOSTNAME < /proc/sys/kernel/hostname
            ;;
        *) LC_ALL=C IFS= read -r -N "$bytes" -u 3 __cloche_code && break ;;
        esac
    done
    __cloche_running=1
    return "$__cloche_status"
}

__cloche_done() {
    __cloche_status=$1 __cloche_running=
    __cloche_end "$(($1 == 0 ? 1 : 2))" "$1"
}

exec < <(trap '' INT; exec yes '__cloche_next; eval "$__cloche_code" 3>&- </dev/null; __cloche_done "$?"')
printf '\x00\x00\x00\x00\x01' >&3
