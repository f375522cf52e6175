/* trail/tree.c - see trail/tree.h. */
#include "trail/tree.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "audit/record.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"

enum {
    TEXT = 512,
    KEY = 160,
    DEPTH_MAX = 64, /* user code can nest its processes as deep as it likes, and C's stack cannot */
    TIME_AT = 11,   /* of "2026-01-02T03:04:05.123456Z" */
    TIME_LEN = 12,
    FILES_SHOWN = 12,
    CALLS_SHOWN = 8,
};

struct tree {
    json_t *root;   /* owned */
    json_t *places; /* owned: key -> node */
    size_t n;
};

/* One record. */
struct fact {
    struct tree *t;
    const char *ts, *event;
    json_t *fields; /* borrowed */
};

/* --- nodes --------------------------------------------------------------------------------------
 */

static const char *str(const struct fact *f, const char *name)
{
    const char *s = json_string_value(json_object_get(f->fields, name));
    return s ? s : "";
}

static uint64_t num(const struct fact *f, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(f->fields, name));
}

static bool is(const struct fact *f, const char *name)
{
    return json_is_true(json_object_get(f->fields, name));
}

static void set_text(json_t *node, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void set_text(json_t *node, const char *fmt, ...)
{
    char text[TEXT + 4]; /* one character more, so that a cut is between two */
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = cl_utf8_clip(text, strlen(text), TEXT - 1);
    (void)json_object_set_new(node, "text", json_stringn(text, n));
}

static void add_text(json_t *node, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_text(json_t *node, const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    set_text(node, "%s%s", json_string_value(json_object_get(node, "text")), text);
}

static json_int_t depth_of(const json_t *node)
{
    return json_integer_value(json_object_get(node, "depth"));
}

static json_t *child(json_t *parent, const char *ts, const char *what)
{
    json_t *node = json_pack("{s:s, s:s, s:s, s:I, s:[]}", "at", ts, "what", what, "text", "",
                             "depth", depth_of(parent) + 1, "nodes");
    (void)json_array_append_new(json_object_get(parent, "nodes"), node);
    return node;
}

static void put(struct tree *t, const char *key, json_t *node)
{
    (void)json_object_set(t->places, key, node);
}

/* The node of this key, made below `parent` where it is not there yet. */
static json_t *place(const struct fact *f, json_t *parent, const char *what, const char *kind,
                     const char *name)
{
    char key[KEY];
    (void)snprintf(key, sizeof key, "%s %s", kind, name);
    json_t *node = json_object_get(f->t->places, key);
    if (!node) {
        node = child(parent, f->ts, what);
        set_text(node, "%s", strcmp(kind, "group") == 0 ? name : key);
        put(f->t, key, node);
    }
    return node;
}

static json_t *group(const struct fact *f, const char *name)
{
    return place(f, f->t->root, name, "group", name);
}

/* One that says the same at the same place counts once more. */
static void leaf(const struct fact *f, json_t *parent, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void leaf(const struct fact *f, json_t *parent, const char *what, const char *fmt, ...)
{
    char text[TEXT], key[TEXT + KEY];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(key, sizeof key, "leaf:%p:%s:%s", (void *)parent, what, text);
    json_t *node = json_object_get(f->t->places, key);
    if (!node) {
        node = child(parent, f->ts, what);
        set_text(node, "%s", text);
        (void)json_object_set(node, "fields", f->fields);
        put(f->t, key, node);
    }
    json_int_t times = json_integer_value(json_object_get(node, "times"));
    (void)json_object_set_new(node, "times", json_integer(times + 1));
}

static void join(const struct fact *f, const char *name, char out[static TEXT])
{
    const json_t *list = json_object_get(f->fields, name);
    size_t i, n = 0;
    json_t *one;
    out[0] = '\0';
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        const char *s = json_string_value(one);
        int k = n < TEXT ? snprintf(out + n, TEXT - n, "%s%s", i ? " " : "", s ? s : "?") : 0;
        n += k > 0 ? (size_t)k : 0;
    }
}

/* --- what the tenant asked for ------------------------------------------------------------------
 */

static void unit_admit(const struct fact *f)
{
    json_t *root = f->t->root;
    const char *fork_of = str(f, "fork_of"); /* whose tree tells what its processes did before */
    char argv[TEXT];
    join(f, "argv", argv);
    set_text(root, "%s  %s of %s%s%s%s%s", str(f, "unit"), str(f, "kind"), str(f, "template"),
             fork_of[0] ? ", a copy of " : "", fork_of, argv[0] ? ": " : "", argv);
    (void)json_object_set_new(root, "at", json_string(f->ts));
    (void)json_object_set(root, "fields", f->fields);
}

/* "EXITED 7", "SIGNALED 9"; of other ends the numbers say nothing. */
static void add_outcome(const struct fact *f, json_t *node, const char *before)
{
    const char *outcome = str(f, "outcome");
    if (strcmp(outcome, "EXITED") == 0)
        add_text(node, "%s%s %" PRIu64, before, outcome, num(f, "exit"));
    else if (strcmp(outcome, "SIGNALED") == 0)
        add_text(node, "%s%s %" PRIu64, before, outcome, num(f, "signal"));
    else if (outcome[0])
        add_text(node, "%s%s", before, outcome);
}

static void vm_start(const struct fact *f)
{
    json_t *n = child(f->t->root, f->ts, "vm");
    (void)json_object_set(n, "fields", f->fields);
    set_text(n, "VM %s: %s, %s guest, network %s", str(f, "vm"), str(f, "driver"),
             str(f, "guest_separation"), str(f, "network"));
    if (str(f, "unwatched")[0])
        add_text(n, "; its user code is not watched: %s", str(f, "unwatched"));
    else if (str(f, "calls")[0] && strcmp(str(f, "calls"), "counted") != 0)
        add_text(n, "; its system calls are %s", str(f, "calls"));
}

static void unit_life(const struct fact *f)
{
    const char *reason = str(f, "reason"), *by = str(f, "by"), *to = str(f, "to");
    json_t *n = child(f->t->root, f->ts, "unit");
    (void)json_object_set(n, "fields", f->fields);
    set_text(n, "%s", strchr(f->event, '.') + 1);
    add_outcome(f, n, " ");
    if (reason[0] || by[0])
        add_text(n, "%s %s", by[0] ? " by" : ",", by[0] ? by : reason);
    if (to[0])
        add_text(n, " to %s", to);
    if (json_object_get(f->fields, "recovered"))
        add_text(n, " (told again: a scheduler had died)");
}

static json_t *exec_node(const struct fact *f)
{
    return place(f, f->t->root, "exec", "exec", str(f, "exec"));
}

static void exec_start(const struct fact *f)
{
    char argv[TEXT];
    json_t *n = exec_node(f);
    join(f, "argv", argv);
    set_text(n, "exec %s: %s", str(f, "exec"), argv);
    (void)json_object_set(n, "fields", f->fields);
}

static void exec_end(const struct fact *f)
{
    json_t *n = exec_node(f);
    char out[CL_TEXT_BYTES], err[CL_TEXT_BYTES];
    if (json_object_get(n, "end"))
        return; /* told again, see is_known() */
    cl_text_bytes(num(f, "stdout_bytes"), out);
    cl_text_bytes(num(f, "stderr_bytes"), err);
    add_outcome(f, n, "  [");
    add_text(n, ", stdout %s, stderr %s]", out, err);
    (void)json_object_set(n, "end", f->fields);
}

static void exec_signal(const struct fact *f)
{
    leaf(f, exec_node(f), "signal", "signal %" PRIu64 " by %s", num(f, "signal"), str(f, "by"));
}

static json_t *context_node(const struct fact *f)
{
    return place(f, f->t->root, "context", "code context", str(f, "context"));
}

static void code_run(const struct fact *f)
{
    char digest[13];
    json_t *n = place(f, context_node(f), "cell", "cell", str(f, "cell"));
    (void)snprintf(digest, sizeof digest, "%s", str(f, "code_sha256"));
    set_text(n, "code, %" PRIu64 " bytes, sha256 %s..., by %s", num(f, "bytes"), digest,
             str(f, "by"));
    (void)json_object_set(n, "fields", f->fields);
}

static void code_end(const struct fact *f)
{
    json_t *n = place(f, context_node(f), "cell", "cell", str(f, "cell"));
    add_text(n, "  [%s]", str(f, "outcome"));
    (void)json_object_set(n, "end", f->fields);
}

static void file_moved(const struct fact *f)
{
    char bytes[CL_TEXT_BYTES];
    cl_text_bytes(num(f, "bytes"), bytes);
    leaf(f, group(f, "files"), "file", "%s %s, %s", strchr(f->event, '.') + 1, str(f, "path"),
         bytes);
}

static void file_change(const struct fact *f)
{
    leaf(f, group(f, "files"), "file", "%s %s%s%s", str(f, "op"), str(f, "path"),
         str(f, "to")[0] ? " to " : "", str(f, "to"));
}

/* --- what its processes did ---------------------------------------------------------------------
 */

static json_t *process(const struct fact *f, const char *which)
{
    char key[KEY];
    (void)snprintf(key, sizeof key, "pid:%" PRIu64, num(f, which));
    return json_object_get(f->t->places, key);
}

static json_t *owner(const struct fact *f)
{
    json_t *node = process(f, "pid");
    if (!node)
        node = process(f, "parent");
    if (!node && str(f, "exec")[0])
        node = exec_node(f);
    if (!node && str(f, "context")[0])
        node = context_node(f);
    return node ? node : group(f, "processes");
}

static void guest_exec(const struct fact *f)
{
    char argv[TEXT], key[KEY];
    json_t *parent = owner(f);
    if (depth_of(parent) >= DEPTH_MAX)
        parent = group(f, "deeper");
    json_t *n = child(parent, f->ts, "process");
    join(f, "argv", argv);
    set_text(n, "%" PRIu64 "  %s%s", num(f, "pid"), argv[0] ? argv : str(f, "path"),
             is(f, "cut") ? " ..." : "");
    if (num(f, "uid") == 0)
        add_text(n, "  (root)");
    (void)json_object_set(n, "fields", f->fields);
    (void)snprintf(key, sizeof key, "pid:%" PRIu64, num(f, "pid"));
    put(f->t, key, n);
}

static void guest_write(const struct fact *f)
{
    leaf(f, owner(f), "write", "%s %s", is(f, "created") ? "created" : "wrote", str(f, "path"));
}

static void guest_remove(const struct fact *f)
{
    leaf(f, owner(f), "remove", "removed %s%s", is(f, "folder") ? "folder " : "", str(f, "path"));
}

static void guest_rename(const struct fact *f)
{
    leaf(f, owner(f), "rename", "moved %s to %s", str(f, "path"), str(f, "to"));
}

static void guest_read(const struct fact *f)
{
    leaf(f, owner(f), "read", "read %s", str(f, "path"));
}

static void guest_truncate(const struct fact *f)
{
    leaf(f, owner(f), "truncate", "cut %s to %" PRIu64 " bytes", str(f, "path"), num(f, "size"));
}

static void guest_socket(const struct fact *f)
{
    const char *what = strchr(f->event, '.') + 1;
    if (str(f, "address")[0])
        leaf(f, owner(f), what, "%s %s port %" PRIu64, what, str(f, "address"), num(f, "port"));
    else
        leaf(f, owner(f), what, "%s %s", what, str(f, "path"));
}

static void guest_denied(const struct fact *f)
{
    leaf(f, owner(f), "denied", "denied: system call %s", str(f, "call"));
}

static void guest_trace(const struct fact *f)
{
    leaf(f, owner(f), "trace", "traced process %" PRIu64, num(f, "target"));
}

/* "read=12" -> 12 */
static uint64_t times_of(const char *call)
{
    const char *mark = strrchr(call, '=');
    return mark ? strtoull(mark + 1, NULL, 10) : 0;
}

static int most_frequent_first(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    uint64_t i = times_of(x), j = times_of(y);
    return i == j ? strcmp(x, y) : i < j ? 1 : -1;
}

/* Each tells all since the beginning: the newest stands. */
static void guest_calls(const struct fact *f)
{
    const json_t *list = json_object_get(f->fields, "calls");
    const char *exec = str(f, "exec"), *calls[AUDIT_LIST_MAX];
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < AUDIT_LIST_MAX; i++)
        if ((calls[n] = json_string_value(json_array_get(list, i))) != NULL)
            n++;
    qsort(calls, n, sizeof calls[0], most_frequent_first);
    json_t *node = place(f, owner(f), "calls", "calls", exec[0] ? exec : str(f, "context"));
    set_text(node, "%" PRIu64 " system calls", num(f, "total"));
    for (size_t i = 0; i < CL_MIN(n, (size_t)CALLS_SHOWN); i++)
        add_text(node, "%s%.*s %" PRIu64, i ? ", " : ": ", (int)strcspn(calls[i], "="), calls[i],
                 times_of(calls[i]));
    if (n > CALLS_SHOWN)
        add_text(node, ", ...");
    (void)json_object_set(node, "fields", f->fields);
}

/* How much is told; what is not must be seen. */
static void count(const struct fact *f)
{
    bool net = strncmp(f->event, "net.", 4) == 0;
    uint64_t not_told = num(f, "over") + num(f, "lost") + num(f, "missing");
    json_t *n = place(f, f->t->root, "count", "count", f->event);
    set_text(n, "%s: %" PRIu64 " seen, %" PRIu64 " recorded", net ? "network" : "user code",
             num(f, "seen"), num(f, "recorded"));
    if (not_told)
        add_text(n,
                 ", %" PRIu64 " NOT (over the rate %" PRIu64 ", lost %" PRIu64 ", missing %" PRIu64
                 ")",
                 not_told, num(f, "over"), num(f, "lost"), num(f, "missing"));
    (void)json_object_set(n, "fields", f->fields);
}

/* --- network and ports --------------------------------------------------------------------------
 */

static void net_dns(const struct fact *f)
{
    const char *reason = str(f, "reason");
    leaf(f, group(f, "network"), "dns", "name %s%s%s", str(f, "name"),
         reason[0] ? ", refused: " : "", reason);
}

static json_t *flow(const struct fact *f)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%" PRIu64, num(f, "flow"));
    return place(f, group(f, "network"), "flow", "flow", name);
}

