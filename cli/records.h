/* cli/records.h - records of the audit log for a command: from its folder, or from the service.
 *
 * From the folder where --dir names it; else from the service where the environment names one
 * (CLOCHE_ENDPOINT, CLOCHE_API_KEY, CLOCHE_KEY_FILE); else from this instance's folder where that
 * can be read; else from the service.
 *
 * Owns:    the walk or the client.
 * Borrows: the options.
 * Thread:  the only one; blocks on the disk or the service.
 */
#ifndef CL_CLI_RECORDS_H
#define CL_CLI_RECORDS_H

#include "base/own.h"
#include "cli/cli.h"
#include "cli/paths.h"
#include "trail/walk.h"

enum { RECORDS_ALL = 0 };

struct records;
/* newest: only the newest so many, RECORDS_ALL = all.  The options say the rest: tenant, stream,
 * unit, event, all, follow, since, until. */
int records_open(const struct cli_opts *o, size_t newest, struct records **ret_records,
                 struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void records_close(struct records *rs);
CL_DEFINE_AUTO(struct records, records_close)
/* Instead of --since; ns since 1970. */
void records_since(struct records *rs, uint64_t ns);

/* Of these streams nothing before these places, which are borrowed until the next call. */
void records_from(struct records *rs, const struct walk_place *places, size_t n);
/* The public key that the log is signed with, PEM; the caller's by cl_free(). */
int records_key(struct records *rs, char **ret_pem, struct cl_err *err) CL_MUST;

/* All that is written, once. */
int records_read(struct records *rs, walk_fn *fn, void *arg, struct cl_err *err) CL_MUST;
/* The same, and then what comes, until fn or `round` answers -1; that is called (it may be NULL)
 * each time that all which was written has been told. */
typedef int records_round_fn(void *arg, struct cl_err *err);
int records_follow(struct records *rs, walk_fn *fn, records_round_fn *round, void *arg,
                   struct cl_err *err) CL_MUST;

/* The folder that is meant, whether it can be read or not. */
int records_dir(const struct cli_opts *o, char out[static PATH_TEXT], struct cl_err *err) CL_MUST;

#endif
