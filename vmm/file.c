/* vmm/file.c - see vmm/file.h. */
#include "vmm/file.h"

#include <errno.h>
#include <unistd.h>

int file_put(int fd, const void *bytes, size_t n, uint64_t at)
{
    const uint8_t *from = bytes;
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, from + done, n - done, (off_t)(at + done));
        if (put < 0 && errno != EINTR)
            return -1;
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

int file_get(int fd, void *ret_bytes, size_t n, uint64_t at)
{
    uint8_t *to = ret_bytes;
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, to + done, n - done, (off_t)(at + done));
        if (got == 0)
            errno = ENODATA;
        if (got == 0 || (got < 0 && errno != EINTR))
            return -1;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}
