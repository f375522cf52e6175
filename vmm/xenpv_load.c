/* vmm/xenpv_load.c - the kernel of a Xen-PV guest and what it finds at its first instruction.
 *
 *     linear, from VIRT_BASE on, as in physical memory:
 *         the kernel | start_info | xenstore page | console page | p2m | page tables | stack | room
 *     from INIT_P2M on: the p2m once more, where the kernel looks for it
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "vmm/loader.h"
#include "vmm/shim/xen.h"
#include "vmm/xenpv_priv.h"

enum { ENTRIES = 512, TABLE = 0x67 };  /* present, writable, user, accessed, dirty */
#define TABLE_SPAN (UINT64_C(2) << 20) /* what a table of pages maps */
/* Xen promises 512 KiB behind the stack, and an end at a multiple of 4 MiB. */
#define ROOM (UINT64_C(512) << 10)
#define END_ALIGN (UINT64_C(4) << 20)
#define END_MAX (UINT64_C(1) << 30) /* what one table of tables maps, behind VIRT_BASE */

/* What such a kernel needs to be told besides, and how many processors it has.  No xenstore is
 * there to be waited for; the text of the kernel is patched for one processor once, not at each
 * LOCK prefix of each module; mitigations write registers that it does not have; no device needs
 * memory below 4 GiB, which it would ask its hypervisor to exchange. */
#define PARAMETERS \
    "earlyprintk=xen nr_cpus=%u noreplace-smp mitigations=off no_timer_check iommu=off " \
    "initcall_blacklist=xenbus_init,xenbus_probe_initcall,balloon_init "
/* Xen's memory has no holes, and a kernel that is told of one wants other memory in its place. */
#define HOLE "memmap=%" PRIu64 "K$0x%" PRIx64 " "

#define CONSOLE " console=hvc0"

/* Guest-physical places, in their order. */
struct places {
    uint64_t start_info, store, console, p2m, tables, stack, end;
    uint64_t p2m_bytes, n_tables;
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static int find_xen(int fd, const struct elf_image *image, struct elf_xen *ret_xen,
                    struct cl_err *err)
{
    uint8_t notes[ELF_NOTE_BYTES_MAX];
    struct elf_xen xen = {0};
    for (unsigned i = 0; i < image->n_notes; i++) {
        const struct elf_notes *at = &image->notes[i];
        if (loader_notes(fd, image, i, notes, err) < 0 ||
            elf_xen_notes(notes, at->bytes, at->align, &xen, err) < 0)
            return -1;
    }
    *ret_xen = xen;
    return elf_xen_check(image, &xen, err);
}

static uint64_t end_of(const struct elf_image *image)
{
    uint64_t end = 0;
    for (unsigned i = 0; i < image->n; i++)
        end = CL_MAX(end, image->segments[i].gpa + image->segments[i].mem_bytes);
    return end;
}

/* A table of pages for each 2 MiB, above them two for each of the two mappings, and the root. */
static uint64_t tables_for(uint64_t end, uint64_t p2m_bytes)
{
    return round_up(end, TABLE_SPAN) / TABLE_SPAN + round_up(p2m_bytes, TABLE_SPAN) / TABLE_SPAN +
           5;
}

static struct places place(const struct elf_image *image, uint64_t ram)
{
    struct places p;
    p.start_info = round_up(end_of(image), XENPV_PAGE);
    p.store = p.start_info + XENPV_PAGE;
    p.console = p.store + XENPV_PAGE;
    p.p2m = p.console + XENPV_PAGE;
    p.p2m_bytes = round_up(ram / XENPV_PAGE * sizeof(uint64_t), XENPV_PAGE);
    p.tables = p.p2m + p.p2m_bytes;
    /* More tables need more room, which may need a table more. */
    p.n_tables = tables_for(p.tables + 2 * END_ALIGN, p.p2m_bytes);
    p.stack = p.tables + p.n_tables * XENPV_PAGE;
    p.end = round_up(p.stack + XENPV_PAGE + ROOM, END_ALIGN);
    return p;
}

/* --- page tables --------------------------------------------------------------------------- */

/* The tables while they are made; at `gpa`, one after the other, the root first. */
struct tables {
    uint64_t *host;
    uint64_t gpa, used, n;
};

static uint64_t *table_of(struct tables *t, uint64_t gpa)
{
    return t->host + (gpa - t->gpa) / sizeof(uint64_t);
}

static uint64_t new_table(struct tables *t)
{
    CL_ASSERT(t->used < t->n);
    return t->gpa + t->used++ * XENPV_PAGE;
}

/* The entry of va in the table at `gpa`, and a table behind it. */
static uint64_t below(struct tables *t, uint64_t gpa, uint64_t va, int level)
{
    uint64_t *entry = &table_of(t, gpa)[va >> (12 + 9 * (level - 1)) & (ENTRIES - 1)];
    if (*entry == 0)
        *entry = new_table(t) | TABLE;
    return *entry & ~(uint64_t)(XENPV_PAGE - 1);
}

static void map(struct tables *t, uint64_t va, uint64_t gpa, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += XENPV_PAGE) {
        uint64_t table = t->gpa;
        for (int level = 4; level > 1; level--)
            table = below(t, table, va + at, level);
        table_of(t, table)[(va + at) / XENPV_PAGE & (ENTRIES - 1)] = (gpa + at) | TABLE;
    }
}

