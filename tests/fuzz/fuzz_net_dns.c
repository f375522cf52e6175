/* A datagram of the guest to its resolver. */
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "net/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct net_dns_query q, again;
    uint8_t out[NET_DNS_BYTES_MAX];
    if (!net_dns_parse(data, size, &q))
        return 0;
    CL_ASSERT(!q.name[0] || net_name_is_valid(q.name));
    CL_ASSERT(q.question_bytes <= NET_DNS_QUESTION_MAX);
    CL_ASSERT(memcmp(q.question, data + 12, q.question_bytes) == 0);
    struct net_dns_answer a = {.rcode = size % 2 ? NET_DNS_NOERROR : NET_DNS_SERVFAIL,
                               .n_records = size % (NET_DNS_RECORDS_MAX + 1)};
    size_t n = net_dns_build(&q, &a, out);
    CL_ASSERT(n == 12 + q.question_bytes + 16 * a.n_records);
    CL_ASSERT(!net_dns_parse(out, n, &again)); /* an answer is no question */
    out[2] &= 0x7f;
    out[7] = 0;
    CL_ASSERT(net_dns_parse(out, n, &again) && strcmp(again.name, q.name) == 0);
    return 0;
}
