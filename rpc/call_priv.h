/* rpc/call_priv.h - the inside of a call; see rpc/call.h.
 *
 * Two lives in one object: the handler's, which ends with on_end (`ended`), and the stream's,
 * which ends when nghttp2 closes it (stream_id < 0).  The memory goes after both.
 */
#ifndef CL_RPC_CALL_PRIV_H
#define CL_RPC_CALL_PRIV_H

#include "base/buf.h"
#include "base/loop.h"
#include "rpc/call.h"
#include "rpc/conn_priv.h"
#include "rpc/metadata.h"
#include "rpc/outq.h"
#include "rpc/work.h"

/* Body bytes of a request that is not gRPC which we let pass before we answer it. */
enum { CALL_PLAIN_MAX = 64 * 1024 };
/* An input buffer that grew larger is given back once it is empty. */
enum { CALL_IN_KEEP = 64 * 1024 };

enum call_encoding { ENCODING_IDENTITY, ENCODING_GZIP, ENCODING_OTHER };

/* What waits for the work queue. */
enum { CALL_WORK_TAKE = 1, CALL_WORK_DRAIN = 2, CALL_WORK_END = 4, CALL_WORK_GO = 8 };

struct rpc_call;

/* What differs between the roles once bytes have become messages. */
struct call_role {
    void (*message)(struct rpc_call *call, const ProtobufCMessage *msg);
    void (*drain)(struct rpc_call *call);
    /* Run on_end; why == NULL: ended well. */
    void (*end)(struct rpc_call *call, const struct cl_err *why);
    /* The peer's last message was handed over. */
    void (*eof)(struct rpc_call *call);
    /* What the peer sent is not acceptable. */
    void (*refuse)(struct rpc_call *call, const struct cl_err *why);
    /* The deadline passed. */
    void (*expired)(struct rpc_call *call);
    /* Output begins: send the headers, once (server; NULL for clients). */
    void (*send_headers)(struct rpc_call *call);
    /* All output was taken: send the trailers (server; NULL: END_STREAM ends it). */
    void (*send_trailers)(struct rpc_call *call);
};

struct rpc_call {
    const struct call_role *role; /* borrowed: static */
    struct rpc_conn *conn;        /* borrowed: until closed or lost; NULL = none */
    struct rpc_work *work;        /* borrowed: the owner's */
    struct cl_list link;          /* conn->calls, or the channel's waiting list */
    struct rpc_work_item work_item;
    unsigned work_todo;
    struct cl_grave grave;
    int32_t stream_id; /* -1 = no stream (not yet, or no more) */
    bool ended;        /* on_end ran */
    bool buried;
    void *user;
    const char *path;            /* borrowed: the method's, or own_path */
    char *own_path;              /* owned; clients only */
    const struct rpc_peer *peer; /* borrowed: the connection's, or a blank one */
    uint64_t start_ns, deadline_ns;
    struct cl_timer timer;
    struct metadata received;          /* from the peer */
    struct metadata headers, trailers; /* to the peer */

    /* in */
    const ProtobufCMessageDescriptor *type_in;
    size_t max_message;
    struct cl_buf in; /* bytes not handed over */
    size_t in_held;   /* of them, not given back to the stream's window */
    bool in_one;      /* exactly one message is due (server, no client stream) */
    bool in_eof, in_eof_told;
    bool paused, taking, compressed;
    enum call_encoding in_encoding;

    /* out */
    struct outq out;
    bool submitted; /* headers given to nghttp2 */
    bool deferred;  /* nghttp2 waits for data */
    bool full_told; /* is_full was true since the last drain */
    bool out_done;  /* half-closed (client) or finished (server) */
    bool peer_gzip, out_gzip, plain_http;
    struct cl_list followers; /* calls that wait until `out` is empty, by their `turn` */
    struct cl_list turn;      /* in that of another call, or alone */

    /* how it ends */
    bool status_set, trailers_sent;
    bool cut; /* `why` did not come from the handler */
    int status;
    uint64_t finish_ns;
    struct cl_err why; /* the status given (server) or received (client) */

    union {
        struct {
            struct rpc_server *server;       /* borrowed */
            const struct rpc_method *method; /* borrowed: static; NULL = unknown */
            void *service;                   /* borrowed: outlives the server */
            bool is_post, is_grpc, started, said_encoding, got_one;
            bool bare_status; /* no details in the trailers */
            bool bad_head;    /* `why` says what is wrong with the headers */
            uint64_t timeout_ns;
            size_t plain_in; /* body bytes of a request that is not gRPC */
        } srv;
        struct {
            struct rpc_channel *channel; /* borrowed */
            struct rpc_client_events events;
            void *arg;
            bool fail_fast, sent, gzip, is_grpc;
            int http_status;
            char message[CL_ERR_TEXT];
        } cli;
    };
};

void call_init(struct rpc_call *call, const struct call_role *role, struct rpc_work *work);
/* For a call that never began. */
void call_free(struct rpc_call *call);
/* Frees the call when this turn ends, if both its lives are over. */
void call_bury_if_dead(struct rpc_call *call);
/* End the handler's life, once. */
void call_end(struct rpc_call *call, const struct cl_err *why);
int call_arm_deadline(struct rpc_call *call, struct cl_err *err) CL_MUST;
void call_todo(struct rpc_call *call, unsigned what);
/* Bytes of a DATA frame arrived. */
void call_data(struct rpc_call *call, const uint8_t *data, size_t n);
/* Hand over what is complete. */
void call_take(struct rpc_call *call);
/* Forget received bytes, now and from now on. */
void call_drop_input(struct rpc_call *call);
void call_reset(struct rpc_call *call, uint32_t h2_error);
/* nghttp2's data source of a call. */
ssize_t call_read_out(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t n,
                      uint32_t *flags, nghttp2_data_source *source, void *conn);
/* Tell nghttp2 that there is data again. */
void call_resume(struct rpc_call *call);
/* Store a metadata pair from the wire; false when it is over a limit. */
bool call_store_header(struct rpc_call *call, const char *name, size_t name_len, const char *value,
                       size_t value_len, struct cl_err *err) CL_MUST;
enum call_encoding call_encoding_of(const char *value, size_t n);

/* --- header lists -------------------------------------------------------------------------------
 */

enum { NVS_MAX = 2 * RPC_METADATA_PAIRS + 16 };

struct nvs {
    nghttp2_nv v[NVS_MAX];
    size_t n;
};
/* `name` is a literal; the value lives until the submit. */
void nvs_add(struct nvs *nvs, const char *name, const char *value);
/* The same, kept out of the compression table: secret, or never the same twice. */
void nvs_add_once(struct nvs *nvs, const char *name, const char *value);
void nvs_add_metadata(struct nvs *nvs, const struct metadata *md);

#endif
