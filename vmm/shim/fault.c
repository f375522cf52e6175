/* vmm/shim/fault.c - the address that a page fault is about.
 *
 * CR2 is CPL0's.  Where the gate of page faults leads to CPL0 (an isolated guest's does, because
 * CR3 is CPL0's too) it brings CR2 along, by instructions that KVM interprets.  Where it leads
 * straight to CPL3 the instruction that faulted tells, and only what it leaves open is asked of
 * CPL0, which is dearer that way.
 *
 * That instruction is still what it was: there is one vCPU, and an interrupt that comes in here
 * lets nothing of the kernel's run (interrupt() of trap.c).  The page tables are those that the
 * fault was about, too, so an answer that they contradict is none.
 */
#include "vmm/shim/operand.h"
#include "vmm/shim/shim.h"

enum { PAGE = 4096, INSTRUCTION_MAX = 15 };
enum { RIGHTS = 7, WRITE = 2, FETCH = 0x10 }; /* bits of the error code */

static unsigned room_in_page(uint64_t va)
{
    return PAGE - (unsigned)(va % PAGE);
}

/* An operand may reach into the next page; then exactly one of the two must be to blame. */
static bool find_page(const struct frame *f, const struct operand *o, uint64_t *ret)
{
    const bool writes = f->error & WRITE, is_whole = o->bytes <= room_in_page(o->at);
    const uint64_t second = o->at + room_in_page(o->at);
    const bool first_is_good = mmu_allows(o->at, writes),
               second_is_good = is_whole || mmu_allows(second, writes);
    *ret = first_is_good ? second : o->at;
    return first_is_good != second_is_good;
}

static bool by_operand(const struct frame *f, uint64_t *ret)
{
    struct operand o;
    const uint64_t code = mmu_physical(f->rip);
    const unsigned room = room_in_page(f->rip);
    return code != 0 &&
           operand_of(f, (const uint8_t *)frame_at(code / PAGE) + code % PAGE,
                      room < INSTRUCTION_MAX ? room : INSTRUCTION_MAX, &o) &&
           find_page(f, &o, ret);
}

/* The whole instruction is in its page. */
static bool by_fetch(const struct frame *f, uint64_t *ret)
{
    *ret = f->rip;
    return room_in_page(f->rip) >= INSTRUCTION_MAX;
}

uint64_t fault_address(const struct frame *f)
{
    uint64_t at;
    const uint64_t kind = f->error & ~(uint64_t)RIGHTS;
    if ((kind == 0 && by_operand(f, &at)) || (kind == FETCH && by_fetch(f, &at)))
        return at;
    shim()->asked++;
    return read_cr2();
}
