/* cli/tenants.c - tenants, their keys, their use. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/pages.h"
#include "cli/values.h"
#include "cloche/v1/tenant.pb-c.h"
#include "proto/copy.h"

enum { TENANT_PAGE = 100 };

/* --- tenants
 * --------------------------------------------------------------------------------------- */

static json_t *tenant_json(const Cloche__V1__Tenant *t)
{
    const Cloche__V1__TenantLimits *l = t->limits;
    Cloche__V1__TenantLimits none = CLOCHE__V1__TENANT_LIMITS__INIT;
    char rate[VALUE_TEXT] = "-";
    l = l ? l : &none;
    if (l->rate_interval_us)
        (void)snprintf(rate, sizeof rate, "%" PRIu64 ".%" PRIu64 "/s",
                       UINT64_C(1000000) / l->rate_interval_us,
                       UINT64_C(10000000) / l->rate_interval_us % 10);
    return json_pack(
        "{s:s, s:o, s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, "
        "s:b}}",
        "name", t->name, "created", out_time(t->created ? t->created->unix_ns : 0),
        "guest_separation", t->guest_separation, "rate", rate, "limits", "sandboxes",
        (json_int_t)l->sandboxes, "vcpu_milli", (json_int_t)l->vcpu_milli, "memory_mib",
        (json_int_t)l->memory_mib, "disk_mib", (json_int_t)l->disk_mib, "cpu_ms_per_period",
        (json_int_t)l->cpu_ms_per_period, "egress_bytes_per_period",
        (json_int_t)l->egress_bytes_per_period, "period_ms", (json_int_t)l->period_ms,
        "rate_interval_us", (json_int_t)l->rate_interval_us, "rate_burst",
        (json_int_t)l->rate_burst, "queue_max", (json_int_t)l->queue_max, "weight",
        (json_int_t)l->weight, "file_bytes", (json_int_t)l->file_bytes, "network", (int)l->network,
        "count_calls", (int)l->count_calls);
}

/* Limits as columns of their own, for tables. */
static void flatten(json_t *tenant)
{
    (void)json_object_update_missing(tenant, json_object_get(tenant, "limits"));
}

static const struct out_col tenant_lines[] = {{"name", "name"},
                                              {"created", "created"},
                                              {"sandboxes", "sandboxes"},
                                              {"vcpu_milli", "vCPU/1000"},
                                              {"memory_mib", "MiB"},
                                              {"disk_mib", "disk MiB"},
                                              {"rate", "rate"},
                                              {"rate_burst", "burst"},
                                              {"queue_max", "queue"},
                                              {"weight", "weight"},
                                              {"network", "network"},
                                              {"guest_separation", "guest separation"},
                                              {"count_calls", "system calls counted"}};

static int print_tenant(const struct cli_opts *o, const Cloche__V1__Tenant *t)
{
    json_t *j = tenant_json(t);
    if (!o->json)
        flatten(j);
    return out_object(o->json, j, tenant_lines, CL_COUNT(tenant_lines));
}

static int get_tenant(struct client *client, const char *name, ProtobufCMessage **ret_msg,
                      struct cl_err *err)
{
    static const struct client_method get =
        CLIENT_METHOD("TenantService", "GetTenant", get_tenant_response);
    Cloche__V1__GetTenantRequest req = CLOCHE__V1__GET_TENANT_REQUEST__INIT;
    req.name = pb_text(name);
    return client_unary(client, &get, &req.base, 0, ret_msg, err);
}

static void override(uint64_t *at, uint64_t value)
{
    if (value)
        *at = value;
}

static int set_switch(const char *option, const char *word, protobuf_c_boolean *at,
                      struct cl_err *err)
{
    if (word && strcmp(word, "yes") != 0 && strcmp(word, "no") != 0)
        return cl_fail(err, CL_E_INVALID, 0, "--%s is \"yes\" or \"no\"", option);
    if (word)
        *at = strcmp(word, "yes") == 0;
    return 0;
}

/* The options over what is there. */
static int set_limits(const struct cli_opts *o, Cloche__V1__TenantLimits *l, struct cl_err *err)
{
    override(&l->sandboxes, o->max_sandboxes);
    override(&l->vcpu_milli, o->max_vcpus * 1000);
    override(&l->memory_mib, o->max_memory / CL_MIB);
    override(&l->disk_mib, o->max_disk / CL_MIB);
    override(&l->cpu_ms_per_period, o->cpu_time / CL_NS_PER_MS);
    override(&l->period_ms, o->period / CL_NS_PER_MS);
    override(&l->rate_burst, o->burst);
    override(&l->queue_max, o->queue);
    override(&l->weight, o->weight);
    override(&l->egress_bytes_per_period, o->max_egress);
    override(&l->file_bytes, o->max_file);
    if (set_switch("network", o->network, &l->network, err) < 0 ||
        set_switch("count-calls", o->count_calls, &l->count_calls, err) < 0)
        return -1;
    return o->rate ? value_rate(o->rate, &l->rate_interval_us, err) : 0;
}

