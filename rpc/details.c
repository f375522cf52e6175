/* rpc/details.c - see rpc/details.h. */
#include "rpc/details.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "proto/unpack.h"
#include "rpc/proto/details.pb-c.h"

#define TYPE_PREFIX "type.googleapis.com/google.rpc."
#define DOMAIN "cloche"

enum {
    DETAIL_MAX = 1024, /* one packed detail: an error's text and subject are bounded */
    DETAILS_NR = 3,
    DECODE_ARENA = 64 * 1024,
    RETRY_S_MAX = 86400, /* longest believable RetryInfo */
};

/* protobuf-c's string fields are not const although packing only reads. */
static char *mutable_text(const char *s)
{
    char *p;
    memcpy(&p, &s, sizeof p);
    return p;
}

struct builder {
    Cloche__Rpc__AnyDetail details[DETAILS_NR];
    Cloche__Rpc__AnyDetail *refs[DETAILS_NR];
    uint8_t packed[DETAILS_NR][DETAIL_MAX];
    size_t n;
};

static void put(struct builder *b, const char *type_url, const ProtobufCMessage *msg)
{
    size_t size = protobuf_c_message_get_packed_size(msg);
    CL_ASSERT(b->n < DETAILS_NR && size <= DETAIL_MAX);
    Cloche__Rpc__AnyDetail *d = &b->details[b->n];
    cloche__rpc__any_detail__init(d);
    d->type_url = mutable_text(type_url);
    d->value.data = b->packed[b->n];
    d->value.len = protobuf_c_message_pack(msg, b->packed[b->n]);
    b->refs[b->n++] = d;
}

static void put_info(struct builder *b, const struct cl_err *what)
{
    Cloche__Rpc__ErrorInfo info;
    Cloche__Rpc__ErrorInfo__Entry entry, *entries[1] = {&entry};
    cloche__rpc__error_info__init(&info);
    cloche__rpc__error_info__entry__init(&entry);
    info.reason = mutable_text(cl_err_info(what->code)->name);
    info.domain = mutable_text(DOMAIN);
    entry.key = mutable_text("subject");
    entry.value = mutable_text(what->subject);
    info.n_metadata = what->subject[0] ? 1 : 0;
    info.metadata = entries;
    put(b, TYPE_PREFIX "ErrorInfo", &info.base);
}

static void put_retry(struct builder *b, const struct cl_err *what)
{
    Cloche__Rpc__RetryDelay delay;
    Cloche__Rpc__RetryInfo retry;
    cloche__rpc__retry_delay__init(&delay);
    cloche__rpc__retry_info__init(&retry);
    delay.seconds = (int64_t)(what->retry_ms / 1000);
    delay.nanos = (int32_t)(what->retry_ms % 1000 * CL_NS_PER_MS);
    retry.retry_delay = &delay;
    put(b, TYPE_PREFIX "RetryInfo", &retry.base);
}

static void put_quota(struct builder *b, const struct cl_err *what)
{
    Cloche__Rpc__QuotaFailure quota;
    Cloche__Rpc__QuotaFailure__Violation violation, *violations[1] = {&violation};
    cloche__rpc__quota_failure__init(&quota);
    cloche__rpc__quota_failure__violation__init(&violation);
    violation.subject = mutable_text(what->subject);
    violation.description = mutable_text(what->text);
    quota.n_violations = 1;
    quota.violations = violations;
    put(b, TYPE_PREFIX "QuotaFailure", &quota.base);
}

/* Texts are cut at a byte count somewhere, or quote a peer's bytes: on the wire they are UTF-8. */
static void make_utf8(char *s)
{
    enum { LONGEST = 4 };
    size_t n = strlen(s);
    for (size_t cut = 0; cut < LONGEST && cut <= n; cut++) {
        if (!cl_utf8_is_valid(s, n - cut))
            continue;
        s[n - cut] = '\0';
        return;
    }
    for (; *s; s++)
        if (*s & 0x80)
            *s = '?';
}

