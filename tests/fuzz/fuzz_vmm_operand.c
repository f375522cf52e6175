/* tests/fuzz/fuzz_vmm_operand.c - fuzz bytes as an instruction that faulted (vmm/shim/operand.h):
 * an octet of the frame's flags, then the instruction, which no byte follows.
 *
 * What is known of it does not depend on what comes after it.  Whether it is true a processor
 * knows: tests/unit/vmm/test_operand.c.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/shim/operand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 16, VECTOR_MAX = 64, DF = 0x400, WRITE = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame f = {
        .rip = 0x1000, .rsp = 0x2000, .rsi = 0x3000, .rdi = 0x4000, .r13 = UINT64_MAX};
    struct operand alone, followed;
    uint8_t longer[ROOM + 1];
    if (size == 0)
        return 0;
    f.flags = data[0] & 1 ? DF : 0;
    f.error = data[0] & WRITE;
    size = CL_MIN(size - 1, (size_t)ROOM);
    data++;
    if (!operand_of(&f, data, (unsigned)size, &alone))
        return 0;
    CL_ASSERT(alone.bytes > 0 && alone.bytes <= VECTOR_MAX);
    memcpy(longer, data, size);
    longer[size] = (uint8_t)~data[size - 1];
    CL_ASSERT(operand_of(&f, longer, (unsigned)size + 1, &followed));
    CL_ASSERT(followed.at == alone.at && followed.bytes == alone.bytes);
    return 0;
}
