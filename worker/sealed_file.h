/* worker/sealed_file.h - a file of worker/rest.h in a record: its name, its key, its lengths.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure.
 */
#ifndef CL_WORKER_SEALED_FILE_H
#define CL_WORKER_SEALED_FILE_H

#include <stdbool.h>

#include "cloche/v1/kept.pb-c.h"
#include "worker/rest.h"

/* m borrows both. */
void sealed_file_fill(Cloche__V1__SealedFile *m, const char *name, struct rest_ticket *ticket);
/* INVALID, with `what` it is, unless it has a name and a key. */
int sealed_file_check(const Cloche__V1__SealedFile *m, const char *what,
                      struct cl_err *err) CL_MUST;
/* Of one that was checked. */
void sealed_file_ticket(const Cloche__V1__SealedFile *m, struct rest_ticket *ret_ticket);

/* Of a file in the record's folder, in `size` bytes with its NUL. */
bool sealed_file_is_name(const char *name, size_t size);
/* SHA-256 in hex. */
bool sealed_file_is_hex(const char *text);

#endif
