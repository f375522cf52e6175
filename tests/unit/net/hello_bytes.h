/* tests/unit/net/hello_bytes.h - ClientHellos, as clients write them and as none does. */
#ifndef CL_TESTS_UNIT_NET_HELLO_BYTES_H
#define CL_TESTS_UNIT_NET_HELLO_BYTES_H

#include <stdint.h>
#include <string.h>

struct hello_bytes {
    uint8_t at[8192];
    size_t n;
};

static inline void hello_put(struct hello_bytes *b, uint64_t value, int bytes)
{
    while (bytes-- > 0)
        b->at[b->n++] = (uint8_t)(value >> (8 * bytes));
}

static inline void hello_add(struct hello_bytes *b, const struct hello_bytes *part,
                             int length_bytes)
{
    hello_put(b, part->n, length_bytes);
    memcpy(b->at + b->n, part->at, part->n);
    b->n += part->n;
}

/* The extension server_name with one name. */
static inline void hello_name(struct hello_bytes *extensions, const char *name)
{
    struct hello_bytes text = {.n = strlen(name)}, list = {.n = 0}, one = {.n = 0};
    memcpy(text.at, name, text.n);
    hello_put(&list, 0, 1);
    hello_add(&list, &text, 2);
    hello_add(&one, &list, 2);
    hello_put(extensions, 0, 2);
    hello_add(extensions, &one, 2);
}

/* The handshake message around these extensions. */
static inline void hello_message(struct hello_bytes *out, const struct hello_bytes *extensions)
{
    struct hello_bytes body = {.n = 0};
    hello_put(&body, 0x0303, 2);
    body.n += 32;
    hello_put(&body, 0, 1); /* session id */
    hello_put(&body, 2, 2);
    hello_put(&body, 0x1301, 2);
    hello_put(&body, 0x0100, 2); /* compression: none */
    hello_add(&body, extensions, 2);
    hello_put(out, 1, 1);
    hello_add(out, &body, 3);
}

/* Records of at most `piece` bytes around a handshake message. */
static inline void hello_records(struct hello_bytes *out, const struct hello_bytes *message,
                                 size_t piece)
{
    for (size_t at = 0; at < message->n;) {
        size_t n = message->n - at < piece ? message->n - at : piece;
        hello_put(out, 0x160301, 3);
        hello_put(out, n, 2);
        memcpy(out->at + out->n, message->at + at, n);
        out->n += n;
        at += n;
    }
}

/* What a client of this name sends first. */
static inline struct hello_bytes hello_for(const char *name)
{
    struct hello_bytes extensions = {.n = 0}, message = {.n = 0}, out = {.n = 0};
    hello_put(&extensions, 0x002b0003, 4); /* supported_versions, before the name */
    hello_put(&extensions, 0x020304, 3);
    if (name)
        hello_name(&extensions, name);
    hello_message(&message, &extensions);
    hello_records(&out, &message, 16384);
    return out;
}

#endif
