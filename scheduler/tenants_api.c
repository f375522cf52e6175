/* scheduler/tenants_api.c - TenantService: tenants, keys, usage. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "scheduler/api.h"
#include "scheduler/bootstrap.h"

/* --- tenants ------------------------------------------------------------------------------------
 */

struct tenant_row {
    Cloche__V1__Tenant m;
    Cloche__V1__TenantLimits limits;
    Cloche__V1__Time created;
};

static void fill_tenant(struct tenant_row *o, const struct tenant *t)
{
    cloche__v1__tenant__init(&o->m);
    cloche__v1__tenant_limits__init(&o->limits);
    cloche__v1__time__init(&o->created);
    o->m.name = (char *)(uintptr_t)t->name;
    o->m.guest_separation =
        (char *)(uintptr_t)(t->guest_separation[0] ? t->guest_separation : "isolated");
    o->created.unix_ns = t->created_ms * CL_NS_PER_MS;
    o->m.created = &o->created;
    const struct tenant_limits *l = &t->limits;
    o->limits.vcpu_milli = l->vcpu_milli;
    o->limits.memory_mib = l->mem_mib;
    o->limits.sandboxes = l->sandboxes;
    o->limits.cpu_ms_per_period = l->cpu_ms;
    o->limits.egress_bytes_per_period = l->egress_bytes;
    o->limits.disk_mib = l->disk_mib;
    o->limits.period_ms = l->period_ms;
    o->limits.rate_interval_us = l->rate_interval_us;
    o->limits.rate_burst = l->rate_burst;
    o->limits.queue_max = l->queue_max;
    o->limits.weight = l->weight;
    o->limits.contexts = l->contexts;
    o->limits.network = l->network != 0;
    o->limits.file_bytes = l->file_bytes;
    o->limits.count_calls = l->count_calls != 0;
    o->m.limits = &o->limits;
}

static int read_limits(const Cloche__V1__TenantLimits *m, struct tenant_limits *out,
                       struct cl_err *err)
{
    limits_default(out);
    if (!m)
        return 0;
    const struct {
        const char *name;
        uint64_t value;
    } given[] = {
        {"vcpu_milli", m->vcpu_milli},
        {"mem_mib", m->memory_mib},
        {"sandboxes", m->sandboxes},
        {"cpu_ms", m->cpu_ms_per_period},
        {"egress_bytes", m->egress_bytes_per_period},
        {"disk_mib", m->disk_mib},
        {"period_ms", m->period_ms},
        {"rate_interval_us", m->rate_interval_us},
        {"rate_burst", m->rate_burst},
        {"queue_max", m->queue_max},
        {"weight", m->weight},
        {"contexts", m->contexts},
        {"network", m->network ? 1 : 0},
        {"file_bytes", m->file_bytes},
        {"count_calls", m->count_calls ? 1 : 0},
    };
    for (size_t i = 0; i < CL_COUNT(given); i++) {
        if (given[i].value && limits_set(out, given[i].name, given[i].value, err) < 0)
            return -1;
    }
    return limits_validate(out, err);
}

struct put {
    struct api_call *a; /* held */
    bool created;
};

static void on_put_loaded(void *arg, struct tenant *t, const struct cl_err *err)
{
    struct put *p = arg;
    struct api_call *a = p->a;
    if (err) {
        api_fail(a, err);
    } else {
        struct tenant_row row;
        Cloche__V1__PutTenantResponse m = CLOCHE__V1__PUT_TENANT_RESPONSE__INIT;
        struct cl_err bad = {0};
        char text[256];
        (void)snprintf(
            text, sizeof text,
            "sandboxes=%llu vcpu_milli=%llu memory_mib=%llu rate_interval_us=%llu network=%llu "
            "count_calls=%llu",
            (unsigned long long)t->limits.sandboxes, (unsigned long long)t->limits.vcpu_milli,
            (unsigned long long)t->limits.mem_mib, (unsigned long long)t->limits.rate_interval_us,
            (unsigned long long)t->limits.network, (unsigned long long)t->limits.count_calls);
        const struct audit_field fields[] = {
            AUDIT_STR("by", a->p.key_id), AUDIT_BOOL("created", p->created),
            AUDIT_STR("limits", text), AUDIT_STR("tenant", t->name)};
        fill_tenant(&row, t);
        m.tenant = &row.m;
        m.created = p->created;
        if (audit_emit(a->s->audit, NULL, AUDIT_TENANT_PUT, fields, CL_COUNT(fields), NULL, NULL,
                       &bad) < 0)
            api_fail(a, &bad);
        else
            api_reply(a, &m.base);
    }
    api_release(a);
    cl_free(p);
}

