/* gateway/port_head.c - see gateway/port_head.h. */
#include "gateway/port_head.h"

#include <string.h>
#include <strings.h>

/* --- which fields stay here ---------------------------------------------------------------------
 */

/* A dash is an underscore to programs that know fields as variables (CGI, WSGI). */
static bool is_alike(const char *name, const char *ours)
{
    for (; *name && *ours; name++, ours++) {
        char c = *name == '_' ? '-' : *name;
        if (strncasecmp(&c, ours, 1) != 0)
            return false;
    }
    return !*name && !*ours;
}

static bool is_for_one_hop(const struct port_message *m, const char *name)
{
    static const char *const rows[] = {"connection", "keep-alive", "te", "upgrade"};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (strcasecmp(name, rows[i]) == 0)
            return true;
    }
    return strncasecmp(name, "proxy-", 6) == 0 ||
           port_message_lists(m, "connection", name, strlen(name));
}

/* Of a request: who the client is, is ours to say, and our credentials are not the guest's. */
static bool is_ours(const char *name)
{
    static const char *const rows[] = {
        "e2b-traffic-access-token", "forwarded",         "x-forwarded-for", "x-forwarded-host",
        "x-forwarded-port",         "x-forwarded-proto", "x-real-ip"};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (is_alike(name, rows[i]))
            return true;
    }
    return false;
}

bool port_head_upgrades(const struct port_message *m)
{
    return !port_message_is_1_0(m) && port_message_count(m, "upgrade") == 1 &&
           port_message_lists(m, "connection", "upgrade", 7);
}

/* --- lists of "name=value" ----------------------------------------------------------------------
 */

struct piece {
    const char *at, *value; /* value: NULL = none */
    size_t n, name_n, value_n;
};

/* The next piece of a list, without the blanks around it; false at its end. */
static bool next_piece(const char **at, char separator, struct piece *ret)
{
    const char *begin = *at;
    if (!begin)
        return false;
    const char *end = strchr(begin, separator);
    size_t n = end ? (size_t)(end - begin) : strlen(begin);
    *at = end ? end + 1 : NULL;
    for (; n > 0 && strchr(" \t", begin[0]); begin++)
        n--;
    while (n > 0 && strchr(" \t", begin[n - 1]))
        n--;
    const char *equals = n ? memchr(begin, '=', n) : NULL;
    *ret = (struct piece){.at = begin, .n = n, .name_n = equals ? (size_t)(equals - begin) : n};
    ret->value = equals ? equals + 1 : NULL;
    ret->value_n = equals ? n - ret->name_n - 1 : 0;
    while (ret->name_n > 0 && strchr(" \t", begin[ret->name_n - 1]))
        ret->name_n--;
    return true;
}

static bool is_named(const struct piece *p, const char *name)
{
    return p->name_n == strlen(name) && strncmp(p->at, name, p->name_n) == 0;
}

static int append(struct cl_buf *out, const char *text, struct cl_err *err)
{
    return cl_buf_append(out, text, strlen(text), err);
}

/* --- the target ---------------------------------------------------------------------------------
 */

static const char *query_of(const struct port_message *m)
{
    const char *mark = strchr(port_message_target(m), '?');
    return mark ? mark + 1 : NULL;
}

const char *port_head_parameter(const struct port_message *m, size_t *ret_n)
{
    struct piece p;
    for (const char *at = query_of(m); next_piece(&at, '&', &p);) {
        if (!is_named(&p, PORT_COOKIE) || !p.value)
            continue;
        *ret_n = p.value_n;
        return p.value;
    }
    return NULL;
}

static int put_target(const struct port_message *m, struct cl_buf *out, struct cl_err *err)
{
    const char *target = port_message_target(m), *at = query_of(m);
    size_t ignored, n = at ? (size_t)(at - target) - 1 : strlen(target);
    bool is_first = true;
    struct piece p;
    if (!port_head_parameter(m, &ignored)) /* as it came */
        return append(out, target, err);
    if (cl_buf_append(out, target, n, err) < 0)
        return -1;
    while (next_piece(&at, '&', &p)) {
        if (is_named(&p, PORT_COOKIE))
            continue;
        if (append(out, is_first ? "?" : "&", err) < 0 || cl_buf_append(out, p.at, p.n, err) < 0)
            return -1;
        is_first = false;
    }
    return 0;
}

int port_head_target(const struct port_message *m, struct cl_buf *out, struct cl_err *err)
{
    return put_target(m, out, err) < 0 ? -1 : cl_buf_append(out, "", 1, err);
}

/* --- cookies ------------------------------------------------------------------------------------
 */

const char *port_head_cookie(const struct port_message *m, const char *name, const char *sandbox)
{
    for (size_t i = 0; i < port_message_fields(m); i++) {
        struct port_field f = port_message_field(m, i);
        struct piece p;
        if (strcasecmp(f.name, "cookie") != 0)
            continue;
        for (const char *at = f.value; next_piece(&at, ';', &p);) {
            if (is_named(&p, name) && p.value && port_link_names(p.value, p.value_n, sandbox))
                return p.value;
        }
    }
    return NULL;
}