int details_encode(const struct cl_err *given, struct cl_buf *out, struct cl_err *err)
{
    struct cl_err copy = *given, *what = &copy;
    struct builder b;
    make_utf8(copy.text);
    make_utf8(copy.subject);
    b.n = 0;
    put_info(&b, what);
    if (what->retry_ms > 0)
        put_retry(&b, what);
    if (what->code == CL_E_RATE || what->code == CL_E_QUOTA || what->code == CL_E_QUEUE)
        put_quota(&b, what);
    Cloche__Rpc__Status status;
    cloche__rpc__status__init(&status);
    status.code = cl_err_info(what->code)->grpc;
    status.message = mutable_text(what->text);
    status.n_details = b.n;
    status.details = b.refs;
    size_t size = cloche__rpc__status__get_packed_size(&status);
    if (cl_buf_reserve(out, size, err) < 0)
        return -1;
    out->len += cloche__rpc__status__pack(&status, out->data + out->len);
    return 0;
}

/* --- decode ----------------------------------------------------------------------------------- */

static enum cl_code code_by_name(const char *name, enum cl_code otherwise)
{
    for (unsigned code = CL_OK + 1; code < CL_E_NR; code++)
        if (strcmp(cl_err_info((enum cl_code)code)->name, name) == 0)
            return (enum cl_code)code;
    return otherwise;
}

static void set_subject(struct cl_err *e, const char *subject)
{
    if (!e->subject[0])
        (void)snprintf(e->subject, sizeof e->subject, "%s", subject);
}

static void read_info(const Cloche__Rpc__ErrorInfo *info, struct cl_err *e)
{
    if (strcmp(info->domain, DOMAIN) != 0)
        return;
    e->code = code_by_name(info->reason, e->code);
    for (size_t i = 0; i < info->n_metadata; i++)
        if (strcmp(info->metadata[i]->key, "subject") == 0)
            set_subject(e, info->metadata[i]->value);
}

static void read_retry(const Cloche__Rpc__RetryInfo *retry, struct cl_err *e)
{
    const Cloche__Rpc__RetryDelay *d = retry->retry_delay;
    if (!d || d->seconds < 0 || d->seconds > RETRY_S_MAX || d->nanos < 0)
        return;
    e->retry_ms = (uint64_t)d->seconds * 1000 + (uint64_t)d->nanos / CL_NS_PER_MS;
}

static void read_detail(const Cloche__Rpc__AnyDetail *d, struct cl_arena *arena, struct cl_err *e)
{
    const ProtobufCMessage *msg;
    const char *slash = strrchr(d->type_url, '/');
    const char *type = slash ? slash + 1 : d->type_url;
    if (strcmp(type, "google.rpc.ErrorInfo") == 0) {
        if (pb_unpack(&cloche__rpc__error_info__descriptor, d->value.data, d->value.len, arena,
                      &msg, NULL) == 0)
            read_info((const Cloche__Rpc__ErrorInfo *)msg, e);
    } else if (strcmp(type, "google.rpc.RetryInfo") == 0) {
        if (pb_unpack(&cloche__rpc__retry_info__descriptor, d->value.data, d->value.len, arena,
                      &msg, NULL) == 0)
            read_retry((const Cloche__Rpc__RetryInfo *)msg, e);
    } else if (strcmp(type, "google.rpc.QuotaFailure") == 0) {
        if (pb_unpack(&cloche__rpc__quota_failure__descriptor, d->value.data, d->value.len, arena,
                      &msg, NULL) == 0) {
            const Cloche__Rpc__QuotaFailure *q = (const Cloche__Rpc__QuotaFailure *)msg;
            if (q->n_violations > 0)
                set_subject(e, q->violations[0]->subject);
        }
    }
}

void details_decode(int status, const char *message, const uint8_t *details, size_t n,
                    struct cl_err *ret_err)
{
    (void)cl_fail(ret_err, cl_code_from_grpc(status), 0, "%s", message);
    struct cl_arena *arena;
    if (n == 0 || cl_arena_new(DECODE_ARENA, &arena, NULL) < 0)
        return;
    const ProtobufCMessage *msg;
    if (pb_unpack(&cloche__rpc__status__descriptor, details, n, arena, &msg, NULL) == 0) {
        const Cloche__Rpc__Status *s = (const Cloche__Rpc__Status *)msg;
        for (size_t i = 0; i < s->n_details; i++)
            read_detail(s->details[i], arena, ret_err);
    }
    cl_arena_free(arena);
}
