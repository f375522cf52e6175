/* cli/cell.h - one cell of code in a sandbox's context, shown as it runs or told as JSON.
 *
 * Owns:    for the time of the call: the stream.
 * Borrows: the client, the texts.
 * Thread:  the only one.
 */
#ifndef CL_CLI_CELL_H
#define CL_CLI_CELL_H

#include <jansson.h>

#include "cli/client.h"
#include "cloche/v1/code.pb-c.h"

struct cell_spec {
    const char *sandbox;
    Cloche__V1__Language language;
    uint64_t timeout_ns;
    bool json;        /* one object on stdout at the end; else output as it comes */
    const char *save; /* folder for images and other bytes that a terminal cannot show; or NULL */
};

/* UNSPECIFIED for a name that is none. */
Cloche__V1__Language cell_language(const char *name);
/* "" for one that is none. */
const char *cell_language_name(Cloche__V1__Language language);
const char *cell_outcome_text(Cloche__V1__CellOutcome outcome);
/* What a command ends with whose code ended so: 0, 1 for an error of the code (or its own status),
 * 124 at the time limit, 130 when interrupted. */
int cell_exit_code(Cloche__V1__CellOutcome outcome, int status);
/* The caller's; null for NULL. */
json_t *cell_error_json(const Cloche__V1__CellError *e);
/* On stderr, for people. */
void cell_show_error(const Cloche__V1__CellError *e);
/* Run it.  -1: Cloche failed or refused; otherwise *ret_code is the exit code. */
int cell_run(struct client *client, const struct cell_spec *spec, const char *code, int *ret_code,
             struct cl_err *err) CL_MUST;
/* ^C: interrupt the cell that runs; from a callback of the loop. */
void cell_interrupt(struct client *client, const struct cell_spec *spec);

#endif