/* All cookies but ours; no field where there is no other. */
static int put_cookie(const struct port_field *f, struct cl_buf *out, struct cl_err *err)
{
    const char *between = "Cookie: ";
    struct piece p;
    for (const char *at = f->value; next_piece(&at, ';', &p);) {
        if (p.n == 0 || is_named(&p, PORT_COOKIE) || is_named(&p, PORT_COOKIE_TLS))
            continue;
        if (append(out, between, err) < 0 || cl_buf_append(out, p.at, p.n, err) < 0)
            return -1;
        between = "; ";
    }
    return between[0] == ';' ? append(out, "\r\n", err) : 0;
}

/* Without Domain, by which a guest would set the cookies of its siblings. */
static int put_set_cookie(const struct port_field *f, struct cl_buf *out, struct cl_err *err)
{
    bool is_first = true;
    struct piece p;
    if (append(out, "Set-Cookie: ", err) < 0)
        return -1;
    for (const char *at = f->value; next_piece(&at, ';', &p); is_first = false) {
        if (!is_first && p.name_n == 6 && strncasecmp(p.at, "domain", 6) == 0)
            continue;
        if ((!is_first && append(out, "; ", err) < 0) || cl_buf_append(out, p.at, p.n, err) < 0)
            return -1;
    }
    return append(out, "\r\n", err);
}

/* --- heads --------------------------------------------------------------------------------------
 */

static int put_field(const struct port_field *f, struct cl_buf *out, struct cl_err *err)
{
    return append(out, f->name, err) < 0 || append(out, ": ", err) < 0 ||
                   append(out, f->value, err) < 0 || append(out, "\r\n", err) < 0
               ? -1
               : 0;
}

static int put_upgrade(const struct port_message *m, struct cl_buf *out, struct cl_err *err)
{
    const char *protocol = port_message_value(m, "upgrade");
    return cl_buf_printf(out, err, "Connection: Upgrade\r\nUpgrade: %s\r\n",
                         protocol ? protocol : "");
}

static int put_request_fields(const struct port_message *m, struct cl_buf *out, struct cl_err *err)
{
    for (size_t i = 0; i < port_message_fields(m); i++) {
        struct port_field f = port_message_field(m, i);
        if (is_for_one_hop(m, f.name) || is_ours(f.name))
            continue;
        int rc =
            strcasecmp(f.name, "cookie") == 0 ? put_cookie(&f, out, err) : put_field(&f, out, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int port_head_request(const struct port_message *m, const struct port_via *via, struct cl_buf *out,
                      struct cl_err *err)
{
    if (append(out, port_message_method(m), err) < 0 || append(out, " ", err) < 0 ||
        put_target(m, out, err) < 0 ||
        cl_buf_printf(out, err, " HTTP/1.%d\r\n", port_message_is_1_0(m) ? 0 : 1) < 0 ||
        put_request_fields(m, out, err) < 0)
        return -1;
    int rc = port_head_upgrades(m) ? put_upgrade(m, out, err)
                                   : append(out, "Connection: close\r\n", err);
    if (rc < 0)
        return -1;
    return cl_buf_printf(out, err,
                         "X-Forwarded-For: %s\r\nX-Forwarded-Proto: %s\r\n"
                         "X-Forwarded-Host: %s\r\n\r\n",
                         via->peer, via->tls ? "https" : "http", port_message_value(m, "host"));
}

/* Such an answer has no body and may not speak of one (RFC 9110 section 8.6). */
static bool is_length_of_none(int code, const char *name)
{
    return (code < 200 || code == 204) &&
           (strcasecmp(name, "content-length") == 0 || strcasecmp(name, "transfer-encoding") == 0);
}

static int put_answer_fields(const struct port_message *m, bool secret, struct cl_buf *out,
                             struct cl_err *err)
{
    for (size_t i = 0; i < port_message_fields(m); i++) {
        struct port_field f = port_message_field(m, i);
        if (is_for_one_hop(m, f.name) || is_length_of_none(port_message_code(m), f.name) ||
            (secret && strcasecmp(f.name, "referrer-policy") == 0))
            continue;
        int rc = strcasecmp(f.name, "set-cookie") == 0 ? put_set_cookie(&f, out, err)
                                                       : put_field(&f, out, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int port_head_answer(const struct port_message *m, bool secret, struct cl_buf *out,
                     struct cl_err *err)
{
    int code = port_message_code(m), rc = 0;
    if (cl_buf_printf(out, err, "HTTP/1.1 %d ", code) < 0 ||
        append(out, port_message_reason(m), err) < 0 || append(out, "\r\n", err) < 0 ||
        put_answer_fields(m, secret, out, err) < 0 ||
        (secret && append(out, "Referrer-Policy: same-origin\r\n", err) < 0))
        return -1;
    if (code == 101)
        rc = put_upgrade(m, out, err);
    else if (code >= 200)
        rc = append(out, "Connection: close\r\n", err);
    return rc < 0 ? -1 : append(out, "\r\n", err);
}