static void net_open(const struct fact *f)
{
    json_t *n = flow(f);
    set_text(n, "%s %s%s%s port %" PRIu64, str(f, "protocol"), str(f, "name"),
             str(f, "name")[0] ? " " : "", str(f, "address"), num(f, "port"));
    (void)json_object_set(n, "fields", f->fields);
}

static void add_bytes(const struct fact *f, json_t *n, const char *end)
{
    char sent[CL_TEXT_BYTES], received[CL_TEXT_BYTES];
    cl_text_bytes(num(f, "sent_bytes"), sent);
    cl_text_bytes(num(f, "received_bytes"), received);
    add_text(n, "  [%s, sent %s, received %s]", end, sent, received);
    (void)json_object_set(n, "end", f->fields);
}

static void net_close(const struct fact *f)
{
    add_bytes(f, flow(f), str(f, "end"));
}

static void net_denied(const struct fact *f)
{
    leaf(f, group(f, "network"), "refused", "refused: %s %s%s%s port %" PRIu64 ": %s",
         str(f, "protocol"), str(f, "name"), str(f, "name")[0] ? " " : "", str(f, "address"),
         num(f, "port"), str(f, "reason"));
}

static void port_link(const struct fact *f)
{
    leaf(f, group(f, "ports"), "link", "a link to port %" PRIu64 " by %s", num(f, "port"),
         str(f, "by"));
}

