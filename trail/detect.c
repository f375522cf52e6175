/* trail/detect.c - see trail/detect.h. */
#include "trail/detect.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "trail/rules.h"

enum built_in {
#define DETECTION(id, name, severity, threshold, window_s, technique, what, then) DETECT_##id,
#include "trail/detections.def"
#undef DETECTION
    DETECT_NR
};

static const struct detection built_in[DETECT_NR] = {
#define DETECTION(id, name, severity, threshold, window_s, technique, what, then) \
    {name, technique, what, then, DETECT_##severity, threshold, window_s},
#include "trail/detections.def"
#undef DETECTION
};

enum { KEY = DETECT_SUBJECT + 32 };
#define DETECTION(id, name, severity, threshold, window_s, technique, what, then) \
    _Static_assert((threshold) >= 1 && (threshold) <= DETECT_OF_MAX, name);
#include "trail/detections.def"
#undef DETECTION

/* The newest values of one subject. */
struct window {
    struct cl_list link; /* of detect->recent */
    const struct detection *which;
    char *value[DETECT_OF_MAX]; /* owned */
    int64_t at_s[DETECT_OF_MAX];
    int64_t last_s;          /* the newest that matched */
    struct finding *finding; /* NULL = not yet; owned by who follows, else by the list */
    char key[KEY];
};

/* A unit that made files. */
struct maker {
    struct cl_list link;  /* of detect->makers */
    struct cl_list files; /* of struct made, oldest first */
    size_t n;
    char unit[DETECT_SUBJECT];
};

struct made {
    struct cl_list link; /* of its maker */
    char key[DETECT_VALUE];
};

struct detect {
    const struct rules *own;       /* borrowed; or NULL */
    struct cl_map *windows;        /* "rule subject" -> struct window, owned */
    struct cl_list recent;         /* of these, what was of use longest ago first */
    struct cl_map *files;          /* "unit path" -> struct made, owned */
    struct cl_map *makers_by_unit; /* -> struct maker, owned */
    struct cl_list makers;         /* of these, who made nothing for longest first */
    struct finding **findings;     /* owned, each */
    size_t n, cap;
    bool follows;
    uint64_t forgotten;
    const struct finding *made; /* by this record */
};

/* One record. */
struct fact {
    struct detect *d;
    const struct detect_record *r;
    int64_t at_s;
};

/* --- windows ------------------------------------------------------------------------------------
 */

static void forget_values(struct window *w)
{
    for (size_t i = 0; i < DETECT_OF_MAX; i++) {
        cl_free(w->value[i]);
        w->value[i] = NULL;
    }
}

/* As if nothing had matched yet. */
static void window_clear(const struct detect *d, struct window *w)
{
    forget_values(w);
    if (d->follows)
        cl_free(w->finding);
    w->finding = NULL;
}

static void window_free(struct detect *d, struct window *w)
{
    (void)cl_map_del(d->windows, w->key);
    cl_list_unlink(&w->link);
    window_clear(d, w);
    cl_free(w);
}

/* What is over by now is no loss, nor is a finding that was told. */
static void make_room(struct detect *d, int64_t now_s)
{
    struct window *w = CL_LIST_ENTRY(d->recent.next, struct window, link);
    bool is_over = w->finding || now_s - w->last_s > w->which->window_s;
    d->forgotten += !is_over;
    window_free(d, w);
}

static struct window *window_new(struct detect *d, const struct detection *which, const char *key,
                                 int64_t now_s)
{
    if (cl_map_count(d->windows) == DETECT_SUBJECTS)
        make_room(d, now_s);
    struct window *w = cl_zalloc(sizeof *w);
    if (!w || cl_map_put(d->windows, key, w, NULL) < 0) {
        cl_free(w);
        d->forgotten++;
        return NULL;
    }
    w->which = which;
    (void)snprintf(w->key, sizeof w->key, "%s", key);
    cl_list_init(&w->link);
    return w;
}

static void window_key(const struct detection *which, const char *subject, char key[static KEY])
{
    (void)snprintf(key, KEY, "%.30s %s", which->name, subject);
}

static struct window *window_of(struct detect *d, const struct detection *which,
                                const char *subject, int64_t now_s)
{
    char key[KEY];
    window_key(which, subject, key);
    struct window *w = cl_map_get(d->windows, key);
    if (!w && !(w = window_new(d, which, key, now_s)))
        return NULL;
    if (d->follows && w->finding && now_s - w->last_s > DETECT_QUIET_S)
        window_clear(d, w);
    w->last_s = now_s;
    cl_list_unlink(&w->link);
    cl_list_push(&d->recent, &w->link);
    return w;
}

/* Note the value; how many different ones are there within the window? */
static unsigned note(struct window *w, unsigned threshold, int64_t window_s, const char *value,
                     int64_t at_s)
{
    size_t slot = 0;
    unsigned n = 0;
    for (size_t i = 0; i < threshold; i++) {
        if (w->value[i] && strcmp(w->value[i], value) == 0) {
            slot = i;
            break;
        }
        if (!w->value[i] || (w->value[slot] && w->at_s[i] < w->at_s[slot]))
            slot = i;
    }
    if (!w->value[slot] || strcmp(w->value[slot], value) != 0) {
        char *copy = cl_strdup(value);
        if (!copy)
            return 0;
        cl_free(w->value[slot]);
        w->value[slot] = copy;
    }
    w->at_s[slot] = at_s;
    for (size_t i = 0; i < threshold; i++)
        n += w->value[i] && (window_s == 0 || at_s - w->at_s[i] <= window_s);
    return n;
}

/* Records are UTF-8; what was put together of them may end within a character. */
static void put(char *out, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);
    while (n > 0 && !cl_utf8_is_valid(text, n))
        n--;
    memcpy(out, text, n);
    out[n] = '\0';
}

