/* vmm/mem.c - see mem.h. */
#include "vmm/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/file.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; a libc may be older */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

enum {
    PAGE = 4096,
    HOLE_MIN = 1 << 20, /* a smaller one is not worth what its mapping costs each clone */
    HOLES_MAX = 512,    /* without it a restore takes as long as a fragmented guest likes */
};
_Static_assert((int)PAGE == (int)RUNS_PAGE, "one size, two names");
_Static_assert((int)HOLES_MAX <= (int)PAGE_RUNS_MAX, "the list has room");
#define HUGE_PAGE (UINT64_C(2) << 20)

/* The whole range as one host pointer, or NULL.  Subtracting from our own side cannot wrap; and
 * as RAM ends before the hole, no range lies in both regions. */
static uint8_t *host_range(const struct guest_mem *gm, struct gpa at, size_t n)
{
    if (n <= gm->low && at.v <= gm->low - n)
        return gm->base + at.v;
    if (at.v < gm->high_at)
        return NULL;
    uint64_t above = at.v - gm->high_at;
    if (n <= gm->high && above <= gm->high - n)
        return gm->base + gm->low + above;
    return NULL;
}

int gm_read(const struct guest_mem *gm, struct gpa at, void *dst, size_t n)
{
    if (n == 0)
        return 0;
    const uint8_t *src = host_range(gm, at, n);
    if (!src)
        return -EFAULT;
    memcpy(dst, src, n);
    /* The compiler must not go back to guest memory for what it has copied: a racing vCPU could
     * change a value between its check and its use. */
    __asm__ volatile("" ::: "memory");
    return 0;
}

int gm_write(const struct guest_mem *gm, struct gpa at, const void *src, size_t n)
{
    if (n == 0)
        return 0;
    uint8_t *dst = host_range(gm, at, n);
    if (!dst)
        return -EFAULT;
    memcpy(dst, src, n);
    return 0;
}

int gm_iov(const struct guest_mem *gm, struct gpa at, size_t n, struct iovec *ret)
{
    uint8_t *host = n > 0 ? host_range(gm, at, n) : NULL;
    if (!host)
        return -EFAULT;
    *ret = (struct iovec){host, n};
    return 0;
}

