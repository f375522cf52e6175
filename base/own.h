/* base/own.h - ownership in one line: a local that owns is declared CL_AUTO(destructor), and
 * success hands the thing over with CL_STEAL or cl_steal_fd.
 *
 *     CL_AUTO(cl_closep) int fd = open(...);
 *     ...
 *     *ret_fd = cl_steal_fd(&fd);
 */
#ifndef CL_BASE_OWN_H
#define CL_BASE_OWN_H

#include <stddef.h>
#include <stdio.h>

#define CL_AUTO(destroyp) __attribute__((cleanup(destroyp)))

/* Take what *ptr owns and leave NULL behind. */
#define CL_STEAL(ptr) \
    __extension__({ \
        __typeof__(*(ptr)) cl_stolen_ = *(ptr); \
        *(ptr) = NULL; \
        cl_stolen_; \
    })

/* Define noun_freep(), the CL_AUTO form of noun_free(). */
#define CL_DEFINE_AUTO(type, destroy) \
    static inline void destroy##p(type **p) \
    { \
        destroy(*p); \
    }

static inline int cl_steal_fd(int *fd)
{
    int held = *fd;
    *fd = -1;
    return held;
}

/* Close *fd when it is held, and forget it.  Keeps errno; never retries on EINTR. */
void cl_closep(int *fd);
void cl_fclosep(FILE **f);
/* For `CL_AUTO(cl_freep) char *s`: any pointer from cl_alloc(). */
void cl_freep(void *pp);

#endif
