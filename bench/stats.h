/* bench/stats.h - medians and p99 of a list of durations, printed one line a figure. */
#ifndef CL_BENCH_STATS_H
#define CL_BENCH_STATS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline int stats_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static inline void stats_print(const char *what, uint64_t *ns, size_t n)
{
    if (n == 0) {
        (void)printf("%-44s no samples\n", what);
        return;
    }
    qsort(ns, n, sizeof *ns, stats_compare);
    (void)printf("%-44s N=%-5zu min %8.3f  p50 %8.3f  p99 %8.3f  max %8.3f ms\n", what, n,
                 (double)ns[0] / 1e6, (double)ns[n / 2] / 1e6, (double)ns[n - 1 - n / 100] / 1e6,
                 (double)ns[n - 1] / 1e6);
}

static inline void stats_machine(void)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "model name : %400[^\n]", line) == 1) {
            (void)printf("machine: %s\n", line);
            break;
        }
    }
    if (f)
        (void)fclose(f);
}

#endif