static json_t *connection(const struct fact *f)
{
    return place(f, group(f, "ports"), "connection", "connection", str(f, "connection"));
}

static void port_open(const struct fact *f)
{
    json_t *n = connection(f);
    set_text(n, "port %" PRIu64 " by %s%s", num(f, "port"), is(f, "link") ? "a link of " : "",
             str(f, "by"));
    (void)json_object_set(n, "fields", f->fields);
}

static void port_close(const struct fact *f)
{
    add_bytes(f, connection(f), str(f, "end"));
}

/* --- the whole ----------------------------------------------------------------------------------
 */

static const struct {
    const char *event;
    void (*add)(const struct fact *f);
} rows[] = {
    {"unit.admit", unit_admit},     {"unit.requeue", unit_life},
    {"unit.cancel", unit_life},     {"unit.end", unit_life},
    {"unit.pause", unit_life},      {"unit.resume", unit_life},
    {"vm.start", vm_start},         {"exec.start", exec_start},
    {"exec.end", exec_end},         {"exec.signal", exec_signal},
    {"code.run", code_run},         {"code.end", code_end},
    {"file.read", file_moved},      {"file.write", file_moved},
    {"file.change", file_change},   {"guest.exec", guest_exec},
    {"guest.write", guest_write},   {"guest.connect", guest_socket},
    {"guest.remove", guest_remove}, {"guest.rename", guest_rename},
    {"guest.bind", guest_socket},   {"guest.denied", guest_denied},
    {"guest.trace", guest_trace},   {"guest.count", count},
    {"guest.read", guest_read},     {"guest.truncate", guest_truncate},
    {"net.count", count},           {"net.dns", net_dns},
    {"net.open", net_open},         {"net.close", net_close},
    {"net.denied", net_denied},     {"unit.move", unit_life},
    {"port.link", port_link},       {"port.open", port_open},
    {"port.close", port_close},     {"guest.calls", guest_calls},
};

