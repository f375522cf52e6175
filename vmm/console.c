/* vmm/console.c - see vmm/console.h. */
#include "vmm/console.h"

#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

void console_init(struct console *console, int fd, uint64_t now_ns)
{
    *console = (struct console){.fd = fd, .room = CONSOLE_BURST, .full_ns = now_ns};
}

static void top_up(struct console *console, uint64_t now_ns)
{
    uint64_t waited_ms = (now_ns - console->full_ns) / CL_NS_PER_MS;
    uint64_t earned = CL_MIN(waited_ms, UINT64_C(1) << 32) * CONSOLE_BYTES_PER_S / 1000;
    if (earned == 0)
        return; /* keeps the moment, so that short waits add up */
    console->room = (uint32_t)CL_MIN(console->room + earned, (uint64_t)CONSOLE_BURST);
    console->full_ns = now_ns;
}

size_t console_grant(struct console *console, size_t n, uint64_t now_ns)
{
    top_up(console, now_ns);
    size_t granted = CL_MIN(n, (size_t)console->room);
    console->room -= (uint32_t)granted;
    return granted;
}

void console_write(void *arg, const uint8_t *bytes, size_t n)
{
    struct console *console = arg;
    size_t granted = console->fd < 0 ? 0 : console_grant(console, n, cl_now_ns());
    ssize_t written = granted > 0 ? write(console->fd, bytes, granted) : 0;
    console->dropped += n - (written > 0 ? (size_t)written : 0); /* a console is no reason to end */
}