static int put_tables(const struct guest_mem *mem, const struct places *p,
                      const struct elf_xen *xen, const uint64_t slots[static SHIM_SLOTS],
                      struct cl_err *err)
{
    struct iovec to;
    if (gm_iov(mem, (struct gpa){p->tables}, p->n_tables * XENPV_PAGE, &to) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "guest memory has no room for page tables");
    struct tables t = {to.iov_base, p->tables, 1, p->n_tables};
    memcpy(&t.host[SHIM_SLOT_FIRST], slots, SHIM_SLOTS * sizeof *slots);
    map(&t, xen->virt_base, 0, p->end);
    map(&t, xen->init_p2m, p->p2m, p->p2m_bytes);
    return 0;
}

/* --- what Xen tells a kernel --------------------------------------------------------------- */

/* Frames of the guest are frames of the machine. */
static int put_p2m(const struct guest_mem *mem, const struct places *p, uint64_t frames,
                   struct cl_err *err)
{
    struct iovec to;
    if (gm_iov(mem, (struct gpa){p->p2m}, p->p2m_bytes, &to) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "guest memory has no room for the table of frames");
    uint64_t *p2m = to.iov_base;
    for (uint64_t i = 0; i < frames; i++)
        p2m[i] = i;
    return 0;
}

static int put_cmdline(struct xen_start_info *info, const struct guest_mem *mem,
                       const struct xenpv_input *input, struct cl_err *err)
{
    const char *cmdline = input->cmdline;
    char hole[64] = "";
    if (mem->high > 0)
        (void)snprintf(hole, sizeof hole, HOLE, (mem->high_at - mem->low) >> 10, mem->low);
    /* the last console is the one of /init; there is no interrupt for a serial port */
    int n = snprintf(info->cmdline, sizeof info->cmdline, PARAMETERS "%s%s" CONSOLE, input->vcpus,
                     hole, cmdline);
    if (n < 0 || (size_t)n >= sizeof info->cmdline)
        return cl_fail(
            err, CL_E_TOOBIG, 0, "a kernel command line of %zu bytes; Xen PV takes at most %zu",
            strlen(cmdline), sizeof info->cmdline - sizeof PARAMETERS CONSOLE - strlen(hole));
    return 0;
}

