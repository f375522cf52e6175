/* trail/walk.c - see trail/walk.h.
 *
 * A cursor is EMPTY (it has to look for its next line), HAS one, or is at its END, where it stays
 * until the next round: a round begins when the one before has told all that was written.
 */
#include "trail/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/files.h"
#include "audit/scan.h"
#include "base/clock.h"
#include "base/mem.h"

enum {
    PIECE = 65536,                                 /* holds any line and its newline */
    LINE_TAIL = AUDIT_SOURCE + AUDIT_STREAM + 128, /* a line's number and what stands behind it */
};
_Static_assert((int)PIECE > (int)AUDIT_RECORD_MAX, "a piece holds a line");

enum place { EMPTY, HAS, END };

struct spot {
    unsigned file;
    uint64_t offset;
};

struct start {
    char stream[AUDIT_STREAM];
    uint64_t seq;
};

struct cursor {
    char stream[AUDIT_STREAM];
    uint64_t from; /* what comes before this number is passed over; 0 = nothing, or it was */
    enum place place;
    bool is_begun, is_over; /* over: what follows is later than was asked for */
    bool skips;             /* up to the next newline: the line is too long, or its head is cut */
    struct spot next;       /* what is read next */
    struct cl_buf in;       /* what was read */
    size_t at;              /* in `in`: what was not looked at, and the line where it HAS one */
    size_t line_n;
    char ts[CL_RFC3339_LEN];
};

struct walk {
    char dir[AUDIT_PATH];
    char stream[AUDIT_STREAM], unit[WALK_UNIT];
    char events[WALK_EVENTS][WALK_EVENT];
    size_t n_events;
    char since[CL_RFC3339_LEN], until[CL_RFC3339_LEN]; /* or "" */
    char early[CL_RFC3339_LEN], late[CL_RFC3339_LEN];  /* the same, with the slack */
    struct start *from;                                /* owned */
    size_t n_from;
    uint64_t tail_bytes;
    size_t streams_max;
    struct cursor **cursors; /* owned, each one */
    size_t n_cursors, cap_cursors;
    bool in_round;
    char horizon[CL_RFC3339_LEN];
    uint64_t unreadable;
};

/* --- lines --------------------------------------------------------------------------------------
 */

/* The end of each line is of one form, and nothing that user code chose comes behind it. */
static bool line_time(const char *line, size_t n, char ts[static CL_RFC3339_LEN])
{
    static const char before[] = "\"ts\":\"", after[] = "\",\"v\":1}";
    size_t tail = sizeof before - 1 + CL_RFC3339_LEN - 1 + sizeof after - 1;
    if (n < tail)
        return false;
    const char *at = line + n - tail;
    if (memcmp(at, before, sizeof before - 1) != 0 ||
        memcmp(line + n - (sizeof after - 1), after, sizeof after - 1) != 0)
        return false;
    memcpy(ts, at + sizeof before - 1, CL_RFC3339_LEN - 1);
    ts[CL_RFC3339_LEN - 1] = '\0';
    return true;
}

/* Behind the number stand two names, which hold no quotes, and the end.  0: there is none. */
static uint64_t line_seq(const char *line, size_t n)
{
    static const char before[] = "\"seq\":";
    size_t k = sizeof before - 1, from = n - CL_MIN(n, (size_t)LINE_TAIL);
    for (size_t at = n - CL_MIN(n, k); at > from; at--) {
        struct scan s = {line + at + k, line + n};
        uint64_t seq;
        if (memcmp(line + at, before, k) == 0)
            return scan_num(&s, &seq) ? seq : 0;
    }
    return 0;
}

/* Before the event's name there is nothing that user code chose. */
static bool line_event(const char *line, size_t n, const char **ret_name, size_t *ret_n)
{
    static const char before[] = "\"event\":\"";
    const char *at = memmem(line, n, before, sizeof before - 1);
    const char *name = at ? at + sizeof before - 1 : NULL;
    const char *end = name ? memchr(name, '"', n - (size_t)(name - line)) : NULL;
    *ret_name = name;
    *ret_n = end ? (size_t)(end - name) : 0;
    return end;
}

/* By a name that was asked for, without its '!'. */
static bool is_like(const char *asked, const char *name, size_t n)
{
    size_t k = strlen(asked);
    if (k > 0 && asked[k - 1] == '*')
        return n >= k - 1 && memcmp(asked, name, k - 1) == 0;
    return n == k && memcmp(asked, name, n) == 0;
}

