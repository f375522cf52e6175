/* A VM's state file: what is accepted prints and parses back to the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "worker/vm_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vm_state s, back;
    struct cl_err err = {0};
    char text[2 * VM_STATE_MAX];
    if (vm_state_parse((const char *)data, size, &s, &err) < 0)
        return 0;
    CL_ASSERT(vm_state_print(&s, text, sizeof text, &err) == 0);
    if (strlen(text) < VM_STATE_MAX)
        CL_ASSERT(vm_state_parse(text, strlen(text), &back, &err) == 0 && back.fence == s.fence &&
                  strcmp(back.unit_id, s.unit_id) == 0);
    return 0;
}
