/* vmm/blk.c - see blk.h. */
#include "vmm/blk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { QUEUE_LEN = 256, DISCARD_ALIGNMENT = 4096 / BLK_SECTOR };

/* §5.2.3 */
#define F_SEG_MAX (UINT64_C(1) << 2)
#define F_RO (UINT64_C(1) << 5)
#define F_DISCARD (UINT64_C(1) << 13)

/* §5.2.6 */
enum blk_type { T_IN = 0, T_OUT = 1, T_GET_ID = 8, T_DISCARD = 11 };
enum blk_status { S_OK = 0, S_IOERR = 1, S_UNSUPP = 2 };

struct blk_req {
    uint32_t type;
    uint32_t reserved;
    uint64_t sector;
};
_Static_assert(sizeof(struct blk_req) == 16, "virtio 1.2 §5.2.6");

/* The data of a discard, once. */
struct blk_segment {
    uint64_t sector;
    uint32_t sectors;
    uint32_t flags; /* of a discard: none */
};
_Static_assert(sizeof(struct blk_segment) == 16, "virtio 1.2 §5.2.6");

/* §5.2.4, as far as the offered features reach */
struct blk_config {
    uint64_t capacity;
    uint32_t size_max;
    uint32_t seg_max;
    uint32_t not_offered[5]; /* geometry, block size, topology, write-back, queues */
    uint32_t max_discard_sectors;
    uint32_t max_discard_seg;
    uint32_t discard_sector_alignment;
};
_Static_assert(offsetof(struct blk_config, max_discard_sectors) == 36, "virtio 1.2 §5.2.4");

static bool is_inside(const struct blk *b, uint64_t sector, uint64_t sectors)
{
    return sectors <= b->sectors && sector <= b->sectors - sectors;
}

/* Inside the disk, whole sectors, and not more at a time than the lock may be held for. */
static bool range_is_fine(const struct blk *b, const struct blk_req *req, size_t n)
{
    return n % BLK_SECTOR == 0 && n <= BLK_REQUEST_MAX && is_inside(b, req->sector, n / BLK_SECTOR);
}

/* preadv() or pwritev() until the data has gone; an end of file in the middle is an error. */
typedef ssize_t transfer_fn(int fd, const struct iovec *iov, int n, off_t at);

static enum blk_status transfer(const struct blk *b, transfer_fn *move, const struct blk_req *req,
                                struct span *data)
{
    if (!range_is_fine(b, req, data->bytes))
        return S_IOERR;
    uint64_t at = req->sector * BLK_SECTOR;
    while (data->n > 0) {
        ssize_t n = move(b->fd, data->iov, (int)data->n, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return S_IOERR;
        span_skip(data, (size_t)n);
        at += (uint64_t)n;
    }
    return S_OK;
}

static enum blk_status get_id(const struct blk *b, struct span *in)
{
    return span_put(in, b->serial, sizeof b->serial) ? S_OK : S_IOERR;
}

/* The file gets a hole: the host has the space again.  It is a hint, so a file system that has no
 * holes is no error. */
static enum blk_status discard(const struct blk *b, struct span *out)
{
    struct blk_segment s;
    if (!span_take(out, &s, sizeof s) || out->bytes > 0 || s.sectors > BLK_DISCARD_MAX ||
        !is_inside(b, s.sector, s.sectors))
        return S_IOERR;
    if (s.flags != 0)
        return S_UNSUPP;
    if (s.sectors > 0 &&
        fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(s.sector * BLK_SECTOR),
                  (off_t)s.sectors * BLK_SECTOR) < 0 &&
        errno != EOPNOTSUPP)
        return S_IOERR;
    return S_OK;
}

/* §5.2.6.2: a read-only disk fails all writes. */
static enum blk_status serve(const struct blk *b, const struct blk_req *req, struct span *out,
                             struct span *in)
{
    switch (req->type) {
    case T_IN:
        return transfer(b, preadv, req, in);
    case T_OUT:
        return b->read_only ? S_IOERR : transfer(b, pwritev, req, out);
    case T_GET_ID:
        return get_id(b, in);
    case T_DISCARD:
        return b->read_only ? S_IOERR : discard(b, out);
    default:
        return S_UNSUPP;
    }
}

/* Header, data, and the status in the last writable byte.  False when one of the ends is missing:
 * then there is no way to answer. */
