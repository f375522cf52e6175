/* rpc/reflection.c - grpc.reflection.v1 and v1alpha from a FileDescriptorSet.
 *
 * Owns:    an index of the set: files, their dependencies and symbols.
 * Borrows: the set's bytes (static).
 * Thread:  the server's loop.
 * Limit:   the set is ours, not the peer's; the index still has bounds so that a wrong one fails.
 * Source:  google/protobuf/descriptor.proto for the field numbers read here.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/grpc_wire.h"
#include "rpc/proto/reflection.pb-c.h"
#include "rpc/server_priv.h"

enum {
    FILES_MAX = 128,
    SYMBOLS_MAX = 8192,
    SYMBOL_LEN = 256,
    NESTING_MAX = 16,
};

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

struct bytes {
    const uint8_t *at; /* borrowed: the set */
    size_t n;
};

struct symbol {
    char *name; /* owned */
    size_t file;
    bool is_service;
};

struct rpc_reflection {
    struct bytes files[FILES_MAX];
    size_t n_files;
    struct symbol *symbols; /* owned */
    size_t n_symbols, cap_symbols;
};

/* --- a reader of the few wire forms a descriptor has
 * ------------------------------------------------- */

struct field {
    unsigned number;
    struct bytes value; /* empty for numbers */
};

static bool read_varint(struct bytes *in, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 10 && i < in->n; i++) {
        value |= (uint64_t)(in->at[i] & 0x7f) << (7 * i);
        if (in->at[i] & 0x80)
            continue;
        *in = (struct bytes){in->at + i + 1, in->n - i - 1};
        *ret_value = value;
        return true;
    }
    return false;
}

static bool skip(struct bytes *in, uint64_t n, struct bytes *ret_skipped)
{
    if (n > in->n)
        return false;
    *ret_skipped = (struct bytes){in->at, (size_t)n};
    *in = (struct bytes){in->at + n, in->n - (size_t)n};
    return true;
}

/* False at the end and at anything malformed. */
static bool next_field(struct bytes *in, struct field *ret_field)
{
    uint64_t tag, n;
    struct bytes value = {NULL, 0}, number;
    if (!read_varint(in, &tag))
        return false;
    switch (tag & 7) {
    case 0:
        if (!read_varint(in, &n))
            return false;
        break;
    case 1:
        if (!skip(in, 8, &number))
            return false;
        break;
    case 2:
        if (!read_varint(in, &n) || !skip(in, n, &value))
            return false;
        break;
    case 5:
        if (!skip(in, 4, &number))
            return false;
        break;
    default:
        return false;
    }
    *ret_field = (struct field){(unsigned)(tag >> 3), value};
    return true;
}

static struct bytes find_field(struct bytes in, unsigned number)
{
    struct field f;
    while (next_field(&in, &f))
        if (f.number == number)
            return f.value;
    return (struct bytes){NULL, 0};
}

/* --- the index
 * ---------------------------------------------------------------------------------------- */

enum {
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6
};
enum { ANY_NAME = 1, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, SERVICE_METHOD = 2 };

static int add_symbol(struct rpc_reflection *r, const char *scope, struct bytes name,
                      bool is_service, char full[static SYMBOL_LEN], struct cl_err *err)
{
    (void)snprintf(full, SYMBOL_LEN, "%s%s%.*s", scope, *scope ? "." : "", (int)name.n,
                   name.n ? (const char *)name.at : "");
    if (cl_grow(&r->symbols, &r->cap_symbols, r->n_symbols + 1, SYMBOLS_MAX, sizeof *r->symbols,
                err) < 0)
        return -1;
    char *copy = cl_strdup(full);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "reflection index");
    r->symbols[r->n_symbols++] = (struct symbol){copy, r->n_files, is_service};
    return 0;
}

