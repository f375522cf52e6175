/* agent/sensor_text.h - a record of the sensor's rings in the words of the guest protocol.
 *
 * Paths, names, addresses and arguments are what user code chose: any bytes, cut anywhere.  What
 * comes out is UTF-8 and bounded.
 * Owns:    nothing; the event points into the text.
 * Thread:  any.
 * Pure: no I/O, no clock.
 */
#ifndef CL_AGENT_SENSOR_TEXT_H
#define CL_AGENT_SENSOR_TEXT_H

#include <netinet/in.h>
#include <stddef.h>

#include "agent/sensor/event.h"
#include "cloche/v1/guest.pb-c.h"

enum {
    SENSOR_ARGV_MAX = 64,
    SENSOR_ESCAPED = 4,      /* one byte as \xHH */
    SENSOR_CALLS_TOLD = 250, /* different system calls of one event, besides "other" */
    SENSOR_CALL_NAME = 32,
    /* of one event in a frame: every byte of its strings escaped */
    SENSOR_TEXT_MAX = (SENSOR_COMM_MAX + SENSOR_PATH_MAX + SENSOR_ARGS_MAX) * SENSOR_ESCAPED + 512,
};

/* A copy of the record, as large as the largest, and its strings. */
struct sensor_text {
    union {
        struct sensor_event event;
        struct sensor_exec exec;
        struct sensor_file file;
        struct sensor_address address_record;
        struct sensor_call call_record;
        struct sensor_trace trace;
        struct sensor_remove remove;
        struct sensor_rename rename;
    };
    char comm[SENSOR_COMM_MAX * SENSOR_ESCAPED + 1];
    char path[SENSOR_PATH_MAX * SENSOR_ESCAPED + 1];
    char to[SENSOR_PATH_MAX * SENSOR_ESCAPED + 1];
    char address[INET6_ADDRSTRLEN];
    char call[SENSOR_CALL_NAME];
    char args[SENSOR_ARGS_MAX * SENSOR_ESCAPED + SENSOR_ARGV_MAX + 1];
    char *argv[SENSOR_ARGV_MAX];
    uint64_t call_args[SENSOR_CALL_ARGS];
};

/* record[0..bytes) is a struct of sensor/event.h, by its kind; a shorter one counts as filled up
 * with zeros.  number, stream and context are the caller's to put right. */
void sensor_describe(const void *record, size_t bytes, struct sensor_text *text,
                     Cloche__V1__GuestEvent *out);

/* What belongs to an event of system calls. */
struct sensor_calls_text {
    Cloche__V1__GuestCalls rows[SENSOR_CALLS_TOLD + 1];
    Cloche__V1__GuestCalls *list[SENSOR_CALLS_TOLD + 1];
    char names[SENSOR_CALLS_TOLD + 1][SENSOR_CALL_NAME];
};

uint64_t sensor_calls_total(const struct sensor_calls *calls);
/* An event of them; number, stream, context, uncounted and last are the caller's to put right. */
void sensor_describe_calls(const struct sensor_calls *calls, uint64_t at_ns,
                           struct sensor_calls_text *text, Cloche__V1__GuestEvent *out);

#endif
