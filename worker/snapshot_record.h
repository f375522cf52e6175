/* worker/snapshot_record.h - what a worker notes of a template's snapshot that it leaves to later
 * workers, in bytes and back (cloche.v1.CachedSnapshot), and under which key.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure: no I/O, no clock.  What a record says is within its bounds, or it is refused; that it is
 * true its folder has to see to (the worker's, 0700).
 */
#ifndef CL_WORKER_SNAPSHOT_RECORD_H
#define CL_WORKER_SNAPSHOT_RECORD_H

#include "base/buf.h"
#include "worker/rest.h"
#include "worker/template.h"

enum {
    SNAPSHOT_RECORD_VERSION = 1,
    SNAPSHOT_RECORD_MAX = 4096, /* bytes; it has some 400 */
};

/* Besides the template what its snapshot depends on. */
struct snapshot_recipe {
    char worker[TEMPLATE_HEX]; /* SHA-256 of the program that booted it: which warm-ups run, and how
                                  the agent was spoken to */
    bool watch;                /* its kernel tells what user code does */
};

struct snapshot_file {
    char name[TEMPLATE_FILE_MAX]; /* "" = there is none */
    struct rest_ticket ticket;
};

struct snapshot_record {
    char key[TEMPLATE_HEX], snapshot_key[TEMPLATE_HEX];
    uint64_t tsc_khz;
    struct snapshot_file ram, disk; /* RAM and state; a template without a scratch disk has none */
    bool dials, holds, cell_env;
};

/* Over all that has to be the same where it is used: SHA-256, in hex.  The manifest is in it as a
 * whole, for an image's key is what its builder says. */
void snapshot_record_key(const struct template *t, const struct snapshot_recipe *recipe,
                         char ret_key[static TEMPLATE_HEX]);
int snapshot_record_print(struct snapshot_record *record, struct cl_buf *out,
                          struct cl_err *err) CL_MUST;
/* The record of that key.  UNIMPL for another version, INVALID or TOOBIG for all else that is
 * wrong. */
int snapshot_record_parse(const uint8_t *bytes, size_t n, const char *key,
                          struct snapshot_record *ret_record, struct cl_err *err) CL_MUST;

#endif
