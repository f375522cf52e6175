/* base/err.c - see base/err.h.  No heap, no log, no I/O but the last words of cl_bug(). */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static const struct cl_err_info infos[CL_E_NR] = {
    [CL_OK] = {"OK", 0, 200, false, "", ""},
#define CL_ERR(name, grpc, http, retry, cause, remedy) \
    [CL_E_##name] = {#name, grpc, http, retry, cause, remedy},
#include "base/errors.def"
#undef CL_ERR
};

const struct cl_err_info *cl_err_info(enum cl_code code)
{
    if ((unsigned)code >= CL_E_NR)
        code = CL_E_SYS;
    return &infos[code];
}

enum cl_code cl_code_from_grpc(int grpc)
{
    /* Several rows share a status (RATE, QUOTA, QUEUE, NOMEM are all 8): the broadest is named. */
    static const enum cl_code codes[] = {
        [0] = CL_OK,         [1] = CL_E_CANCELLED, [2] = CL_E_PEER,         [3] = CL_E_INVALID,
        [4] = CL_E_DEADLINE, [5] = CL_E_NOTFOUND,  [6] = CL_E_EXISTS,       [7] = CL_E_DENIED,
        [8] = CL_E_QUOTA,    [9] = CL_E_STATE,     [10] = CL_E_STATE,       [11] = CL_E_INVALID,
        [12] = CL_E_UNIMPL,  [13] = CL_E_PEER,     [14] = CL_E_UNAVAILABLE, [15] = CL_E_DATALOSS,
        [16] = CL_E_UNAUTH,
    };
    if (grpc < 0 || (size_t)grpc >= CL_COUNT(codes))
        return CL_E_PEER;
    return codes[grpc];
}

enum cl_code cl_code_from_errno(int sys)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return CL_E_NOTFOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return CL_E_DENIED;
    case EEXIST:
    case ENOTEMPTY:
        return CL_E_EXISTS;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
        return CL_E_INVALID;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return CL_E_TOOBIG;
    case ENOMEM:
        return CL_E_NOMEM;
    default:
        return CL_E_SYS;
    }
}

int cl_vfail(struct cl_err *err, enum cl_code code, int sys, const char *fmt, va_list ap)
{
    if (!err)
        return -1;
    *err = (struct cl_err){.code = code, .sys = sys};
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (sys != 0 && len < sizeof err->text)
        (void)snprintf(err->text + len, sizeof err->text - len, ": %s", strerror(sys));
    return -1;
}

int cl_fail(struct cl_err *err, enum cl_code code, int sys, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)cl_vfail(err, code, sys, fmt, ap);
    va_end(ap);
    return -1;
}

int cl_wrap(struct cl_err *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len < sizeof err->text)
        (void)snprintf(err->text + len, sizeof err->text - len, ": %s", old);
    return -1;
}

void cl_bug(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "cloche: bug at %s:%d: %s\n", file, line, what);
    abort();
}
