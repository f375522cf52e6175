// SPDX-License-Identifier: GPL-2.0
/*
 * cloche_prefault - anonymous memory of a Xen-PV guest of cloche-vmm, more than a page a fault.
 *
 * To such a guest a page fault is dear: it leaves its processor twice, once to be told of the fault
 * and once for the new page, where the kernel's own part takes a microsecond.  So the first write
 * to a page takes along what lies in the same 16 KiB, and twice that each time when a program goes
 * on where the last pages ended, up to 64 KiB.  (Linux 6.8 has the like, mTHP, but not for Xen PV.)
 *
 * What is taken along and never used is memory lost.  So it is only what can be written anyway,
 * only in mappings for which nobody wants to know of each page (userfaultfd, MADV_NOHUGEPAGE), and
 * only while half of what the program's cgroups may have is free, and a quarter of the machine.
 *
 * A tracepoint tells of the fault, before it is served; a task work does the rest when the fault is
 * served and its program is about to go on.  Debian's kernels export task_work_add().  On any other
 * machine the module declines with ENODEV.  It is a work of its own, for the kernel, under the
 * kernel's licence.
 */
#include <linux/hash.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <linux/tracepoint.h>
#include <linux/userfaultfd_k.h>
#include <asm/trap_pf.h>
#include <xen/xen.h>

#define BLOCK (4 * PAGE_SIZE)
#define BLOCK_MAX (16 * PAGE_SIZE)
enum { STREAMS_BITS = 6 };

/* Where a program was in a part of its memory that has page tables of its own (2 MiB). */
struct stream {
    const struct mm_struct *mm; /* a name, nothing to look at */
    unsigned long part;
    unsigned long next;  /* behind what was taken along */
    unsigned long bytes; /* so much of it, the faulted page with it */
};
static DEFINE_PER_CPU(struct stream[1 << STREAMS_BITS], streams);

struct ahead {
    struct callback_head head;
    unsigned long from, to;
};

/* --- when the fault is served, with the program's memory -------------------------------------- */

static bool is_ample(void)
{
    bool is = si_mem_available() > (long)(totalram_pages() / 4);

    rcu_read_lock();
    for (struct mem_cgroup *group = mem_cgroup_from_task(current); is && group;
         group = parent_mem_cgroup(group)) {
        unsigned long max = READ_ONCE(group->memory.max);

        is = page_counter_read(&group->memory) < max / 2;
    }
    rcu_read_unlock();
    return is;
}

static bool is_fit(const struct vm_area_struct *vma)
{
    return vma_is_anonymous((struct vm_area_struct *)vma) && (vma->vm_flags & VM_WRITE) &&
           !(vma->vm_flags & VM_NOHUGEPAGE) && !userfaultfd_armed((struct vm_area_struct *)vma);
}

/* One that is there may be shared with a fork's other side, which must not cost a copy now. */
static bool is_there(unsigned long at)
{
    struct page *page;

    if (!get_user_page_fast_only(at, 0, &page))
        return false;
    put_page(page);
    return true;
}

static void take_along(struct mm_struct *mm, unsigned long from, unsigned long to)
{
    struct vm_area_struct *vma = find_vma(mm, from);

    if (!vma || !is_fit(vma))
        return;
    from = max(from, vma->vm_start);
    to = min(to, vma->vm_end);
    for (unsigned long at = from; at < to; at += PAGE_SIZE) {
        if (!is_there(at) &&
            (handle_mm_fault(vma, at, FAULT_FLAG_WRITE, NULL) & (VM_FAULT_ERROR | VM_FAULT_RETRY)))
            return;
    }
}

static void after_fault(struct callback_head *head)
{
    struct ahead *ahead = container_of(head, struct ahead, head);
    struct mm_struct *mm = current->mm; /* none: it is about to end */

    if (mm && !fatal_signal_pending(current) && is_ample() && mmap_read_trylock(mm)) {
        take_along(mm, ahead->from, ahead->to);
        mmap_read_unlock(mm);
    }
    kfree(ahead);
}

/* --- before it is served, with interrupts off --------------------------------------------------
 */

static unsigned long bytes_for(unsigned long block)
{
    const struct mm_struct *mm = current->mm;
    unsigned long part = block >> PMD_SHIFT;
    struct stream *all = *this_cpu_ptr(&streams);
    struct stream *stream = &all[hash_64((unsigned long)mm + part, STREAMS_BITS)];
    bool goes_on = stream->mm == mm && stream->part == part && stream->next == block;
    unsigned long bytes = goes_on ? min(stream->bytes * 2, BLOCK_MAX) : BLOCK;

    bytes = min(bytes, ((part + 1) << PMD_SHIFT) - block);
    *stream = (struct stream){mm, part, block + bytes, bytes};
    return bytes;
}

static void on_fault(void *unused, unsigned long address, struct pt_regs *regs, unsigned long code)
{
    unsigned long block = address & ~(BLOCK - 1);
    struct ahead *ahead;

    if (code != (X86_PF_USER | X86_PF_WRITE)) /* of a page that is not there */
        return;
    ahead = kmalloc(sizeof(*ahead), GFP_NOWAIT | __GFP_NOWARN);
    if (!ahead)
        return;
    ahead->from = block;
    ahead->to = block + bytes_for(block);
    init_task_work(&ahead->head, after_fault);
    if (task_work_add(current, &ahead->head, TWA_RESUME) != 0)
        kfree(ahead);
}

/* The kernel exports no tracepoint of faults, but lists them all. */
static void find(struct tracepoint *tracepoint, void *ret)
{
    if (strcmp(tracepoint->name, "page_fault_user") == 0)
        *(struct tracepoint **)ret = tracepoint;
}

static int __init cloche_prefault_init(void)
{
    struct tracepoint *tracepoint = NULL;

    if (!xen_pv_domain())
        return -ENODEV;
    for_each_kernel_tracepoint(find, &tracepoint);
    return tracepoint ? tracepoint_probe_register(tracepoint, on_fault, NULL) : -ENODEV;
}
module_init(cloche_prefault_init);

MODULE_DESCRIPTION("prefaults anonymous memory of a Xen-PV guest of cloche-vmm");
MODULE_LICENSE("GPL");