static int cmd_tenant_create(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method put =
        CLIENT_METHOD("TenantService", "PutTenant", put_tenant_response);
    struct cl_err err = {0};
    ProtobufCMessage *old = NULL, *msg = NULL;
    Cloche__V1__TenantLimits limits = CLOCHE__V1__TENANT_LIMITS__INIT;
    Cloche__V1__PutTenantRequest req = CLOCHE__V1__PUT_TENANT_REQUEST__INIT;
    CL_AUTO(client_freep) struct client *client = NULL;
    req.name = pb_text(a->pos[0]);
    req.limits = &limits;
    req.guest_separation = pb_text(o->isolation);
    if (client_open(o, &client, &err) < 0)
        return cli_report(&err);
    /* What exists keeps the limits that are not named here. */
    if (get_tenant(client, a->pos[0], &old, &err) == 0 &&
        ((const Cloche__V1__GetTenantResponse *)old)->tenant) {
        const Cloche__V1__Tenant *t = ((const Cloche__V1__GetTenantResponse *)old)->tenant;
        if (t->limits)
            limits = *t->limits;
        if (!o->isolation)
            req.guest_separation = t->guest_separation;
    } else if (err.code && err.code != CL_E_NOTFOUND) {
        return cli_report(&err);
    }
    int rc = set_limits(o, &limits, &err);
    if (rc == 0)
        rc = client_unary(client, &put, &req.base, 0, &msg, &err);
    pb_free(old);
    if (rc != 0)
        return cli_report(&err);
    int code = print_tenant(o, ((const Cloche__V1__PutTenantResponse *)msg)->tenant);
    pb_free(msg);
    return code;
}

static int cmd_tenant_show(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    if (client_open(o, &client, &err) < 0 || get_tenant(client, a->pos[0], &msg, &err) < 0)
        return cli_report(&err);
    int code = print_tenant(o, ((const Cloche__V1__GetTenantResponse *)msg)->tenant);
    pb_free(msg);
    return code;
}

