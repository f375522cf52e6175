/* base/proc.c - see base/proc.h. */
#include "base/proc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"

/* *ret_state: a letter of proc(5), field 3.  The start, or 0. */
static uint64_t read_stat(pid_t pid, char *ret_state)
{
    char path[48], text[1024] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    if (!f || !fgets(text, sizeof text, f))
        return 0;
    const char *at = strrchr(text, ')'); /* its name may hold anything */
    *ret_state = at && at[1] ? at[2] : '?';
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

uint64_t cl_proc_start_time(pid_t pid)
{
    char state;
    return read_stat(pid, &state);
}

static bool read_word(const char *path, char *out, int size)
{
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    if (!f || !fgets(out, size, f))
        return false;
    out[strcspn(out, " \n")] = '\0';
    return out[0] != '\0';
}

/* Is what /proc shows of our own pid namespace? */
static bool shows_us(void)
{
    char text[24] = "";
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    return n > 0 && strtol(text, NULL, 10) == getpid();
}

void cl_proc_mark(char out[static CL_PROC_MARK])
{
    char boot[64] = "";
    struct stat ns;
    uint64_t start = cl_proc_start_time(getpid());
    if (start && shows_us() && stat("/proc/self/ns/pid", &ns) == 0 &&
        read_word("/proc/sys/kernel/random/boot_id", boot, sizeof boot))
        (void)snprintf(out, CL_PROC_MARK, "%s %" PRIu64 " %" PRIu64 " %d", boot,
                       (uint64_t)ns.st_ino, start, (int)getpid());
    else
        (void)snprintf(out, CL_PROC_MARK, "unknown");
}

/* The length of "BOOT-ID NAMESPACE "; 0 = it has none. */
static size_t where_part(const char *mark)
{
    const char *at = strchr(mark, ' ');
    at = at ? strchr(at + 1, ' ') : NULL;
    return at ? (size_t)(at - mark) + 1 : 0;
}

bool cl_proc_mark_is_dead(const char *ours, const char *mark)
{
    size_t where = where_part(mark);
    uint64_t start;
    char state = '?';
    int pid;
    if (!where || where_part(ours) != where || strncmp(ours, mark, where) != 0 ||
        sscanf(mark + where, "%" SCNu64 " %d", &start, &pid) != 2 || pid <= 0)
        return false;
    /* hidepid= hides those of others, and with them the first process. */
    return cl_proc_start_time(1) != 0 && (read_stat(pid, &state) != start || state == 'Z');
}
