/* vmm/console.h - what a guest prints, on its way to a file, within limits.
 *
 * Owns:    nothing.
 * Borrows: fd, for its whole life.
 * Thread:  under the device lock.
 * A guest can print as fast as it likes for as long as it likes.  Without CONSOLE_BURST and
 * CONSOLE_BYTES_PER_S it would fill the host's disk, or keep whoever reads busy; without the
 * non-blocking write a reader that sleeps would stop the guest, with the device lock held.
 * What is over the limit is dropped and counted.
 */
#ifndef CL_VMM_CONSOLE_H
#define CL_VMM_CONSOLE_H

#include <stddef.h>
#include <stdint.h>

enum {
    CONSOLE_BURST = 1 << 18,       /* bytes: a boot's messages, with room */
    CONSOLE_BYTES_PER_S = 1 << 13, /* afterwards */
};

struct console {
    int fd;           /* borrowed; -1 = drop everything */
    uint32_t room;    /* bytes that may go out now */
    uint64_t full_ns; /* when `room` was last topped up */
    uint64_t dropped; /* bytes */
};

void console_init(struct console *console, int fd, uint64_t now_ns);
/* Pure: how many of n bytes may go out at now_ns; takes them from the room. */
size_t console_grant(struct console *console, size_t n, uint64_t now_ns);
/* The write function of struct serial (arg: a struct console). */
void console_write(void *arg, const uint8_t *bytes, size_t n);

#endif
