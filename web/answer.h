/* web/answer.h - how the HTTP APIs say their answers: what a listener gives to each call.
 *
 * Owns:    nothing.
 * Thread:  the loop's.
 */
#ifndef CL_WEB_ANSWER_H
#define CL_WEB_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

struct web_reply {
    int status;
    const char *type; /* NULL = no body */
    const char *data;
    size_t n;
    const char *next_token; /* X-Next-Token; NULL = none */
    bool is_page; /* a browser shows it: it may load and call what is here, nothing else */
};

/* How the listener says it: either one reply, or begin, any number of sends, and end; or cut, by
 * which the client sees that something is missing.  After reply, end and cut the call is dead. */
struct web_transport {
    void (*reply)(void *arg, const struct web_reply *reply);
    void (*begin)(void *arg, const char *type);
    void (*send)(void *arg, const void *data, size_t n);
    void (*end)(void *arg);
    void (*cut)(void *arg);
    /* Bytes that wait for the client. */
    size_t (*waiting)(void *arg);
    /* The call wants the body (again); it may end before this returns.  Of uploads. */
    void (*want_body)(void *arg);
};

#endif
