/* mcp/call_priv.h - the inside of a call and of the server, for the files that make them up.
 *
 *   AUTH --who--> PARSED --method's run()--> WORKING --mcp_end*()--> DEAD (freed at the turn's end)
 *     |  refused      | refused                  | left (modern), cancelled
 *     +---------------+--------------------------+--------------------------> DEAD
 *
 * Owns:    see each member.
 * Thread:  the server's loop.
 */
#ifndef CL_MCP_CALL_PRIV_H
#define CL_MCP_CALL_PRIV_H

#include "base/map.h"
#include "mcp/catalog.h"
#include "mcp/listen.h"
#include "mcp/tool.h"

enum {
    MCP_WHO_MAX = 1024,      /* credentials remembered: without a bound, guesses fill memory */
    MCP_OWNERS_MAX = 16384,  /* sandboxes whose owner is remembered */
    MCP_SESSIONS_MAX = 4096, /* sessions whose default sandbox or end is remembered */
    MCP_ASKS_MAX = 8,        /* gRPC calls of one call: a tool needs at most three */
};

#define MCP_WHO_FRESH_NS (500 * CL_NS_PER_MS) /* as long as the scheduler believes a key's row */

enum { MCP_MAY_READ = 1, MCP_MAY_RUN = 2 };

struct mcp_who {
    char principal[MCP_PRINCIPAL];
    unsigned may;
    uint64_t fresh_until_ns;
};

/* The default sandbox of a session. */
struct mcp_seat {
    char sandbox[CL_ID_MAX]; /* "" = not known */
    unsigned generation;     /* of the idempotency key: one more after each that has ended */
    bool ended;              /* the session was deleted */
};

struct mcp_server {
    struct mcp_server_conf conf;
    struct mcp_catalog *catalog; /* owned */
    json_t *extra_capabilities;  /* owned; NULL = none */
    struct cl_map *who;          /* digest of a credential -> struct mcp_who, owned */
    struct cl_map *owners;       /* sandbox -> principal, owned text */
    struct cl_map *seats;        /* digest of a session -> struct mcp_seat, owned */
    struct cl_list calls;
    size_t n_calls;
    bool closing;
};

struct mcp_call {
    struct mcp_server *server; /* borrowed */
    struct cl_list link;       /* in server->calls */
    struct cl_grave grave;
    const struct mcp_transport *transport; /* NULL once the client left */
    void *transport_arg;
    struct mcp_incoming in;
    struct mcp_message msg;       /* owned */
    char *credential;             /* owned; NULL = the channel's own */
    char trace[TRACEPARENT_TEXT]; /* of all that it asks; "" = none, or the channel's own */
    struct mcp_who who;
    enum mcp_era era;
    char session[MCP_SESSION_TEXT];     /* "" = none */
    char new_session[MCP_SESSION_TEXT]; /* given out with the reply */
    const struct mcp_tool *tool;        /* NULL = no tools/call */
    json_t *args;                       /* owned */
    json_t *given;                      /* owned; the arguments of an alias; NULL = none */
    mcp_run_fn *next;                   /* after the sandbox, or snapshot, is known */
    char box[CL_ID_MAX];
    char snapshot[CL_ID_MAX];    /* "" = none is meant */
    char place[MCP_DIGEST_TEXT]; /* of a sandbox that its owner named; "" = none */
    bool box_is_new, is_stdio, is_dead;
    bool plain_errors; /* no tool: what goes wrong is a JSON-RPC error */
    bool is_left;      /* killed, but for what undo() has to end */
    /* Ends what would outlive the call and was for it alone, then clears this and kills it again.
     * May be called twice; NULL = nothing to end. */
    void (*undo)(struct mcp_call *c);
    struct cl_list asks;
    size_t n_asks, ask_tag;
    struct mcp_listening *listening; /* owned; NULL = no subscriptions/listen */
    void *work;                      /* owned */
    void (*work_destroy)(void *work);
    struct cl_timer beat; /* says that a quiet call lives, where progress was asked for */
    uint64_t progress_at_ns, started_ns;
    char progress_text[128]; /* what was last said */
};

/* call_io.c */
void mcp_refused(struct mcp_call *c, const struct mcp_refusal *why);
void mcp_bare(struct mcp_call *c, const struct mcp_reply *reply);
/* No answer any more: undo what must not stay, cancel what was asked for and bury it. */
void mcp_call_kill(struct mcp_call *c);

/* methods.c: find the method and run it. */
void mcp_dispatch(struct mcp_call *c);
void mcp_session_end(struct mcp_call *c);
/* who.c: learn the principal, then go on or refuse. */
void mcp_who_ask(struct mcp_call *c, mcp_run_fn *next);
/* Refuse with 403 unless the credential may; false when the call has ended. */
bool mcp_who_may(struct mcp_call *c, unsigned what) CL_MUST;
/* box.c */
struct mcp_seat *mcp_seat(struct mcp_server *s, const char *session, bool make);
/* tools.c */
extern const struct mcp_row mcp_tool_rows[];
extern const size_t mcp_tool_rows_n;
/* resources.c */
void mcp_resources_list(struct mcp_call *c);
void mcp_resource_templates(struct mcp_call *c);
void mcp_resource_read(struct mcp_call *c);

#endif