static void count(struct finding *f, const struct detect_record *r, const char *value)
{
    f->count++;
    put(f->last, sizeof f->last, r->ts);
    put(f->value, sizeof f->value, value);
}

static struct finding *make(struct detect *d, const struct detection *which, const char *subject,
                            const struct detect_record *r)
{
    struct finding *f = cl_zalloc(sizeof *f);
    if (!f || (!d->follows && cl_grow(&d->findings, &d->cap, d->n + 1, DETECT_SUBJECTS,
                                      sizeof(struct finding *), NULL) < 0)) {
        cl_free(f);
        d->forgotten++;
        return NULL;
    }
    *f = (struct finding){.name = which->name,
                          .technique = which->technique,
                          .what = which->what,
                          .then = which->then,
                          .severity = which->severity,
                          .seq = r->seq,
                          .count = which->threshold - 1};
    put(f->subject, sizeof f->subject, subject);
    put(f->stream, sizeof f->stream, r->stream);
    put(f->first, sizeof f->first, r->ts);
    if (!d->follows)
        d->findings[d->n++] = f;
    d->made = f;
    return f;
}

static void count_hit(const struct fact *f, const struct detection *which, const char *subject,
                      const char *value)
{
    struct window *w = window_of(f->d, which, subject, f->at_s);
    if (!w)
        return;
    if (!w->finding &&
        note(w, which->threshold, which->window_s, value, f->at_s) >= which->threshold) {
        w->finding = make(f->d, which, subject, f->r);
        forget_values(w); /* from now on only their number counts */
    }
    if (w->finding)
        count(w->finding, f->r, value);
}

static void hit(const struct fact *f, enum built_in which, const char *subject, const char *value)
{
    count_hit(f, &built_in[which], subject, value);
}

static bool was_found(const struct fact *f, enum built_in which, const char *subject)
{
    char key[KEY];
    window_key(&built_in[which], subject, key);
    const struct window *w = cl_map_get(f->d->windows, key);
    return w && w->finding;
}

/* --- what records say ---------------------------------------------------------------------------
 */

static const char *str(const struct fact *f, const char *name)
{
    const char *s = json_string_value(json_object_get(f->r->fields, name));
    return s ? s : "";
}

static uint64_t num(const struct fact *f, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(f->r->fields, name));
}

static bool is_one_of(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}

