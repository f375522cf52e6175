/* vmm/xenpv_patch.c - two places in a Xen-PV kernel's code that need no SYSCALL.
 *
 * Kernel and shim are both at CPL3 and share their address space, so a hypercall may be a call.  On
 * a KVM that interprets ring 0 SYSCALL leaves the guest, which takes 1 us or 25 us, and a boot
 * makes 30,000 hypercalls.  The kernel's file stays as it is.  What is not found, or found twice,
 * is left alone: slower, not broken.
 */
#include <string.h>

#include "vmm/xenpv_priv.h"

enum { INT3 = 0xcc };

/* The only copy of a piece of code; NULL when there is none, or more than one. */
static uint8_t *find(uint8_t *text, size_t n, const uint8_t *piece, size_t piece_n)
{
    uint8_t *at = memmem(text, n, piece, piece_n);
    if (!at)
        return NULL;
    size_t rest = n - (size_t)(at + 1 - text);
    return memmem(at + 1, rest, piece, piece_n) ? NULL : at;
}

static bool is_filled(const uint8_t *at, size_t n, uint8_t filler)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] != filler)
            return false;
    }
    return true;
}

/* Linux, arch/x86/xen/xen-asm.S: xen_hypercall_pv.  The call is in what fills the place in front of
 * the function, and so it returns to its start; the shim goes on behind the SYSCALL.  Since 6.2 the
 * start is an ENDBR64, and the place is filled with NOPs. */
static bool patch_hypercall(uint8_t *text, size_t n, uint64_t target)
{
    enum { SYSCALL_AT = 3, IN_FRONT = 13, TARGET_AT = 2, NOP = 0x90 };
    static const uint8_t endbr[SHIM_ENDBR_BYTES] = {0xf3, 0x0f, 0x1e, 0xfa},
                         stub[] = {0x51, 0x41, 0x53,                /* push %rcx; push %r11 */
                                   0x0f, 0x05,                      /* syscall */
                                   0x41, 0x5b, 0x59};               /* pop %r11; pop %rcx */
    uint8_t call[IN_FRONT] = {0x49, 0xbb, 0,   0, 0, 0, 0, 0, 0, 0, /* movabs target, %r11 */
                              0x41, 0xff, 0xd3};                    /* call *%r11 */
    uint8_t to_call[] = {0xeb, 0};                                  /* jmp call */
    _Static_assert(SYSCALL_AT + sizeof to_call == SHIM_STUB_GOES_ON, "the shim's");
    uint8_t *at = find(text, n, stub, sizeof stub);
    if (!at || at - text < IN_FRONT + SHIM_ENDBR_BYTES)
        return false;
    bool has_endbr = memcmp(at - sizeof endbr, endbr, sizeof endbr) == 0;
    uint8_t *place = at - IN_FRONT - (has_endbr ? sizeof endbr : 0);
    if (!is_filled(place, IN_FRONT, has_endbr ? NOP : INT3))
        return false;
    target -= has_endbr ? SHIM_ENDBR_ENTRY : 0;
    to_call[1] = (uint8_t)(place - (at + SHIM_STUB_GOES_ON));
    memcpy(call + TARGET_AT, &target, sizeof target);
    memcpy(place, call, sizeof call);
    memcpy(at + SYSCALL_AT, to_call, sizeof to_call);
    return true;
}

/* The same file, hypercall_iret. */
static bool patch_iret(uint8_t *text, size_t n, uint64_t target)
{
    enum { TARGET_AT = 3 };
    static const uint8_t stub[] = {0x6a, 0x00,                       /* push $0 */
                                   0x51, 0x41, 0x53, 0x50,           /* push %rcx, %r11, %rax */
                                   0xb8, 0x17, 0x00, 0x00, 0x00,     /* mov $23, %eax */
                                   0x0f, 0x05};                      /* syscall */
    uint8_t jump[sizeof stub] = {0x50,                               /* push %rax */
                                 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, /* movabs target, %rax */
                                 0xff, 0xe0};                        /* jmp *%rax */
    uint8_t *at = find(text, n, stub, sizeof stub);
    if (!at)
        return false;
    memcpy(jump + TARGET_AT, &target, sizeof target);
    memcpy(at, jump, sizeof jump);
    return true;
}

int xenpv_patch(uint8_t *text, size_t n, uint64_t hypercall, uint64_t iret)
{
    return patch_hypercall(text, n, hypercall) + patch_iret(text, n, iret);
}