static void on_put(bool created, const struct cl_err *err, void *arg)
{
    struct put *p = arg;
    const Cloche__V1__PutTenantRequest *r = (const Cloche__V1__PutTenantRequest *)p->a->request;
    struct tenant *old = cl_map_get(p->a->s->tenants, r->name);
    p->created = created;
    if (old)
        old->loaded_ns = 0; /* ask the books again */
    if (err)
        on_put_loaded(p, NULL, err);
    else
        tenant_get(p->a->s, r->name, on_put_loaded, p);
}

static void tenant_put(struct api_call *a)
{
    const Cloche__V1__PutTenantRequest *r = (const Cloche__V1__PutTenantRequest *)a->request;
    struct tenant_limits limits;
    struct cl_err err = {0};
    if (!cl_name_is_valid(r->name)) {
        api_fail_with(a, CL_E_INVALID, "name: must match ^[a-z][a-z0-9-]{0,62}$");
        return;
    }
    if (r->guest_separation[0] && strcmp(r->guest_separation, "isolated") != 0 &&
        strcmp(r->guest_separation, "shared-ok") != 0) {
        api_fail_with(a, CL_E_INVALID, "guest_separation: \"isolated\" or \"shared-ok\"");
        return;
    }
    if (read_limits(r->limits, &limits, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    struct put *p = cl_zalloc(sizeof *p);
    if (!p) {
        api_fail_with(a, CL_E_NOMEM, "tenant");
        return;
    }
    p->a = a;
    api_hold(a);
    api_about(a, "");
    if (tenant_write(a->s, r->name, &limits, r->guest_separation, on_put, p, &err) < 0)
        on_put(false, &err, p);
}

static void on_get(void *arg, struct tenant *t, const struct cl_err *err)
{
    struct api_call *a = arg;
    struct tenant_row row;
    Cloche__V1__GetTenantResponse m = CLOCHE__V1__GET_TENANT_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else {
        fill_tenant(&row, t);
        m.tenant = &row.m;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void tenant_read(struct api_call *a)
{
    const Cloche__V1__GetTenantRequest *r = (const Cloche__V1__GetTenantRequest *)a->request;
    struct cl_err err = {0};
    const char *name;
    if (principal_tenant(&a->p, r->name, &name, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    api_hold(a);
    tenant_get(a->s, name, on_get, a);
}

static void on_list(const struct books_tenant *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    struct api_call *a = arg;
    struct cl_err bad = {0};
    Cloche__V1__ListTenantsResponse m = CLOCHE__V1__LIST_TENANTS_RESPONSE__INIT;
    struct tenant_row *out = cl_zalloc_array(n, sizeof *out);
    Cloche__V1__Tenant **list = cl_zalloc_array(n, sizeof *list);
    if (!err && (!out || !list)) {
        (void)cl_fail(&bad, CL_E_NOMEM, 0, "list");
        err = &bad;
    }
    for (size_t i = 0; !err && i < n; i++) {
        struct tenant *t;
        if (tenant_cache(a->s, &rows[i], &t, &bad) < 0) {
            err = &bad;
            break;
        }
        fill_tenant(&out[i], t);
        list[m.n_tenants++] = &out[i].m;
    }
    m.tenants = list;
    m.next_page_token = (char *)(uintptr_t)(next ? next : "");
    if (err)
        api_fail(a, err);
    else
        api_reply(a, &m.base);
    cl_free(out);
    cl_free(list);
    api_release(a);
}

static void tenant_list(struct api_call *a)
{
    const Cloche__V1__ListTenantsRequest *r = (const Cloche__V1__ListTenantsRequest *)a->request;
    struct cl_err err = {0};
    size_t page;
    api_hold(a);
    if (api_page_size(r->page_size, 100, BOOKS_PAGE_MAX, &page, &err) < 0 ||
        books_tenant_list(a->s->books, r->page_token, page, on_list, a, &err) < 0) {
        api_fail(a, &err);
        api_release(a);
    }
}

/* --- keys
 * ----------------------------------------------------------------------------------------- */

struct key_row {
    Cloche__V1__Key m;
    Cloche__V1__Time created, expires, last_used;
    char *scopes[8];
    char text[SCOPES_TEXT];
};

static void fill_key(struct key_row *o, const struct books_key *k)
{
    cloche__v1__key__init(&o->m);
    cloche__v1__time__init(&o->created);
    cloche__v1__time__init(&o->expires);
    cloche__v1__time__init(&o->last_used);
    o->m.id = (char *)(uintptr_t)k->id;
    o->m.tenant = (char *)(uintptr_t)k->tenant;
    o->m.note = (char *)(uintptr_t)k->note;
    o->m.revoked = k->revoked;
    o->created.unix_ns = k->created_ms * CL_NS_PER_MS;
    o->expires.unix_ns = k->expires_ms * CL_NS_PER_MS;
    o->last_used.unix_ns = k->last_used_ms * CL_NS_PER_MS;
    o->m.created = &o->created;
    if (k->expires_ms)
        o->m.expires = &o->expires;
    if (k->last_used_ms)
        o->m.last_used = &o->last_used;
    scopes_format(k->scopes, o->text);
    o->m.scopes = o->scopes;
    char *rest = o->text;
    for (char *word; o->m.n_scopes < CL_COUNT(o->scopes) && (word = strsep(&rest, ",")) != NULL;)
        o->scopes[o->m.n_scopes++] = word;
}

struct creation {
    struct api_call *a; /* held */
    struct books_key row;
    char secret[API_KEY_TEXT];
};

static void on_key_put(const struct cl_err *err, void *arg)
{
    struct creation *c = arg;
    struct api_call *a = c->a;
    struct cl_err bad = {0};
    if (!err) {
        char scopes[SCOPES_TEXT];
        scopes_format(c->row.scopes, scopes);
        const struct audit_field fields[] = {
            AUDIT_STR("by", a->p.key_id), AUDIT_NUM("expires_ms", c->row.expires_ms),
            AUDIT_STR("key", c->row.id), AUDIT_STR("scopes", scopes),
            AUDIT_STR("subject", c->row.subject)};
        if (audit_emit(a->s->audit, c->row.tenant, AUDIT_KEY_CREATE, fields, CL_COUNT(fields), NULL,
                       NULL, &bad) < 0)
            err = &bad;
    }
    if (err) {
        api_fail(a, err);
    } else {
        struct key_row row;
        Cloche__V1__CreateKeyResponse m = CLOCHE__V1__CREATE_KEY_RESPONSE__INIT;
        fill_key(&row, &c->row);
        m.key = &row.m;
        m.secret = c->secret;
        api_reply(a, &m.base);
    }
    explicit_bzero(c->secret, sizeof c->secret);
    api_release(a);
    cl_free(c);
}

/* Nobody hands out more than they have. */
static int read_scopes(const struct api_call *a, const Cloche__V1__CreateKeyRequest *r,
                       uint32_t *ret, struct cl_err *err)
{
    uint32_t all = 0, one;
    for (size_t i = 0; i < r->n_scopes; i++) {
        if (scopes_parse(r->scopes[i], &one, err) < 0)
            return -1;
        all |= one;
    }
    if (all == 0)
        all = SCOPE_RUN | SCOPE_READ;
    if (!(a->p.scopes & SCOPE_ADMIN) && (all & SCOPE_ADMIN))
        return cl_fail(err, CL_E_DENIED, 0, "only an administrator makes administrators");
    *ret = all;
    return 0;
}

static void key_create(struct api_call *a)
{
    const Cloche__V1__CreateKeyRequest *r = (const Cloche__V1__CreateKeyRequest *)a->request;
    struct cl_err err = {0};
    const char *tenant;
    struct creation *c = cl_zalloc(sizeof *c);
    if (!c) {
        api_fail_with(a, CL_E_NOMEM, "key");
        return;
    }
    c->a = a;
    api_hold(a);
    if (principal_tenant(&a->p, r->tenant, &tenant, &err) < 0 ||
        read_scopes(a, r, &c->row.scopes, &err) < 0 ||
        (strlen(r->note) >= BOOKS_NOTE &&
         cl_fail(&err, CL_E_INVALID, 0, "note: at most 127 bytes") < 0) ||
        key_make(a->s, tenant, r->note, r->ttl_ns, &c->row, c->secret, &err) < 0) {
        on_key_put(&err, c);
        return;
    }
    api_about(a, c->row.id);
    if (books_key_put(a->s->books, &c->row, on_key_put, c, &err) < 0)
        on_key_put(&err, c);
}

static void on_keys(const struct books_key *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    struct api_call *a = arg;
    struct cl_err bad = {0};
    Cloche__V1__ListKeysResponse m = CLOCHE__V1__LIST_KEYS_RESPONSE__INIT;
    struct key_row *out = cl_zalloc_array(n, sizeof *out);
    Cloche__V1__Key **list = cl_zalloc_array(n, sizeof *list);
    if (!err && (!out || !list)) {
        (void)cl_fail(&bad, CL_E_NOMEM, 0, "list");
        err = &bad;
    }
    if (err) {
        api_fail(a, err);
    } else {
        for (size_t i = 0; i < n; i++) {
            fill_key(&out[i], &rows[i]);
            list[m.n_keys++] = &out[i].m;
        }
        m.keys = list;
        m.next_page_token = (char *)(uintptr_t)next;
        api_reply(a, &m.base);
    }
    cl_free(out);
    cl_free(list);
    api_release(a);
}

static void key_list(struct api_call *a)
{
    const Cloche__V1__ListKeysRequest *r = (const Cloche__V1__ListKeysRequest *)a->request;
    struct cl_err err = {0};
    const char *tenant;
    size_t page;
    api_hold(a);
    if (principal_tenant(&a->p, r->tenant, &tenant, &err) < 0 ||
        api_page_size(r->page_size, 100, BOOKS_PAGE_MAX, &page, &err) < 0 ||
        books_key_list(a->s->books, tenant, r->page_token, page, on_keys, a, &err) < 0) {
        api_fail(a, &err);
        api_release(a);
    }
}

static void on_revoked(const struct cl_err *err, void *arg)
{
    struct api_call *a = arg;
    const Cloche__V1__RevokeKeyRequest *r = (const Cloche__V1__RevokeKeyRequest *)a->request;
    Cloche__V1__RevokeKeyResponse m = CLOCHE__V1__REVOKE_KEY_RESPONSE__INIT;
    struct cl_err bad = {0};
    const struct audit_field fields[] = {AUDIT_STR("by", a->p.key_id), AUDIT_STR("key", r->key_id)};
    if (!err && audit_emit(a->s->audit, a->p.tenant, AUDIT_KEY_REVOKE, fields, CL_COUNT(fields),
                           NULL, NULL, &bad) < 0)
        err = &bad;
    if (err)
        api_fail(a, err);
    else
        api_reply(a, &m.base);
    api_release(a);
}

static void key_revoke(struct api_call *a)
{
    const Cloche__V1__RevokeKeyRequest *r = (const Cloche__V1__RevokeKeyRequest *)a->request;
    struct cl_err err = {0};
    api_about(a, strlen(r->key_id) < CL_ID_MAX ? r->key_id : "");
    api_hold(a);
    if (books_key_revoke(a->s->books, a->p.scopes & SCOPE_ADMIN ? NULL : a->p.tenant, r->key_id,
                         on_revoked, a, &err) < 0)
        on_revoked(&err, a);
}

/* --- usage
 * ---------------------------------------------------------------------------------------- */

struct usage {
    struct api_call *a; /* held */
    char tenant[BOOKS_NAME];
    struct books_usage u;
};

static void on_checked(const struct books_drift *drift, const struct cl_err *err, void *arg)
{
    struct usage *x = arg;
    if (err) {
        api_fail(x->a, err);
    } else {
        Cloche__V1__GetUsageResponse m = CLOCHE__V1__GET_USAGE_RESPONSE__INIT;
        Cloche__V1__QuotaUse rows[BOOKS_DIM_NR], *list[BOOKS_DIM_NR];
        Cloche__V1__Time ends = CLOCHE__V1__TIME__INIT;
        m.drift = drift->leases + drift->units + drift->wrong;
        for (int i = 0; i < BOOKS_DIM_NR; i++) {
            cloche__v1__quota_use__init(&rows[i]);
            rows[i].dimension = (char *)(uintptr_t)quota_dim_name((enum quota_dim)i);
            rows[i].used = x->u.held[i] + x->u.spent[i];
            rows[i].limit = x->u.limits.dim[i];
            list[i] = &rows[i];
            m.drift += drift->dim[i] < 0 ? -drift->dim[i] : drift->dim[i];
        }
        ends.unix_ns = x->u.period_end_ms * CL_NS_PER_MS;
        m.quotas = list;
        m.n_quotas = BOOKS_DIM_NR;
        m.queued = (uint32_t)x->u.queued;
        m.period_ends = &ends;
        api_reply(x->a, &m.base);
    }
    api_release(x->a);
    cl_free(x);
}

static void on_usage(const struct books_usage *u, const struct cl_err *err, void *arg)
{
    struct usage *x = arg;
    struct cl_err bad = {0};
    if (u)
        x->u = *u;
    if (err || books_check(x->a->s->books, x->tenant, on_checked, x, &bad) < 0)
        on_checked(NULL, err ? err : &bad, x);
}

static void tenant_usage(struct api_call *a)
{
    const Cloche__V1__GetUsageRequest *r = (const Cloche__V1__GetUsageRequest *)a->request;
    struct cl_err err = {0};
    const char *tenant;
    struct usage *x = cl_zalloc(sizeof *x);
    if (!x) {
        api_fail_with(a, CL_E_NOMEM, "usage");
        return;
    }
    x->a = a;
    api_hold(a);
    if (principal_tenant(&a->p, r->tenant, &tenant, &err) < 0) {
        on_checked(NULL, &err, x);
        return;
    }
    (void)snprintf(x->tenant, sizeof x->tenant, "%s", tenant);
    if (books_usage(a->s->books, tenant, on_usage, x, &err) < 0)
        on_checked(NULL, &err, x);
}

/* --- WhoAmI ------------------------------------------------------------------------------------
 */

static void who_am_i(struct api_call *a)
{
    Cloche__V1__WhoAmIResponse m = CLOCHE__V1__WHO_AM_IRESPONSE__INIT;
    char text[SCOPES_TEXT], *scopes[8], *rest = text;
    scopes_format(a->p.scopes, text);
    m.tenant = a->p.tenant;
    m.subject = a->p.subject;
    if (strcmp(a->p.key_id, PRINCIPAL_BY_TOKEN) != 0)
        m.key_id = a->p.key_id;
    m.scopes = scopes;
    for (char *word; m.n_scopes < CL_COUNT(scopes) && (word = strsep(&rest, ",")) != NULL;)
        scopes[m.n_scopes++] = word;
    api_reply(a, &m.base);
}

#define METHOD(name) "/cloche.v1.TenantService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method tenant_api[] = {
    {METHOD("PutTenant"), TYPES(put_tenant_request, put_tenant_response), .scope = SCOPE_ADMIN,
     .changes = true, .handle = tenant_put},
    {METHOD("GetTenant"), TYPES(get_tenant_request, get_tenant_response), .scope = SCOPE_READ,
     .handle = tenant_read},
    {METHOD("ListTenants"), TYPES(list_tenants_request, list_tenants_response),
     .scope = SCOPE_ADMIN, .handle = tenant_list},
    {METHOD("CreateKey"), TYPES(create_key_request, create_key_response),
     .scope = SCOPE_TENANT_ADMIN, .changes = true, .handle = key_create},
    {METHOD("ListKeys"), TYPES(list_keys_request, list_keys_response), .scope = SCOPE_TENANT_ADMIN,
     .handle = key_list},
    {METHOD("RevokeKey"), TYPES(revoke_key_request, revoke_key_response),
     .scope = SCOPE_TENANT_ADMIN, .changes = true, .handle = key_revoke},
    {METHOD("GetUsage"), TYPES(get_usage_request, get_usage_response), .scope = SCOPE_READ,
     .handle = tenant_usage},
    {METHOD("WhoAmI"), TYPES(who_am_irequest, who_am_iresponse), .scope = 0, .handle = who_am_i},
};
const size_t tenant_api_n = CL_COUNT(tenant_api);
