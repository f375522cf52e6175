/* agent/sensor/event.h - what the programs in the guest's kernel hand to the agent: the layout of
 * one record of a ring, and the counters beside the rings.
 *
 * Shared by sensor.bpf.c and agent/sensor.c; both are of one build, so it has no version.
 */
#ifndef CL_AGENT_SENSOR_EVENT_H
#define CL_AGENT_SENSOR_EVENT_H

#include <linux/types.h>

enum {
    SENSOR_PATH_MAX = 256, /* with its NUL; of a longer one the end, and is_cut */
    SENSOR_ARGS_MAX = 512, /* bytes of a command line */
    SENSOR_ADDRESS_MAX = 128,
    SENSOR_COMM_MAX = 16,
    SENSOR_CALL_ARGS = 3,
    /* What an attacker can make in masses has a ring of its own, so that it cannot push the rest
     * out.  Multiples of a page, powers of two. */
    SENSOR_FEW_BYTES = 256 * 1024,
    SENSOR_MANY_BYTES = 1024 * 1024,
    /* System calls that are counted each for itself, by number; the last one is all others. */
    SENSOR_CALLS_MAX = 480,
    SENSOR_CALLS_OTHER = SENSOR_CALLS_MAX - 1,
    SENSOR_COUNTED_MAX = 96, /* execs and code contexts: all that there are, and some that end */
};

/* One that reads a file again within so long is not told again. */
#define SENSOR_AGAIN_NS 10000000000ULL

enum sensor_kind {
    SENSOR_EXEC = 1, /* path, args */
    SENSOR_WRITE,    /* path; in the ring for masses */
    SENSOR_CONNECT,  /* address */
    SENSOR_BIND,     /* address */
    SENSOR_DENIED,   /* call */
    SENSOR_TRACE,    /* target */
    SENSOR_REMOVE,   /* place; in the ring for masses */
    SENSOR_RENAME,   /* place, to; in the ring for masses */
    SENSOR_READ,     /* path; in the ring for masses */
    SENSOR_TRUNCATE, /* path, size; in the ring for masses */
};

struct sensor_event {
    __u64
        number; /* counts every event of the guest from 1, also those that a ring had no room for */
    __u64 at_ns; /* CLOCK_MONOTONIC */
    __u64 cgroup;
    __u32 kind;
    __u32 pid, parent; /* of processes, as the guest's kernel numbers them */
    __u32 uid;         /* as the kernel counts, see agent/ids.h */
    char comm[SENSOR_COMM_MAX];
};

struct sensor_exec {
    struct sensor_event event;
    __u32 n_args; /* elements of argv */
    __u32 is_cut;
    __u32 args_bytes; /* how many of `args` were read: elements with a NUL each, then environment */
    char path[SENSOR_PATH_MAX];
    char args[SENSOR_ARGS_MAX];
};

struct sensor_file {
    struct sensor_event event;
    __u64 size;   /* that it shall have: of SENSOR_TRUNCATE */
    __u32 is_new; /* of SENSOR_WRITE */
    __u32 is_cut;
    char path[SENSOR_PATH_MAX];
};

/* A path that was put together from its end: text[from..SENSOR_PATH_MAX - 1), without a NUL.  What
 * is behind that is room that the kernel's verifier wants. */
struct sensor_place {
    __u32 from, is_cut;
    char text[2 * SENSOR_PATH_MAX];
};

/* Something was to be removed; whether that may be is found out afterwards. */
struct sensor_remove {
    struct sensor_event event;
    __u32 is_folder;
    struct sensor_place place;
};

struct sensor_rename {
    struct sensor_event event;
    struct sensor_place place, to;
};

struct sensor_address {
    struct sensor_event event;
    __u32 bytes;
    __u8 address[SENSOR_ADDRESS_MAX]; /* a struct sockaddr of its family */
};

struct sensor_call {
    struct sensor_event event;
    __u32 is_i386; /* by int 0x80 or from 32-bit code: numbers mean other calls */
    __u64 number;
    __u64 args[SENSOR_CALL_ARGS];
};

struct sensor_trace {
    struct sensor_event event;
    __u32 target;
};

/* How often the user code of one cgroup has made each system call. */
struct sensor_calls {
    __u64 times[SENSOR_CALLS_MAX];
};

#endif
