/* vmm/delta.c - see vmm/delta.h. */
#include "vmm/delta.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14; a libc may be older */
#define MADV_POPULATE_READ 22
#endif

enum { PAGE = RUNS_PAGE };

static uint8_t *page_at(const struct guest_mem *gm, uint32_t page)
{
    return gm->base + (uint64_t)page * PAGE;
}

/* --- the check ------------------------------------------------------------------------------ */

int delta_check(const struct delta_block *block, uint32_t first, uint32_t end, uint32_t *ret_next,
                struct cl_err *err)
{
    uint32_t next = first;
    if (block->zero || block->n == 0 || block->n > DELTA_RUNS)
        return cl_fail(err, CL_E_INVALID, 0, "a delta of memory with a block of %u runs", block->n);
    for (uint32_t i = 0; i < block->n; i++) {
        struct page_run run = block->runs[i];
        if (run.first < next || run.first >= end || run.pages == 0 || run.pages > end - run.first)
            return cl_fail(err, CL_E_INVALID, 0,
                           "a delta of memory with a run of %u pages from %u, after %u of %u",
                           run.pages, run.first, next, end);
        next = run.first + run.pages;
    }
    *ret_next = next;
    return 0;
}

/* --- bytes ---------------------------------------------------------------------------------- */

typedef ssize_t move_fn(int fd, const struct iovec *iov, int n, off_t at); /* preadv(), pwritev() */

/* All of iov, which is used up, though one call moves 2 GiB at the most.  ENODATA at a file's end.
 */
static int move_all(move_fn *move, int fd, struct iovec *iov, size_t n, uint64_t *at)
{
    for (size_t i = 0; i < n;) {
        ssize_t moved = move(fd, iov + i, (int)(n - i), (off_t)*at);
        if (moved == 0)
            errno = ENODATA;
        if (moved == 0 || (moved < 0 && errno != EINTR))
            return -1;
        *at += moved > 0 ? (uint64_t)moved : 0;
        for (; moved > 0 && (size_t)moved >= iov[i].iov_len; i++)
            moved -= (ssize_t)iov[i].iov_len;
        if (moved > 0) {
            iov[i].iov_base = (uint8_t *)iov[i].iov_base + moved;
            iov[i].iov_len -= (size_t)moved;
        }
    }
    return 0;
}

/* --- storing -------------------------------------------------------------------------------- */

struct writer {
    const struct guest_mem *gm;
    int fd;
    uint64_t at; /* in the file: where the block goes */
    struct delta_block block;
    struct iovec iov[1 + DELTA_RUNS];
};

static int flush(struct writer *w)
{
    if (w->block.n == 0)
        return 0;
    w->iov[0] = (struct iovec){&w->block, sizeof w->block};
    for (uint32_t i = 0; i < w->block.n; i++)
        w->iov[1 + i] = (struct iovec){page_at(w->gm, w->block.runs[i].first),
                                       (size_t)w->block.runs[i].pages * PAGE};
    if (move_all(pwritev, w->fd, w->iov, 1 + w->block.n, &w->at) < 0)
        return -1;
    memset(&w->block, 0, sizeof w->block);
    return 0;
}

static int add(struct writer *w, uint32_t page)
{
    struct page_run *last = w->block.n > 0 ? &w->block.runs[w->block.n - 1] : NULL;
    if (last && last->first + last->pages == page) {
        last->pages++;
        return 0;
    }
    if (w->block.n == DELTA_RUNS && flush(w) < 0)
        return -1;
    w->block.runs[w->block.n++] = (struct page_run){page, 1};
    return 0;
}

/* Compared in one go; most have not changed. */
enum { PIECE_PAGES = 16 };

