/* net/dns.c - see net/dns.h. */
#include "net/dns.h"

#include <string.h>

#include "base/err.h"

enum {
    HEAD_BYTES = 12,
    LABEL_MAX = 63,
    NAME_BYTES_MAX = 255, /* RFC 1035 §2.3.4, with lengths and the root */
    RECORD_BYTES = 16,    /* a pointer to the name, type, class, TTL, length, an address */
    FLAG_ANSWER = 0x8000,
    FLAGS_OPCODE = 0x7800,
    FLAG_RECURSION_WANTED = 0x0100,
    FLAG_RECURSION = 0x0080,
    CLASS_IN = 1,
    POINTER_TO_QUESTION = 0xc000 | HEAD_BYTES,
};

_Static_assert(HEAD_BYTES + NET_DNS_QUESTION_MAX + NET_DNS_RECORDS_MAX * RECORD_BYTES <=
                   NET_DNS_BYTES_MAX,
               "an answer always fits");

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint8_t *put16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
    return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
    return put16(put16(p, v >> 16), v & 0xffff);
}

/* A byte of a label as text; what no host name has becomes what net_name_is_valid() refuses, so
 * that a dot inside a label does not end it. */
static char letter(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return (char)((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ? c
                                                                                           : ' ');
}

/* RFC 1035 §4.1.2.  Returns the name's bytes on the wire, 0 when it is none; *name is "" when it is
 * no host's. */
static size_t take_name(const uint8_t *p, size_t n, char name[static NET_NAME_MAX + 1])
{
    size_t at = 0, len = 0;
    while (at < n && at < NAME_BYTES_MAX) {
        size_t label = p[at++];
        if (label == 0) {
            name[len] = '\0';
            if (!net_name_is_valid(name))
                name[0] = '\0';
            return at;
        }
        if (label > LABEL_MAX || label >= n - at || at + label >= NAME_BYTES_MAX)
            return 0; /* a pointer, cut short, or no room for the root */
        if (len)
            name[len++] = '.';
        for (size_t end = at + label; at < end; at++)
            name[len++] = letter(p[at]);
    }
    return 0;
}

bool net_dns_parse(const uint8_t *bytes, size_t n, struct net_dns_query *ret_query)
{
    struct net_dns_query q = {0};
    if (n < HEAD_BYTES)
        return false;
    uint16_t flags = get16(bytes + 2);
    if ((flags & (FLAG_ANSWER | FLAGS_OPCODE)) || get16(bytes + 4) != 1 || get16(bytes + 6) != 0 ||
        get16(bytes + 8) != 0)
        return false;
    const uint8_t *question = bytes + HEAD_BYTES;
    size_t left = n - HEAD_BYTES;
    size_t name_bytes = take_name(question, left, q.name);
    if (name_bytes == 0 || left - name_bytes < 4 || get16(question + name_bytes + 2) != CLASS_IN)
        return false;
    q.id = get16(bytes);
    q.wants_recursion = flags & FLAG_RECURSION_WANTED;
    q.qtype = get16(question + name_bytes);
    q.question_bytes = (uint16_t)(name_bytes + 4);
    memcpy(q.question, question, q.question_bytes);
    *ret_query = q;
    return true;
}

size_t net_dns_build(const struct net_dns_query *query, const struct net_dns_answer *answer,
                     uint8_t out[static NET_DNS_BYTES_MAX])
{
    CL_ASSERT(answer->n_records <= NET_DNS_RECORDS_MAX);
    uint8_t *p = put16(out, query->id);
    p = put16(p, (size_t)(FLAG_ANSWER | FLAG_RECURSION) |
                     (query->wants_recursion ? FLAG_RECURSION_WANTED : 0) | answer->rcode);
    p = put16(p, 1);
    p = put16(p, answer->n_records);
    p = put32(p, 0);
    memcpy(p, query->question, query->question_bytes);
    p += query->question_bytes;
    for (size_t i = 0; i < answer->n_records; i++) {
        p = put16(p, POINTER_TO_QUESTION);
        p = put16(p, NET_DNS_TYPE_A);
        p = put16(p, CLASS_IN);
        p = put32(p, answer->records[i].ttl_s);
        p = put16(p, 4);
        p = put32(p, answer->records[i].address);
    }
    return (size_t)(p - out);
}
