/* gateway/endpoint.h - may this HTTP request be an MCP message, or a call of E2B's API, at all?
 * Everything that is checked before the credential and the body are looked at.
 *
 * Host and Origin: a page in a browser can make its own name resolve to 127.0.0.1 (DNS rebinding)
 * and then post to us; it cannot lie about either header.
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  MCP 2026-07-28, Streamable HTTP, security; RFC 9110; the Fetch standard, CORS.
 */
#ifndef CL_GATEWAY_ENDPOINT_H
#define CL_GATEWAY_ENDPOINT_H

#include "gateway/http.h"
#include "mcp/message.h"

enum { ENDPOINT_ASKED_MAX = 2048 };

struct endpoint {
    const char *hosts;   /* names besides loopback's, separated by commas; "*" = any */
    const char *origins; /* origins besides loopback's, separated by commas */
    const char *ports;   /* domain of the names of sandboxes' ports (port_host.h); NULL = none */
    bool has_metadata;   /* an authorization server is named (metadata.h) */
    bool has_e2b;        /* E2B's API is served, too */
    bool has_web;        /* our own services, and the dashboard */
};

/* Is it for a port of a sandbox?  Then for nothing else here, whatever `hosts` says. */
bool endpoint_is_port(const struct endpoint *e, const struct http_request *r);
/* 0 = go on; else the status to answer with, and a text. */
int endpoint_check(const struct endpoint *e, const struct http_request *r, const char **ret_text);
/* GET of the resource's metadata, which needs no credential? */
bool endpoint_is_metadata(const struct endpoint *e, const struct http_request *r);
/* Is it our services', or the dashboard's? */
bool endpoint_is_web(const struct endpoint *e, const struct http_request *r);
/* Is it E2B's? */
bool endpoint_is_e2b(const struct endpoint *e, const struct http_request *r);
/* The type of a message, looked at once the credential is known; likewise. */
int endpoint_check_types(const struct http_request *r, const char **ret_text);
/* Does the client take an event stream? */
bool endpoint_takes_stream(const struct http_request *r);

/* Pages of other origins, as far as endpoint_check() lets them call: whose page may read the answer
 * (the request's Origin; NULL = none's, but our own), and whether its browser only asks what it may
 * send. */
const char *endpoint_reader(const struct endpoint *e, const struct http_request *r);
bool endpoint_is_preflight(const struct http_request *r);
/* The fields that it asks for, to be allowed as they are: those that we do not know do nothing.
 * NULL = none, or more than a list of names. */
const char *endpoint_asked_fields(const struct http_request *r);

struct mcp_headers endpoint_headers(const struct http_request *r);

#endif
