/* scheduler/validate.c - see scheduler/validate.h. */
#include "scheduler/validate.h"

#include <string.h>

#include "base/id.h"
#include "policy/net_rule.h"

static int invalid(struct cl_err *err, const char *field, const char *text)
{
    return cl_fail(err, CL_E_INVALID, 0, "%s: %s", field, text);
}

int validate_user(const char *user, struct cl_err *err)
{
    if (user[0] && strcmp(user, "user") != 0 && strcmp(user, "root") != 0)
        return invalid(err, "user", "must be \"user\" or \"root\"");
    return 0;
}

int validate_path(const char *path, struct cl_err *err)
{
    size_t n = strlen(path);
    if (n == 0 || n > PATH_TEXT_MAX)
        return invalid(err, "path", "must have 1 to 4096 bytes");
    return 0;
}

int validate_file_bytes(uint64_t bytes, uint64_t max, struct cl_err *err)
{
    return bytes <= max ? 0
                        : cl_fail(err, CL_E_TOOBIG, 0,
                                  "a transfer of a file is at most %llu bytes (the tenant's limit "
                                  "file_bytes)",
                                  (unsigned long long)max);
}

int validate_labels(Cloche__V1__Label *const *labels, size_t n, struct cl_err *err)
{
    if (n > LABELS_MAX)
        return invalid(err, "labels", "at most 32");
    for (size_t i = 0; i < n; i++) {
        if (!cl_name_is_valid(labels[i]->key))
            return invalid(err, "labels.key", "must match ^[a-z][a-z0-9-]{0,62}$");
        if (strlen(labels[i]->value) > LABEL_VALUE_MAX)
            return invalid(err, "labels.value", "at most 256 bytes");
        for (size_t j = 0; j < i; j++) {
            if (strcmp(labels[i]->key, labels[j]->key) == 0)
                return invalid(err, "labels", "a key appears twice");
        }
    }
    return 0;
}

int validate_ttl(uint64_t ttl_ns, struct cl_err *err)
{
    return ttl_ns > SANDBOX_TTL_MAX_S * CL_NS_PER_S ? invalid(err, "ttl_ns", "at most 24 h") : 0;
}

int validate_keep(uint64_t keep_ns, uint64_t *ret_keep_ns, struct cl_err *err)
{
    if (keep_ns > PAUSE_KEEP_MAX_S * CL_NS_PER_S)
        return invalid(err, "keep_ns", "at most 30 days");
    *ret_keep_ns = keep_ns ? keep_ns : PAUSE_KEEP_S * CL_NS_PER_S;
    return 0;
}

int validate_snapshot_name(const char *name, struct cl_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(name);
    bool is_one = n <= SNAPSHOT_NAME_MAX && strspn(name, letters) == n && !strchr("._-", name[0]) &&
                  strncmp(name, "snp_", 4) != 0;
    return n == 0 || is_one ? 0
                            : invalid(err, "name",
                                      "must match ^[a-z0-9][a-z0-9._-]{0,62}$, not snp_... (as "
                                      "\"numpy-ready\")");
}

int validate_on_idle(Cloche__V1__IdleAction action, bool wakes, bool *ret_pauses,
                     struct cl_err *err)
{
    if (!protobuf_c_enum_descriptor_get_value(&cloche__v1__idle_action__descriptor, (int)action))
        return invalid(err, "on_idle", "IDLE_ACTION_END or IDLE_ACTION_PAUSE");
    if (wakes && action != CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE)
        return invalid(err, "wake_on_use", "only with on_idle IDLE_ACTION_PAUSE");
    *ret_pauses = action == CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    return 0;
}

int validate_env(Cloche__V1__EnvVar *const *env, size_t n, const char *field, size_t *bytes,
                 struct cl_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = env[i]->name;
        if (!name[0] || strchr(name, '='))
            return invalid(err, field, "must not be empty or contain '='");
        *bytes += strlen(name) + strlen(env[i]->value) + 2 + sizeof(char *);
    }
    return 0;
}

