/* policy/net_rule.c - see policy/net_rule.h. */
#include "policy/net_rule.h"

#include <stdio.h>
#include <string.h>

enum { LABEL_MAX = 63, PORT_LAST = 65535 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

/* One label; *ret_letter says whether a letter is in it. */
static bool label_is_valid(const char *label, size_t n, bool *ret_letter)
{
    *ret_letter = false;
    if (n == 0 || n > LABEL_MAX || label[0] == '-' || label[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++) {
        *ret_letter |= is_letter(label[i]);
        if (!is_letter(label[i]) && !is_digit(label[i]) && label[i] != '-' && label[i] != '_')
            return false;
    }
    return true;
}

bool net_name_is_valid(const char *name)
{
    bool has_letter = false;
    if (strnlen(name, NET_NAME_MAX + 1) > NET_NAME_MAX)
        return false;
    for (;;) {
        size_t n = strcspn(name, ".");
        if (!label_is_valid(name, n, &has_letter))
            return false;
        if (!name[n])
            return has_letter; /* of the last label: without one it is an address, or looks so */
        name += n + 1;
    }
}

/* Does it end in ".suffix", or is it that? */
static bool name_is_within(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0 && (n == m || name[n - m - 1] == '.');
}

/* Of whoever asks (RFC 6761 §6.3): no server has a say in it. */
static bool name_is_local(const char *name)
{
    return name_is_within(name, "localhost");
}

/* A number of at most `digits` digits without leading zeros; moves *at behind it. */
static bool take_number(const char **at, size_t digits, uint32_t most, uint32_t *ret)
{
    size_t n = 0;
    uint32_t v = 0;
    for (; is_digit((*at)[n]); n++) {
        if (n == digits)
            return false;
        v = v * 10 + (uint32_t)((*at)[n] - '0');
    }
    if (n == 0 || (n > 1 && (*at)[0] == '0') || v > most)
        return false;
    *at += n;
    *ret = v;
    return true;
}

int net_range_parse(const char *text, struct net_range *ret_range, struct cl_err *err)
{
    const char *at = text;
    uint32_t address = 0, octet, prefix = 32;
    for (int i = 0; i < 4; i++) {
        if ((i > 0 && *at++ != '.') || !take_number(&at, 3, 255, &octet))
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no IPv4 address", text);
        address = address << 8 | octet;
    }
    if (*at == '/') {
        at++;
        if (!take_number(&at, 2, 32, &prefix))
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s': a prefix has 0 to 32 bits", text);
    }
    if (*at)
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no IPv4 address or range", text);
    uint32_t behind = prefix == 0 ? UINT32_MAX : (UINT32_C(1) << (32 - prefix)) - 1;
    if (address & behind)
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s': bits behind the prefix are set", text);
    *ret_range = (struct net_range){address, address | behind};
    return 0;
}

/* NULL = not given. */
static int parse_ports(const char *text, struct net_rule *rule, struct cl_err *err)
{
    uint32_t first = NET_PORT_DEFAULT, last;
    bool all = text ? strcmp(text, "*") == 0 : rule->target == NET_TARGET_PUBLIC;
    const char *at = text;
    rule->port_first = 1;
    rule->port_last = PORT_LAST;
    if (all)
        return 0;
    if (text && !take_number(&at, 5, PORT_LAST, &first))
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no port", text);
    last = first;
    if (text && *at == '-') {
        at++;
        if (!take_number(&at, 5, PORT_LAST, &last))
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no range of ports", text);
    }
    if (text && (*at || first == 0 || last < first))
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no range of ports from 1 to 65535", text);
    rule->port_first = (uint16_t)first;
    rule->port_last = (uint16_t)last;
    return 0;
}

static int parse_name(const char *text, struct net_rule *rule, struct cl_err *err)
{
    bool below = strncmp(text, "*.", 2) == 0;
    const char *name = below ? text + 2 : text;
    rule->target = below ? NET_TARGET_BELOW : NET_TARGET_NAME;
    size_t n = strlen(name);
    if (n > 0 && name[n - 1] == '.')
        n--;
    if (n > NET_NAME_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "a name has at most %d characters", NET_NAME_MAX);
    memcpy(rule->name, name, n);
    rule->name[n] = '\0';
    if (!net_name_is_valid(rule->name))
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no name, no IPv4 address and no range",
                       text);
    if (name_is_local(rule->name))
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is the guest itself", text);
    return 0;
}

static int parse_target(const char *text, struct net_rule *rule, struct cl_err *err)
{
    if (strcmp(text, "public") == 0) {
        rule->target = NET_TARGET_PUBLIC;
        return 0;
    }
    /* Only what is made of an address's characters can have been meant as one. */
    if (text[strspn(text, "0123456789./")])
        return parse_name(text, rule, err);
    rule->target = NET_TARGET_RANGE;
    return net_range_parse(text, &rule->range, err);
}

/* Cut the protocol off: what follows the last '/', unless that is a range's prefix. */
static int cut_protocol(char *text, struct net_rule *rule, struct cl_err *err)
{
    char *slash = strrchr(text, '/');
    rule->protocol = NET_TCP;
    if (!slash || is_digit(slash[1]))
        return 0;
    *slash = '\0';
    if (strcmp(slash + 1, "udp") == 0)
        rule->protocol = NET_UDP;
    else if (strcmp(slash + 1, "tcp") != 0)
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is neither tcp nor udp", slash + 1);
    return 0;
}

int net_rule_parse(const char *text, struct net_rule *ret_rule, struct cl_err *err)
{
    char low[NET_RULE_TEXT_MAX + 1];
    struct net_rule rule = {0};
    size_t n = strnlen(text, sizeof low);
    if (n == sizeof low)
        return cl_fail(err, CL_E_INVALID, 0, "a rule has at most %d characters", NET_RULE_TEXT_MAX);
    for (size_t i = 0; i <= n; i++)
        low[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
    if (cut_protocol(low, &rule, err) < 0)
        return -1;
    char *ports = strchr(low, ':');
    if (ports)
        *ports++ = '\0';
    if (parse_target(low, &rule, err) < 0 || parse_ports(ports, &rule, err) < 0)
        return -1;
    *ret_rule = rule;
    return 0;
}

bool net_rule_covers_name(const struct net_rule *rule, const char *name)
{
    if (name_is_local(name))
        return false;
    switch ((enum net_target)rule->target) {
    case NET_TARGET_PUBLIC:
        return true;
    case NET_TARGET_NAME:
        return strcmp(name, rule->name) == 0;
    case NET_TARGET_BELOW:
        return strlen(name) > strlen(rule->name) && name_is_within(name, rule->name);
    case NET_TARGET_RANGE:
        return false;
    }
    return false;
}

bool net_rule_covers_address(const struct net_rule *rule, uint32_t address)
{
    switch ((enum net_target)rule->target) {
    case NET_TARGET_PUBLIC:
        return net_address_is_public(address);
    case NET_TARGET_RANGE:
        return net_range_has(&rule->range, address);
    case NET_TARGET_NAME:
    case NET_TARGET_BELOW:
        return false;
    }
    return false;
}

bool net_rule_covers_port(const struct net_rule *rule, uint8_t protocol, uint16_t port)
{
    return rule->protocol == protocol && port >= rule->port_first && port <= rule->port_last;
}

bool net_range_has(const struct net_range *range, uint32_t address)
{
    return address >= range->first && address <= range->last;
}

/* The blocks that the IANA's IPv4 Special-Purpose Address Registry calls not globally reachable,
 * and multicast.  What it calls reachable (192.31.196.0/24, 192.52.193.0/24, 192.175.48.0/24) is
 * public. */
static const struct special {
    uint32_t first;
    uint8_t bits;
    const char *why;
} specials[] = {
    {0x00000000, 8, "RFC 791 §3.2: this network"},
    {0x0a000000, 8, "RFC 1918: private"},
    {0x64400000, 10, "RFC 6598: shared, behind a carrier's NAT"},
    {0x7f000000, 8, "RFC 1122 §3.2.1.3: loopback"},
    {0xa9fe0000, 16, "RFC 3927: link-local"},
    {0xac100000, 12, "RFC 1918: private"},
    {0xc0000000, 24, "RFC 6890: protocol assignments"},
    {0xc0000200, 24, "RFC 5737: documentation"},
    {0xc0586300, 24, "RFC 7526: 6to4 relay, deprecated"},
    {0xc0a80000, 16, "RFC 1918: private"},
    {0xc6120000, 15, "RFC 2544: benchmarks"},
    {0xc6336400, 24, "RFC 5737: documentation"},
    {0xcb007100, 24, "RFC 5737: documentation"},
    {0xe0000000, 4, "RFC 5771: multicast"},
    {0xf0000000, 4, "RFC 1112 §4: reserved; limited broadcast"},
};

bool net_address_is_public(uint32_t address)
{
    for (size_t i = 0; i < CL_COUNT(specials); i++) {
        if ((address ^ specials[i].first) >> (32 - specials[i].bits) == 0)
            return false;
    }
    return true;
}
