/* agent/sensor_text.c - see agent/sensor_text.h. */
#include "agent/sensor_text.h"

#include <arpa/inet.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/ids.h"
#include "agent/text.h"
#include "base/util.h"

static char *escape(const char *s, size_t max, char *out, size_t size)
{
    char whole[SENSOR_ARGS_MAX + 1];
    size_t n = strnlen(s, CL_MIN(max, sizeof whole - 1));
    memcpy(whole, s, n);
    whole[n] = '\0';
    text_escape(whole, out, size);
    return out;
}

static char *place_of(const struct sensor_place *place,
                      char out[static SENSOR_PATH_MAX * SENSOR_ESCAPED + 1],
                      Cloche__V1__GuestEvent *event)
{
    size_t end = SENSOR_PATH_MAX - 1, from = CL_MIN((size_t)place->from, end);
    event->cut |= place->is_cut != 0;
    return escape(place->text + from, end - from, out, SENSOR_PATH_MAX * SENSOR_ESCAPED + 1);
}

static void fill_argv(const struct sensor_exec *e, struct sensor_text *text,
                      Cloche__V1__GuestEvent *out)
{
    size_t at = 0, used = 0, bytes = CL_MIN(e->args_bytes, (uint32_t)SENSOR_ARGS_MAX);
    out->argv = text->argv;
    while (out->n_argv < CL_MIN(e->n_args, (uint32_t)SENSOR_ARGV_MAX) && at < bytes) {
        size_t n = strnlen(e->args + at, bytes - at);
        char *to = text->args + used;
        (void)escape(e->args + at, n, to, n * SENSOR_ESCAPED + 1);
        used += strlen(to) + 1;
        out->argv[out->n_argv++] = to;
        out->cut |= at + n == bytes; /* its NUL was not read any more */
        at += n + 1;
    }
    out->cut |= out->n_argv < e->n_args;
}

static void fill_address(const struct sensor_address *e, struct sensor_text *text,
                         Cloche__V1__GuestEvent *out)
{
    union {
        uint8_t bytes[SENSOR_ADDRESS_MAX + 1]; /* a path may come without its NUL */
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } a = {{0}};
    memcpy(a.bytes, e->address, CL_MIN(e->bytes, (uint32_t)SENSOR_ADDRESS_MAX));
    out->address = text->address;
    text->address[0] = '\0';
    switch (a.any.sa_family) {
    case AF_INET:
        (void)inet_ntop(AF_INET, &a.in.sin_addr, text->address, sizeof text->address);
        out->port = ntohs(a.in.sin_port);
        break;
    case AF_INET6:
        (void)inet_ntop(AF_INET6, &a.in6.sin6_addr, text->address, sizeof text->address);
        out->port = ntohs(a.in6.sin6_port);
        break;
    case AF_UNIX: {
        /* an abstract name begins with a NUL, which people write as @ */
        size_t at = offsetof(struct sockaddr_un, sun_path);
        if (a.bytes[at] == '\0' && e->bytes > at + 1)
            a.bytes[at] = '@';
        out->path = escape((const char *)a.bytes + at, SENSOR_ADDRESS_MAX - at, text->path,
                           sizeof text->path);
        break;
    }
    default:
        (void)snprintf(text->address, sizeof text->address, "family %u", (unsigned)a.any.sa_family);
        break;
    }
}

static void name_call(uint32_t arch, uint64_t number, const char *before,
                      char out[static SENSOR_CALL_NAME])
{
    char *name = seccomp_syscall_resolve_num_arch(arch, (int)number);
    if (name)
        (void)snprintf(out, SENSOR_CALL_NAME, "%s%s", before, name);
    else
        (void)snprintf(out, SENSOR_CALL_NAME, "%s%llu", before, (unsigned long long)number);
    free(name); /* libseccomp's own malloc() */
}