int validate_command(const Cloche__V1__Command *c, struct cl_err *err)
{
    size_t bytes = 0;
    if (!c || c->n_argv == 0 || !c->argv[0][0])
        return invalid(err, "command.argv", "must name a program");
    for (size_t i = 0; i < c->n_argv; i++)
        bytes += strlen(c->argv[i]) + 1 + sizeof(char *);
    if (validate_env(c->env, c->n_env, "command.env.name", &bytes, err) < 0 ||
        validate_user(c->user, err) < 0)
        return -1;
    if (bytes > ARGS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "command: argv and env take %zu bytes, at most %d",
                       bytes, ARGS_MAX);
    if (strlen(c->cwd) > PATH_TEXT_MAX)
        return invalid(err, "command.cwd", "at most 4096 bytes");
    if (c->timeout_ns > 24 * 3600 * CL_NS_PER_S)
        return invalid(err, "command.timeout_ns", "at most 24 h");
    if (c->output_max_bytes > CL_GIB)
        return invalid(err, "command.output_max_bytes", "at most 1 GiB");
    if (c->pty && (c->pty->rows > 10000 || c->pty->columns > 10000))
        return invalid(err, "command.pty", "at most 10000 rows and columns");
    return 0;
}

/* *ret_egress: what it may send, and holds; 0 without a grant. */
static int validate_grant(const Cloche__V1__JobSpec *spec, const struct spec_frame *frame,
                          const struct tenant_limits *limits, uint64_t *ret_egress,
                          struct cl_err *err)
{
    const Cloche__V1__NetworkGrant *g = spec->network_grant;
    struct net_rule rule;
    *ret_egress = 0;
    if (!g)
        return 0;
    if (spec->network == CLOCHE__V1__NETWORK__NETWORK_NONE)
        return invalid(err, "network_grant", "and NETWORK_NONE exclude each other");
    if (g->n_allow == 0 && frame->is_copy)
        return 0;
    if (g->n_allow == 0 || g->n_allow > NET_RULES_MAX)
        return invalid(err, "network_grant.allow", "must have 1 to 32 rules");
    for (size_t i = 0; i < g->n_allow; i++) {
        if (net_rule_parse(g->allow[i], &rule, err) < 0)
            return cl_wrap(err, "network_grant.allow");
    }
    if (!limits->network)
        return cl_fail(err, CL_E_DENIED, 0,
                       "network_grant: this tenant gets no network; an operator allows it with "
                       "`cloche tenant create TENANT --network yes`");
    if (limits->egress_bytes == 0)
        return cl_fail(err, CL_E_QUOTA, 0, "network_grant: the tenant's egress_bytes are 0");
    *ret_egress = g->egress_bytes
                      ? g->egress_bytes
                      : CL_MIN((uint64_t)UNIT_DEFAULT_EGRESS_BYTES, limits->egress_bytes);
    return 0;
}

static uint64_t pick(uint64_t asked, uint64_t def, uint64_t unit_max, uint64_t max)
{
    return asked ? asked : CL_MIN(def, CL_MIN(unit_max, max));
}

int validate_spec(const Cloche__V1__JobSpec *spec, const struct spec_frame *frame,
                  const struct tenant_limits *limits, struct quota_need *ret_need,
                  struct cl_err *err)
{
    if (!spec)
        return invalid(err, "spec", "is missing");
    if (!cl_name_is_valid(spec->template_))
        return invalid(err, "template", "must match ^[a-z][a-z0-9-]{0,62}$ (as \"python\")");
    if (frame->is_job && validate_command(spec->command, err) < 0)
        return -1;
    if (validate_labels(spec->labels, spec->n_labels, err) < 0)
        return -1;
    if (spec->network != CLOCHE__V1__NETWORK__NETWORK_UNSPECIFIED &&
        spec->network != CLOCHE__V1__NETWORK__NETWORK_NONE)
        return invalid(err, "network", "NETWORK_NONE, or a network_grant");
    uint64_t egress_bytes;
    if (validate_grant(spec, frame, limits, &egress_bytes, err) < 0)
        return -1;
    if (spec->max_attempts > MAX_ATTEMPTS_MAX)
        return invalid(err, "max_attempts", "at most 10");
    const Cloche__V1__Resources *r = spec->resources;
    struct unit_request request = {
        .wall_ms = frame->life_ns / CL_NS_PER_MS,
        .vcpu_milli = pick(r ? (uint64_t)r->vcpus * 1000 : 0, frame->vcpus * 1000,
                           limits->unit_vcpu_milli, limits->vcpu_milli),
        .mem_mib =
            pick(r ? r->memory_mib : 0, frame->memory_mib, limits->unit_mem_mib, limits->mem_mib),
        .disk_mib = r ? r->disk_mib : 0,
        .egress_bytes = egress_bytes,
    };
    if (!frame->is_job) /* its life is open: an hour is held, and what it used is settled at the end
                         */
        request.cpu_ms = SANDBOX_CPU_MS * (r && r->vcpus ? r->vcpus : 1);
    unit_request_default(&request, limits);
    return unit_request_check(&request, limits, ret_need, err);
}