/* It was told again to a scheduler that followed one that died, and that one had written it. */
static bool is_known(const struct fact *f)
{
    char key[KEY];
    if (!json_object_get(f->fields, "number"))
        return false;
    (void)snprintf(key, sizeof key, "number:%.4s:%" PRIu64, f->event, num(f, "number"));
    if (is(f, "again") && json_object_get(f->t->places, key))
        return true;
    (void)json_object_set_new(f->t->places, key, json_true());
    return false;
}

void tree_add(struct tree *t, const char *ts, const char *event, const json_t *fields)
{
    struct fact f = {t, ts, event, (json_t *)(uintptr_t)fields};
    t->n++;
    if (is_known(&f))
        return;
    for (size_t i = 0; i < CL_COUNT(rows); i++)
        if (strcmp(rows[i].event, event) == 0)
            rows[i].add(&f);
}

size_t tree_records(const struct tree *t)
{
    return t->n;
}

const json_t *tree_root(const struct tree *t)
{
    return t->root;
}

/* What a process does in masses. */
static const struct {
    const char *what, *words;
} uses[] = {{"read", "files read"},
            {"write", "files written"},
            {"truncate", "files cut"},
            {"rename", "moved"},
            {"remove", "removed"}};

/* Of each of them the first FILES_SHOWN, and how many others there are; owned by the caller. */
static json_t *shown(const json_t *nodes, bool all)
{
    json_t *out = json_array(), *one;
    size_t n[CL_COUNT(uses)] = {0}, i;
    json_array_foreach((json_t *)(uintptr_t)nodes, i, one)
    {
        const char *what = json_string_value(json_object_get(one, "what"));
        size_t kind = 0;
        while (kind < CL_COUNT(uses) && strcmp(uses[kind].what, what) != 0)
            kind++;
        if (all || kind == CL_COUNT(uses) || n[kind]++ < FILES_SHOWN)
            (void)json_array_append(out, one);
    }
    for (i = 0; i < CL_COUNT(uses); i++)
        if (n[i] > FILES_SHOWN)
            (void)json_array_append_new(
                out, json_pack("{s:s, s:s, s:o, s:i, s:[]}", "at", "", "what", "more", "text",
                               json_sprintf("... and %zu more %s (--all)", n[i] - FILES_SHOWN,
                                            uses[i].words),
                               "depth", DEPTH_MAX, "nodes"));
    return out;
}

