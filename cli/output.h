/* cli/output.h - results as JSON, or as tables for people.
 *
 * Owns:    nothing; functions that "take" a json_t drop its reference.
 * Thread:  the only one.
 * Text from the service is shown with control characters replaced, so that a label cannot drive
 * the reader's terminal; JSON escapes them anyway.
 */
#ifndef CL_CLI_OUTPUT_H
#define CL_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/util.h"

struct out_col {
    const char *key; /* member of each row */
    const char *title;
};

/* Rows of objects, columns aligned; absent members are "-". */
void out_table(FILE *out, const json_t *rows, const struct out_col *cols, size_t n);
/* Take rows: the array as JSON, or the table.  Answers EXIT_OK. */
int out_rows(bool json, json_t *rows, const struct out_col *cols, size_t n);
/* Take and print one value as JSON. */
int out_json(json_t *value);
/* Take an object: as JSON, or `title  value` lines of these members. */
int out_object(bool json, json_t *object, const struct out_col *cols, size_t n);
/* json_string(), with bad UTF-8 replaced; NULL is "". */
json_t *out_string(const char *s);
/* RFC 3339, or null for 0. */
json_t *out_time(uint64_t unix_ns);

#endif
