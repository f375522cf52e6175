/* net/hello.c - see net/hello.h. */
#include "net/hello.h"

#include <string.h>

#include "base/util.h"

enum {
    RECORD_HEAD = 5,
    RECORD_MAX = 16384,
    RECORD_HANDSHAKE = 22,
    HANDSHAKE_HEAD = 4,
    CLIENT_HELLO = 1,
    RANDOM = 32,
    SERVER_NAME = 0, /* the extension, and in it the type host_name */
};

/* Bytes that are left of something; one that is asked for too much is broken for good. */
struct cursor {
    const uint8_t *at;
    size_t n;
    bool broken;
};

static struct cursor take(struct cursor *c, size_t n)
{
    struct cursor part = {.at = c->at, .n = n, .broken = c->broken || n > c->n};
    c->broken = part.broken;
    if (part.broken)
        return (struct cursor){.broken = true};
    c->at += n;
    c->n -= n;
    return part;
}

static size_t number(struct cursor *c, size_t bytes)
{
    struct cursor part = take(c, bytes);
    size_t value = 0;
    for (size_t i = 0; i < part.n; i++)
        value = value << 8 | part.at[i];
    return value;
}

/* A vector behind its length of so many bytes (RFC 8446 section 3.4). */
static struct cursor vector(struct cursor *c, size_t bytes)
{
    return take(c, number(c, bytes));
}

/* --- records to the handshake's bytes -----------------------------------------------------------
 */

/* As the message's head says; what has none is not whole. */
static bool is_whole(const uint8_t *message, size_t n)
{
    return n >= HANDSHAKE_HEAD &&
           n - HANDSHAKE_HEAD >= (size_t)(message[1] << 16 | message[2] << 8 | message[3]);
}

/* The hello's bytes out of the records, which may cut it anywhere; false = they are not such.
 * *ret_n of them are there. */
static bool join_records(const uint8_t *bytes, size_t n, uint8_t out[static NET_HELLO_MAX],
                         size_t *ret_n)
{
    *ret_n = 0;
    while (n >= RECORD_HEAD && !is_whole(out, *ret_n)) {
        size_t length = (size_t)(bytes[3] << 8 | bytes[4]);
        if (bytes[0] != RECORD_HANDSHAKE || bytes[1] != 3 || length == 0 || length > RECORD_MAX)
            return false;
        size_t here = CL_MIN(length, n - RECORD_HEAD);
        here = CL_MIN(here, NET_HELLO_MAX - *ret_n);
        memcpy(out + *ret_n, bytes + RECORD_HEAD, here);
        *ret_n += here;
        if (length > n - RECORD_HEAD)
            return true;
        bytes += RECORD_HEAD + length;
        n -= RECORD_HEAD + length;
    }
    return true;
}

/* --- the hello ----------------------------------------------------------------------------------
 */

static bool take_name(struct cursor name, char ret_name[static NET_NAME_MAX + 1])
{
    if (name.broken || name.n == 0 || name.n > NET_NAME_MAX || memchr(name.at, '\0', name.n))
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = (char)name.at[i];
        ret_name[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    ret_name[name.n] = '\0';
    return net_name_is_valid(ret_name);
}

/* RFC 6066 section 3: a list with one host_name in it. */
static bool take_list(struct cursor extension, char ret_name[static NET_NAME_MAX + 1])
{
    struct cursor list = vector(&extension, 2);
    size_t type = number(&list, 1);
    struct cursor name = vector(&list, 2);
    return !list.broken && !extension.broken && extension.n == 0 && list.n == 0 &&
           type == SERVER_NAME && take_name(name, ret_name);
}

static enum net_hello parse_body(struct cursor body, char ret_name[static NET_NAME_MAX + 1])
{
    size_t names = 0;
    bool good = false;
    (void)take(&body, 2 + RANDOM);
    (void)vector(&body, 1); /* session id */
    (void)vector(&body, 2); /* cipher suites */
    (void)vector(&body, 1); /* compression methods */
    struct cursor extensions = vector(&body, 2);
    while (!extensions.broken && extensions.n > 0) {
        size_t type = number(&extensions, 2);
        struct cursor one = vector(&extensions, 2);
        if (extensions.broken || type != SERVER_NAME)
            continue;
        names++;
        good = take_list(one, ret_name);
    }
    bool whole = !body.broken && body.n == 0 && !extensions.broken;
    return whole && names == 1 && good ? NET_HELLO_NAME : NET_HELLO_NO_NAME;
}

enum net_hello net_hello_parse(const uint8_t *bytes, size_t n,
                               char ret_name[static NET_NAME_MAX + 1])
{
    uint8_t joined[NET_HELLO_MAX];
    size_t joined_n;
    ret_name[0] = '\0';
    if (bytes[0] != RECORD_HANDSHAKE || (n > 1 && bytes[1] != 3))
        return NET_HELLO_NOT_TLS;
    if (!join_records(bytes, n, joined, &joined_n))
        return NET_HELLO_NO_NAME;
    if (joined_n > 0 && joined[0] != CLIENT_HELLO)
        return NET_HELLO_NO_NAME;
    if (joined_n < HANDSHAKE_HEAD)
        return NET_HELLO_MORE;
    size_t length = (size_t)(joined[1] << 16 | joined[2] << 8 | joined[3]);
    if (length > NET_HELLO_MAX - HANDSHAKE_HEAD)
        return NET_HELLO_NO_NAME;
    if (!is_whole(joined, joined_n))
        return NET_HELLO_MORE;
    enum net_hello what =
        parse_body((struct cursor){.at = joined + HANDSHAKE_HEAD, .n = length}, ret_name);
    if (what != NET_HELLO_NAME)
        ret_name[0] = '\0';
    return what;
}