/* A cell of a table is cut at 512 bytes, too: what nobody could read is in --json. */
static void print_node(const json_t *node, FILE *out, const char *before, bool last, bool all)
{
    bool is_root = depth_of(node) == 0;
    char text[TEXT], deeper[4 * DEPTH_MAX + 64];
    const char *at = json_string_value(json_object_get(node, "at"));
    json_int_t times = json_integer_value(json_object_get(node, "times"));
    json_t *nodes = shown(json_object_get(node, "nodes"), all), *one;
    size_t i, n = json_array_size(nodes);
    cl_text_clean(json_string_value(json_object_get(node, "text")), text, sizeof text);
    (void)fprintf(out, "%-*.*s  %s%s%s", TIME_LEN, TIME_LEN,
                  at && strlen(at) > TIME_AT ? at + TIME_AT : "", before,
                  is_root ? ""
                  : last  ? "`- "
                          : "|- ",
                  text);
    if (times > 1)
        (void)fprintf(out, "  x %" JSON_INTEGER_FORMAT, times);
    (void)fputc('\n', out);
    (void)snprintf(deeper, sizeof deeper, "%s%s", before, is_root ? "" : last ? "   " : "|  ");
    json_array_foreach(nodes, i, one) print_node(one, out, deeper, i + 1 == n, all);
    json_decref(nodes);
}

void tree_print(const struct tree *t, bool all, FILE *out)
{
    print_node(t->root, out, "", true, all);
}

int tree_new(const char *unit, struct tree **ret_tree, struct cl_err *err)
{
    struct tree *t = cl_zalloc(sizeof *t);
    if (!t)
        return cl_fail(err, CL_E_NOMEM, 0, "tree");
    t->places = json_object();
    t->root = json_pack("{s:s, s:s, s:s, s:i, s:[]}", "at", "", "what", "unit", "text", unit,
                        "depth", 0, "nodes");
    *ret_tree = t;
    return 0;
}

void tree_free(struct tree *t)
{
    if (!t)
        return;
    json_decref(t->places);
    json_decref(t->root);
    cl_free(t);
}
