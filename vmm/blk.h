/* vmm/blk.h - a disk (virtio 1.2 §5.2) on a raw file: read, write, discard, get id.
 *
 * Owns:    its registers and one chain.
 * Borrows: the file, guest memory, the irq line's chip.
 * Thread:  the device lock; a request is done when virtio_write() returns, so nothing is ever in
 *          flight.
 * The format is raw and never guessed: a guest can write any header, and must not get by it to
 * another file of the host.
 * No flush is offered: what a VM writes is gone with the VM, so it need not survive the host.
 */
#ifndef CL_VMM_BLK_H
#define CL_VMM_BLK_H

#include "vmm/virtio_mmio.h"

/* Data bytes of one request; more is an I/O error for the guest.  Linux asks for 1.25 MiB at the
 * most.  Without it one request could keep the device lock for the time of gigabytes. */
enum { BLK_REQUEST_MAX = 4 * 1024 * 1024, BLK_SECTOR = 512, BLK_SERIAL_BYTES = 20 };
/* Sectors of one discard: 64 MiB, for the same reason. */
enum { BLK_DISCARD_MAX = 64 * 1024 * 1024 / BLK_SECTOR };

struct blk {
    struct virtio v;
    int fd; /* borrowed: as long as the device lives */
    bool read_only;
    uint64_t sectors;
    char serial[BLK_SERIAL_BYTES]; /* padded with zeroes; what /dev/disk/by-id shows */
    struct virtq_chain chain;
};

/* The disk's size is the file's (or block device's) size now, in whole sectors; a file that shrinks
 * later gives I/O errors.  serial: at most 20 bytes of it are shown.  0, -EINVAL (no whole sector),
 * or what lseek(2) said. */
int blk_init(struct blk *b, int fd, bool read_only, const char *serial, const struct guest_mem *mem,
             struct irq_line irq) CL_MUST;
/* The file was enlarged: the disk has its new size from now on, and the driver hears of it.  0,
 * -EINVAL (it is smaller than before), or what lseek(2) said. */
int blk_grow(struct blk *b) CL_MUST;
/* One STATE_BLK section.  On load the file must have at least the size that it had, and the same
 * mode; the guest goes on with the size that it knows, until blk_grow(). */
void blk_save(const struct blk *b, struct state_writer *w);
int blk_load(struct blk *b, struct state_reader *r, struct cl_err *err) CL_MUST;

#endif
