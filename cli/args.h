/* cli/args.h - a command line from a table of options.
 *
 * Owns:    nothing; strings are borrowed from argv.
 * Limits:  ARGS_POS positionals, ARGS_LIST repetitions of one option.
 * Thread:  the only one.
 * Pure: no I/O.  Forms: --name VALUE, --name=VALUE, -n VALUE, clusters of flags (-it).  `--` ends
 * the options.  A command with a tail (run, exec) also ends them at the first word after its
 * positionals, so that `cloche run base ls -l` leaves `-l` to ls.
 */
#ifndef CL_CLI_ARGS_H
#define CL_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { ARGS_POS = 8, ARGS_LIST = 128 };

enum arg_type {
    ARG_FLAG,     /* bool */
    ARG_STRING,   /* const char * */
    ARG_U64,      /* uint64_t */
    ARG_BYTES,    /* uint64_t: 512MiB */
    ARG_DURATION, /* uint64_t ns: 30s */
    ARG_LIST,     /* struct arg_list */
};

struct arg_list {
    const char *v[ARGS_LIST];
    size_t n;
};

struct arg_opt {
    const char *name; /* without dashes */
    char letter;      /* or 0 */
    enum arg_type type;
    size_t offset;     /* into the values struct */
    const char *value; /* what --help calls the value */
    const char *help;
};

struct arg_spec {
    const struct arg_opt *opts;
    size_t n_opts;
    size_t min_pos, max_pos;
    bool tail;
};

struct args {
    const char *pos[ARGS_POS];
    size_t n_pos;
    char **tail; /* borrowed from argv: what stood after `--` */
    size_t n_tail;
    bool help; /* --help was given; nothing else was checked */
};

/* "--help" or "-h"? */
bool args_wants_help(const char *word);
/* argv[0] is the first word after the command's name.  INVALID names the word at fault. */
int args_parse(const struct arg_spec *spec, int argc, char **argv, void *values, struct args *ret,
               struct cl_err *err) CL_MUST;

#endif