/* A message, enum or service and what is named inside it. */
static int add_type(struct rpc_reflection *r, const char *scope, struct bytes type, unsigned kind,
                    int depth, struct cl_err *err)
{
    char full[SYMBOL_LEN];
    struct field f;
    if (depth > NESTING_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "descriptor set: types nested too deep");
    if (add_symbol(r, scope, find_field(type, ANY_NAME), kind == FILE_SERVICE, full, err) < 0)
        return -1;
    while (kind != FILE_ENUM && next_field(&type, &f)) {
        bool nested =
            kind == FILE_MESSAGE && (f.number == MESSAGE_NESTED || f.number == MESSAGE_ENUM);
        unsigned inner = f.number == MESSAGE_NESTED ? FILE_MESSAGE : FILE_ENUM;
        bool method = kind == FILE_SERVICE && f.number == SERVICE_METHOD;
        if ((nested || method) && add_type(r, full, f.value, inner, depth + 1, err) < 0)
            return -1;
    }
    return 0;
}

static int add_file(struct rpc_reflection *r, struct bytes file, struct cl_err *err)
{
    char package[SYMBOL_LEN];
    struct bytes name = find_field(file, FILE_PACKAGE), at = file;
    struct field f;
    if (r->n_files == FILES_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "descriptor set: more than %d files", FILES_MAX);
    (void)snprintf(package, sizeof package, "%.*s", (int)name.n,
                   name.n ? (const char *)name.at : "");
    while (next_field(&at, &f)) {
        if (f.number < FILE_MESSAGE || f.number > FILE_SERVICE)
            continue;
        if (add_type(r, package, f.value, f.number, 0, err) < 0)
            return -1;
    }
    r->files[r->n_files++] = file;
    return 0;
}

/* --- answers
 * ------------------------------------------------------------------------------------------ */

enum { NO_FILE = FILES_MAX };

static size_t file_by_name(const struct rpc_reflection *r, struct bytes name)
{
    for (size_t i = 0; i < r->n_files; i++) {
        struct bytes have = find_field(r->files[i], FILE_NAME);
        if (have.n == name.n && (name.n == 0 || memcmp(have.at, name.at, name.n) == 0))
            return i;
    }
    return NO_FILE;
}

static size_t file_by_symbol(const struct rpc_reflection *r, const char *name)
{
    for (size_t i = 0; i < r->n_symbols; i++)
        if (strcmp(r->symbols[i].name, name) == 0)
            return r->symbols[i].file;
    return NO_FILE;
}

/* The file and what it depends on, each once. */
static size_t collect(const struct rpc_reflection *r, size_t first,
                      ProtobufCBinaryData out[FILES_MAX])
{
    bool seen[FILES_MAX] = {false};
    size_t queue[FILES_MAX], n = 0;
    queue[n++] = first;
    seen[first] = true;
    for (size_t i = 0; i < n; i++) {
        struct bytes file = r->files[queue[i]], at = file;
        struct field f;
        out[i] = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)file.at, .len = file.n};
        while (next_field(&at, &f)) {
            size_t dep = f.number == FILE_DEPENDENCY ? file_by_name(r, f.value) : NO_FILE;
            if (dep == NO_FILE || seen[dep])
                continue;
            seen[dep] = true;
            queue[n++] = dep;
        }
    }
    return n;
}

/* The caller lends a body to the reply for as long as this takes. */
static void send_reply(struct rpc_call *call, reflection_response *reply)
{
    (void)!rpc_call_send(call, &reply->base, NULL); /* a full queue ends the call by itself */
    reply->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE__NOT_SET;
    reply->error_response = NULL; /* every member of the union is a pointer */
}

static void send_error(struct rpc_call *call, reflection_response *reply, int code,
                       const char *text)
{
    Grpc__Reflection__V1__ErrorResponse error;
    grpc__reflection__v1__error_response__init(&error);
    error.error_code = code;
    error.error_message = (char *)(uintptr_t)text;
    reply->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    reply->error_response = &error;
    send_reply(call, reply);
}

