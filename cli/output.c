/* cli/output.c - see cli/output.h. */
#include "cli/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/cli.h"
#include "mcp/advice.h"

enum { CELL = 512, COLS_MAX = 16 };

static void join_list(const json_t *list, char out[static CELL])
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(list) && n + 1 < CELL; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        int k = snprintf(out + n, CELL - n, "%s%s", i ? " " : "", s ? s : "?");
        n += k > 0 ? CL_MIN((size_t)k, CELL - n - 1) : 0;
    }
}

static void cell_text(const json_t *v, char out[static CELL])
{
    if (json_is_string(v))
        (void)snprintf(out, CELL, "%s", json_string_value(v));
    else if (json_is_integer(v))
        (void)snprintf(out, CELL, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_boolean(v))
        (void)snprintf(out, CELL, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_array(v))
        join_list(v, out);
    else
        out[0] = '\0';
    if (!out[0])
        (void)snprintf(out, CELL, "-");
    cl_text_clean(out, out, CELL);
}

/* Columns on a screen: bytes that begin a character. */
static size_t text_width(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_cell(FILE *out, const char *text, size_t width, bool last)
{
    (void)fputs(text, out);
    for (size_t n = text_width(text); !last && n < width + 2; n++)
        (void)fputc(' ', out);
    if (last)
        (void)fputc('\n', out);
}

void out_table(FILE *out, const json_t *rows, const struct out_col *cols, size_t n)
{
    size_t width[COLS_MAX];
    char text[CELL];
    CL_ASSERT(n <= COLS_MAX);
    for (size_t c = 0; c < n; c++) {
        width[c] = text_width(cols[c].title);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            cell_text(json_object_get(json_array_get(rows, r), cols[c].key), text);
            width[c] = CL_MAX(width[c], text_width(text));
        }
    }
    for (size_t c = 0; c < n; c++)
        put_cell(out, cols[c].title, width[c], c + 1 == n);
    for (size_t r = 0; r < json_array_size(rows); r++)
        for (size_t c = 0; c < n; c++) {
            cell_text(json_object_get(json_array_get(rows, r), cols[c].key), text);
            put_cell(out, text, width[c], c + 1 == n);
        }
}

int out_json(json_t *value)
{
    (void)json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
    (void)putchar('\n');
    json_decref(value);
    return EXIT_OK;
}

int out_rows(bool json, json_t *rows, const struct out_col *cols, size_t n)
{
    if (json)
        return out_json(rows);
    out_table(stdout, rows, cols, n);
    json_decref(rows);
    return EXIT_OK;
}

int out_object(bool json, json_t *object, const struct out_col *cols, size_t n)
{
    if (json)
        return out_json(object);
    size_t width = 0;
    char text[CELL];
    for (size_t c = 0; c < n; c++)
        width = CL_MAX(width, text_width(cols[c].title));
    for (size_t c = 0; c < n; c++) {
        cell_text(json_object_get(object, cols[c].key), text);
        put_cell(stdout, cols[c].title, width, false);
        put_cell(stdout, text, 0, true);
    }
    json_decref(object);
    return EXIT_OK;
}

json_t *out_string(const char *s)
{
    json_t *v = json_string(s ? s : "");
    if (v)
        return v;
    char *copy = cl_strdup(s);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    v = json_string(copy ? copy : "");
    cl_free(copy);
    return v;
}

json_t *out_time(uint64_t unix_ns)
{
    char text[CL_RFC3339_LEN];
    if (unix_ns == 0)
        return json_null();
    cl_rfc3339(unix_ns, text);
    return json_string(text);
}

/* --- reports ---------------------------------------------------------------------------------- */

int cli_report_as(const struct cl_err *err, int code)
{
    const char *line = strchr(err->text, '\n');
    int n = (int)(line ? (size_t)(line - err->text) : strlen(err->text));
    const char *remedy = line ? line + 1 : cl_err_info(err->code)->remedy;
    if (!line && err->code == CL_E_UNAVAILABLE && strncmp(err->text, "connect ", 8) == 0)
        remedy =
            "start it with `cloche up`, or check CLOCHE_ENDPOINT; `cloche status` shows what runs";
    if (!line && mcp_err_is_paused(err))
        remedy = "cloche sandbox resume SANDBOX";
    (void)fflush(stdout);
    if (n == 0)
        (void)fprintf(stderr, "cloche: %s\n", cl_err_info(err->code)->cause);
    else
        (void)fprintf(stderr, "cloche: %.*s\n", n, err->text);
    if (err->retry_ms)
        (void)fprintf(stderr, "  retry after: %" PRIu64 " ms\n", err->retry_ms);
    (void)fprintf(stderr, "  remedy: %s\n", remedy);
    return code;
}

int cli_report(const struct cl_err *err)
{
    return cli_report_as(err, EXIT_FAILED);
}

void cli_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("cloche: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
}
