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

uint64_t stats_available_bytes(void)
{
    static const char key[] = "MemAvailable:";
    char text[1024];
    CL_AUTO(cl_closep) int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    const char *at = strstr(text, key);
    return at ? strtoull(at + sizeof key - 1, NULL, 10) * CL_KIB : 0;
}

void stats_read(const struct cgroups *groups, int scratch_fd, Cloche__V1__GuestStats *stats)
{
    struct sysinfo info;
    if (sysinfo(&info) == 0)
        stats->memory_total_bytes = (uint64_t)info.totalram * info.mem_unit;
    stats->memory_available_bytes = stats_available_bytes();
    stats->cpu_ns = cgroups_cpu_ns(groups);
    struct statvfs fs;
    if (fstatvfs(scratch_fd, &fs) == 0) {
        stats->scratch_total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
        stats->scratch_free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
    stats->processes = cgroups_count_pids(groups);
    stats->uptime_ns = cl_now_ns();
}