static void fill_call(const struct sensor_call *e, struct sensor_text *text,
                      Cloche__V1__GuestEvent *out)
{
    name_call(e->is_i386 ? SCMP_ARCH_X86 : SCMP_ARCH_X86_64, e->number, e->is_i386 ? "i386:" : "",
              text->call);
    out->call = text->call;
    memcpy(text->call_args, e->args, sizeof text->call_args);
    out->args = text->call_args;
    out->n_args = SENSOR_CALL_ARGS;
}

static uint32_t uid_inside(uint32_t uid)
{
    return uid == AGENT_NOBODY_OUT ? (uint32_t)AGENT_NOBODY : uid - AGENT_ID_BASE;
}

void sensor_describe(const void *record, size_t bytes, struct sensor_text *text,
                     Cloche__V1__GuestEvent *out)
{
    size_t whole = offsetof(struct sensor_text, comm);
    memset(text, 0, whole);
    memcpy(text, record, CL_MIN(bytes, whole));
    const struct sensor_event *e = &text->event;
    cloche__v1__guest_event__init(out);
    out->kind = (Cloche__V1__GuestEventKind)e->kind; /* the same numbers */
    out->number = e->number;
    out->at_ns = e->at_ns;
    out->pid = e->pid;
    out->parent = e->parent;
    out->uid = uid_inside(e->uid);
    out->comm = escape(e->comm, sizeof e->comm, text->comm, sizeof text->comm);
    switch ((enum sensor_kind)e->kind) {
    case SENSOR_EXEC:
        out->path = escape(text->exec.path, SENSOR_PATH_MAX, text->path, sizeof text->path);
        out->cut = text->exec.is_cut != 0;
        fill_argv(&text->exec, text, out);
        break;
    case SENSOR_WRITE:
    case SENSOR_READ:
    case SENSOR_TRUNCATE:
        out->path = escape(text->file.path, SENSOR_PATH_MAX, text->path, sizeof text->path);
        out->cut = text->file.is_cut != 0;
        out->created = text->file.is_new != 0;
        out->size = text->file.size;
        break;
    case SENSOR_CONNECT:
    case SENSOR_BIND:
        fill_address(&text->address_record, text, out);
        break;
    case SENSOR_DENIED:
        fill_call(&text->call_record, text, out);
        break;
    case SENSOR_TRACE:
        out->target = text->trace.target;
        break;
    case SENSOR_REMOVE:
        out->path = place_of(&text->remove.place, text->path, out);
        out->folder = text->remove.is_folder != 0;
        break;
    case SENSOR_RENAME:
        out->path = place_of(&text->rename.place, text->path, out);
        out->to = place_of(&text->rename.to, text->to, out);
        break;
    }
}

uint64_t sensor_calls_total(const struct sensor_calls *calls)
{
    uint64_t total = 0;
    for (size_t i = 0; i < CL_COUNT(calls->times); i++)
        total += calls->times[i];
    return total;
}

static char *add_calls(struct sensor_calls_text *text, Cloche__V1__GuestEvent *out, uint64_t times)
{
    size_t at = out->n_calls++;
    Cloche__V1__GuestCalls *row = text->list[at] = &text->rows[at];
    cloche__v1__guest_calls__init(row);
    row->call = text->names[at];
    row->times = times;
    return row->call;
}

void sensor_describe_calls(const struct sensor_calls *calls, uint64_t at_ns,
                           struct sensor_calls_text *text, Cloche__V1__GuestEvent *out)
{
    uint64_t others = calls->times[SENSOR_CALLS_OTHER];
    cloche__v1__guest_event__init(out);
    out->kind = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_CALLS;
    out->at_ns = at_ns;
    out->calls = text->list;
    for (uint64_t i = 0; i < SENSOR_CALLS_OTHER; i++) {
        if (calls->times[i] && out->n_calls < SENSOR_CALLS_TOLD)
            name_call(SCMP_ARCH_X86_64, i, "", add_calls(text, out, calls->times[i]));
        else
            others += calls->times[i];
    }
    if (others)
        (void)snprintf(add_calls(text, out, others), SENSOR_CALL_NAME, "other");
}
