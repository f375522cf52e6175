/* What a client and a guest send through the gateway: the first byte says whose bytes follow.  What
 * is understood, and what is written of it, must not depend on the pieces; what is written must be
 * read again as the same, by the same rules. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gateway/port_access.h"
#include "gateway/port_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DOMAIN "localhost"

struct outcome {
    enum port_step last;
    size_t used;
    struct cl_buf head;
};

static bool write_head(const struct port_message *m, enum port_side side, struct cl_buf *out)
{
    const struct port_via via = {.peer = "192.0.2.1", .tls = true};
    return (side == PORT_REQUEST ? port_head_request(m, &via, out, NULL)
                                 : port_head_answer(m, false, out, NULL)) == 0;
}

static void ask_access(const struct port_message *m)
{
    static const uint8_t secret[E2B_SECRET] = {7};
    const char *host = port_message_value(m, "host");
    struct port_access access;
    struct port_host h;
    struct cl_buf target;
    cl_buf_init(&target, PORT_REQUEST_HEAD);
    if (port_host_parse(host, strlen(host), DOMAIN, &h)) {
        port_access_find(
            &(struct port_asked){.request = m, .host = &h, .domain = DOMAIN, .secret = secret},
            &access);
        CL_ASSERT((access.status == 0) == (access.credential[0] != '\0'));
        CL_ASSERT(port_head_target(m, &target, NULL) == 0 || cl_test_alloc_failed());
    }
    cl_buf_fini(&target);
}

/* More bytes say more, and never something else. */
static void sniff(const uint8_t *data, size_t n)
{
    size_t at = 0, whole_at = 0;
    enum port_sniff whole = port_sniff(data, n, DOMAIN, &whole_at), last = PORT_SNIFF_MORE;
    for (size_t seen = 0; seen <= n && last == PORT_SNIFF_MORE; seen++)
        last = port_sniff(data, seen, DOMAIN, &at);
    CL_ASSERT(last == whole);
}

static void run(enum port_side side, const uint8_t *data, size_t n, size_t piece,
                struct outcome *ret)
{
    struct port_message *m = NULL;
    enum port_step step = PORT_MORE;
    *ret = (struct outcome){.last = PORT_BAD};
    cl_buf_init(&ret->head, PORT_HEAD_OUT);
    if (port_message_new(side, &m, NULL) < 0)
        return;
    for (bool again = true; again && (step == PORT_MORE || step == PORT_HEAD);) {
        size_t used, left = CL_MIN(piece, n - ret->used);
        again = left > 0;
        step = port_message_feed(m, data + ret->used, left, &used);
        CL_ASSERT(used <= left);
        ret->used += used;
        if (step != PORT_HEAD)
            continue;
        again = true;
        CL_ASSERT(write_head(m, side, &ret->head) || cl_test_alloc_failed());
        if (side == PORT_REQUEST)
            ask_access(m);
    }
    if (step == PORT_MORE)
        step = port_message_eof(m);
    CL_ASSERT((step == PORT_BAD) == (port_message_status(m) != 0));
    ret->last = step;
    port_message_free(m);
}

/* Our own words pass unchanged but for what we add to each. */
static void read_again(enum port_side side, const struct cl_buf *head)
{
    struct port_message *m = NULL;
    struct cl_buf again;
    size_t used;
    if (head->len == 0 || head->len > PORT_REQUEST_HEAD || port_message_new(side, &m, NULL) < 0)
        return;
    cl_buf_init(&again, PORT_HEAD_OUT);
    enum port_step step = port_message_feed(m, head->data, head->len, &used);
    if (port_message_status(m) != 431 && port_message_fields(m) < PORT_REQUEST_FIELDS) {
        CL_ASSERT((step == PORT_HEAD && used == head->len) || cl_test_alloc_failed());
        if (step == PORT_HEAD && write_head(m, side, &again))
            CL_ASSERT(again.len == head->len);
    }
    cl_buf_fini(&again);
    port_message_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    enum port_side side = data[0] == '<' ? PORT_ANSWER : PORT_REQUEST;
    struct outcome whole, other;
    run(side, data + 1, size - 1, size, &whole);
    sniff(data + 1, size - 1);
    for (size_t piece = 1; piece <= 7; piece += 6) {
        run(side, data + 1, size - 1, piece, &other);
        if (!cl_test_alloc_failed()) {
            CL_ASSERT(other.last == whole.last && other.head.len == whole.head.len);
            CL_ASSERT(whole.last == PORT_BAD || other.used == whole.used);
            CL_ASSERT(whole.head.len == 0 ||
                      memcmp(other.head.data, whole.head.data, whole.head.len) == 0);
        }
        cl_buf_fini(&other.head);
    }
    read_again(side, &whole.head);
    cl_buf_fini(&whole.head);
    return 0;
}
