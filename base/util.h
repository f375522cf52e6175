/* base/util.h - the few words that every file uses: counts, bounds, containers, fall-through. */
#ifndef CL_BASE_UTIL_H
#define CL_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>

#define CL_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define CL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CL_FALLTHROUGH __attribute__((fallthrough))
#define CL_UNUSED __attribute__((unused))
#define CL_MUST __attribute__((warn_unused_result))

/* The struct of `type` whose member `member` is *ptr. */
#define CL_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define CL_NS_PER_S UINT64_C(1000000000)
#define CL_NS_PER_MS UINT64_C(1000000)
#define CL_NS_PER_US UINT64_C(1000)
#define CL_KIB UINT64_C(1024)
#define CL_MIB (UINT64_C(1024) * CL_KIB)
#define CL_GIB (UINT64_C(1024) * CL_MIB)

#endif