static int tenants_page(const struct cli_opts *o, const struct args *a, struct client *client,
                        char token[static VALUE_NAME], json_t *rows, struct cl_err *err)
{
    (void)o, (void)a;
    static const struct client_method list =
        CLIENT_METHOD("TenantService", "ListTenants", list_tenants_response);
    Cloche__V1__ListTenantsRequest req = CLOCHE__V1__LIST_TENANTS_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = TENANT_PAGE;
    req.page_token = token;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__ListTenantsResponse *m = (const Cloche__V1__ListTenantsResponse *)msg;
    for (size_t i = 0; i < m->n_tenants; i++)
        (void)json_array_append_new(rows, tenant_json(m->tenants[i]));
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int cmd_tenant_list(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {
        {"name", "NAME"},      {"sandboxes", "SANDBOXES"}, {"vcpu_milli", "VCPU/1000"},
        {"memory_mib", "MIB"}, {"rate", "RATE"},           {"queue_max", "QUEUE"},
        {"weight", "WEIGHT"},  {"created", "CREATED"}};
    int code = EXIT_OK;
    json_t *rows = pages_all(o, a, tenants_page, 0, &code);
    for (size_t i = 0; !o->json && i < json_array_size(rows); i++)
        flatten(json_array_get(rows, i));
    return rows ? out_rows(o->json, rows, cols, CL_COUNT(cols)) : code;
}

/* --- keys
 * --------------------------------------------------------------------------------------------- */

static json_t *key_json(const Cloche__V1__Key *k)
{
    json_t *scopes = json_array();
    for (size_t i = 0; i < k->n_scopes; i++)
        (void)json_array_append_new(scopes, json_string(k->scopes[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "id", k->id, "tenant", k->tenant,
                     "scopes", scopes, "created", out_time(k->created ? k->created->unix_ns : 0),
                     "expires", out_time(k->expires ? k->expires->unix_ns : 0), "last_used",
                     out_time(k->last_used ? k->last_used->unix_ns : 0), "revoked", k->revoked,
                     "note", out_string(k->note));
}

static int cmd_key_create(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method create =
        CLIENT_METHOD("TenantService", "CreateKey", create_key_response);
    struct cl_err err = {0};
    char text[VALUE_SCOPES_TEXT], *scopes[VALUE_SCOPES];
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__CreateKeyRequest req = CLOCHE__V1__CREATE_KEY_REQUEST__INIT;
    req.tenant = pb_text(a->pos[0]);
    req.ttl_ns = o->ttl;
    req.note = pb_text(o->note);
    req.scopes = scopes;
    if ((o->scopes && value_scopes(o->scopes, text, scopes, &req.n_scopes, &err) < 0) ||
        client_open(o, &client, &err) < 0 ||
        client_unary(client, &create, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__CreateKeyResponse *m = (const Cloche__V1__CreateKeyResponse *)msg;
    if (o->json) {
        json_t *j = m->key ? key_json(m->key) : json_object();
        (void)json_object_set_new(j, "tenant", json_string(a->pos[0]));
        (void)json_object_set_new(j, "key", json_string(m->secret));
        (void)out_json(j);
    } else {
        (void)puts(m->secret);
        cli_say("this is the only time it is shown; id %s", m->key ? m->key->id : "?");
    }
    pb_free(msg);
    return EXIT_OK;
}

static int keys_page(const struct cli_opts *o, const struct args *a, struct client *client,
                     char token[static VALUE_NAME], json_t *rows, struct cl_err *err)
{
    static const struct client_method list =
        CLIENT_METHOD("TenantService", "ListKeys", list_keys_response);
    Cloche__V1__ListKeysRequest req = CLOCHE__V1__LIST_KEYS_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.tenant = pb_text(a->n_pos ? a->pos[0] : o->tenant);
    req.page_size = TENANT_PAGE;
    req.page_token = token;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__ListKeysResponse *m = (const Cloche__V1__ListKeysResponse *)msg;
    for (size_t i = 0; i < m->n_keys; i++)
        (void)json_array_append_new(rows, key_json(m->keys[i]));
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int cmd_key_list(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {{"id", "ID"},
                                          {"tenant", "TENANT"},
                                          {"scopes", "SCOPES"},
                                          {"created", "CREATED"},
                                          {"last_used", "LAST USED"},
                                          {"expires", "EXPIRES"},
                                          {"revoked", "REVOKED"},
                                          {"note", "NOTE"}};
    int code = EXIT_OK;
    json_t *rows = pages_all(o, a, keys_page, 0, &code);
    return rows ? out_rows(o->json, rows, cols, CL_COUNT(cols)) : code;
}

static int cmd_key_revoke(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method revoke =
        CLIENT_METHOD("TenantService", "RevokeKey", revoke_key_response);
    struct cl_err err = {0};
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__RevokeKeyRequest req = CLOCHE__V1__REVOKE_KEY_REQUEST__INIT;
    char id[32];
    /* The whole key works too: its id is the part between the underscores. */
    (void)snprintf(id, sizeof id, "%.16s",
                   strncmp(a->pos[0], "clk_", 4) == 0 ? a->pos[0] + 4 : a->pos[0]);
    req.key_id = id;
    if (client_open(o, &client, &err) < 0 || client_do(client, &revoke, &req.base, &err) < 0)
        return cli_report(&err);
    return o->json ? out_json(json_pack("{s:s}", "revoked", id)) : EXIT_OK;
}

/* --- use
 * --------------------------------------------------------------------------------------------------
 */

static json_t *usage_json(const char *tenant, const Cloche__V1__GetUsageResponse *m)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < m->n_quotas; i++)
        (void)json_array_append_new(rows, json_pack("{s:s, s:I, s:I}", "dimension",
                                                    m->quotas[i]->dimension, "used",
                                                    (json_int_t)m->quotas[i]->used, "limit",
                                                    (json_int_t)m->quotas[i]->limit));
    return json_pack("{s:s, s:i, s:I, s:o, s:o}", "tenant", tenant, "queued", (int)m->queued,
                     "drift", (json_int_t)m->drift, "period_ends",
                     out_time(m->period_ends ? m->period_ends->unix_ns : 0), "quotas", rows);
}

static int cmd_usage(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method usage =
        CLIENT_METHOD("TenantService", "GetUsage", get_usage_response);
    static const struct out_col lines[] = {{"tenant", "tenant"},
                                           {"queued", "queued"},
                                           {"period_ends", "period ends"},
                                           {"drift", "drift"}};
    static const struct out_col cols[] = {
        {"dimension", "DIMENSION"}, {"used", "USED"}, {"limit", "LIMIT"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    const char *tenant = o->tenant ? o->tenant : a->n_pos ? a->pos[0] : "local";
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__GetUsageRequest req = CLOCHE__V1__GET_USAGE_REQUEST__INIT;
    req.tenant = pb_text(tenant);
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &usage, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    json_t *j = usage_json(tenant, (const Cloche__V1__GetUsageResponse *)msg);
    pb_free(msg);
    if (o->json)
        return out_json(j);
    json_t *rows = json_incref(json_object_get(j, "quotas"));
    (void)out_object(false, j, lines, CL_COUNT(lines));
    (void)putchar('\n');
    return out_rows(false, rows, cols, CL_COUNT(cols));
}

/* --- rows
 * --------------------------------------------------------------------------------------------------
 */

static const struct arg_opt put_opts[] = {
    OPT_JSON,
    {"max-sandboxes", 0, ARG_U64, OPT(max_sandboxes), "N", "sandboxes and jobs at once"},
    {"max-vcpus", 0, ARG_U64, OPT(max_vcpus), "N", "virtual CPUs at once"},
    {"max-memory", 0, ARG_BYTES, OPT(max_memory), "8GiB", "memory at once"},
    {"max-disk", 0, ARG_BYTES, OPT(max_disk), "16GiB", "disk at once"},
    {"cpu-time", 0, ARG_DURATION, OPT(cpu_time), "10h", "CPU time per period"},
    {"max-egress", 0, ARG_BYTES, OPT(max_egress), "10GiB", "bytes sent over networks per period"},
    {"max-file", 0, ARG_BYTES, OPT(max_file), "1GiB", "largest transfer of a file, in or out"},
    {"network", 0, ARG_STRING, OPT(network), "yes", "its jobs and sandboxes may be given network"},
    {"period", 0, ARG_DURATION, OPT(period), "1d", "length of a period"},
    {"rate", 0, ARG_STRING, OPT(rate), "10/s", "submissions; also 5/m, 100/h"},
    {"burst", 0, ARG_U64, OPT(burst), "N", "submissions that may come at once"},
    {"weight", 0, ARG_U64, OPT(weight), "N", "share of the machine under contention, 1-1000"},
    {"queue", 0, ARG_U64, OPT(queue), "N", "jobs that may wait"},
    {"count-calls", 0, ARG_STRING, OPT(count_calls), "yes",
     "the audit log tells how often which system call was made"},
    {"guest-separation", 0, ARG_STRING, OPT(isolation), "X", "isolated (default) or shared-ok"},
};
static const struct arg_opt json_opts[] = {OPT_JSON};
static const struct arg_opt key_opts[] = {
    OPT_JSON,
    {"scopes", 0, ARG_STRING, OPT(scopes), "run,read", "of admin, tenant-admin, run, read, audit"},
    {"ttl", 0, ARG_DURATION, OPT(ttl), "30d", "it expires after this long (default: never)"},
    {"note", 0, ARG_STRING, OPT(note), "TEXT", "what it is for"},
};
static const struct arg_opt tenant_opts[] = {
    OPT_JSON, {"tenant", 0, ARG_STRING, OPT(tenant), "NAME", "whose (default: local)"}};

const struct cli_command tenant_commands[] = {
    {"tenant create", "[LIMITS] NAME", "make a tenant or change its limits",
     "Limits that are not given stay as they are, or get their default.\n\n"
     "  cloche tenant create acme --max-sandboxes 4 --rate 10/s\n",
     SPEC(put_opts, 1, 1), cmd_tenant_create, false},
    {"tenant list", "[--json]", "list tenants", NULL, SPEC(json_opts, 0, 0), cmd_tenant_list,
     false},
    {"tenant show", "NAME", "look at a tenant's limits", NULL, SPEC(json_opts, 1, 1),
     cmd_tenant_show, false},
    {"key create", "[OPTIONS] TENANT", "make an API key; it is shown once",
     "  export CLOCHE_API_KEY=$(cloche key create acme)\n  cloche key create acme --json | jq -r "
     ".key\n",
     SPEC(key_opts, 1, 1), cmd_key_create, false},
    {"key list", "[TENANT]", "list keys, without their secrets", NULL, SPEC(tenant_opts, 0, 1),
     cmd_key_list, false},
    {"key revoke", "ID", "revoke a key within one second", NULL, SPEC(json_opts, 1, 1),
     cmd_key_revoke, false},
    {"usage", "[--tenant NAME]", "what a tenant holds and has used", NULL, SPEC(tenant_opts, 0, 1),
     cmd_usage, false},
};
const size_t tenant_commands_n = CL_COUNT(tenant_commands);