/* mem is without the area, which begins where it ends. */
static int put_start_info(const struct guest_mem *mem, const struct places *p,
                          const struct xenpv_input *input, const struct loader_extent *initrd,
                          const struct elf_xen *xen, struct cl_err *err)
{
    struct xen_start_info info = {
        .magic = "xen-3.0-x86_64",
        .nr_pages = gm_end(mem) / XENPV_PAGE,
        .shared_info = gm_end(mem) + SHIM_SHARED_INFO,
        .store_frame = p->store / XENPV_PAGE,
        .store_port = XEN_PORT_STORE,
        .console_frame = p->console / XENPV_PAGE,
        .console_port = XEN_PORT_CONSOLE,
        .pt_base = xen->virt_base + p->tables,
        .nr_pt_frames = p->n_tables,
        .p2m = xen->init_p2m,
        .flags = initrd->bytes > 0 ? XEN_MOD_START_PFN : 0,
        .mod_start = initrd->at / XENPV_PAGE,
        .mod_bytes = initrd->bytes,
        .first_p2m_frame = p->p2m / XENPV_PAGE,
        .nr_p2m_frames = p->p2m_bytes / XENPV_PAGE,
    };
    if (put_cmdline(&info, mem, input, err) < 0)
        return -1;
    return loader_put(mem, p->start_info, &info, sizeof info, err);
}

/* The kernel's code is in the segment of its entry in 64-bit mode, its first. */
static int patch(const struct guest_mem *mem, const struct elf_image *image,
                 const struct shim_head *head, unsigned vcpus)
{
    const struct elf_segment *first = &image->segments[0];
    uint64_t hypercall = vcpus > 1 ? head->find_hypercall : head->hypercall;
    uint64_t iret = vcpus > 1 ? head->find_iret : head->iret;
    struct iovec text;
    if (first->file_bytes == 0 ||
        gm_iov(mem, (struct gpa){first->gpa}, first->file_bytes, &text) < 0)
        return 0;
    return xenpv_patch(text.iov_base, text.iov_len, hypercall, iret);
}

int xenpv_load(const struct guest_mem *mem, const struct xenpv_input *input,
               struct xenpv *ret_xenpv, struct xenpv_entry ret_entries[static XENPV_VCPUS_MAX],
               struct cl_err *err)
{
    struct guest_mem ram; /* without the area */
    struct elf_image image;
    struct elf_xen xen;
    struct loader_extent initrd;
    struct xenpv_area area;
    if (xenpv_divide(mem, &ram, err) < 0 || loader_parse(input->kernel_fd, &image, err) < 0 ||
        find_xen(input->kernel_fd, &image, &xen, err) < 0 ||
        loader_segments(&ram, input->kernel_fd, &image, err) < 0 ||
        loader_initrd(&ram, input->initrd_fd, &initrd, err) < 0)
        return -1;
    uint64_t end = gm_end(&ram);
    struct places p = place(&image, end);
    struct xenpv_plan plan = {
        .area = end, .console = p.console, .root = p.tables, .image = xen.virt_base};
    if (p.end > END_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel ends at 0x%" PRIx64 "; want 1 GiB at most",
                       p.end);
    if (p.end > (initrd.bytes > 0 ? initrd.at : ram.low))
        return cl_fail(err, CL_E_INVALID, 0,
                       "%" PRIu64 " MiB of memory; this kernel and initrd need %" PRIu64,
                       mem->low >> 20, (p.end + initrd.bytes + (mem->low - ram.low)) >> 20);
    if (xenpv_put_area(mem, &plan, input, &area, err) < 0 ||
        put_p2m(&ram, &p, end / XENPV_PAGE, err) < 0 ||
        put_tables(&ram, &p, &xen, area.slots, err) < 0 ||
        put_start_info(&ram, &p, input, &initrd, &xen, err) < 0)
        return -1;
    int patched = patch(&ram, &image, &area.head, input->vcpus);
    area.entries[0].rip = xen.entry;
    area.entries[0].rsp = xen.virt_base + p.stack + XENPV_PAGE;
    area.entries[0].rsi = xen.virt_base + p.start_info;
    memcpy(ret_entries, area.entries, input->vcpus * sizeof *ret_entries);
    *ret_xenpv = (struct xenpv){.on = true, .area = end};
    return patched;
}
