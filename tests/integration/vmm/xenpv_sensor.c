/* tests/integration/vmm/xenpv_sensor.c - the agent's sensor in this kernel: it loads, its hooks are
 * called, and what they tell is right. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/ids.h"
#include "agent/sensor/event.h"
#include "agent/sensor_bpf.h" /* made from agent/sensor/sensor.bpf.c */
#include "tests/integration/vmm/xenpv_init.h"

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

static bool tells_of(const struct sensor_bpf *sensor, int status)
{
    const uint8_t *ring = mmap(NULL, PAGE + 2 * (size_t)SENSOR_FEW_BYTES, PROT_READ, MAP_SHARED,
                               sensor->maps.few.map_fd, PAGE);
    if (ring == MAP_FAILED)
        return false;
    const struct sensor_exec *e = (const struct sensor_exec *)(ring + PAGE + RECORD_HEAD);
    return status == 0 && sensor->bss->seen == 1 && sensor->bss->lost == 0 &&
           e->event.kind == SENSOR_EXEC && e->event.number == 1 &&
           e->event.parent == (uint32_t)getpid() && strcmp(e->path, "/init") == 0 &&
           e->n_args == 2 && memcmp(e->args, "init\0child", 11) == 0;
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
    }
    if (sensor)
        sensor_bpf__destroy(sensor);
}
