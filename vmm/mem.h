/* vmm/mem.h - guest memory, and the one door to it.
 *
 * Owns:    the mapping of the guest's RAM, from gm_map() or gm_alloc() to gm_unmap(); a view of a
 *          file is its owner's, to munmap().
 * Borrows: nothing; the memfd may be closed after gm_map().
 * Thread:  the struct never changes once it is mapped, so any thread may read and write through it;
 *          what the guest writes meanwhile is the guest's affair.
 * Nobody else turns a guest address into a pointer.  Control data is copied out once by gm_read()
 * and checked in the copy; only bulk data, whose value nobody checks, goes by gm_iov().
 *
 *   guest physical                         host
 *   0 ............ low                     base
 *   low ....... high_at  devices, a hole   (nothing)
 *   high_at .. high_at + high              base + low
 */
#ifndef CL_VMM_MEM_H
#define CL_VMM_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/page_runs.h"

/* A guest physical address; a type of its own, so that it is never taken for a host one. */
struct gpa {
    uint64_t v;
};

/* Where the device hole is in most machines: RAM below it ends here at the latest, more goes above
 * 4 GiB. */
#define GM_LOW_MAX (UINT64_C(3) << 30)
#define GM_HIGH_START (UINT64_C(4) << 30)
/* Without it a configuration could ask for more address space than the host has. */
#define GM_BYTES_MAX (UINT64_C(1) << 40)

struct guest_mem {
    uint8_t *base;    /* owned; low + high bytes in one piece, aligned to 2 MiB */
    uint64_t low;     /* bytes at guest address 0 */
    uint64_t high;    /* bytes at guest address high_at; 0 unless the low ones reach the hole */
    uint64_t high_at; /* where the device hole ends */
    bool is_private;  /* what is written is in no file */
};

/* Map the first `bytes` of memfd as RAM: shared, so that the file is the memory, or private for a
 * clone (copy on write; the template stays as it is, and may be sealed).
 * bytes: > 0, a multiple of 4 KiB, at most GM_BYTES_MAX and the file's size.  Errors: INVALID, SYS.
 */
int gm_map(int memfd, uint64_t bytes, bool is_private, struct guest_mem *ret,
           struct cl_err *err) CL_MUST;
/* RAM in no file, zeroed, in huge pages where the host has them: a boot touches memory all over,
 * and a fault that maps 2 MiB instead of 4 KiB spares it five of six exits (docs/results/lab.md).
 * Files of memory get no huge pages on a host of usual settings. */
int gm_alloc(uint64_t bytes, struct guest_mem *ret, struct cl_err *err) CL_MUST;
/* Have the device hole from start to end instead, before anybody knows an address.  It must not be
 * empty, and lie at multiples of 2 MiB. */
void gm_set_hole(struct guest_mem *gm, uint64_t start, uint64_t end);
/* Make memfd anew as the memory is now; pages of zeros stay holes.  Nothing may write meanwhile. */
int gm_store(const struct guest_mem *gm, int memfd, struct cl_err *err) CL_MUST;
/* The same of a memfd that holds the memory of a moment before.  dirty: a bit for each page of RAM,
 * those of low RAM first, gm_dirty_words() of each of both; tells which pages are dirty, or other
 * than they were. */
int gm_store_again(const struct guest_mem *gm, int memfd, const uint64_t *dirty,
                   struct page_runs *ret_written, struct cl_err *err) CL_MUST;
/* How many words of 64 such bits are for so much memory. */
static inline uint64_t gm_dirty_words(uint64_t bytes)
{
    return (bytes / RUNS_PAGE + 63) / 64;
}
/* memcmp() == 0 of n bytes, a multiple of 64: musl's goes byte by byte, and this is for all of a
 * guest's memory. */
bool gm_is_same(const uint8_t *a, const uint8_t *b, size_t n);
/* What memfd, which has the memory, lacks of it, in pieces that are worth a mapping each. */
int gm_find_holes(const struct guest_mem *gm, int memfd, struct page_runs *ret_holes,
                  struct cl_err *err) CL_MUST;
/* Give a clone memory of its own there, before it runs: zeros, as the file would have. */
int gm_fill_holes(const struct guest_mem *gm, const struct page_runs *holes,
                  struct cl_err *err) CL_MUST;
/* A view of what memfd has of bytes [at, at + bytes) of low RAM, whole pieces of 2 MiB: for
 * gm_make_huge(), to be made while a mapping may still be made.  None is an empty view. */
int gm_view(const struct guest_mem *gm, int memfd, uint64_t at, uint64_t bytes,
            struct iovec *ret_view, struct cl_err *err) CL_MUST;
/* Each piece becomes a huge page of the file, if the host has one (Linux 6.1: MADV_COLLAPSE): a
 * clone, which maps the file as it is, has it by one fault.  For what clones do not write: the
 * first write takes such a page apart for the one that writes. */
void gm_make_huge(struct iovec view);
/* Copy these pages of a clone now, which it will write.  A host that cannot, or has no room for
 * them, leaves it to the clone. */
void gm_copy_ahead(const struct guest_mem *gm, const struct page_runs *written);
/* A zeroed struct is fine; the struct is zeroed again. */
void gm_unmap(struct guest_mem *gm);

/* The guest address behind the last of RAM. */
static inline uint64_t gm_end(const struct guest_mem *gm)
{
    return gm->high > 0 ? gm->high_at + gm->high : gm->low;
}

/* Copy n bytes out of, or into, the guest.  -EFAULT when any of them is outside RAM (an address
 * of a device, the hole, past the end, a wrap); then nothing is copied.  n == 0 is always fine. */
int gm_read(const struct guest_mem *gm, struct gpa at, void *dst, size_t n) CL_MUST;
int gm_write(const struct guest_mem *gm, struct gpa at, const void *src, size_t n) CL_MUST;

/* The host's view of n > 0 bytes, for bulk data only: valid until gm_unmap(), may change under the
 * reader at any time.  -EFAULT as above. */
int gm_iov(const struct guest_mem *gm, struct gpa at, size_t n, struct iovec *ret) CL_MUST;

/* Give the whole pages of a range that came from gm_iov() back to the host.  Until they are written
 * again they read as zeros, or in a clone as the template has them: to the guest that gave them,
 * uninitialised.  Costs no mapping, so that any number may go.  0 or -errno. */
int gm_forget(const struct guest_mem *gm, struct iovec range) CL_MUST;

/* A ring index (little-endian, as the host is): the load acquires what the guest wrote before it,
 * the store releases what we wrote before it, and a load after a store sees what came before the
 * store was seen (sequentially consistent).  -EFAULT outside RAM or when not aligned to 2. */
int gm_load16(const struct guest_mem *gm, struct gpa at, uint16_t *ret) CL_MUST;
int gm_store16(const struct guest_mem *gm, struct gpa at, uint16_t value) CL_MUST;
/* Set bits of a word that the guest clears, both at once with others of us.  -EFAULT outside RAM or
 * when not aligned to 8. */
int gm_or64(const struct guest_mem *gm, struct gpa at, uint64_t bits) CL_MUST;

#endif
