/* tests/integration/vmm/ticks.c - the /init of a guest that says every 20 ms which time it is.
 *
 * Static, on a stock kernel's initramfs.  A line is `tick N MONOTONIC_MS`; it goes through the
 * serial port's interrupts, and the sleep between two through the processor's timer.
 */
#include <stdio.h>
#include <time.h>

enum { STEP_MS = 20 };

int main(void)
{
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
    for (unsigned long n = 0;; n++) {
        struct timespec now;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        (void)printf("tick %lu %lld\n", n, (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
        (void)fflush(stdout);
        (void)nanosleep(&step, NULL);
    }
}
