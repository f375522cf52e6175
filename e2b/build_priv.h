/* e2b/build_priv.h - a template that is being built: what is known of it, and the call that does
 * it.
 *
 *   WAITING --archives come--> WAITING --its recipe comes--> RUNNING --> READY, FAILED -->
 * forgotten
 *
 * A build is a sandbox of the tenant's in which the steps are run, and of which a snapshot is made
 * then.  Archives wait in another one, for what the base is nobody says before all of them are
 * here. Both count in the tenant's quotas, and end with the build, or when it was forgotten.
 *
 * Owns:    see each member.  The server owns the builds.
 * Thread:  the server's loop.
 */
#ifndef CL_E2B_BUILD_PRIV_H
#define CL_E2B_BUILD_PRIV_H

#include "e2b/call_priv.h"
#include "e2b/recipe.h"

enum {
    E2B_BUILDS_MAX = 256,     /* known at once, of all */
    E2B_BUILDS_OF_TENANT = 8, /* that have not ended */
    E2B_BUILD_LINES = 2048,   /* of its log */
    E2B_BUILD_LOG = 256 * 1024,
    E2B_BUILD_UUID = 37,
    E2B_BUILD_IDLE_S = 600, /* of its sandboxes: something goes on in them as long as we live */
    E2B_BUILD_S = 3600,     /* the longest that it may take; and how long it is known, unasked */
};

enum e2b_build_state { E2B_BUILD_WAITING, E2B_BUILD_RUNNING, E2B_BUILD_READY, E2B_BUILD_FAILED };

struct e2b_build {
    struct e2b_server *server; /* borrowed */
    struct cl_list link;
    struct cl_timer timer; /* until it is forgotten; not while it runs */
    char id[E2B_BUILD_UUID], name[E2B_BUILD_NAME], tenant[E2B_ID_MAX];
    uint32_t vcpus, memory_mib, free_mib; /* as asked for */
    enum e2b_build_state state;
    char stage[CL_ID_MAX]; /* the sandbox where its archives are; "" = there is none */
    bool is_staging;       /* it is being made */
    json_t *log;           /* owned: entries as E2B's API has them */
    size_t log_bytes;
    char reason[1024], step[16]; /* FAILED: why, and where */
};

/* Where archive `hash` is, in the one sandbox and in the other. */
void e2b_archive_path(const char *hash, char path[static E2B_PATH_MAX]);

/* A line of the log; takes the reference. */
void e2b_build_say(struct e2b_build *b, const char *level, const char *step, json_t *message);
/* It has ended. */
void e2b_build_end(struct e2b_build *b, enum e2b_build_state state);
/* Run the recipe, which lies in the body of `asker`, with its credential; 0, or nothing changed. */
int e2b_build_run(struct e2b_build *b, const struct e2b_call *asker,
                  const struct e2b_recipe *recipe, struct cl_err *err) CL_MUST;

#endif
