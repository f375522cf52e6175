/* scheduler/validate.h - what a request must be before it costs anything.  Pure.
 *
 * Every refusal is INVALID (or TOOBIG), names the field, and says what would be right.
 */
#ifndef CL_SCHEDULER_VALIDATE_H
#define CL_SCHEDULER_VALIDATE_H

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "policy/limits.h"

enum {
    ARGS_MAX = 1024 * 1024, /* argv and environment, as execve(2) counts them */
    LABELS_MAX = 32,
    LABEL_VALUE_MAX = 256,
    PATH_TEXT_MAX = 4096,
    MAX_ATTEMPTS_MAX = 10,
    SANDBOX_TTL_MAX_S = 24 * 3600,
    PAUSE_KEEP_S = 24 * 3600, /* unless the client says */
    PAUSE_KEEP_MAX_S = 30 * 24 * 3600,
    SANDBOX_CPU_MS = 3600 * 1000, /* CPU time that a sandbox holds, for each vCPU */
};

int validate_command(const Cloche__V1__Command *c, struct cl_err *err) CL_MUST;
/* Names of variables; `field` is for the text.  *bytes grows by what they take, as execve(2)
 * counts. */
int validate_env(Cloche__V1__EnvVar *const *env, size_t n, const char *field, size_t *bytes,
                 struct cl_err *err) CL_MUST;
int validate_labels(Cloche__V1__Label *const *labels, size_t n, struct cl_err *err) CL_MUST;
int validate_path(const char *path, struct cl_err *err) CL_MUST;
/* Of one transfer; max is the tenant's.  TOOBIG. */
int validate_file_bytes(uint64_t bytes, uint64_t max, struct cl_err *err) CL_MUST;
/* "" , "user" or "root". */
int validate_user(const char *user, struct cl_err *err) CL_MUST;
/* A time to live; 0 is for the caller to judge. */
int validate_ttl(uint64_t ttl_ns, struct cl_err *err) CL_MUST;
/* How long a paused sandbox is kept. */
int validate_keep(uint64_t keep_ns, uint64_t *ret_keep_ns, struct cl_err *err) CL_MUST;
enum { SNAPSHOT_NAME_MAX = 63 };
/* "" is one, too; no id of a snapshot is. */
int validate_snapshot_name(const char *name, struct cl_err *err) CL_MUST;
/* Only what is paused can be woken. */
int validate_on_idle(Cloche__V1__IdleAction action, bool wakes, bool *ret_pauses,
                     struct cl_err *err) CL_MUST;
/* What a spec is read as. */
struct spec_frame {
    bool is_job;  /* with a command; else a sandbox */
    bool is_copy; /* of a sandbox or snapshot: a grant without rules is a card that reaches nothing
                   */
    uint64_t life_ns;
    uint64_t vcpus, memory_mib; /* the template's; 0 = not known */
};
/* Template, command, resources, labels, network (DENIED when the tenant may have none); *ret_need
 * is what it reserves under the tenant's limits.  Sizes that the spec leaves open are the
 * template's, within the limits. */
int validate_spec(const Cloche__V1__JobSpec *spec, const struct spec_frame *frame,
                  const struct tenant_limits *limits, struct quota_need *ret_need,
                  struct cl_err *err) CL_MUST;

#endif
