/* cli/top.c - `cloche top`: what runs now, and what each of it uses.
 *
 * Owns:    nothing.
 * Limits:  TOP_UNITS_MAX are asked what they use, sandboxes first; of more their number is told.
 *          Without it one look at a tenant with thousands of them would ask for each.
 * Thread:  the only one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sample.h"
#include "cli/tty.h"
#include "cli/values.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "proto/copy.h"

enum {
    TOP_PAGE = 500,
    TOP_UNITS_MAX = 1000,
    TOP_INTERVAL_S = 2,
    TOP_TIMEOUT_S = 10, /* a guest that does not answer is waited for some 5 s by its worker */
    TOP_HEAD_LINES = 3, /* above and below the rows of a screen */
};

/* --- what runs -------------------------------------------------------------------------------- */

static void add_unit(json_t *rows, const char *kind, const char *id, const char *template,
                     uint64_t since_ns)
{
    char age[VALUE_TEXT] = "";
    uint64_t now = cl_wall_ns();
    value_age_text(now > since_ns ? now - since_ns : 0, age);
    (void)json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:o, s:s}", "id", id, "kind", kind,
                                                "template", template, "created", out_time(since_ns),
                                                "age", age));
}

static int jobs_page(struct client *client, char token[static VALUE_NAME], json_t *rows,
                     struct cl_err *err)
{
    static const struct client_method list = CLIENT_METHOD("JobService", "List", list_response);
    Cloche__V1__ListRequest req = CLOCHE__V1__LIST_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = TOP_PAGE;
    req.page_token = token;
    req.state = CLOCHE__V1__UNIT_STATE__UNIT_STATE_RUNNING;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__ListResponse *m = (const Cloche__V1__ListResponse *)msg;
    for (size_t i = 0; i < m->n_jobs; i++) {
        const Cloche__V1__Job *j = m->jobs[i];
        add_unit(rows, "job", j->id, j->spec ? j->spec->template_ : "",
                 j->created ? j->created->unix_ns : 0);
    }
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int sandboxes_page(struct client *client, char token[static VALUE_NAME], json_t *rows,
                          struct cl_err *err)
{
    static const struct client_method list =
        CLIENT_METHOD("SandboxService", "List", sandbox_service_list_response);
    Cloche__V1__SandboxServiceListRequest req = CLOCHE__V1__SANDBOX_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = TOP_PAGE;
    req.page_token = token;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__SandboxServiceListResponse *m =
        (const Cloche__V1__SandboxServiceListResponse *)msg;
    for (size_t i = 0; i < m->n_sandboxes; i++) {
        const Cloche__V1__Sandbox *s = m->sandboxes[i];
        if (s->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_RUNNING)
            add_unit(rows, "sandbox", s->id, s->template_, s->created ? s->created->unix_ns : 0);
    }
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int list_units(struct client *client, json_t *rows, struct cl_err *err)
{
    static int (*const lists[])(struct client *, char[static VALUE_NAME], json_t *,
                                struct cl_err *) = {sandboxes_page, jobs_page};
    for (size_t i = 0; i < CL_COUNT(lists); i++) {
        char token[VALUE_NAME] = "";
        do {
            if (lists[i](client, token, rows, err) < 0)
                return -1;
        } while (token[0]);
    }
    return 0;
}

/* --- what it uses ----------------------------------------------------------------------------- */

static void fill(json_t *row, const Cloche__V1__UsageResponse *usage)
{
    const Cloche__V1__UsageSample *s = usage->samples[usage->n_samples - 1];
    (void)json_object_update_new(row, sample_json(s));
    (void)json_object_set_new(row, "vcpus", json_integer(usage->vcpus));
    (void)json_object_set_new(row, "cpu", json_sprintf("%.1f%%", sample_cpu_percent(s)));
    (void)json_object_set_new(row, "memory",
                              sample_of_text(s->memory_used_bytes, s->memory_total_bytes));
    (void)json_object_set_new(row, "disk",
                              sample_of_text(s->scratch_used_bytes, s->scratch_total_bytes));
}

/* What has ended or gone to rest meanwhile runs no more.  What does not tell what it uses stays. */
static bool is_gone(const struct client_ask *a)
{
    return !a->reply && (a->err.code == CL_E_NOTFOUND || a->err.code == CL_E_STATE);
}

/* Takes the units; what is left of them, with what they use. */
static json_t *ask_units(struct client *client, json_t *units, struct cl_err *err)
{
    static const struct client_method method =
        CLIENT_METHOD("SandboxService", "Usage", usage_response);
    size_t n = json_array_size(units);
    json_t *rows = json_array();
    CL_AUTO(cl_freep) struct client_ask *asks = cl_zalloc((n + 1) * sizeof *asks);
    CL_AUTO(cl_freep) Cloche__V1__UsageRequest *reqs = cl_zalloc((n + 1) * sizeof *reqs);
    if (!rows || !asks || !reqs) {
        json_decref(units);
        json_decref(rows);
        (void)cl_fail(err, CL_E_NOMEM, 0, "%zu units", n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        cloche__v1__usage_request__init(&reqs[i]);
        reqs[i].unit_id =
            pb_text(json_string_value(json_object_get(json_array_get(units, i), "id")));
        asks[i].request = &reqs[i].base;
    }
    client_unary_all(client, &method, asks, n, TOP_TIMEOUT_S * CL_NS_PER_S);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(units, i);
        const Cloche__V1__UsageResponse *usage = (const Cloche__V1__UsageResponse *)asks[i].reply;
        if (usage && usage->n_samples > 0)
            fill(row, usage);
        else
            (void)json_object_set_new(row, "error", out_string(asks[i].err.text));
        if (!is_gone(&asks[i]))
            (void)json_array_append(rows, row);
        pb_free(asks[i].reply);
    }
    json_decref(units);
    return rows;
}

/* --- in order --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *key;
} orders[] = {{"cpu", "cpu_percent"},
              {"memory", "memory_used_bytes"},
              {"disk", "scratch_used_bytes"},
              {"processes", "processes"}};

static int find_order(const char *name, const char **ret_key, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(orders); i++)
        if (strcmp(orders[i].name, name ? name : "cpu") == 0) {
            *ret_key = orders[i].key;
            return 0;
        }
    return cl_fail(err, CL_E_INVALID, 0, "--sort %s: it is cpu, memory, disk or processes", name);
}

struct place {
    double value;
    size_t at; /* what is the same stays as it was */
    json_t *row;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Takes the rows. */
static json_t *sorted(json_t *rows, const char *key)
{
    size_t n = json_array_size(rows);
    json_t *out = json_array();
    CL_AUTO(cl_freep) struct place *places = cl_zalloc((n + 1) * sizeof *places);
    if (!out || !places) {
        json_decref(out);
        return rows;
    }
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(rows, i);
        places[i] = (struct place){json_number_value(json_object_get(row, key)), i, row};
    }
    qsort(places, n, sizeof *places, compare);
    for (size_t i = 0; i < n; i++)
        (void)json_array_append(out, places[i].row);
    json_decref(rows);
    return out;
}

/* --- on a screen ------------------------------------------------------------------------------ */

static void print_head(FILE *out, const json_t *rows, size_t n_running)
{
    char clock[16], memory[VALUE_TEXT], disk[VALUE_TEXT];
    time_t now = (time_t)(cl_wall_ns() / CL_NS_PER_S);
    struct tm tm = {0};
    double cpu = 0, bytes = 0, scratch = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        cpu += json_number_value(json_object_get(row, "cpu_percent"));
        bytes += json_number_value(json_object_get(row, "memory_used_bytes"));
        scratch += json_number_value(json_object_get(row, "scratch_used_bytes"));
    }
    cl_text_bytes((uint64_t)bytes, memory);
    cl_text_bytes((uint64_t)scratch, disk);
    (void)strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &tm));
    (void)fprintf(out, "%s  %zu running: CPU %.1f%%, memory %s, disk %s\n", clock, n_running, cpu,
                  memory, disk);
}

