/* base/conf.h - typed configuration from one table: flag > CLOCHE_* > file > default.
 *
 * A program declares its options once, as rows; the same rows give parsing, `--help`,
 * `--check-config` and docs.  An unknown key or a value out of range is an error that names the
 * file and line.
 * Owns:    nothing; values land in the caller's struct, strings in fixed arrays of it.
 * Thread:  start-up, and SIGHUP reloads on the owner's loop.
 */
#ifndef CL_BASE_CONF_H
#define CL_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/util.h"

enum { CL_CONF_ARGS = 128 }; /* words of a command line */
enum { CL_CONF_STR = 512 };  /* size of every string value, with its NUL */

enum cl_conf_type {
    CL_CONF_STRING,   /* char[CL_CONF_STR] */
    CL_CONF_BOOL,     /* bool: yes/no/true/false/1/0 */
    CL_CONF_U64,      /* uint64_t: plain number */
    CL_CONF_BYTES,    /* uint64_t: number with optional KiB MiB GiB (k m g) */
    CL_CONF_DURATION, /* uint64_t ns: number with ns us ms s m h d */
};

struct cl_conf_row {
    const char *section; /* INI section */
    const char *key;     /* INI key; the flag is --key, the variable CLOCHE_<SECTION>_<KEY> */
    enum cl_conf_type type;
    size_t offset;     /* into the values struct */
    const char *def;   /* default, in the syntax of the file */
    uint64_t min, max; /* for the numeric types; max 0 = no bound */
    bool reload;       /* may change by SIGHUP */
    const char *help;
};

/* Set every row's default, then the file (path may be NULL), then the environment, then argv.
 * argv's flags are `--key=value`, `--key value`; *argc/argv keep what was not a flag. */
int cl_conf_load(const struct cl_conf_row *rows, size_t n_rows, void *values, const char *path,
                 int *argc, char **argv, struct cl_err *err) CL_MUST;
/* Take `--config FILE` and `--check-config` out of argv. */
void cl_conf_take_common(int *argc, char **argv, const char **ret_config, bool *ret_check);
/* Load again into `fresh` (same arguments as at start) and take over the rows that may change while
 * the process runs; `values` stays as it is when anything is wrong. */
struct cl_conf_source {
    const struct cl_conf_row *rows;
    size_t n_rows;
    size_t size;      /* of the values struct */
    const char *path; /* may be NULL */
    int argc;
    char **argv;
    /* Rules between options, asked about the values as they would be; NULL = none. */
    int (*check)(const void *values, struct cl_err *err);
};
int cl_conf_reload(const struct cl_conf_source *source, void *values, struct cl_err *err) CL_MUST;
/* An address of this machine only: 127.x, ::1, localhost, with a port. */
bool cl_is_loopback(const char *address);
/* Parse INI text alone into values (pure; the fuzz target). */
int cl_conf_parse(const struct cl_conf_row *rows, size_t n_rows, void *values, const char *name,
                  const char *text, size_t n, struct cl_err *err) CL_MUST;
/* Print a help block, one row an option. */
void cl_conf_help(const struct cl_conf_row *rows, size_t n_rows, FILE *out);

/* The value parsers, for other places with the same syntax. */
int cl_parse_u64(const char *s, uint64_t *ret, struct cl_err *err) CL_MUST;
int cl_parse_bytes(const char *s, uint64_t *ret, struct cl_err *err) CL_MUST;
int cl_parse_duration_ns(const char *s, uint64_t *ret, struct cl_err *err) CL_MUST;

#endif