static bool is_checkpoint(const char *name, size_t n)
{
    return is_like("checkpoint", name, n) || is_like("tenant.checkpoint", name, n);
}

static bool event_matches(const struct walk *w, const char *line, size_t n)
{
    const char *name;
    size_t name_n;
    if (!line_event(line, n, &name, &name_n))
        return false;
    bool is_asked = false, asks = false;
    for (size_t i = 0; i < w->n_events; i++) {
        const char *asked = w->events[i];
        bool matches = is_like(asked + (*asked == '!'), name, name_n);
        if (*asked == '!' && matches)
            return false;
        asks = asks || *asked != '!';
        is_asked = is_asked || (*asked != '!' && matches);
    }
    return asks ? is_asked : !is_checkpoint(name, name_n);
}

/* By its bytes: what passes here may still be about another unit. */
static bool may_match(const struct walk *w, const struct cursor *c, const char *line, size_t n)
{
    return !c->from && (!w->since[0] || strcmp(c->ts, w->since) >= 0) &&
           (!w->until[0] || strcmp(c->ts, w->until) < 0) && event_matches(w, line, n) &&
           (!w->unit[0] || memmem(line, n, w->unit, strlen(w->unit)));
}

static bool is_about(const struct walk *w, const struct audit_record *r)
{
    char unit[WALK_UNIT];
    return !w->unit[0] || ((audit_field_str(r->fields, r->fields_n, "unit", unit, sizeof unit) ||
                            audit_field_str(r->fields, r->fields_n, "object", unit, sizeof unit)) &&
                           strcmp(unit, w->unit) == 0);
}

/* --- files --------------------------------------------------------------------------------------
 */

/* As many bytes of a file as `into` has room for in a piece; none at the end, and where there is no
 * such file. */
static int read_at(const struct walk *w, const struct cursor *c, struct spot from,
                   struct cl_buf *into, struct cl_err *err)
{
    char path[AUDIT_PATH];
    audit_file_path(w->dir, c->stream, from.file, path);
    if (cl_buf_reserve(into, PIECE - into->len, err) < 0)
        return -1;
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n =
        fd < 0 ? -1 : pread(fd, into->data + into->len, PIECE - into->len, (off_t)from.offset);
    if (n < 0)
        return errno == ENOENT ? 0
                               : cl_fail(err, cl_code_from_errno(errno), errno, "read '%s'", path);
    into->len += (size_t)n;
    return 0;
}

/* -1: there is none. */
static int64_t file_size(const struct walk *w, const struct cursor *c, unsigned file)
{
    char path[AUDIT_PATH];
    struct stat st;
    audit_file_path(w->dir, c->stream, file, path);
    return stat(path, &st) < 0 ? -1 : (int64_t)st.st_size;
}

struct found {
    uint64_t at, seq;
    char ts[CL_RFC3339_LEN];
};

/* The first whole line at or behind a spot: where it begins, its time and number; false when there
 * is none within a piece. */
static bool line_behind(const struct walk *w, const struct cursor *c, struct spot from,
                        struct cl_buf *piece, struct found *ret)
{
    size_t skip = 0;
    cl_buf_clear(piece);
    if (read_at(w, c, from, piece, NULL) < 0)
        return false;
    for (bool is_first = from.offset > 0; skip < piece->len; is_first = false) {
        const char *line = (const char *)piece->data + skip,
                   *end = memchr(line, '\n', piece->len - skip);
        if (!end)
            return false;
        if (!is_first && line_time(line, (size_t)(end - line), ret->ts)) {
            ret->at = from.offset + skip;
            ret->seq = line_seq(line, (size_t)(end - line));
            return true;
        }
        skip += (size_t)(end - line) + 1;
    }
    return false;
}

/* Of what was asked for. */
static bool is_before(const struct walk *w, const struct cursor *c, const struct found *f)
{
    return c->from ? f->seq < c->from : strcmp(f->ts, w->early) < 0;
}