static void cut(json_t *rows, size_t lines)
{
    for (size_t i = json_array_size(rows); i > lines; i--)
        (void)json_array_remove(rows, i - 1);
}

/* Takes the rows. */
static void print_rows(FILE *out, json_t *rows, size_t n_running, size_t lines)
{
    static const struct out_col cols[] = {
        {"id", "ID"},     {"template", "TEMPLATE"},   {"cpu", "CPU"}, {"memory", "MEMORY"},
        {"disk", "DISK"}, {"processes", "PROCESSES"}, {"age", "AGE"}};
    print_head(out, rows, n_running);
    cut(rows, lines);
    out_table(out, rows, cols, CL_COUNT(cols));
    if (n_running > json_array_size(rows))
        (void)fprintf(out, "... and %zu more\n", n_running - json_array_size(rows));
    json_decref(rows);
}

/* Over what stood there, without a flash; no line is wider than the screen. */
static void put_screen(const char *text, uint32_t columns)
{
    (void)fputs("\033[H", stdout);
    for (const char *end; *text; text = end + 1) {
        end = strchrnul(text, '\n');
        uint32_t width = 0;
        for (const char *p = text; p < end; p++) {
            width += ((unsigned char)*p & 0xc0) != 0x80;
            if (width < columns)
                (void)putchar(*p);
        }
        (void)fputs("\033[K\n", stdout);
        if (!*end)
            break;
    }
    (void)fputs("\033[J", stdout);
}

