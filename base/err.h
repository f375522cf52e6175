/* base/err.h - the error object: one code, one message, filled once where the failure happened.
 *
 * Owns:    its text (in place, no heap), so an error never fails to be made.
 * Thread:  any; an error belongs to whoever declared it.
 * A function that takes `struct cl_err *err` returns 0 or -1 and fills err exactly once on -1.
 * err == NULL means "yes or no is enough".  Success never touches *err.
 */
#ifndef CL_BASE_ERR_H
#define CL_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

enum cl_code {
    CL_OK = 0,
#define CL_ERR(name, grpc, http, retry, cause, remedy) CL_E_##name,
#include "base/errors.def"
#undef CL_ERR
    CL_E_NR
};

enum { CL_ERR_TEXT = 384, CL_ERR_SUBJECT = 48 };

struct cl_err {
    enum cl_code code;
    int sys;                      /* errno of the failed call, or 0 */
    uint64_t retry_ms;            /* when a retry makes sense, relative; 0 = unknown */
    char subject[CL_ERR_SUBJECT]; /* what ran out (a quota dimension) or which field; may be "" */
    char text[CL_ERR_TEXT];       /* particulars; for sys != 0 it ends with the errno's text */
};

/* One row of errors.def. */
struct cl_err_info {
    const char *name; /* "NOTFOUND": metrics label and log field */
    int grpc;
    int http;
    bool retry;
    const char *cause;
    const char *remedy;
};

/* Never NULL; an unknown code answers the row of SYS. */
const struct cl_err_info *cl_err_info(enum cl_code code);

/* Map a gRPC status that a peer sent to our code; unknown ones become PEER. */
enum cl_code cl_code_from_grpc(int grpc);

/* Map a file system errno to our code: ENOENT is NOTFOUND, EACCES is DENIED, …; others are SYS. */
enum cl_code cl_code_from_errno(int sys);

/* Fill *err and return -1, so that `return cl_fail(...)` is the idiom. */
int cl_fail(struct cl_err *err, enum cl_code code, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int cl_vfail(struct cl_err *err, enum cl_code code, int sys, const char *fmt, va_list ap)
    __attribute__((format(printf, 4, 0)));

/* Put "context: " before the message that is there; keeps the code.  Returns -1. */
int cl_wrap(struct cl_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A bug of ours: prints the place and aborts, also in release builds. */
#define CL_ASSERT(cond) ((cond) ? (void)0 : cl_bug(__FILE__, __LINE__, #cond))
_Noreturn void cl_bug(const char *file, int line, const char *what);

#endif
