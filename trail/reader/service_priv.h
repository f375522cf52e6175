/* trail/reader/service_priv.h - one call: what the three methods share. */
#ifndef CL_TRAIL_READER_SERVICE_PRIV_H
#define CL_TRAIL_READER_SERVICE_PRIV_H

#include "cloche/v1/audit.pb-c.h"
#include "trail/detect.h"
#include "trail/newest.h"
#include "trail/reader/service.h"
#include "trail/sheaf.h"
#include "trail/walk.h"

struct reading;

/* What a method does, in the order in which it is done. */
struct reading_kind {
    int (*begin)(struct reading *q, struct cl_err *err);
    int (*step)(struct reading *q, struct cl_err *err); /* 1: there is more; 0: done */
    /* Answers, and finishes the call or waits on. */
    int (*done)(struct reading *q, struct cl_err *err);
};
extern const struct reading_kind reading_query, reading_tree, reading_findings, reading_key;

enum { READING_BATCH = 65536 }; /* bytes of a message, more or less */

struct reading {
    struct service *s;
    const struct reading_kind *kind;
    struct rpc_call *call;     /* NULL once it is over */
    ProtobufCMessage *request; /* owned */
    struct cl_timer turn;
    struct cl_grave grave;
    struct walk *walk;       /* owned */
    struct newest *newest;   /* owned; until they are told */
    bool is_known;           /* the newest are: they are being told */
    struct sheaf *sheaf;     /* owned */
    struct detect *detect;   /* owned */
    struct rules *rules;     /* a reference: of detect */
    struct walk_place *from; /* owned; their names are the request's */
    char **batch;            /* owned, each one: lines that wait for their message */
    size_t n_batch, cap_batch, batch_bytes;
    bool caught_up; /* was said */
};

/* A filter of the fields that all three have; the texts are the request's. */
struct walk_filter reading_filter(const char *stream, const char *unit,
                                  const Cloche__V1__Time *since, const Cloche__V1__Time *until);
const struct service_conf *reading_conf(const struct reading *q);
/* The one answer. */
void reading_reply(struct reading *q, const ProtobufCMessage *msg);
/* Be called again after this. */
void reading_wait(struct reading *q, uint64_t ns);

#endif
