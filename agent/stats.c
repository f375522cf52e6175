/* agent/stats.c - see agent/stats.h. */
#include "agent/stats.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"

enum { MEMINFO_MAX = 2048 };

static void read_meminfo(char text[static MEMINFO_MAX])
{
    CL_AUTO(cl_closep) int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, MEMINFO_MAX - 1);
    text[n < 0 ? 0 : n] = '\0';
}

/* key: "\nName:", as no other name ends. */
static uint64_t row_bytes(const char *meminfo, const char *key)
{
    const char *at = strstr(meminfo, key);
    return at ? strtoull(at + strlen(key), NULL, 10) * CL_KIB : 0;
}

uint64_t stats_available_bytes(void)
{
    char meminfo[MEMINFO_MAX];
    read_meminfo(meminfo);
    return row_bytes(meminfo, "\nMemAvailable:");
}

static void read_memory(Cloche__V1__GuestStats *stats)
{
    char meminfo[MEMINFO_MAX];
    read_meminfo(meminfo);
    uint64_t cached = row_bytes(meminfo, "\nCached:") + row_bytes(meminfo, "\nBuffers:") +
                      row_bytes(meminfo, "\nSReclaimable:");
    uint64_t kept = row_bytes(meminfo, "\nShmem:"); /* files of a tmpfs count as cached there */
    stats->memory_available_bytes = row_bytes(meminfo, "\nMemAvailable:");
    stats->memory_cached_bytes = cached > kept ? cached - kept : 0;
}

void stats_read(const struct cgroups *groups, int scratch_fd, Cloche__V1__GuestStats *stats)
{
    struct sysinfo info;
    if (sysinfo(&info) == 0)
        stats->memory_total_bytes = (uint64_t)info.totalram * info.mem_unit;
    read_memory(stats);
    stats->cpu_ns = cgroups_cpu_ns(groups);
    struct statvfs fs;
    if (fstatvfs(scratch_fd, &fs) == 0) {
        stats->scratch_total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
        stats->scratch_free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
    stats->processes = cgroups_count_pids(groups);
    stats->uptime_ns = cl_now_ns();
}