static int store_mapped(struct writer *w, const uint8_t *before, uint32_t from, uint32_t to)
{
    for (uint32_t page = from; page < to; page += PIECE_PAGES) {
        uint32_t n = CL_MIN((uint32_t)PIECE_PAGES, to - page);
        const uint8_t *now = page_at(w->gm, page), *was = before + (uint64_t)page * PAGE;
        if (gm_is_same(was, now, (size_t)n * PAGE))
            continue;
        for (uint32_t i = 0; i < n; i++) {
            size_t at = (size_t)i * PAGE;
            if (!gm_is_same(was + at, now + at, PAGE) && add(w, page + i) < 0)
                return -1;
        }
    }
    return 0;
}

/* Most of its pages were never used: all get the kernel's pages of zeros in one call, which spares
 * a fault each, and huge ones where a whole piece was not.  (mincore() knows which they are, but
 * takes one that is swapped out for one of them.) */
static int store_own(struct writer *w, uint32_t from, uint32_t to)
{
    static const uint8_t zeros[PAGE];
    uint8_t *at = page_at(w->gm, from);
    size_t n = (size_t)(to - from) * PAGE;
    (void)madvise(at, n, MADV_HUGEPAGE); /* a host may have none */
    (void)madvise(at, n, MADV_POPULATE_READ);
    (void)madvise(at, n, MADV_NOHUGEPAGE); /* what it writes from now on goes into small ones */
    for (uint32_t page = from; page < to; page++) {
        if (!gm_is_same(page_at(w->gm, page), zeros, PAGE) && add(w, page) < 0)
            return -1;
    }
    return 0;
}

static uint32_t pages_of(const struct guest_mem *gm)
{
    return (uint32_t)((gm->low + gm->high) / PAGE); /* GM_BYTES_MAX has 2^28 */
}

static int store_all(struct writer *w, const uint8_t *before, const struct page_runs *holes)
{
    uint32_t page = 0;
    for (uint32_t i = 0; i < holes->n; i++) { /* in order, and apart */
        struct page_run hole = holes->runs[i];
        if (store_mapped(w, before, page, hole.first) < 0 ||
            store_own(w, hole.first, hole.first + hole.pages) < 0)
            return -1;
        page = hole.first + hole.pages;
    }
    return store_mapped(w, before, page, pages_of(w->gm)) < 0 ? -1 : flush(w);
}

int delta_store(const struct guest_mem *gm, const uint8_t *before, const struct page_runs *holes,
                int fd, struct cl_err *err)
{
    static struct writer w; /* of the one main thread; too large for its stack */
    w = (struct writer){.gm = gm, .fd = fd};
    if (ftruncate(fd, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make the file of changed guest memory anew");
    return store_all(&w, before, holes) < 0
               ? cl_fail(err, CL_E_SYS, errno, "write what guest memory has become")
               : 0;
}

/* --- loading -------------------------------------------------------------------------------- */

static int load_block(const struct guest_mem *gm, int fd, uint64_t *at, uint32_t *page,
                      struct cl_err *err)
{
    static struct delta_block block; /* as above */
    static struct iovec iov[DELTA_RUNS];
    iov[0] = (struct iovec){&block, sizeof block};
    if (move_all(preadv, fd, iov, 1, at) < 0)
        return cl_fail(err, CL_E_INVALID, errno, "read a delta of memory");
    if (delta_check(&block, *page, pages_of(gm), page, err) < 0)
        return -1;
    for (uint32_t i = 0; i < block.n; i++)
        iov[i] =
            (struct iovec){page_at(gm, block.runs[i].first), (size_t)block.runs[i].pages * PAGE};
    if (move_all(preadv, fd, iov, block.n, at) < 0)
        return cl_fail(err, CL_E_INVALID, errno, "read a delta of memory");
    return 0;
}

int delta_load(const struct guest_mem *gm, int fd, struct cl_err *err)
{
    struct stat st;
    uint64_t at = 0;
    uint32_t page = 0;
    if (fstat(fd, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "stat a delta of memory");
    while (at < (uint64_t)st.st_size) {
        if (load_block(gm, fd, &at, &page, err) < 0)
            return -1;
    }
    return 0;
}
