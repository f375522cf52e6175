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
 * only while such memory is less than half of what the program's cgroups may have, and a quarter of
 * the machine is available.
 *
 * It stands in the place of handle_mm_fault(), put there by ftrace as a live patch is, so it serves
 * faults of programs and of the kernel that writes to their memory, with what they hold locked.  On
 * any other machine, or where ftrace refuses, the module declines with ENODEV.  It is a work of its
 * own, for the kernel, under the kernel's licence.
 */
#include <linux/ftrace.h>
#include <linux/hash.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/userfaultfd_k.h>
#include <linux/vmstat.h>
#include <xen/xen.h>

#define BLOCK (4 * PAGE_SIZE)
#define BLOCK_MAX (16 * PAGE_SIZE)
enum { STREAMS_BITS = 6 };
enum { NO_MORE = VM_FAULT_ERROR | VM_FAULT_RETRY | VM_FAULT_COMPLETED }; /* its lock may be gone */

/* Where a program was in a part of its memory that has page tables of its own (2 MiB). */
struct stream {
    const struct mm_struct *mm; /* a name, nothing to look at */
    unsigned long part;
    unsigned long next;  /* behind what was taken along */
    unsigned long bytes; /* so much of it, the faulted page with it */
};
static struct stream streams[1 << STREAMS_BITS];

/* Pages of files do not count: they are given up for others. */
static bool is_ample(void)
{
    unsigned long limit = totalram_pages();

    rcu_read_lock();
    for (struct mem_cgroup *group = mem_cgroup_from_task(current); group;
         group = parent_mem_cgroup(group))
        limit = min(limit, READ_ONCE(group->memory.max));
    rcu_read_unlock();
    return global_node_page_state(NR_ANON_MAPPED) < limit / 2 &&
           si_mem_available() > (long)(totalram_pages() / 4);
}

static bool is_fit(struct vm_area_struct *vma)
{
    return vma_is_anonymous(vma) && (vma->vm_flags & VM_WRITE) &&
           !(vma->vm_flags & VM_NOHUGEPAGE) && !userfaultfd_armed(vma);
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

static void take_along(struct vm_area_struct *vma, unsigned long from, unsigned long to,
                       unsigned int flags)
{
    to = min(to, vma->vm_end);
    for (unsigned long at = max(from, vma->vm_start); at < to; at += PAGE_SIZE) {
        if (!is_there(at) && (handle_mm_fault(vma, at, flags, NULL) & NO_MORE))
            return;
    }
}

/* Without a lock: programs that meet in one stream take along a little more or less. */
static unsigned long bytes_for(const struct mm_struct *mm, unsigned long block)
{
    unsigned long part = block >> PMD_SHIFT;
    struct stream *stream = &streams[hash_64((unsigned long)mm + part, STREAMS_BITS)];
    bool goes_on = stream->mm == mm && stream->part == part && stream->next == block;
    unsigned long bytes = goes_on ? min(stream->bytes * 2, BLOCK_MAX) : BLOCK;

    bytes = min(bytes, ((part + 1) << PMD_SHIFT) - block);
    *stream = (struct stream){mm, part, block + bytes, bytes};
    return bytes;
}

/* In the place of handle_mm_fault(), for all but this module: on_call() knows it by the address
 * that a call returns to, so the call here must not become a jump, which the barrier sees to. */
static vm_fault_t serve(struct vm_area_struct *vma, unsigned long address, unsigned int flags,
                        struct pt_regs *regs)
{
    bool is_new = regs && (flags & FAULT_FLAG_WRITE) && is_fit(vma) && !is_there(address);
    unsigned long block = address & ~(BLOCK - 1);
    vm_fault_t fault = handle_mm_fault(vma, address, flags, regs);

    barrier();
    if (is_new && !(fault & NO_MORE) && is_ample())
        take_along(vma, block, block + bytes_for(vma->vm_mm, block),
                   flags & ~(FAULT_FLAG_USER | FAULT_FLAG_ALLOW_RETRY));
    return fault;
}

static void notrace on_call(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
                            struct ftrace_regs *fregs)
{
    if (!within_module(parent_ip, THIS_MODULE))
        ftrace_get_regs(fregs)->ip = (unsigned long)serve;
}

static struct ftrace_ops ops = {
    .func = on_call,
    .flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_RECURSION,
};

static int __init cloche_prefault_init(void)
{
    int rc;

    if (!xen_pv_domain())
        return -ENODEV;
    rc = ftrace_set_filter_ip(&ops, (unsigned long)handle_mm_fault, 0, 0);
    if (rc == 0)
        rc = register_ftrace_function(&ops);
    if (rc < 0)
        pr_err("cloche_prefault: %d: each page has a fault of its own\n", rc);
    return rc < 0 ? -ENODEV : 0;
}
module_init(cloche_prefault_init);

MODULE_DESCRIPTION("prefaults anonymous memory of a Xen-PV guest of cloche-vmm");
MODULE_LICENSE("GPL");