static bool handle(const struct blk *b, struct virtq_chain *c, uint32_t *ret_written)
{
    struct blk_req req;
    if (c->in.n == 0 || !span_take(&c->out, &req, sizeof req))
        return false;
    size_t room = c->in.bytes;
    uint8_t *status = span_cut_last(&c->in);
    *status = (uint8_t)serve(b, &req, &c->out, &c->in);
    *ret_written = (uint32_t)(room - c->in.bytes); /* what was put, and the status */
    return true;
}

static void blk_notify(void *dev, unsigned queue)
{
    struct blk *b = dev;
    for (int i = 0; i < QUEUE_LEN && virtio_pop(&b->v, queue, &b->chain); i++) {
        uint32_t written = 0;
        if (!handle(b, &b->chain, &written)) {
            virtio_fail(&b->v, VIRTQ_FAULT_SHAPE);
            return;
        }
        virtio_push(&b->v, queue, &b->chain, written);
    }
    virtio_signal(&b->v, queue);
}

static void blk_config_read(void *dev, uint32_t at, void *dst, uint32_t n)
{
    const struct blk *b = dev;
    /* a request is a header, data and a status: two descriptors of the longest chain are not data
     */
    struct blk_config c = {.capacity = b->sectors,
                           .seg_max = QUEUE_LEN - 2,
                           .max_discard_sectors = BLK_DISCARD_MAX,
                           .max_discard_seg = 1,
                           .discard_sector_alignment = DISCARD_ALIGNMENT};
    memcpy(dst, (const uint8_t *)&c + at, n);
}

#define BLK_OPS(mode_features) \
    { \
        .id = VIRTIO_BLK, .n_queues = 1, .queue_max = QUEUE_LEN, \
        .features = F_SEG_MAX | (mode_features), .notify = blk_notify, \
        .config_bytes = sizeof(struct blk_config), .config_read = blk_config_read, \
    }
static const struct virtio_ops disk_ops = BLK_OPS(F_DISCARD);
static const struct virtio_ops read_only_disk_ops = BLK_OPS(F_RO);

/* Whole sectors of a file or a block device, or -errno. */
static int64_t sectors_of(int fd)
{
    off_t bytes = lseek(fd, 0, SEEK_END);
    return bytes < 0 ? -errno : bytes / BLK_SECTOR;
}

int blk_init(struct blk *b, int fd, bool read_only, const char *serial, const struct guest_mem *mem,
             struct irq_line irq)
{
    int64_t sectors = sectors_of(fd);
    if (sectors <= 0)
        return sectors < 0 ? (int)sectors : -EINVAL;
    b->fd = fd;
    b->read_only = read_only;
    b->sectors = (uint64_t)sectors;
    memset(b->serial, 0, sizeof b->serial);
    memcpy(b->serial, serial, strnlen(serial, sizeof b->serial));
    virtio_init(&b->v, read_only ? &read_only_disk_ops : &disk_ops, b, mem, irq);
    return 0;
}

/* §5.2.5.2: the driver looks at the capacity again after a configuration change. */
int blk_grow(struct blk *b)
{
    int64_t sectors = sectors_of(b->fd);
    if (sectors < 0)
        return (int)sectors;
    if ((uint64_t)sectors < b->sectors)
        return -EINVAL;
    b->sectors = (uint64_t)sectors;
    virtio_config_changed(&b->v);
    return 0;
}

void blk_save(const struct blk *b, struct state_writer *w)
{
    state_begin(w, STATE_BLK);
    state_put_u64(w, b->sectors);
    state_put_u8(w, b->read_only);
    virtio_save(&b->v, w);
    state_end(w);
}

int blk_load(struct blk *b, struct state_reader *r, struct cl_err *err)
{
    if (state_enter(r, STATE_BLK, err) < 0)
        return -1;
    uint64_t sectors = state_get_u64(r);
    uint8_t read_only = state_get_u8(r);
    if (sectors == 0 || sectors > b->sectors || read_only != b->read_only)
        return cl_fail(err, CL_E_INVALID, 0, "saved disk '%.20s' was larger or of another mode",
                       b->serial);
    b->sectors = sectors;
    return virtio_load(&b->v, r, err) < 0 ? -1 : state_leave(r, err);
}