/* base is aligned to a page, so offsets are as good as addresses. */
int gm_forget(const struct guest_mem *gm, struct iovec range)
{
    uint64_t start = (uint64_t)((uint8_t *)range.iov_base - gm->base);
    CL_ASSERT(start <= gm->low + gm->high && range.iov_len <= gm->low + gm->high - start);
    uint64_t end = (start + range.iov_len) & ~(uint64_t)(PAGE - 1);
    start = (start + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    if (start >= end)
        return 0;
    int advice = gm->is_private ? MADV_DONTNEED : MADV_REMOVE;
    return madvise(gm->base + start, end - start, advice) < 0 ? -errno : 0;
}

static uint16_t *ring_index(const struct guest_mem *gm, struct gpa at)
{
    return at.v % sizeof(uint16_t) == 0 ? (void *)host_range(gm, at, sizeof(uint16_t)) : NULL;
}

int gm_load16(const struct guest_mem *gm, struct gpa at, uint16_t *ret)
{
    const uint16_t *index = ring_index(gm, at);
    if (!index)
        return -EFAULT;
    *ret = __atomic_load_n(index, __ATOMIC_SEQ_CST);
    return 0;
}

int gm_store16(const struct guest_mem *gm, struct gpa at, uint16_t value)
{
    uint16_t *index = ring_index(gm, at);
    if (!index)
        return -EFAULT;
    __atomic_store_n(index, value, __ATOMIC_SEQ_CST);
    return 0;
}

int gm_or64(const struct guest_mem *gm, struct gpa at, uint64_t bits)
{
    uint64_t *word = at.v % sizeof bits == 0 ? (void *)host_range(gm, at, sizeof bits) : NULL;
    if (!word)
        return -EFAULT;
    (void)__atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
    return 0;
}

static int check_bytes(uint64_t bytes, struct cl_err *err)
{
    if (bytes == 0 || bytes % PAGE != 0 || bytes > GM_BYTES_MAX)
        return cl_fail(err, CL_E_INVALID, 0,
                       "guest memory of %" PRIu64 " bytes; want a multiple of 4096 up to 1 TiB",
                       bytes);
    return 0;
}

/* A page past the end of the file would kill us with SIGBUS when the guest touches it. */
static int check_file(int memfd, uint64_t bytes, struct cl_err *err)
{
    struct stat st;
    if (check_bytes(bytes, err) < 0)
        return -1;
    if (fstat(memfd, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "stat guest memory");
    if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return cl_fail(err, CL_E_INVALID, 0,
                       "guest memory file holds %" PRIu64 " bytes; want %" PRIu64,
                       (uint64_t)st.st_size, bytes);
    return 0;
}

/* Address space whose start is aligned to 2 MiB, so that the host can use huge pages. */
static uint8_t *reserve(uint64_t bytes)
{
    uint64_t wide = bytes + HUGE_PAGE;
    uint8_t *at = mmap(NULL, wide, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    uint64_t before = -(uintptr_t)at % HUGE_PAGE;
    uint64_t after = HUGE_PAGE - before;
    if (before > 0)
        (void)munmap(at, before);
    if (after > 0)
        (void)munmap(at + before + bytes, after);
    return at + before;
}

static int map(int fd, uint64_t bytes, int flags, struct guest_mem *ret, struct cl_err *err)
{
    uint8_t *base = reserve(bytes);
    if (!base)
        return cl_fail(err, CL_E_SYS, errno, "reserve %" PRIu64 " bytes for guest memory", bytes);
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int sys = errno;
        (void)munmap(base, bytes);
        return cl_fail(err, CL_E_SYS, sys, "map guest memory");
    }
    (void)madvise(base, bytes, MADV_DONTDUMP); /* a tenant's memory is not for core files */
    ret->base = base;
    ret->is_private = flags & MAP_PRIVATE;
    ret->low = bytes;
    ret->high = 0;
    gm_set_hole(ret, GM_LOW_MAX, GM_HIGH_START);
    return 0;
}

void gm_set_hole(struct guest_mem *gm, uint64_t start, uint64_t end)
{
    uint64_t bytes = gm->low + gm->high;
    CL_ASSERT(start < end && start % HUGE_PAGE == 0 && end % HUGE_PAGE == 0);
    gm->low = CL_MIN(bytes, start);
    gm->high = bytes - gm->low;
    gm->high_at = end;
}

int gm_map(int memfd, uint64_t bytes, bool is_private, struct guest_mem *ret, struct cl_err *err)
{
    int flags = is_private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
    return check_file(memfd, bytes, err) < 0 ? -1 : map(memfd, bytes, flags, ret, err);
}

int gm_alloc(uint64_t bytes, struct guest_mem *ret, struct cl_err *err)
{
    if (check_bytes(bytes, err) < 0 ||
        map(-1, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, ret, err) < 0)
        return -1;
    (void)madvise(ret->base, bytes, MADV_HUGEPAGE); /* a host may have none */
    return 0;
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

bool gm_is_same(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint64_t other = 0;
    for (size_t line = 0; line < n && other == 0; line += 64) {
        for (size_t i = line; i < line + 64; i += 8)
            other |= word_at(a + i) ^ word_at(b + i);
    }
    return other == 0;
}

static bool is_zero(const uint8_t *page)
{
    static const uint8_t zeros[PAGE];
    return gm_is_same(page, zeros, PAGE);
}

int gm_store(const struct guest_mem *gm, int memfd, struct cl_err *err)
{
    uint64_t bytes = gm->low + gm->high;
    if (ftruncate(memfd, 0) < 0 || ftruncate(memfd, (off_t)bytes) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make the file of guest memory anew");
    for (uint64_t at = 0, start; at < bytes;) {
        for (start = at; at < bytes && !is_zero(gm->base + at); at += PAGE)
            continue;
        if (file_put(memfd, gm->base + start, at - start, start) < 0)
            return cl_fail(err, CL_E_SYS, errno, "write guest memory");
        at += at < bytes ? PAGE : 0; /* a page of zeros, or the end */
    }
    return 0;
}

/* Compared in one go; most have not changed. */
enum { PIECE_PAGES = 16, PIECE = PIECE_PAGES * PAGE };
_Static_assert((int)PIECE_PAGES == 8 * (int)sizeof(uint16_t), "a bit for each of its pages");

/* dirty: of its pages. */
static int store_piece(const struct guest_mem *gm, int memfd, uint64_t at, size_t n, uint16_t dirty,
                       struct page_runs *written)
{
    static uint8_t before[PIECE];
    if (file_get(memfd, before, n, at) < 0)
        return -1;
    if (!dirty && gm_is_same(before, gm->base + at, n))
        return 0;
    for (size_t i = 0; i < n; i += PAGE) {
        bool changed = !gm_is_same(before + i, gm->base + at + i, PAGE);
        if (changed || dirty >> i / PAGE & 1)
            page_runs_add(written, (uint32_t)((at + i) / PAGE));
        if (changed && file_put(memfd, gm->base + at + i, PAGE, at + i) < 0)
            return -1;
    }
    return 0;
}

int gm_store_again(const struct guest_mem *gm, int memfd, const uint64_t *dirty,
                   struct page_runs *ret_written, struct cl_err *err)
{
    uint64_t bytes = gm->low + gm->high;
    CL_ASSERT(gm->high == 0 || gm->low % ((uint64_t)64 * PAGE) == 0); /* no gap in the bits */
    ret_written->n = 0;
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        uint16_t of_piece = (uint16_t)(dirty[at / PAGE / 64] >> at / PAGE % 64);
        size_t n = (size_t)CL_MIN((uint64_t)PIECE, bytes - at);
        if (store_piece(gm, memfd, at, n, of_piece, ret_written) < 0)
            return cl_fail(err, CL_E_SYS, errno, "write what guest memory has become");
    }
    return 0;
}

/* The first byte from `at` on that is of this kind: SEEK_DATA or SEEK_HOLE. */
static int64_t seek(int memfd, uint64_t at, int kind, uint64_t bytes)
{
    off_t found = lseek(memfd, (off_t)at, kind);
    return found < 0 && errno == ENXIO ? (int64_t)bytes : found; /* no data behind it */
}

int gm_find_holes(const struct guest_mem *gm, int memfd, struct page_runs *ret_holes,
                  struct cl_err *err)
{
    uint64_t bytes = gm->low + gm->high;
    struct page_runs *holes = ret_holes;
    holes->n = 0;
    for (uint64_t at = 0; at < bytes && holes->n < HOLES_MAX;) {
        int64_t from = seek(memfd, at, SEEK_HOLE, bytes);
        int64_t to = from < 0 ? -1 : seek(memfd, (uint64_t)from, SEEK_DATA, bytes);
        if (to < 0)
            return cl_fail(err, CL_E_SYS, errno, "look for holes in the file of guest memory");
        if (to - from >= HOLE_MIN)
            holes->runs[holes->n++] =
                (struct page_run){(uint32_t)(from / PAGE), (uint32_t)((to - from) / PAGE)};
        at = (uint64_t)to;
    }
    return 0;
}

int gm_fill_holes(const struct guest_mem *gm, const struct page_runs *holes, struct cl_err *err)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    uint64_t bytes = gm->low + gm->high;
    for (uint32_t i = 0; i < holes->n; i++) {
        uint64_t at = (uint64_t)holes->runs[i].first * PAGE;
        uint64_t n = (uint64_t)holes->runs[i].pages * PAGE;
        CL_ASSERT(at + n <= bytes);
        if (mmap(gm->base + at, n, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
            return cl_fail(err, CL_E_SYS, errno, "map guest memory that no file has");
    }
    (void)madvise(gm->base, bytes, MADV_DONTDUMP);
    return 0;
}

int gm_view(const struct guest_mem *gm, int memfd, uint64_t at, uint64_t bytes,
            struct iovec *ret_view, struct cl_err *err)
{
    CL_ASSERT(at <= gm->low && bytes <= gm->low - at);
    uint64_t start = (at + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    uint64_t end = (at + bytes) & ~(HUGE_PAGE - 1);
    *ret_view = (struct iovec){0};
    if (start >= end)
        return 0;
    uint8_t *view = reserve(end - start);
    if (!view)
        return cl_fail(err, CL_E_SYS, errno, "reserve a view of guest memory");
    /* Private, though nothing is written: a shared mapping would forbid to seal the file. */
    if (mmap(view, end - start, PROT_READ, MAP_PRIVATE | MAP_FIXED, memfd, (off_t)start) ==
        MAP_FAILED) {
        int sys = errno;
        (void)munmap(view, end - start);
        return cl_fail(err, CL_E_SYS, sys, "map a view of guest memory");
    }
    *ret_view = (struct iovec){view, end - start};
    return 0;
}

void gm_make_huge(struct iovec view)
{
    for (uint64_t at = 0; at < view.iov_len; at += HUGE_PAGE)
        (void)madvise((uint8_t *)view.iov_base + at, HUGE_PAGE, MADV_COLLAPSE);
}

void gm_copy_ahead(const struct guest_mem *gm, const struct page_runs *written)
{
    for (uint32_t i = 0; i < written->n; i++) {
        uint64_t at = (uint64_t)written->runs[i].first * PAGE;
        uint64_t n = (uint64_t)written->runs[i].pages * PAGE;
        CL_ASSERT(at + n <= gm->low + gm->high);
        if (madvise(gm->base + at, n, MADV_POPULATE_WRITE) < 0)
            return;
    }
}

void gm_unmap(struct guest_mem *gm)
{
    if (gm->base)
        (void)munmap(gm->base, gm->low + gm->high);
    *gm = (struct guest_mem){0};
}
