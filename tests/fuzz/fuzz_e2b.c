/* What strangers say to E2B's API before anybody is asked: path, query, token, envelope, form,
 * output, pausing, forks, snapshots, recipes of templates.  The first byte says which. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "web/connect.h"
#include "e2b/fork.h"
#include "e2b/labels.h"
#include "e2b/multipart.h"
#include "e2b/page.h"
#include "e2b/pause.h"
#include "e2b/recipe.h"
#include "e2b/route.h"
#include "e2b/snapshot.h"
#include "e2b/text.h"
#include "mcp/json.h"
#include "rpc/one_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret[E2B_SECRET];

static void read_path(const char *text)
{
    struct e2b_ids ids;
    bool other;
    const struct e2b_route *r = e2b_route_find(E2B_POST, text, &ids, &other);
    CL_ASSERT(strlen(ids.id) < E2B_ID_MAX && strlen(ids.below) < E2B_ID_MAX);
    CL_ASSERT(r || !ids.id[0]);
    CL_ASSERT(e2b_serves(text) == (r || other));
}

static void read_query(const char *text)
{
    char small[8], large[4096];
    int few = e2b_query_get(text, "path", small, sizeof small);
    int many = e2b_query_get(text, "path", large, sizeof large);
    CL_ASSERT(few <= many || many == few);
    if (few == 1)
        CL_ASSERT(strcmp(small, large) == 0);
    struct e2b_page page;
    if (e2b_page_read(text, &page, NULL) == 0)
        CL_ASSERT(e2b_page_room(&page) >= 1 && e2b_page_room(&page) <= E2B_PAGE_MAX);
    e2b_page_fini(&page);
}

/* Every name that is a key of a label comes back. */
static void read_label(const char *text)
{
    char key[E2B_LABEL_KEY], name[E2B_LABEL_KEY];
    if (e2b_label_key(text, key, NULL) == 0)
        CL_ASSERT(e2b_label_name(key, name) && strcmp(name, text) == 0);
    (void)e2b_label_name(text, name);
}

static void read_token(const char *text)
{
    static struct e2b_grant grant;
    if (e2b_token_open(secret, text, &grant, NULL) == 0)
        CL_ASSERT(strlen(grant.sandbox) < CL_ID_MAX && strlen(grant.env) < E2B_PLAIN_MAX);
}

static void read_envelope(const char *bytes, size_t n)
{
    const char *message;
    size_t m;
    if (connect_open(bytes, n, &message, &m, NULL) == 0)
        CL_ASSERT(message >= bytes && message + m == bytes + n);
}

/* What was read of a form: FNV-1a of its names and data, and how it ended. */
struct form {
    struct multipart m;
    uint64_t sum;
    bool bad;
};

static void add(struct form *f, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        f->sum = (f->sum ^ (uint8_t)data[i]) * 0x100000001b3;
}

static void feed_form(struct form *f, const char *in, size_t n)
{
    for (size_t at = 0, used; at < n && !f->bad; at += used) {
        enum multipart_step step = multipart_feed(&f->m, in + at, n - at, &used, NULL);
        CL_ASSERT(used <= n - at && (step != MULTIPART_MORE || used == n - at));
        f->bad = step == MULTIPART_BAD;
        if (step == MULTIPART_PART)
            add(f, f->m.filename, strlen(f->m.filename) + 1);
        else if (step == MULTIPART_DATA)
            add(f, f->m.data, f->m.n);
        else if (step == MULTIPART_END)
            add(f, "\n.", 3);
    }
}

/* The next piece of n bytes; 0 = all of them. */
static size_t cut(uint32_t *seed, size_t n)
{
    if (*seed == 0)
        return n;
    *seed = *seed * 1664525 + 1013904223;
    return CL_MIN(n, (*seed >> 16) % (*seed & 1 << 12 ? 9 : 99) + 1);
}

static uint64_t sum_form(const char *type, const char *body, size_t n, uint32_t seed)
{
    static struct form f;
    f.sum = 1;
    f.bad = multipart_init(&f.m, type, NULL) < 0;
    for (size_t at = 0, piece; at < n && !f.bad; at += piece) {
        piece = cut(&seed, n - at);
        feed_form(&f, body + at, piece);
    }
    return f.sum * 31 + (f.bad ? 2 : multipart_finish(&f.m, NULL) == 0);
}

/* In any pieces the same.  A form's type is its first line. */
static void read_form(const char *bytes, size_t n)
{
    char type[128];
    const char *line = n ? memchr(bytes, '\n', n) : NULL;
    size_t type_n = line ? (size_t)(line - bytes) : 0;
    if (!line || type_n >= sizeof type || memchr(bytes, '\0', type_n))
        return;
    memcpy(type, bytes, type_n);
    type[type_n] = '\0';
    const char *body = line + 1;
    size_t body_n = (size_t)(bytes + n - body);
    uint64_t whole = sum_form(type, body, body_n, 0);
    for (uint32_t seed = 1; seed <= 4; seed++)
        CL_ASSERT(sum_form(type, body, body_n, seed * 2654435761u + (uint32_t)n) == whole);
}

