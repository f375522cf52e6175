/* observability/log.c - see observability/log.h. */
#include "observability/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

struct event_info {
    const char *name;
    enum log_level level;
    const char *component, *text;
};

static const struct event_info events[] = {
#define LOG_EVENT(name, level, component, text) {#name, LOG_##level, component, text},
#include "observability/events.def"
#undef LOG_EVENT
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static char process_name[32] = "cloche";
static enum log_level lowest = LOG_INFO;

struct limiter {
    uint64_t second;
    unsigned count, dropped;
};
static struct limiter limiters[LOG_EVENT_NR];

void log_init(const char *process, enum log_level level)
{
    (void)snprintf(process_name, sizeof process_name, "%s", process);
    lowest = level;
}

int log_level_parse(const char *name, enum log_level *ret_level, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return cl_fail(err, CL_E_INVALID, 0, "'%.32s' is no log level: debug, info, warn, error", name);
}

struct out {
    char *data;
    size_t len, size; /* the last byte is kept for NUL */
};

static void put(struct out *o, char c)
{
    if (o->len + 1 < o->size)
        o->data[o->len++] = c;
}

static void put_escaped(struct out *o, char c)
{
    unsigned char u = (unsigned char)c;
    if (u >= 0x20 && u != '"' && u != '\\' && u != 0x7f) {
        put(o, c);
        return;
    }
    if (o->len + 7 >= o->size)
        return; /* never half an escape */
    o->len += (size_t)snprintf(o->data + o->len, o->size - o->len, "\\u%04x", u);
}

static void put_text(struct out *o, const char *s, size_t max)
{
    size_t n = strnlen(s, max);
    bool valid = cl_utf8_is_valid(s, n); /* a user's text may be cut inside a character */
    for (size_t i = 0; i < n; i++)
        put_escaped(o, !valid && (unsigned char)s[i] >= 0x80 ? '?' : s[i]);
}

/* One conversion of the format at `at` ("%s", "%.40s", "%d", "%u", "%zu", "%llu", "%lld"); returns
 * what follows it.  Only these: everything else is a bug of the caller. */
static const char *put_value(struct out *o, const char *at, va_list *ap)
{
    char number[32] = "";
    size_t max = SIZE_MAX;
    if (at[1] == '.')
        max = strtoul(at + 2, NULL, 10);
    const char *kind = at + 1 + strspn(at + 1, ".0123456789");
    if (*kind == 's') {
        const char *s = va_arg(*ap, const char *);
        put_text(o, s ? s : "", max);
        return kind + 1;
    }
    if (*kind == 'd')
        (void)snprintf(number, sizeof number, "%d", va_arg(*ap, int));
    else if (*kind == 'u')
        (void)snprintf(number, sizeof number, "%u", va_arg(*ap, unsigned));
    else if (strncmp(kind, "zu", 2) == 0)
        (void)snprintf(number, sizeof number, "%zu", va_arg(*ap, size_t));
    else if (strncmp(kind, "llu", 3) == 0)
        (void)snprintf(number, sizeof number, "%llu", va_arg(*ap, unsigned long long));
    else if (strncmp(kind, "lld", 3) == 0)
        (void)snprintf(number, sizeof number, "%lld", va_arg(*ap, long long));
    else
        cl_bug(__FILE__, __LINE__, "a conversion that the log does not know");
    put_text(o, number, SIZE_MAX);
    return kind + (*kind == 'z' ? 2 : *kind == 'l' ? 3 : 1);
}

/* One `name=value` of the format; returns where the next begins. */
static const char *put_field(struct out *o, const char *at, va_list *ap)
{
    put(o, '"');
    while (*at && *at != '=')
        put_escaped(o, *at++);
    put(o, '"');
    put(o, ':');
    put(o, '"');
    at += *at == '=';
    char end = *at == '\'' ? '\'' : ' ';
    at += end == '\'';
    while (*at && *at != end) {
        if (*at == '%')
            at = put_value(o, at, ap);
        else
            put_escaped(o, *at++);
    }
    put(o, '"');
    return at + (*at != '\0');
}

static size_t format_fields(char *out, size_t size, const char *fmt, va_list *ap)
{
    struct out o = {out, 0, size};
    for (const char *at = fmt; *at;) {
        if (*at == ' ') {
            at++;
            continue;
        }
        if (o.len > 0)
            put(&o, ',');
        at = put_field(&o, at, ap);
    }
    out[o.len] = '\0';
    return o.len;
}

size_t log_format_fields(char *out, size_t size, const char *fmt, ...)
{
    CL_ASSERT(size > 0);
    va_list ap;
    va_start(ap, fmt);
    size_t n = format_fields(out, size, fmt, &ap);
    va_end(ap);
    return n;
}

/* May this line be written?  Tells how many were not since the last one. */
static bool admit(enum log_event event, unsigned *ret_dropped)
{
    struct limiter *l = &limiters[event];
    uint64_t second = cl_now_ns() / CL_NS_PER_S;
    *ret_dropped = 0;
    if (events[event].level == LOG_ERROR)
        return true;
    if (l->second != second) {
        *ret_dropped = l->dropped;
        *l = (struct limiter){.second = second};
    }
    if (l->count >= LOG_BURST) {
        l->dropped++;
        return false;
    }
    l->count++;
    return true;
}

void log_write(enum log_event event, const char *fmt, ...)
{
    const struct event_info *info = &events[event];
    unsigned dropped;
    if (info->level < lowest || !admit(event, &dropped))
        return;
    char json[LOG_LINE_MAX - 400], line[LOG_LINE_MAX], ts[CL_RFC3339_LEN];
    va_list ap;
    va_start(ap, fmt);
    (void)format_fields(json, sizeof json, fmt, &ap);
    va_end(ap);
    cl_rfc3339(cl_wall_ns(), ts);
    char more[32] = "";
    if (dropped)
        (void)snprintf(more, sizeof more, ",\"left_out\":%u", dropped);
    int n = snprintf(
        line, sizeof line,
        "{\"ts\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"component\":\"%s\",\"event\":\"%s\","
        "\"msg\":\"%s\"%s%s%s}\n",
        ts, level_names[info->level], process_name, info->component, info->name, info->text,
        json[0] ? "," : "", json, more);
    if (n > 0 && (size_t)n < sizeof line)
        (void)!write(STDERR_FILENO, line, (size_t)n);
}
