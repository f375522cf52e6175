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
__cloche_running= __cloche_status=0 __cloche_code= __cloche_back=

# __cloche_frame KIND OUTCOME STATUS
__cloche_end() {
    local hex
    printf -v hex '\\x%02x\\x%02x' "$1" "$2"
    printf "\x05\x00\x00\x00\x04$hex\x00\x00\x00" >&3
}

# __cloche_set NAME=VALUE ...: for this cell only.  __cloche_back, newest first, puts back what was
# there; `declare -p` has quoted it.  Locals have names that no cell's variable has.
__cloche_set() {
    local __cloche_pair __cloche_name __cloche_old __cloche_unset
    for __cloche_pair; do
        __cloche_name=${__cloche_pair%%=*}
        __cloche_old=$(declare -p "$__cloche_name" 2>/dev/null) || __cloche_old=
        __cloche_old=${__cloche_old#declare }
        if [[ ${__cloche_old%% *} == *r* ]]; then # to touch it ends a shell with set -e
            echo "bash: $__cloche_name: readonly variable" >&2
            continue
        fi
        __cloche_unset="unset -n $__cloche_name; unset -v $__cloche_name"
        __cloche_back="$__cloche_unset${__cloche_old:+ && declare -g $__cloche_old}; $__cloche_back"
        eval "$__cloche_unset" # as an integer, an array or a reference it would not take the value as it is
        export -- "$__cloche_pair"
    done
}

__cloche_restore() {
    eval "$__cloche_back" 2>/dev/null || :
    __cloche_back=
}

# Wait for a cell; the status is that of the cell before, for its $?.
__cloche_next() {
    local __cloche_verb __cloche_count __cloche_bytes __cloche_pair __cloche_pairs=()
    __cloche_restore
    if [ -n "$__cloche_running" ]; then # ^C brought us here
        __cloche_running= __cloche_status=130
        __cloche_end 3 130
    fi
    while IFS=' ' read -r -u 3 __cloche_verb __cloche_count __cloche_bytes || exit 0; do
        case $__cloche_verb in
        seed) # a clone has a name of its own, and random numbers
            RANDOM=$((16#${__cloche_count:0:7}))
            IFS= read -r HOSTNAME < /proc/sys/kernel/hostname
            ;;
        env)
            LC_ALL=C IFS= read -r -N "$__cloche_count" -u 3 __cloche_pair
            __cloche_pairs+=("$__cloche_pair")
            ;;
        *) LC_ALL=C IFS= read -r -N "$__cloche_bytes" -u 3 __cloche_code && break ;;
        esac
    done
    __cloche_running=1
    printf '\x00\x00\x00\x00\x05' >&3
    __cloche_set "${__cloche_pairs[@]}"
    return "$__cloche_status"
}

__cloche_done() {
    __cloche_restore
    __cloche_status=$1 __cloche_running=
    __cloche_end "$(($1 == 0 ? 1 : 2))" "$1"
}

exec < <(trap '' INT; exec yes '__cloche_next; eval "$__cloche_code" 3>&- </dev/null; __cloche_done "$?"')
printf '\x00\x00\x00\x00\x01' >&3