/* In any pieces the same. */
static void read_text(const char *bytes, size_t n)
{
    struct e2b_text t = {.n = 0};
    json_t *whole = e2b_text_json(bytes, n);
    size_t sum = 0;
    bool has_all = whole != NULL;
    for (size_t at = 0; at < n; at += 3) {
        json_t *piece = e2b_text_add(&t, bytes + at, CL_MIN(n - at, (size_t)3));
        has_all = has_all && piece;
        sum += json_string_length(piece);
        json_decref(piece);
    }
    CL_ASSERT(!has_all || sum == json_string_length(whole));
    json_decref(whole);
}

static void read_snapshot(const json_t *body)
{
    const char *name = NULL;
    struct cl_err err = {0};
    CL_ASSERT((e2b_snapshot_read(body, &name, &err) == 0) == (err.code == CL_OK));
    CL_ASSERT(!name == (err.code != CL_OK));
    if (name && e2b_snapshot_is_meant(name))
        CL_ASSERT(name[0] && !cl_name_is_valid(name));
}

/* As a filter, and as a body. */
static void read_pause(const char *text)
{
    unsigned states = 0;
    struct e2b_auto_pause idle = {false, false};
    json_t *body = NULL;
    int rc = e2b_states_read(text, &states, NULL);
    CL_ASSERT((rc == 0) == (states != 0) && states <= E2B_ANY_STATE);
    if (mcp_json_parse(text, strlen(text), &body, NULL) < 0)
        return;
    struct cl_err err = {0};
    CL_ASSERT((e2b_auto_pause_read(body, &idle, &err) == 0) == (err.code == CL_OK));
    CL_ASSERT(idle.pauses || !idle.resumes);
    err = (struct cl_err){0};
    CL_ASSERT((e2b_pause_check(body, &err) == 0) == (err.code == CL_OK));
    read_snapshot(body);
    json_decref(body);
}

/* As a body, and as the key of its request. */
static void read_fork(const char *text)
{
    struct e2b_fork fork = {.count = 0};
    struct cl_err err = {0};
    char key[RPC_KEY], moment[RPC_WORD];
    json_t *body = NULL;
    if (rpc_nth_key(text, E2B_FORKS_MAX, key, NULL) == 0)
        CL_ASSERT(strncmp(key, text, strlen(text)) == 0);
    rpc_word(text, moment);
    CL_ASSERT(strlen(moment) == RPC_WORD - 1);
    if (mcp_json_parse(text, strlen(text), &body, NULL) < 0)
        return;
    CL_ASSERT((e2b_fork_read(body, 60, &fork, &err) == 0) == (err.code == CL_OK));
    CL_ASSERT(err.code || (fork.count >= 1 && fork.count <= E2B_FORKS_MAX && fork.seconds >= 1 &&
                           fork.seconds <= 60));
    json_decref(body);
}

/* Each step that was read can be done, and leaves a place that its labels can say. */
static void do_steps(const struct e2b_recipe *r)
{
    static struct e2b_place place, back;
    static struct e2b_place_labels labels;
    struct e2b_step step;
    char line[64];
    place = (struct e2b_place){.user = ""};
    for (size_t i = 0; i < r->n; i++) {
        struct cl_err err = {0};
        CL_ASSERT(e2b_recipe_step(r, i, &place, &step, &err) == 0 || err.code == CL_E_NOMEM);
        e2b_step_text(&step, line, sizeof line);
        CL_ASSERT(strlen(line) < sizeof line);
        CL_ASSERT(err.code || (step.kind != E2B_COPY && step.kind != E2B_WORKDIR) ||
                  step.to[0] == '/');
    }
    e2b_place_write(&place, &labels);
    e2b_place_read(labels.list, labels.n, &back);
    CL_ASSERT(strcmp(place.env, back.env) == 0 && strcmp(place.cwd, back.cwd) == 0 &&
              strcmp(place.user, back.user) == 0);
}

static void read_recipe(const char *text)
{
    struct e2b_recipe r;
    struct e2b_build_wish wish;
    struct cl_err err = {0};
    json_t *body = NULL;
    if (mcp_json_parse(text, strlen(text), &body, NULL) < 0)
        return;
    CL_ASSERT((e2b_build_wish_read(body, &wish, &err) == 0) == (err.code == CL_OK));
    CL_ASSERT(err.code || (strlen(wish.name) > 0 && strlen(wish.name) < E2B_BUILD_NAME));
    err = (struct cl_err){0};
    CL_ASSERT((e2b_recipe_read(body, &r, &err) == 0) == (err.code == CL_OK));
    CL_ASSERT(err.code || !r.base == (r.image != NULL));
    if (!err.code)
        do_steps(&r);
    if (!err.code && r.image)
        CL_ASSERT(e2b_image_is(r.image, text) == e2b_image_is(text, r.image));
    json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *bytes = (const char *)data + 1;
    size_t n = size - 1;
    char *text = cl_zalloc(n + 1);
    if (!text)
        return 0;
    memcpy(text, bytes, n);
    switch (data[0] % 10) {
    case 0:
        read_path(text);
        break;
    case 1:
        read_query(text);
        break;
    case 2:
        read_label(text);
        break;
    case 3:
        read_token(text);
        break;
    case 4:
        read_envelope(bytes, n);
        break;
    case 5:
        read_form(bytes, n);
        break;
    case 6:
        read_text(bytes, n);
        break;
    case 7:
        read_pause(text);
        break;
    case 8:
        read_fork(text);
        break;
    default:
        read_recipe(text);
        break;
    }
    cl_free(text);
    return 0;
}