/* The last file that begins before what was asked for, then half by half within it. */
static void begin_by_halving(const struct walk *w, struct cursor *c, unsigned first, unsigned last,
                             struct cl_buf *piece)
{
    struct found f;
    while (first < last) {
        unsigned mid = first + (last - first + 1) / 2;
        if (line_behind(w, c, (struct spot){mid, 0}, piece, &f) && is_before(w, c, &f))
            first = mid;
        else
            last = mid - 1;
    }
    uint64_t low = 0, high = (uint64_t)CL_MAX(file_size(w, c, first), 0);
    while (high - low > PIECE) {
        uint64_t mid = low + (high - low) / 2;
        if (line_behind(w, c, (struct spot){first, mid}, piece, &f) && f.at < high &&
            is_before(w, c, &f))
            low = f.at;
        else
            high = mid;
    }
    c->next = (struct spot){first, low};
}

/* tail_bytes before the end of the last file, or where the stream begins. */
static void begin_by_size(struct walk *w, struct cursor *c, unsigned first, unsigned last,
                          struct cl_buf *piece)
{
    struct found f;
    uint64_t left = w->tail_bytes, size;
    unsigned file = last;
    for (; (size = (uint64_t)CL_MAX(file_size(w, c, file), 0)) <= left && file > first; file--)
        left -= size;
    c->next = (struct spot){file, size > left ? size - left : 0};
    if (c->next.offset == 0 && file == first)
        return;
    if (line_behind(w, c, c->next, piece, &f)) {
        c->next.offset = f.at;
        if (strcmp(f.ts, w->horizon) > 0)
            memcpy(w->horizon, f.ts, sizeof f.ts);
    } else { /* nobody knows what is left out: later than any time */
        c->skips = c->next.offset > 0;
        (void)snprintf(w->horizon, sizeof w->horizon, "~");
    }
}

/* Nothing there yet: not begun. */
static int begin(struct walk *w, struct cursor *c, struct cl_err *err)
{
    unsigned first, last;
    if (audit_file_range(w->dir, c->stream, &first, &last, err) < 0)
        return -1;
    if (last == 0)
        return 0;
    CL_AUTO(cl_buf_fini) struct cl_buf piece;
    cl_buf_init(&piece, PIECE);
    c->next = (struct spot){first, 0};
    c->is_begun = true;
    if (w->tail_bytes)
        begin_by_size(w, c, first, last, &piece);
    else if (w->early[0] || c->from)
        begin_by_halving(w, c, first, last, &piece);
    return 0;
}

/* --- cursors ------------------------------------------------------------------------------------
 */

/* More bytes of the file, or of the next one; false at the end of what is written. */
static int read_on(struct walk *w, struct cursor *c, bool *ret_more, struct cl_err *err)
{
    *ret_more = true;
    cl_buf_consume(&c->in, c->at);
    c->at = 0;
    if (c->in.len == PIECE) { /* no line is so long */
        w->unreadable += !c->skips;
        c->skips = true;
        cl_buf_clear(&c->in);
    }
    size_t before = c->in.len;
    if (read_at(w, c, c->next, &c->in, err) < 0)
        return -1;
    c->next.offset += c->in.len - before;
    if (c->in.len > before)
        return 0;
    *ret_more = file_size(w, c, c->next.file + 1) >= 0;
    if (*ret_more) {
        w->unreadable += c->in.len > 0; /* a torn end, before a restart of the writer */
        cl_buf_clear(&c->in);
        c->skips = false;
        c->next = (struct spot){c->next.file + 1, 0};
    }
    return 0;
}

/* A line that is there: keep it, or drop it. */
static void take_line(struct walk *w, struct cursor *c, size_t n)
{
    const char *line = (const char *)c->in.data + c->at;
    bool is_wanted = !c->skips && line_time(line, n, c->ts);
    w->unreadable += !c->skips && !is_wanted;
    c->skips = false;
    if (is_wanted && c->from && line_seq(line, n) >= c->from)
        c->from = 0; /* numbers rise */
    if (is_wanted && w->late[0] && strcmp(c->ts, w->late) >= 0) {
        c->is_over = true;
        c->place = END;
    } else if (is_wanted && may_match(w, c, line, n)) {
        c->line_n = n;
        c->place = HAS;
    } else {
        c->at += n + 1;
    }
}

/* Nothing more for now: a stream at rest holds no memory. */
static void rest(struct cursor *c)
{
    c->place = END;
    if (c->in.len > 0)
        return;
    cl_buf_fini(&c->in);
    cl_buf_init(&c->in, PIECE);
}

