/* worker/watch.h - of what a guest says its user code did, and its host of its network: what goes
 * on to the audit log, and a count of all that does not.
 *
 *   seen = recorded + over the rate + lost in the guest + missing
 *
 * Owns:    nothing; plain values, one a unit.
 * Limits:  a rate with a burst for each of three classes, so that who reads ten thousand files
 *          hides none that he writes, and no program that he starts.  Without them one sandbox
 *          could fill the log's disk.
 * Trust:   the guest may say anything: its counts only ever grow here, and what it claims to have
 *          sent without having done so is `missing`.
 * Pure: no I/O; the caller passes the time.
 */
#ifndef CL_WORKER_WATCH_H
#define CL_WORKER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cloche/v1/guest.pb-c.h"

struct watch_limits {
    uint64_t burst;       /* events of a class at once; 0 = none is recorded */
    uint64_t interval_us; /* then one in so long; 0 = no limit */
};

enum watch_class {
    WATCH_FEW,
    WATCH_MANY, /* files written, moved, removed; names asked for, refused packets */
    WATCH_READS,
    WATCH_CLASSES
};

struct watch {
    uint64_t tat_us[WATCH_CLASSES]; /* GCRA: when its next event conforms */
    uint64_t came;                  /* events that have come */
    uint64_t over;                  /* of those, over the rate or unheard */
    uint64_t seen, lost;            /* as the guest says */
    uint64_t told_over, told_lost;  /* what the newest count said */
};

/* Take note of the counts of a batch; call watch_admits() for each of its events then. */
void watch_note(struct watch *watch, const Cloche__V1__GuestEvents *batch);
/* The same of one event whose source numbers them from 1 and loses none. */
void watch_note_number(struct watch *watch, uint64_t number);
enum watch_class watch_class_of(const Cloche__V1__GuestEvent *event);
/* Record one of this class?  If not it is counted. */
bool watch_admits(struct watch *watch, const struct watch_limits *limits, enum watch_class class,
                  uint64_t now_us);
/* n events that were admitted could not be passed on. */
void watch_unheard(struct watch *watch, uint64_t n);
/* Is there a loss that no count has told?  The caller tells it now. */
bool watch_has_news(const struct watch *watch);
void watch_tell(struct watch *watch);
/* Events that the guest counts and that never came.  While it runs some may be under way. */
uint64_t watch_missing(const struct watch *watch);

#endif
