/* mcp/advice.c - see mcp/advice.h. */
#include "mcp/advice.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static const struct {
    enum cl_code code;
    const char *what, *remedy;
} rows[] = {
    {CL_E_INVALID, "The call is not valid", "Correct the argument and call again."},
    {CL_E_TOOBIG, "Too large", "Send or ask for less; files can be read and written in parts."},
    {CL_E_NOTFOUND, "Not found", "Check the name; file_list and sandbox_list show what there is."},
    {CL_E_EXISTS, "It exists already", "Choose another name."},
    {CL_E_QUOTA, "Refused: over the quota",
     "End or pause sandboxes that are not needed now (sandbox_list, then sandbox_kill or "
     "sandbox_pause), or wait and try again; of the disk, snapshots take a part, too "
     "(snapshot_delete). A larger quota is for the operator to give."},
    {CL_E_RATE, "Refused: too many calls in a short time", "Wait and call again."},
    {CL_E_QUEUE, "Refused: too much is waiting already", "Wait and call again."},
    {CL_E_DENIED, "Not allowed",
     "Another way is needed: the credential or the sandbox forbids it."},
    {CL_E_UNAUTH, "The credential is not valid any more", "Ask the user for a valid API key."},
    {CL_E_UNAVAILABLE, "The service cannot be reached now", "Wait a few seconds and call again."},
    {CL_E_DEADLINE, "It took too long",
     "Use exec_start and exec_poll for long work, or allow more with timeout_seconds."},
    {CL_E_STATE, "Not possible as things are", "Change what the text names, then call again."},
    {CL_E_UNIMPL, "Not supported by this installation", "Use another tool."},
    {CL_E_CANCELLED, "Cancelled", "Nothing to do."},
};

/* What is said of some things instead. */
static const struct {
    enum cl_code code;
    const char *subject, *remedy;
} particular[] = {
    {CL_E_NOTFOUND, "sandbox",
     "Its files and processes are gone: it was idle longer than its lifetime, was ended, or never "
     "was. Call again without sandbox_id to get a new, empty one."},
    {CL_E_NOTFOUND, "snapshot",
     "It was deleted, was not used for as long as it was kept, or never was: snapshot_list shows "
     "those that there are. Without one, make a sandbox of a template and prepare it anew."},
    {CL_E_DENIED, "audit",
     "Ask the user for an API key that may also read the audit log of its tenant: cloche key "
     "create TENANT --scopes run,read,audit."},
    {CL_E_EXISTS, "snapshot",
     "Choose another name, or call again with replace true: then that one is deleted, and this one "
     "has its name."},
};

bool mcp_err_is_paused(const struct cl_err *err)
{
    return err->code == CL_E_STATE && strstr(err->text, "is paused") != NULL;
}

void mcp_advice(const struct cl_err *err, char out[static MCP_ADVICE])
{
    const char *what = "It failed inside of the service",
               *remedy = "Try again once; then report it.";
    char wait[64] = "";
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (rows[i].code == err->code) {
            what = rows[i].what;
            remedy = rows[i].remedy;
        }
    }
    for (size_t i = 0; i < CL_COUNT(particular); i++) {
        if (particular[i].code == err->code && strcmp(err->subject, particular[i].subject) == 0)
            remedy = particular[i].remedy;
    }
    if (mcp_err_is_paused(err))
        remedy =
            "Call sandbox_resume with its sandbox_id (sandbox_list shows it), then call again.";
    if (err->retry_ms)
        (void)snprintf(wait, sizeof wait, " It may succeed in %.1f s.",
                       (double)(err->retry_ms + 99) / 1000.0);
    (void)snprintf(out, MCP_ADVICE, "%s: %s.%s %s", what, err->text, wait, remedy);
}
