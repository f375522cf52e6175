/* e2b/box_priv.h - one sandbox, looked at and answered with: what several calls of the control
 * plane do.
 *
 * Owns:    nothing.
 * Thread:  the server's loop.
 */
#ifndef CL_E2B_BOX_PRIV_H
#define CL_E2B_BOX_PRIV_H

#include "cloche/v1/sandbox.pb-c.h"
#include "e2b/call_priv.h"

typedef void e2b_end_fn(struct e2b_call *c, const ProtobufCMessage *reply,
                        const struct cl_err *err);

/* Look at the sandbox of the path. */
void e2b_box_get(struct e2b_call *c, e2b_end_fn *on_end);
/* What that has found, while it lives; NULL: the call has ended. */
const Cloche__V1__Sandbox *e2b_box_living(struct e2b_call *c, const ProtobufCMessage *reply,
                                          const struct cl_err *err);
/* End it, whoever hears of that. */
void e2b_box_kill(struct e2b_call *c, const char *id);
/* Ends the call. */
void e2b_box_fail_unknown(struct e2b_call *c);

/* The template's name: of a built one its own, not that of its base. */
const char *e2b_box_template(const Cloche__V1__Sandbox *m);
/* The caller's, for that sandbox and place; `env` (JSON, "" = none) goes before the place's. */
struct e2b_place;
int e2b_box_grant(const struct e2b_call *c, const char *sandbox, const struct e2b_place *place,
                  const char *env, struct e2b_grant *ret_grant, struct cl_err *err) CL_MUST;
/* What E2B's API calls a Sandbox: with keys to envd and to the ports, and `env` (JSON, "" = none)
 * in them.  Its domain holds no link.  NULL: err says why. */
json_t *e2b_box_answer(struct e2b_call *c, const Cloche__V1__Sandbox *m, const char *env,
                       struct cl_err *err);
/* Is a link to be in its domain? */
bool e2b_box_has_link(const struct e2b_call *c, const Cloche__V1__Sandbox *m);
/* Ask for it; -1: err says why, and the call goes on. */
int e2b_box_ask_link(struct e2b_call *c, const char *sandbox, e2b_end_fn *on_end,
                     struct cl_err *err) CL_MUST;
/* Put it in; without one (a token of OAuth makes none) the URLs of ports say what is missing. */
void e2b_box_set_link(const struct e2b_call *c, json_t *answer, const char *link);

#endif
