/* web/methods.h - which methods plain HTTP can call: all of the services' that clients have, but
 * one whose requests and answers are streams of one conversation.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_WEB_METHODS_H
#define CL_WEB_METHODS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

struct web_method {
    const ProtobufCMessageDescriptor *in, *out;
    bool takes_many; /* requests are a stream */
    bool streams;    /* answers are */
};

/* "/cloche.v1.JobService/Run".  NOTFOUND; UNIMPL for one with both. */
int web_method_find(const char *path, struct web_method *ret, struct cl_err *err) CL_MUST;
/* Is the path one of a service, whether that has such a method or not? */
bool web_method_serves(const char *path);
/* All of them, for tests; NULL behind the last. */
const ProtobufCServiceDescriptor *web_method_service(size_t i);

#endif