static void denied_call(const struct fact *f)
{
    static const char *const kernel[] = {"bpf",
                                         "perf_event_open",
                                         "userfaultfd",
                                         "kexec_load",
                                         "kexec_file_load",
                                         "init_module",
                                         "finit_module",
                                         "delete_module",
                                         "create_module",
                                         "open_by_handle_at",
                                         "iopl",
                                         "ioperm",
                                         "modify_ldt",
                                         "keyctl",
                                         "add_key",
                                         "request_key",
                                         "name_to_handle_at",
                                         "syslog",
                                         "socket",
                                         "fanotify_init"};
    static const char *const spaces[] = {
        "unshare", "setns",      "clone",  "mount",      "umount2",   "fsopen",       "fsconfig",
        "fsmount", "pivot_root", "fspick", "move_mount", "open_tree", "mount_setattr"};
    const char *call = str(f, "call"), *bare = strncmp(call, "i386:", 5) == 0 ? call + 5 : call;
    if (is_one_of(bare, kernel, CL_COUNT(kernel)))
        hit(f, DETECT_KERNEL_SURFACE, str(f, "unit"), call);
    else if (is_one_of(bare, spaces, CL_COUNT(spaces)))
        hit(f, DETECT_NEW_NAMESPACE, str(f, "unit"), call);
}

static void traced(const struct fact *f)
{
    hit(f, DETECT_PROCESS_INJECTION, str(f, "unit"), str(f, "comm"));
}

static bool is_private(const char *address)
{
    static const struct {
        uint32_t net, mask;
    } nets[] = {{0x0a000000, 0xff000000},
                {0xac100000, 0xfff00000},
                {0xc0a80000, 0xffff0000},
                {0x64400000, 0xffc00000}};
    struct in_addr in;
    if (inet_pton(AF_INET, address, &in) != 1)
        return false;
    for (size_t i = 0; i < CL_COUNT(nets); i++)
        if ((ntohl(in.s_addr) & nets[i].mask) == nets[i].net)
            return true;
    return false;
}

