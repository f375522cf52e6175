/* tests/integration/vmm/xenpv_sensor.c - the agent's sensor in this kernel: it loads, its hooks are
 * called, and what they tell is right. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/ids.h"
#include "agent/sensor/event.h"
#include "agent/sensor_bpf.h" /* made from agent/sensor/sensor.bpf.c */
#include "base/util.h"
#include "tests/integration/vmm/xenpv_init.h"

#define FOLDER "/files"

enum { PAGE = 4096, RECORD_HEAD = 8 };

static int as_user_code(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (setuid(AGENT_ID_BASE + AGENT_USER_ID) == 0)
            (void)execl("/init", "init", "child", (char *)NULL);
        _exit(1);
    }
    return wait_for(child);
}

/* The first of n records of that size in this ring. */
static const void *record(int fd, size_t ring_bytes, size_t bytes, size_t n)
{
    const uint8_t *ring = mmap(NULL, PAGE + 2 * ring_bytes, PROT_READ, MAP_SHARED, fd, PAGE);
    size_t whole = (bytes + RECORD_HEAD + 7) / 8 * 8;
    return ring == MAP_FAILED ? NULL : ring + PAGE + n * whole + RECORD_HEAD;
}

static bool tells_of(const struct sensor_bpf *sensor, int status)
{
    const struct sensor_exec *e = record(sensor->maps.few.map_fd, SENSOR_FEW_BYTES, sizeof *e, 0);
    return e && status == 0 && sensor->bss->seen == 1 && sensor->bss->lost == 0 &&
           e->event.kind == SENSOR_EXEC && e->event.number == 1 &&
           e->event.parent == (uint32_t)getpid() && strcmp(e->path, "/init") == 0 &&
           e->n_args == 2 && memcmp(e->args, "init\0child", 11) == 0;
}

/* Makes a file, reads it twice and cuts it; what came with the root is nobody's data. */
static int use_files(void)
{
    pid_t child = fork();
    if (child == 0) {
        bool good = setuid(AGENT_ID_BASE + AGENT_USER_ID) == 0;
        const int flags[] = {O_WRONLY | O_CREAT, O_RDONLY, O_RDONLY};
        for (size_t i = 0; good && i < CL_COUNT(flags); i++) {
            int fd = open(FOLDER "/file", flags[i] | O_CLOEXEC, 0600);
            good = fd >= 0 && close(fd) == 0;
        }
        _exit(good && truncate(FOLDER "/file", 7) == 0 ? 0 : 1);
    }
    return wait_for(child);
}

static bool tells_of_files(const struct sensor_bpf *sensor, uint64_t before)
{
    static const uint32_t kinds[] = {SENSOR_WRITE, SENSOR_READ, SENSOR_TRUNCATE};
    if (sensor->bss->seen != before + CL_COUNT(kinds) || sensor->bss->lost != 0)
        return false;
    for (size_t i = 0; i < CL_COUNT(kinds); i++) {
        const struct sensor_file *e =
            record(sensor->maps.many.map_fd, SENSOR_MANY_BYTES, sizeof *e, i);
        if (!e || e->event.kind != kinds[i] || strcmp(e->path, FOLDER "/file") != 0 ||
            e->is_new != (i == 0) || e->size != (i == 2 ? 7 : 0))
            return false;
    }
    return true;
}

static int yield(unsigned times)
{
    pid_t child = fork();
    if (child == 0) {
        bool good = setuid(AGENT_ID_BASE + AGENT_USER_ID) == 0;
        for (unsigned i = 0; good && i < times; i++)
            good = sched_yield() == 0;
        _exit(good ? 0 : 1);
    }
    return wait_for(child);
}

/* There is no cgroup but the root. */
static bool counts_yields(const struct sensor_bpf *sensor, unsigned times)
{
    static struct sensor_calls calls;
    uint64_t cgroup = 0;
    union bpf_attr attr = {.map_fd = (uint32_t)sensor->maps.calls.map_fd};
    attr.next_key = (uintptr_t)&cgroup;
    if (syscall(SYS_bpf, BPF_MAP_GET_NEXT_KEY, &attr, sizeof attr) < 0)
        return false;
    attr.key = (uintptr_t)&cgroup;
    attr.value = (uintptr_t)&calls;
    return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof attr) == 0 &&
           calls.times[SYS_sched_yield] == times && calls.times[SYS_exit_group] > 0 &&
           sensor->bss->uncounted == 0;
}

void what_user_code_does(void)
{
    struct sensor_bpf *sensor = sensor_bpf__open();
    bool good = sensor && sensor_bpf__load(sensor) == 0;
    check(good, "the sensor's programs load");
    good = good && sensor_bpf__attach(sensor) == 0;
    check(good, "and attach");
    if (good) {
        sensor->bss->watching = 1;
        check(tells_of(sensor, as_user_code()), "and tell of a program");
        good = mkdir(FOLDER, 0755) == 0 && mount("t", FOLDER, "tmpfs", 0, "mode=1777") == 0;
        uint64_t before = sensor->bss->seen;
        check(good && use_files() == 0 && tells_of_files(sensor, before),
              "and of files that are written, read and cut by name");
        check(yield(1000) == 0 && counts_yields(sensor, 1000), "and count system calls");
    }
    if (sensor)
        sensor_bpf__destroy(sensor);
}