static void send_files(struct rpc_reflection *r, struct rpc_call *call, reflection_response *reply,
                       size_t file)
{
    ProtobufCBinaryData files[FILES_MAX];
    Grpc__Reflection__V1__FileDescriptorResponse body;
    if (file == NO_FILE) {
        send_error(call, reply, GRPC_NOT_FOUND, "not in the descriptor set");
        return;
    }
    grpc__reflection__v1__file_descriptor_response__init(&body);
    body.n_file_descriptor_proto = collect(r, file, files);
    body.file_descriptor_proto = files;
    reply->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    reply->file_descriptor_response = &body;
    send_reply(call, reply);
}

static void send_services(struct rpc_reflection *r, struct rpc_call *call,
                          reflection_response *reply)
{
    Grpc__Reflection__V1__ServiceResponse names[FILES_MAX], *refs[FILES_MAX];
    Grpc__Reflection__V1__ListServiceResponse body;
    grpc__reflection__v1__list_service_response__init(&body);
    for (size_t i = 0; i < r->n_symbols && body.n_service < FILES_MAX; i++) {
        if (!r->symbols[i].is_service)
            continue;
        refs[body.n_service] = &names[body.n_service];
        grpc__reflection__v1__service_response__init(refs[body.n_service]);
        refs[body.n_service++]->name = r->symbols[i].name;
    }
    body.service = refs;
    reply->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    reply->list_services_response = &body;
    send_reply(call, reply);
}

#define REQUEST(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct rpc_reflection *r = service;
    const reflection_request *req = (const reflection_request *)msg;
    reflection_response reply;
    if (rpc_call_is_full(call)) /* on_drain goes on */
        rpc_call_pause(call, true);
    grpc__reflection__v1__server_reflection_response__init(&reply);
    reply.valid_host = req->host;
    reply.original_request = (reflection_request *)(uintptr_t)req;
    /* Not a switch: protobuf-c's enum has a member that is no case. */
    if (req->message_request_case == REQUEST(LIST_SERVICES)) {
        send_services(r, call, &reply);
    } else if (req->message_request_case == REQUEST(FILE_BY_FILENAME)) {
        struct bytes name = {(const uint8_t *)req->file_by_filename, strlen(req->file_by_filename)};
        send_files(r, call, &reply, file_by_name(r, name));
    } else if (req->message_request_case == REQUEST(FILE_CONTAINING_SYMBOL)) {
        send_files(r, call, &reply, file_by_symbol(r, req->file_containing_symbol));
    } else {
        send_error(call, &reply, GRPC_UNIMPLEMENTED, "no extensions here");
    }
}

static void on_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, NULL);
}

static void on_drain(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_pause(call, false);
}

#define METHOD(full_path) \
    { \
        .path = (full_path), .in = &grpc__reflection__v1__server_reflection_request__descriptor, \
        .out = &grpc__reflection__v1__server_reflection_response__descriptor, \
        .client_streams = true, .server_streams = true, .max_message = 16384, \
        .on_message = on_message, .on_half_close = on_half_close, .on_drain = on_drain, \
    }

/* The two versions have the same messages on the wire. */
static const struct rpc_method methods[] = {
    METHOD("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    METHOD("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
};

int reflection_new(struct rpc_server *server, const void *set, size_t n,
                   struct rpc_reflection **ret_reflection, struct cl_err *err)
{
    struct rpc_reflection *r = cl_zalloc(sizeof *r);
    if (!r)
        return cl_fail(err, CL_E_NOMEM, 0, "reflection");
    struct bytes in = {set, n};
    struct field f;
    int rc = 0;
    while (rc == 0 && next_field(&in, &f))
        if (f.number == 1)
            rc = add_file(r, f.value, err);
    if (rc == 0 && in.n > 0)
        rc = cl_fail(err, CL_E_INVALID, 0, "descriptor set: malformed");
    if (rc == 0)
        rc = rpc_server_add(server, methods, CL_COUNT(methods), r, -1, err);
    if (rc < 0) {
        reflection_free(r);
        return -1;
    }
    *ret_reflection = r;
    return 0;
}

void reflection_free(struct rpc_reflection *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_symbols; i++)
        cl_free(r->symbols[i].name);
    cl_free(r->symbols);
    cl_free(r);
}
