/* vmm/counts.c - see vmm/counts.h. */
#include "vmm/counts.h"

const char *vm_count_name(enum vm_count which)
{
    static const char *const names[COUNTS_NR] = {
#define COUNT(name, text, meaning) [COUNT_##name] = (text),
#include "vmm/counts.def"
#undef COUNT
    };
    return (unsigned)which < COUNTS_NR ? names[which] : "unknown";
}