/* Look for the next line; EMPTY when the budget is used up first. */
static int fill(struct walk *w, struct cursor *c, size_t *budget, struct cl_err *err)
{
    while (c->place == EMPTY && *budget > 0) {
        size_t left = c->in.len - c->at;
        const uint8_t *end = left ? memchr(c->in.data + c->at, '\n', left) : NULL;
        bool more = true;
        if (end) {
            size_t n = (size_t)(end - c->in.data) - c->at;
            take_line(w, c, n);
            *budget -= CL_MIN(*budget, n + 1);
        } else if (read_on(w, c, &more, err) < 0) {
            return -1;
        } else if (!more) {
            rest(c);
        }
    }
    return 0;
}

static int tell(struct walk *w, struct cursor *c, walk_fn *fn, void *arg, struct cl_err *err)
{
    struct audit_record r;
    const char *line = (const char *)c->in.data + c->at;
    int rc = 0;
    if (audit_record_parse(line, c->line_n, &r, NULL) < 0)
        w->unreadable++;
    else if (is_about(w, &r))
        rc = fn(arg, &r, line, c->line_n, err);
    c->at += c->line_n + 1;
    c->place = EMPTY;
    return rc;
}

static struct cursor *earliest(const struct walk *w)
{
    struct cursor *best = NULL;
    for (size_t i = 0; i < w->n_cursors; i++) {
        struct cursor *c = w->cursors[i];
        if (c->place == HAS && (!best || strcmp(c->ts, best->ts) < 0))
            best = c;
    }
    return best;
}

/* --- rounds -------------------------------------------------------------------------------------
 */

static int add_stream(const char *stream, void *arg, struct cl_err *err)
{
    struct walk *w = arg;
    for (size_t i = 0; i < w->n_cursors; i++)
        if (strcmp(w->cursors[i]->stream, stream) == 0)
            return 0;
    if (w->n_cursors >= w->streams_max)
        return cl_fail(err, CL_E_TOOBIG, 0,
                       "the log has more than %zu streams\nname one: tenant/NAME or host/NAME",
                       w->streams_max);
    struct cursor *c = cl_zalloc(sizeof *c);
    if (!c || cl_grow(&w->cursors, &w->cap_cursors, w->n_cursors + 1, w->streams_max,
                      sizeof *w->cursors, NULL) < 0) {
        cl_free(c);
        return cl_fail(err, CL_E_NOMEM, 0, "stream");
    }
    (void)snprintf(c->stream, sizeof c->stream, "%s", stream);
    for (size_t i = 0; i < w->n_from && !c->from; i++)
        if (strcmp(w->from[i].stream, stream) == 0)
            c->from = w->from[i].seq;
    cl_buf_init(&c->in, PIECE);
    w->cursors[w->n_cursors++] = c;
    return 0;
}

/* Streams that are there now; more come while we follow. */
static int begin_round(struct walk *w, struct cl_err *err)
{
    if (w->stream[0] ? add_stream(w->stream, w, err) < 0
                     : audit_each_stream(w->dir, "host", add_stream, w, err) < 0 ||
                           audit_each_stream(w->dir, "tenant", add_stream, w, err) < 0)
        return -1;
    for (size_t i = 0; i < w->n_cursors; i++) {
        struct cursor *c = w->cursors[i];
        if (!c->is_begun && begin(w, c, err) < 0)
            return -1;
        c->place = c->is_begun && !c->is_over ? EMPTY : END;
    }
    w->in_round = true;
    return 0;
}

int walk_step(struct walk *w, size_t bytes, walk_fn *fn, void *arg, struct cl_err *err)
{
    struct cursor *next;
    if (!w->in_round && begin_round(w, err) < 0)
        return -1;
    for (size_t i = 0; i < w->n_cursors; i++) {
        if (fill(w, w->cursors[i], &bytes, err) < 0)
            return -1;
        if (w->cursors[i]->place == EMPTY)
            return 1;
    }
    while ((next = earliest(w)) != NULL) {
        if (tell(w, next, fn, arg, err) < 0 || fill(w, next, &bytes, err) < 0)
            return -1;
        if (next->place == EMPTY)
            return 1;
    }
    w->in_round = false;
    return 0;
}

int walk_all(struct walk *w, walk_fn *fn, void *arg, struct cl_err *err)
{
    int more;
    do
        more = walk_step(w, WALK_STEP, fn, arg, err);
    while (more > 0);
    return more;
}