/* A connection that was tried, as the guest's kernel or the host saw it. */
static void went_to(const struct fact *f)
{
    static const char *const metadata[] = {"169.254.169.254", "fd00:ec2::254", "100.100.100.200"};
    char value[DETECT_VALUE];
    const char *address = str(f, "address"), *unit = str(f, "unit");
    if (!address[0] || strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
        return;
    (void)snprintf(value, sizeof value, "%s port %" PRIu64, address, num(f, "port"));
    if (is_one_of(address, metadata, CL_COUNT(metadata)))
        hit(f, DETECT_CLOUD_METADATA, unit, value);
    hit(f, DETECT_PORT_SCAN, unit, value);
    if (is_private(address))
        hit(f, DETECT_PRIVATE_NETWORK, unit, address);
}

/* "x.y.example.org" -> "example.org". */
static const char *base_of(const char *name)
{
    const char *at = name + strlen(name);
    for (int dots = 0; at > name; at--)
        if (at[-1] == '.' && ++dots == 2)
            break;
    return at;
}

static void asked_name(const struct fact *f)
{
    enum { LONG_LABEL = 24 };
    char subject[DETECT_SUBJECT];
    const char *name = str(f, "name");
    if (strcmp(name, "metadata.google.internal") == 0)
        hit(f, DETECT_CLOUD_METADATA, str(f, "unit"), name);
    if (strcspn(name, ".") < LONG_LABEL)
        return;
    (void)snprintf(subject, sizeof subject, "%s", str(f, "unit"));
    size_t n = strlen(subject);
    (void)snprintf(subject + n, sizeof subject - n, " %.30s", base_of(name));
    hit(f, DETECT_DNS_TUNNEL, subject, name);
}

/* `field` has its path. */
static void file_key(const struct fact *f, const char *field, char key[static DETECT_VALUE])
{
    (void)snprintf(key, DETECT_VALUE, "%s %s", str(f, "unit"), str(f, field));
}

/* --- files that units made ----------------------------------------------------------------------
 */

static void maker_free_if_idle(struct detect *d, struct maker *m)
{
    if (m->n > 0)
        return;
    (void)cl_map_del(d->makers_by_unit, m->unit);
    cl_list_unlink(&m->link);
    cl_free(m);
}

static void forget_oldest(struct detect *d, struct maker *m)
{
    struct made *oldest = CL_LIST_ENTRY(m->files.next, struct made, link);
    (void)cl_map_del(d->files, oldest->key);
    cl_list_unlink(&oldest->link);
    cl_free(oldest);
    m->n--;
}

static struct maker *maker_of(struct detect *d, const char *unit)
{
    struct maker *m = cl_map_get(d->makers_by_unit, unit);
    if (!m && (m = cl_zalloc(sizeof *m)) != NULL) {
        (void)snprintf(m->unit, sizeof m->unit, "%s", unit);
        cl_list_init(&m->files);
        cl_list_init(&m->link);
        if (cl_map_put(d->makers_by_unit, m->unit, m, NULL) < 0) {
            cl_free(m);
            m = NULL;
        }
    }
    if (!m)
        return NULL;
    cl_list_unlink(&m->link);
    cl_list_push(&d->makers, &m->link);
    return m;
}

/* Of one unit the oldest makes room; of all, the oldest of the unit that has made nothing for
 * longest. */
static void make_room_for_file(struct detect *d, struct maker *m)
{
    if (m->n == DETECT_FILES_OF_UNIT) {
        d->forgotten++;
        forget_oldest(d, m);
    } else if (cl_map_count(d->files) == DETECT_FILES) {
        struct maker *idle = CL_LIST_ENTRY(d->makers.next, struct maker, link);
        d->forgotten++;
        forget_oldest(d, idle);
        if (idle != m)
            maker_free_if_idle(d, idle);
    }
}

static void note_file(struct detect *d, const char *unit, const char *key)
{
    if (cl_map_get(d->files, key))
        return;
    struct maker *m = maker_of(d, unit);
    if (m)
        make_room_for_file(d, m);
    struct made *file = m ? cl_zalloc(sizeof *file) : NULL;
    if (!file || cl_map_put(d->files, key, file, NULL) < 0) {
        cl_free(file);
        d->forgotten++;
        if (m)
            maker_free_if_idle(d, m);
        return;
    }
    (void)snprintf(file->key, sizeof file->key, "%s", key);
    cl_list_push(&m->files, &file->link);
    m->n++;
}

static void wrote(const struct fact *f)
{
    char key[DETECT_VALUE];
    file_key(f, "path", key);
    if (json_is_true(json_object_get(f->r->fields, "created")))
        note_file(f->d, str(f, "unit"), key);
}

/* What was made here is that under its new name, too. */
static void renamed(const struct fact *f)
{
    char key[DETECT_VALUE], subject[DETECT_SUBJECT];
    const char *path = str(f, "path"), *to = str(f, "to");
    file_key(f, "path", key);
    if (cl_map_get(f->d->files, key)) {
        file_key(f, "to", key);
        note_file(f->d, str(f, "unit"), key);
    }
    size_t n = strlen(path);
    if (strncmp(path, to, n) != 0 || to[n] != '.' || strchr(to + n, '/'))
        return;
    const char *ending = to + n;
    (void)snprintf(subject, sizeof subject, "%.*s %.30s", DETECT_SUBJECT - 32, str(f, "unit"),
                   ending);
    hit(f, DETECT_SAME_ENDING, subject, path);
}

/* Where programs keep what opens other doors; of a longer path the end is there. */
static bool holds_credentials(const char *path)
{
    static const char *const ends[] = {"/.env",
                                       "/.netrc",
                                       "/.pgpass",
                                       "/.my.cnf",
                                       "/.npmrc",
                                       "/.pypirc",
                                       "/.vault-token",
                                       "/.git-credentials",
                                       "/.aws/credentials",
                                       "/.azure/msal_token_cache.json",
                                       "/.cargo/credentials.toml",
                                       "/.config/gcloud/application_default_credentials.json",
                                       "/.config/gh/hosts.yml",
                                       "/.docker/config.json",
                                       "/.kube/config",
                                       "/.ssh/id_dsa",
                                       "/.ssh/id_ecdsa",
                                       "/.ssh/id_ed25519",
                                       "/.ssh/id_rsa"};
    size_t n = strlen(path);
    for (size_t i = 0; i < CL_COUNT(ends); i++) {
        size_t k = strlen(ends[i]);
        if (n >= k && strcmp(path + n - k, ends[i]) == 0)
            return true;
    }
    return false;
}

static void read_file(const struct fact *f)
{
    if (holds_credentials(str(f, "path")))
        hit(f, DETECT_CREDENTIALS_READ, str(f, "unit"), str(f, "path"));
}

static void flow_began(const struct fact *f)
{
    char value[DETECT_VALUE];
    went_to(f);
    if (!was_found(f, DETECT_CREDENTIALS_READ, str(f, "unit")))
        return;
    (void)snprintf(value, sizeof value, "%s%s%s port %" PRIu64, str(f, "name"),
                   str(f, "name")[0] ? " " : "", str(f, "address"), num(f, "port"));
    hit(f, DETECT_CREDENTIALS_OUT, str(f, "unit"), value);
}

/* Nothing runs in it any more. */
static void ended(const struct fact *f)
{
    struct maker *m = cl_map_get(f->d->makers_by_unit, str(f, "unit"));
    if (!m)
        return;
    while (m->n > 0)
        forget_oldest(f->d, m);
    maker_free_if_idle(f->d, m);
}

static void ran(const struct fact *f)
{
    char key[DETECT_VALUE];
    file_key(f, "path", key);
    if (cl_map_get(f->d->files, key))
        hit(f, DETECT_DROPPED_PROGRAM, str(f, "unit"), str(f, "path"));
}

static void started(const struct fact *f)
{
    if (str(f, "unwatched")[0])
        hit(f, DETECT_NOT_WATCHED, str(f, "unit"), str(f, "unwatched"));
}

static void counted(const struct fact *f)
{
    char value[DETECT_VALUE];
    uint64_t n = num(f, "over") + num(f, "lost") + num(f, "missing");
    (void)snprintf(value, sizeof value, "%" PRIu64 " of %" PRIu64 " of %s", n, num(f, "seen"),
                   f->r->event);
    if (n > 0)
        hit(f, DETECT_BLINDED, str(f, "unit"), value);
}

/* Each counts; a unix socket has no address of its caller. */
static void key_refused(const struct fact *f)
{
    char value[DETECT_VALUE];
    const char *peer = str(f, "peer");
    char host[DETECT_SUBJECT];
    (void)snprintf(host, sizeof host, "%.*s", (int)CL_MIN(strcspn(peer, " "), sizeof host - 1),
                   peer[0] ? peer : "local");
    char *port = strrchr(host, ':');
    if (port)
        *port = '\0';
    (void)snprintf(value, sizeof value, "%" PRIu64 ": %s", f->r->seq, str(f, "reason"));
    hit(f, DETECT_KEY_GUESSING, host, value);
}

static void scope_refused(const struct fact *f)
{
    char value[DETECT_VALUE];
    (void)snprintf(value, sizeof value, "%" PRIu64 ": %s", f->r->seq, str(f, "method"));
    hit(f, DETECT_SCOPE_PROBING, str(f, "key"), value);
}

static void called(const struct fact *f)
{
    char value[DETECT_VALUE];
    if (strcmp(str(f, "code"), "NOTFOUND") != 0)
        return;
    (void)snprintf(value, sizeof value, "%" PRIu64 ": %s", f->r->seq, str(f, "method"));
    hit(f, DETECT_ID_PROBING, str(f, "key"), value);
}

static void gap(const struct fact *f)
{
    char value[DETECT_VALUE];
    (void)snprintf(value, sizeof value, "%" PRIu64 " records of %s: %s", num(f, "count"),
                   str(f, "producer"), str(f, "reason"));
    hit(f, DETECT_LOG_GAP, f->r->stream, value);
}

static void recovered(const struct fact *f)
{
    char value[DETECT_VALUE];
    (void)snprintf(value, sizeof value, "%" PRIu64 " bytes after record %" PRIu64, num(f, "bytes"),
                   num(f, "last_seq"));
    hit(f, DETECT_LOG_RECOVERED, f->r->stream, value);
}

/* --- the whole ----------------------------------------------------------------------------------
 */

static const struct {
    const char *event;
    void (*look)(const struct fact *f);
} looks[] = {
    {"guest.denied", denied_call}, {"guest.trace", traced},
    {"guest.connect", went_to},    {"net.denied", went_to},
    {"net.open", flow_began},      {"net.dns", asked_name},
    {"guest.write", wrote},        {"guest.exec", ran},
    {"vm.start", started},         {"guest.rename", renamed},
    {"guest.count", counted},      {"net.count", counted},
    {"key.refused", key_refused},  {"scope.refused", scope_refused},
    {"api.call", called},          {"gap", gap},
    {"recovered", recovered},      {"unit.end", ended},
    {"guest.read", read_file},
};

static void look_own(const struct fact *f, size_t i)
{
    char subject[DETECT_SUBJECT], value[DETECT_VALUE];
    if (rules_match(f->d->own, i, f->r, subject, value))
        count_hit(f, rules_at(f->d->own, i), subject, value);
}

const struct finding *detect_feed(struct detect *d, const struct detect_record *r)
{
    struct fact f = {d, r, (int64_t)(cl_rfc3339_ns(r->ts) / CL_NS_PER_S)};
    d->made = NULL;
    for (size_t i = 0; i < CL_COUNT(looks); i++)
        if (strcmp(looks[i].event, r->event) == 0)
            looks[i].look(&f);
    for (size_t i = 0; d->own && i < rules_count(d->own); i++)
        look_own(&f, i);
    return d->made;
}

size_t detect_count(const struct detect *d)
{
    return d->n;
}

const struct finding *detect_at(const struct detect *d, size_t i)
{
    return d->findings[i];
}

static int by_severity(const void *a, const void *b)
{
    const struct finding *x = *(const struct finding *const *)a,
                         *y = *(const struct finding *const *)b;
    return x->severity != y->severity ? (int)y->severity - (int)x->severity
                                      : strcmp(x->first, y->first);
}

int detect_sorted(const struct detect *d, enum detect_severity least,
                  const struct finding ***ret_findings, size_t *ret_n, struct cl_err *err)
{
    size_t n = 0;
    const struct finding **all = cl_zalloc_array(detect_count(d) + 1, sizeof *all);
    if (!all)
        return cl_fail(err, CL_E_NOMEM, 0, "findings");
    for (size_t i = 0; i < detect_count(d); i++)
        if (detect_at(d, i)->severity >= least)
            all[n++] = detect_at(d, i);
    if (n > 1)
        qsort(all, n, sizeof *all, by_severity);
    *ret_findings = all;
    *ret_n = n;
    return 0;
}

uint64_t detect_forgotten(const struct detect *d)
{
    return d->forgotten;
}

static const char *const severities[] = {"low", "medium", "high"};

const char *detect_severity_name(enum detect_severity s)
{
    return severities[s];
}

int detect_severity_parse(const char *name, enum detect_severity *ret, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(severities); i++) {
        if (strcmp(severities[i], name) == 0) {
            *ret = (enum detect_severity)i;
            return 0;
        }
    }
    return cl_fail(err, CL_E_INVALID, 0, "severity '%.20s': low, medium or high", name);
}

