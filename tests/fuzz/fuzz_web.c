/* What strangers post to a method: a path, then a body in one of six forms, of one message or
 * many.  What is read as a message is written again in the same form, and is the same message then.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/job.pb-c.h"
#include "rpc/call.h"
#include "web/codec.h"
#include "web/methods.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const paths[] = {
    "/cloche.v1.JobService/Run",        "/cloche.v1.JobService/Control",
    "/cloche.v1.SandboxService/Create", "/cloche.v1.TenantService/PutTenant",
    "/cloche.v1.ExecService/Start",     "/cloche.v1.CodeService/RunCode"};

static bool is_memory(const struct cl_err *err)
{
    return err->code == CL_E_NOMEM || err->code == CL_E_TOOBIG;
}

static void again(enum web_codec codec, const ProtobufCMessage *msg)
{
    struct cl_buf once, twice;
    struct cl_arena *arena = NULL;
    const ProtobufCMessage *back = NULL;
    struct cl_err err = {0};
    struct web_body body, one;
    cl_buf_init(&once, 16 << 20);
    cl_buf_init(&twice, 16 << 20);
    bool is = cl_arena_new(16 << 20, &arena, &err) == 0 &&
              web_codec_write(codec, msg, false, &once, &err) == 0;
    body = (struct web_body){codec, once.data ? (const char *)once.data : "", once.len};
    if (is && web_body_next(&body, false, &one, &err) == 1 &&
        web_codec_read(&one, msg->descriptor, arena, &back, &err) == 0 &&
        web_codec_write(codec, back, false, &twice, &err) == 0)
        CL_ASSERT(once.len == twice.len &&
                  (once.len == 0 || memcmp(once.data, twice.data, once.len) == 0));
    else
        CL_ASSERT(is_memory(&err));
    cl_arena_free(arena);
    cl_buf_fini(&once);
    cl_buf_fini(&twice);
}

static void read_one(const struct web_body *one, const ProtobufCMessageDescriptor *type)
{
    struct cl_arena *arena = NULL;
    const ProtobufCMessage *msg;
    if (cl_arena_new(16 << 20, &arena, NULL) < 0)
        return;
    if (web_codec_read(one, type, arena, &msg, NULL) == 0)
        again(one->codec, msg);
    cl_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct web_method method;
    if (size < 1)
        return 0;
    const char *path = paths[(data[0] / WEB_CODEC_NR) % CL_COUNT(paths)];
    struct web_body body = {data[0] % WEB_CODEC_NR, (const char *)data + 1, size - 1}, one;
    if (web_method_find(path, &method, NULL) < 0)
        return 0;
    for (int n = 0; n < 16 && web_body_next(&body, method.takes_many, &one, NULL) > 0; n++)
        read_one(&one, method.in);
    return 0;
}