/* Takes the rows.  Lines are for programs that read them one by one. */
static void show_json(json_t *rows, size_t n_running, bool again)
{
    json_t *one = json_pack("{s:o, s:I, s:o}", "at", out_time(cl_wall_ns()), "running",
                            (json_int_t)n_running, "units", rows);
    (void)json_dumpf(one, stdout, again ? JSON_COMPACT : JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(one);
}

/* Takes the rows. */
static void show_screen(json_t *rows, size_t n_running, size_t lines)
{
    uint32_t height, columns;
    char *text = NULL;
    size_t size = 0, fit;
    tty_size(&height, &columns);
    fit = height > TOP_HEAD_LINES ? height - TOP_HEAD_LINES : 1;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        json_decref(rows);
        return;
    }
    print_rows(out, rows, n_running, CL_MIN(lines, fit));
    (void)fclose(out);
    put_screen(text, columns);
    free(text);
}

/* Takes the rows. */
static void show(const struct cli_opts *o, json_t *rows, size_t n_running, bool again)
{
    size_t lines = o->lines ? o->lines : SIZE_MAX;
    if (o->json) {
        cut(rows, lines);
        show_json(rows, n_running, again);
    } else if (again && isatty(STDOUT_FILENO)) {
        show_screen(rows, n_running, lines);
    } else {
        print_rows(stdout, rows, n_running, lines);
    }
    (void)fflush(stdout);
}

/* --- the command ------------------------------------------------------------------------------ */

static int look(const struct cli_opts *o, struct client *client, const char *key, bool again,
                struct cl_err *err)
{
    json_t *units = json_array();
    if (list_units(client, units, err) < 0) {
        json_decref(units);
        return -1;
    }
    size_t n = json_array_size(units);
    cut(units, TOP_UNITS_MAX);
    json_t *rows = ask_units(client, units, err);
    if (!rows)
        return -1;
    size_t gone = CL_MIN(n, (size_t)TOP_UNITS_MAX) - json_array_size(rows);
    show(o, sorted(rows, key), n - gone, again);
    return ferror(stdout) ? cl_fail(err, CL_E_SYS, errno, "standard output") : 0;
}

static int cmd_top(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    const char *key = NULL;
    bool again = !o->once && (o->interval || (isatty(STDOUT_FILENO) && !o->json));
    uint64_t ns = o->interval ? o->interval : TOP_INTERVAL_S * CL_NS_PER_S;
    struct timespec interval = {(time_t)(ns / CL_NS_PER_S), (long)(ns % CL_NS_PER_S)};
    CL_AUTO(client_freep) struct client *client = NULL;
    if (find_order(o->sort, &key, &err) < 0 || client_open(o, &client, &err) < 0)
        return cli_report(&err);
    if (again && !o->json && isatty(STDOUT_FILENO))
        (void)fputs("\033[2J", stdout);
    do {
        if (look(o, client, key, again, &err) < 0)
            return cli_report(&err);
    } while (again && nanosleep(&interval, NULL) == 0);
    return EXIT_OK;
}

static const struct arg_opt top_opts[] = {
    OPT_JSON,
    {"sort", 0, ARG_STRING, OPT(sort), "WHAT", "by cpu, memory, disk or processes (default: cpu)"},
    {"lines", 'n', ARG_U64, OPT(lines), "N", "only the first N"},
    {"once", 0, ARG_FLAG, OPT(once), NULL, "one look"},
    {"interval", 0, ARG_DURATION, OPT(interval), "D", "look again after so long (default: 2s)"}};

const struct cli_command top_commands[] = {
    {"top", "[--sort WHAT] [-n N] [--once] [--interval D] [--json]",
     "what runs now, and what each of it uses",
     "Running sandboxes and jobs of the key's tenant, what uses most first.  On a terminal until "
     "it is\n"
     "interrupted; one look with --once, --json or into a pipe, unless --interval is given: then a "
     "line\n"
     "of JSON each time.  100% CPU: one vCPU computes, since the look before or, in the first "
     "look,\n"
     "over the newest 5 seconds in which it did something.  Memory is without the page cache.  "
     "Looking\n"
     "renews no time to live.  docs/usage.md tells more.\n\n"
     "  cloche top\n"
     "  cloche top --sort memory -n 5 --once\n"
     "  cloche top --json | jq '.units[] | select(.cpu_percent > 90) | .id'\n",
     SPEC(top_opts, 0, 0), cmd_top, false},
};
const size_t top_commands_n = CL_COUNT(top_commands);
