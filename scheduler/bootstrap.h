/* scheduler/bootstrap.h - making keys and tenants; the first ones of an installation.
 *
 * On its first start a scheduler with --bootstrap-key-file makes the tenant `local` and an
 * administrator's key, and writes the key to that file (mode 0600).  While the file is there it
 * does nothing.
 */
#ifndef CL_SCHEDULER_BOOTSTRAP_H
#define CL_SCHEDULER_BOOTSTRAP_H

#include "scheduler/sched_priv.h"

/* A fresh key: its row for the books, and its text (wipe it). */
int key_make(struct sched *s, const char *tenant, const char *note, uint64_t ttl_ns,
             struct books_key *ret_row, char ret_text[static API_KEY_TEXT],
             struct cl_err *err) CL_MUST;
int tenant_write(struct sched *s, const char *name, const struct tenant_limits *limits,
                 const char *guest_separation, books_put_fn *fn, void *arg,
                 struct cl_err *err) CL_MUST;
/* Once the books are open. */
void bootstrap(struct sched *s);
/* 32 secret bytes from the file; made when it is missing. */
int pepper_load(const char *path, uint8_t out[static 32], struct cl_err *err) CL_MUST;

#endif
