/* agent/sensor.h - what user code does, as the guest's kernel sees it, on its way to the worker.
 *
 *   kernel: programs on hooks (sensor/sensor.bpf.c) ─► two rings ─► sensor_tell() ─► GuestEvents
 *
 * Owns:    the programs, the rings' mappings, the counters.
 * Thread:  the agent's only one; nothing here blocks.
 * Limits:  256 KiB of programs, sockets and refused calls, 1 MiB of files; what finds its ring full
 *          is lost and counted.  Without a bound user code could fill the guest's memory.
 * It is loaded once, before the template's snapshot, so that a clone pays nothing for it; each
 * identity says whether it watches, and begins its count anew.
 * System calls are counted in the kernel, by cgroup, for an identity that asks for it: each costs
 * something then, and only then.  What is told are sums since the exec or context began, so that
 * one which gets lost on its way is made up for by the next.
 */
#ifndef CL_AGENT_SENSOR_H
#define CL_AGENT_SENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/chan.h"
#include "agent/sensor/event.h"
#include "agent/waits.h"
#include "base/err.h"

/* Whose doing it was: the exec's stream, or the code context's id (borrowed), by its cgroup. */
struct sensor_owner {
    uint64_t stream;
    const char *context; /* never NULL */
};
typedef struct sensor_owner sensor_owner_fn(const void *arg, uint64_t cgroup);

struct sensor_ring {
    int fd;              /* owned by the programs */
    uint64_t *consumed;  /* mapped; the kernel reads it */
    uint64_t *produced;  /* mapped, read-only; the kernel writes it */
    const uint8_t *data; /* mapped, read-only, twice in a row: no record is in two pieces */
    size_t bytes;        /* of the ring */
};

/* Of how many of its system calls the worker knows; cgroup 0 = of nobody's. */
struct sensor_told {
    uint64_t cgroup, total;
};

struct sensor {
    struct sensor_bpf *programs; /* NULL until they are loaded */
    struct cl_err failure;       /* why they cannot be: asked once, this kernel stays what it is */
    struct sensor_ring rings[2]; /* few, many */
    sensor_owner_fn *owner;
    const void *owner_arg;
    bool is_watching;
    bool is_counting;       /* system calls */
    uint64_t counts_due_ns; /* tell again then what was counted */
    struct sensor_told told[SENSOR_COUNTED_MAX];
    uint64_t seen_before, lost_before, uncounted_before; /* the counters at the identity */
    uint64_t seen_told;
    uint64_t quiet_ns;
    uint64_t quiet_until_ns; /* look again then: one wake-up for many events */
};

/* quiet_us: between two looks at the rings; 0 = 25 ms. */
void sensor_init(struct sensor *sensor, uint64_t quiet_us, sensor_owner_fn *owner, const void *arg);
/* For a new identity: drop what is in the rings, count anew, watch or do not.  Loads the programs
 * when they are first wanted.  SYS or UNIMPL when this kernel cannot have them.  What runs in the
 * cgroup of helpers is not user code. */
int sensor_begin(struct sensor *sensor, bool watch, uint64_t helpers, struct cl_err *err) CL_MUST;
/* For a new identity, after sensor_begin(): count its system calls from now on, or do not. */
int sensor_count_calls(struct sensor *sensor, bool wanted, struct cl_err *err) CL_MUST;
/* Queue what is in the rings, and which calls this cgroup's user code has made. */
int sensor_tell_of(struct sensor *sensor, struct chan *chan, uint64_t cgroup,
                   struct cl_err *err) CL_MUST;
/* The same when no process is in it any more; its count is forgotten. */
int sensor_tell_end(struct sensor *sensor, struct chan *chan, uint64_t cgroup,
                    struct cl_err *err) CL_MUST;
/* The same when it is time for it. */
int sensor_turn(struct sensor *sensor, struct chan *chan, struct cl_err *err) CL_MUST;
void sensor_wait(const struct sensor *sensor, const struct chan *chan, struct waits *waits);

#endif