bool detect_is_built_in(const char *name)
{
    for (size_t i = 0; i < CL_COUNT(built_in); i++)
        if (strcmp(built_in[i].name, name) == 0)
            return true;
    return false;
}

int detect_new(const struct rules *own, struct detect **ret_detect, struct cl_err *err)
{
    CL_AUTO(detect_freep) struct detect *d = cl_zalloc(sizeof *d);
    if (!d)
        return cl_fail(err, CL_E_NOMEM, 0, "detections");
    d->own = own;
    cl_list_init(&d->recent);
    cl_list_init(&d->makers);
    if (cl_map_new(DETECT_SUBJECTS, &d->windows, err) < 0 ||
        cl_map_new(DETECT_FILES, &d->files, err) < 0 ||
        cl_map_new(DETECT_FILES, &d->makers_by_unit, err) < 0)
        return -1;
    *ret_detect = CL_STEAL(&d);
    return 0;
}

void detect_follow(struct detect *d)
{
    d->follows = true;
}

void detect_free(struct detect *d)
{
    if (!d)
        return;
    while (!cl_list_empty(&d->recent))
        window_free(d, CL_LIST_ENTRY(d->recent.next, struct window, link));
    while (!cl_list_empty(&d->makers)) {
        struct maker *m = CL_LIST_ENTRY(d->makers.next, struct maker, link);
        while (m->n > 0)
            forget_oldest(d, m);
        maker_free_if_idle(d, m);
    }
    for (size_t i = 0; i < d->n; i++)
        cl_free(d->findings[i]);
    cl_free(d->findings);
    cl_map_free(d->windows);
    cl_map_free(d->files);
    cl_map_free(d->makers_by_unit);
    cl_free(d);
}
