/* scheduler/call_text.h - the cell that calls a function: its entry and arguments checked, and as
 * code of its language.  Pure.
 *
 * What the cell shows is told by media types, CALL_MIME and then one of
 *   result                     what it returned, as JSON
 *   error, value, traceback    what it raised
 *   refused                    there is no such entry
 *   found                      there is one (a cell that only looks)
 *
 * Limit:   CALL_ARGUMENTS_MAX, CALL_DEPTH, CALL_ENTRY_MAX; without them one request could fill the
 *          scheduler's memory or stack, and more than a guest takes as one cell.
 */
#ifndef CL_SCHEDULER_CALL_TEXT_H
#define CL_SCHEDULER_CALL_TEXT_H

#include "base/buf.h"
#include "cloche/v1/code.pb-c.h"

#define CALL_MIME "application/x-cloche-"

enum {
    CALL_ARGUMENTS_MAX = 256 * 1024,
    CALL_DEPTH = 64,
    CALL_ENTRY_MAX = 128,
    CALL_TEXT_MAX = 1024 * 1024, /* of one cell */
};

/* INVALID unless it is as FunctionEntry.entry says. */
int call_check_entry(const char *entry, struct cl_err *err) CL_MUST;
/* An entry of a snapshot's name: _ for what it cannot have. */
void call_entry_of_name(const char *name, char entry[static CALL_ENTRY_MAX + 1]);
/* "" or JSON as CallRequest.arguments says; INVALID or TOOBIG with the place of the fault. */
int call_check_arguments(const char *json, struct cl_err *err) CL_MUST;
/* Is there a call in this language?  INVALID. */
int call_check_language(Cloche__V1__Language language, struct cl_err *err) CL_MUST;
/* The cell, with its NUL, appended to `out`; all is checked.  arguments NULL = it only looks
 * whether there is such an entry. */
int call_text(Cloche__V1__Language language, const char *entry, const char *arguments,
              struct cl_buf *out, struct cl_err *err) CL_MUST;

#endif
