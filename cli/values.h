/* cli/values.h - the small languages of the command line: K=V, ID:/path, 10/s, 5m ago, and what a
 * result's exit code is.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure.
 */
#ifndef CL_CLI_VALUES_H
#define CL_CLI_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/common.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"

enum {
    VALUE_NAME = 256,
    VALUE_TEXT = 32,
    VALUE_SCOPES = 8, /* of a key */
    VALUE_SCOPES_TEXT = 256,
};

/* "NAME=VALUE" -> the name, and where the value begins; INVALID without a name or `=`. */
int value_pair(const char *text, char name[static VALUE_NAME], const char **ret_value,
               struct cl_err *err) CL_MUST;

/* "ID:/path" or a plain path.  Only sbx_ ids count as remote, so `a:b` stays a file name. */
struct value_place {
    char sandbox[64]; /* "" = on this machine */
    const char *path; /* borrowed from the text */
};
int value_place(const char *text, struct value_place *ret, struct cl_err *err) CL_MUST;

/* "10/s", "5/m", "100/h" -> microseconds between two. */
int value_rate(const char *text, uint64_t *ret_interval_us, struct cl_err *err) CL_MUST;

/* "10m" (ago), "2026-01-02", "2026-01-02T03:04:05Z" -> ns since 1970. */
int value_time(const char *text, uint64_t now_wall_ns, uint64_t *ret_ns,
               struct cl_err *err) CL_MUST;

/* "end", "pause", "pause-until-resumed"; NULL = what the service does by itself. */
struct value_idle {
    Cloche__V1__IdleAction action;
    bool wakes; /* by the next use */
};
int value_idle(const char *text, struct value_idle *ret, struct cl_err *err) CL_MUST;

/* "run,audit" -> words, which point into `copy`. */
int value_scopes(const char *text, char copy[static VALUE_SCOPES_TEXT],
                 char *list[static VALUE_SCOPES], size_t *ret_n, struct cl_err *err) CL_MUST;

/* "0.4 us", "23.9 us", "1234.5 us". */
void value_us_text(uint64_t ns, char out[static VALUE_TEXT]);
/* "4 s", "3 min", "2 h", "5 d". */
void value_age_text(uint64_t ns, char out[static VALUE_TEXT]);

/* The exit code of `run` and `exec` for a result. */
int value_exit_code(const Cloche__V1__ExecResult *r);
/* "running", "exited", "worker lost": enum names for people and JSON. */
const char *value_state(int state);
const char *value_outcome(int outcome);
const char *value_reason(int reason);
/* The words of value_idle(). */
const char *value_idle_name(int action, bool wakes);
/* Of a guest: "isolated", "shared"; "" while there is none. */
const char *value_separation(int separation);

#endif
