/* e2b/network.c - see e2b/network.h. */
#include "e2b/network.h"

#include <stdio.h>
#include <string.h>

#define ALL_TRAFFIC "0.0.0.0/0"

static bool is_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

static int check_names(const json_t *network, struct cl_err *err)
{
    static const char *const known[] = {"allowOut", "denyOut", "allowPublicTraffic"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)network, name, value)
    {
        size_t i = 0;
        while (i < CL_COUNT(known) && strcmp(name, known[i]) != 0)
            i++;
        if (i == CL_COUNT(known) && !json_is_null(value))
            return cl_fail(err, CL_E_UNIMPL, 0, "network.%.40s: not served", name);
    }
    return 0;
}

static bool denies_all(const json_t *deny)
{
    const char *first = json_string_value(json_array_get(deny, 0));
    return json_array_size(deny) == 1 && first && strcmp(first, ALL_TRAFFIC) == 0;
}

static int add_rule(struct e2b_network *n, const json_t *v, struct cl_err *err)
{
    const char *target = json_string_value(v);
    if (!target || n->n == E2B_NETWORK_RULES)
        return cl_fail(err, CL_E_INVALID, 0, "network.allowOut: at most %d names or addresses",
                       E2B_NETWORK_RULES);
    bool all = strcmp(target, ALL_TRAFFIC) == 0;
    int len = snprintf(n->text[n->n], E2B_NETWORK_RULE_TEXT, all ? "public" : "%s:*", target);
    if (len < 0 || len >= E2B_NETWORK_RULE_TEXT)
        return cl_fail(err, CL_E_INVALID, 0, "network.allowOut: '%.40s' is too long", target);
    n->n++;
    return 0;
}

/* allowOut with everything else denied, as the SDKs say ALL_TRAFFIC. */
static int read_rules(const json_t *network, struct e2b_network *n, struct cl_err *err)
{
    const json_t *allow = json_object_get(network, "allowOut"),
                 *deny = json_object_get(network, "denyOut");
    size_t i;
    json_t *v;
    if (is_absent(allow) && is_absent(deny))
        return 0;
    if (!json_is_array(allow) || json_array_size(allow) == 0 || !denies_all(deny))
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "network: served is allowOut together with denyOut [\"" ALL_TRAFFIC "\"]");
    json_array_foreach(allow, i, v)
    {
        if (add_rule(n, v, err) < 0)
            return -1;
    }
    return 0;
}

int e2b_network_read(const json_t *network, struct e2b_network *ret, struct cl_err *err)
{
    const json_t *is_public = json_object_get(network, "allowPublicTraffic");
    ret->n = 0;
    ret->is_private = json_is_false(is_public);
    if (is_absent(network))
        return 0;
    if (!json_is_object(network))
        return cl_fail(err, CL_E_INVALID, 0, "network: want an object");
    if (!is_absent(is_public) && !json_is_boolean(is_public))
        return cl_fail(err, CL_E_INVALID, 0, "network.allowPublicTraffic: want true or false");
    return check_names(network, err) < 0 ? -1 : read_rules(network, ret, err);
}
