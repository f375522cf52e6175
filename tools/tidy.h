/* tools/tidy.h - what clang's analyzer cannot see across files: a failure is always -1.
 * tools/tidy.sh includes it before every file but base/err.c; no build does. */
#include "base/err.h"
#define cl_fail(...) ((void)cl_fail(__VA_ARGS__), -1)
#define cl_wrap(...) ((void)cl_wrap(__VA_ARGS__), -1)