const char *walk_horizon(const struct walk *w)
{
    return w->horizon;
}

uint64_t walk_unreadable(const struct walk *w)
{
    return w->unreadable;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int copy(char *out, size_t size, const char *text, const char *what, struct cl_err *err)
{
    int n = snprintf(out, size, "%s", text ? text : "");
    return n < (int)size
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "the %s is longer than %zu bytes", what, size - 1);
}

static int copy_places(struct walk *w, const struct walk_filter *f, struct cl_err *err)
{
    if (f->n_from == 0)
        return 0;
    w->from = cl_zalloc_array(f->n_from, sizeof *w->from);
    if (!w->from)
        return cl_fail(err, CL_E_NOMEM, 0, "places");
    for (; w->n_from < f->n_from; w->n_from++) {
        w->from[w->n_from].seq = f->from[w->n_from].seq;
        if (copy(w->from[w->n_from].stream, AUDIT_STREAM, f->from[w->n_from].stream,
                 "stream's name", err) < 0)
            return -1;
    }
    return 0;
}

static int take_filter(struct walk *w, const struct walk_filter *f, struct cl_err *err)
{
    uint64_t slack = WALK_SLACK_S * CL_NS_PER_S;
    if (copy(w->stream, sizeof w->stream, f->stream, "stream's name", err) < 0 ||
        copy(w->unit, sizeof w->unit, f->unit, "unit", err) < 0)
        return -1;
    if (f->n_events > WALK_EVENTS)
        return cl_fail(err, CL_E_INVALID, 0, "%zu events; at most %d at once", f->n_events,
                       WALK_EVENTS);
    for (; w->n_events < f->n_events; w->n_events++)
        if (copy(w->events[w->n_events], WALK_EVENT, f->events[w->n_events], "event's name", err) <
            0)
            return -1;
    if (f->since_ns) {
        cl_rfc3339(f->since_ns, w->since);
        cl_rfc3339(f->since_ns > slack ? f->since_ns - slack : 0, w->early);
    }
    if (f->until_ns) {
        cl_rfc3339(f->until_ns, w->until);
        cl_rfc3339(f->until_ns < UINT64_MAX - slack ? f->until_ns + slack : UINT64_MAX, w->late);
    }
    w->tail_bytes = f->tail_bytes;
    w->streams_max = f->streams_max ? f->streams_max : WALK_STREAMS_MAX;
    if (f->n_from > w->streams_max)
        return cl_fail(err, CL_E_INVALID, 0, "%zu places; at most %zu at once", f->n_from,
                       w->streams_max);
    return copy_places(w, f, err);
}

static int check_there(const struct walk *w, bool may_come, struct cl_err *err)
{
    unsigned first, last;
    if (w->stream[0] && !audit_stream_is_valid(w->stream))
        return cl_fail(err, CL_E_INVALID, 0, "'%s' is no stream: want tenant/NAME or host/NAME",
                       w->stream);
    if (access(w->dir, R_OK | X_OK) < 0)
        return cl_fail(err, cl_code_from_errno(errno), 0, "the audit folder '%s' cannot be read",
                       w->dir);
    if (!w->stream[0] || may_come)
        return 0;
    if (audit_file_range(w->dir, w->stream, &first, &last, err) < 0)
        return -1;
    return last > 0 ? 0 : cl_fail(err, CL_E_NOTFOUND, 0, "no stream '%s'", w->stream);
}

int walk_new(const char *dir, const struct walk_filter *filter, struct walk **ret_walk,
             struct cl_err *err)
{
    CL_AUTO(walk_freep) struct walk *w = cl_zalloc(sizeof *w);
    if (!w)
        return cl_fail(err, CL_E_NOMEM, 0, "walk");
    if (copy(w->dir, sizeof w->dir, dir, "folder's name", err) < 0 ||
        take_filter(w, filter, err) < 0 || check_there(w, filter->may_come, err) < 0)
        return -1;
    *ret_walk = CL_STEAL(&w);
    return 0;
}

void walk_free(struct walk *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_cursors; i++) {
        cl_buf_fini(&w->cursors[i]->in);
        cl_free(w->cursors[i]);
    }
    cl_free(w->cursors);
    cl_free(w->from);
    cl_free(w);
}
