/* cli/alarm.h - findings that are told to a program of the operator's.
 *
 * The program gets one finding on its stdin, as a line of JSON, and is run again, later and later,
 * until it exits with 0.  What it was told stands in the state file, so the next alarm goes on
 * where this one stopped: each finding is told once, or once more when the alarm died just after
 * the program had ended.
 *
 * Owns:    what the state file says: up to which record each stream was seen, and what was told of
 *          those behind.
 * Limit:   one alarm a state file.
 * Thread:  the only one; blocks on the program, for ALARM_RUN_S each time.
 */
#ifndef CL_CLI_ALARM_H
#define CL_CLI_ALARM_H

#include "base/clock.h"
#include "base/err.h"
#include "base/own.h"
#include "trail/detect.h"

enum {
    ALARM_RUN_S = 60,       /* then it is killed, and that is a failure */
    ALARM_AGAIN_MAX_S = 60, /* the longest wait after a failure */
};

struct alarm;

/* since: what is found from then on is told, where there is no state yet (RFC 3339).  program:
 * borrowed, NULL at its end. */
int alarm_open(const char *state_path, const char *since, char *const *program,
               struct alarm **ret_alarm, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void alarm_close(struct alarm *a);
CL_DEFINE_AUTO(struct alarm, alarm_close)
/* Records are to be read from then on, so that the detections know what was going on. */
uint64_t alarm_read_from(const struct alarm *a);
/* Tell it unless it was told; returns when the program has taken it.  -1: the state cannot be
 * written. */
int alarm_raise(struct alarm *a, const struct finding *f, const json_t *row,
                struct cl_err *err) CL_MUST;
void alarm_see(struct alarm *a, const struct detect_record *r);
/* What was found in the records that were seen is told.  Written every few seconds. */
int alarm_settle(struct alarm *a, struct cl_err *err) CL_MUST;

#endif
