/* gateway/port_message.h - one HTTP/1.1 message that is passed on: its head in fields, and where
 * its body ends.
 *
 * llhttp parses, strictly; on top of that everything is refused that two readers could understand
 * differently: lines that do not end with CRLF, folded lines, control characters, a second Host,
 * lengths that disagree, a transfer coding besides chunked.  What is passed on of a head is written
 * anew out of the fields (port_head.h), so the next reader sees what was understood here; the bytes
 * of a body are passed on as they came.
 *
 * Owns:    the parser and the text of the head.
 * Thread:  its connection's.  Pure; hostile input on both sides.
 * Source:  RFC 9112, RFC 9110.
 */
#ifndef CL_GATEWAY_PORT_MESSAGE_H
#define CL_GATEWAY_PORT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    /* Memory of who says nothing useful: a client's, which nobody has paid for, and a guest's. */
    PORT_REQUEST_HEAD = 16 * 1024,
    PORT_REQUEST_FIELDS = 100,
    PORT_ANSWER_HEAD = 64 * 1024,
    PORT_ANSWER_FIELDS = 200,
};

enum port_side { PORT_REQUEST, PORT_ANSWER };

struct port_field {
    const char *name, *value; /* NUL-terminated; borrowed from the message */
};

struct port_message;
int port_message_new(enum port_side side, struct port_message **ret_message,
                     struct cl_err *err) CL_MUST;
void port_message_free(struct port_message *m);

enum port_step {
    PORT_MORE, /* needs bytes: of the head, or (then all bytes were the body's) of the body */
    PORT_HEAD, /* the head is complete, and the facts below are valid from now on; feed on */
    PORT_DONE, /* the message is complete */
    PORT_BAD,  /* port_message_status() */
};

/* Take bytes, *ret_used of them; fewer than n after PORT_HEAD and after PORT_DONE.  After PORT_HEAD
 * feed again, with 0 bytes if there are no more: a message may have no body. */
enum port_step port_message_feed(struct port_message *m, const void *data, size_t n,
                                 size_t *ret_used);
/* No more bytes come: PORT_DONE where that ends the message, else PORT_BAD. */
enum port_step port_message_eof(struct port_message *m);
/* With what to answer the client: 400, 431, 501 or 505, and 502 for a guest's. */
int port_message_status(const struct port_message *m);
/* Has a byte of it come? */
bool port_message_has_begun(const struct port_message *m);

/* --- the head --------------------------------------------------------------------------------- */

/* The answer is to a HEAD: it has no body, whatever it says.  Before its head is fed. */
void port_message_expect_none(struct port_message *m);

size_t port_message_fields(const struct port_message *m);
struct port_field port_message_field(const struct port_message *m, size_t i);
/* Of the only, or the first, field of this name; NULL = absent. */
const char *port_message_value(const struct port_message *m, const char *name);
/* How many have this name. */
size_t port_message_count(const struct port_message *m, const char *name);
/* Is there a field of this name with this word in its list ("close, Upgrade")? */
bool port_message_lists(const struct port_message *m, const char *name, const char *word, size_t n);
/* "GET", the target as it came; of an answer NULL, the reason. */
const char *port_message_method(const struct port_message *m);
const char *port_message_target(const struct port_message *m);
const char *port_message_reason(const struct port_message *m);
/* Of an answer. */
int port_message_code(const struct port_message *m);
bool port_message_is_1_0(const struct port_message *m);

#endif
