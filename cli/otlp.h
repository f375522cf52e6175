/* cli/otlp.h - where traces go, as OpenTelemetry's exporters are told it.
 *
 * Source:  OTLP 1.x, OTLP/HTTP; OpenTelemetry's "Protocol Exporter" (environment variables):
 * headers are KEY=VALUE with commas between, values percent-encoded as in W3C Baggage. Thread: any.
 * Pure.
 */
#ifndef CL_CLI_OTLP_H
#define CL_CLI_OTLP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum { OTLP_URL = 1024, OTLP_HEADERS = 32, OTLP_HEADERS_TEXT = 8192 };

/* "http://host:4318" becomes "http://host:4318/v1/traces"; one with a path stays as it is. */
int otlp_url(const char *to, char out[static OTLP_URL], struct cl_err *err) CL_MUST;

/* Headers that a user gave; names and values point into `text`. */
struct otlp_headers {
    struct {
        const char *name, *value;
    } at[OTLP_HEADERS];
    size_t n;
    char text[OTLP_HEADERS_TEXT];
};
/* NULL and "" are none. */
int otlp_headers(const char *text, struct otlp_headers *ret, struct cl_err *err) CL_MUST;

/* What the answer means: OTLP/HTTP, "Failures". */
enum otlp_verdict {
    OTLP_TAKEN,
    OTLP_AGAIN,   /* it is overloaded, or not there: the same again, later */
    OTLP_BAD,     /* these spans will never be taken */
    OTLP_REFUSED, /* nothing that we send will be: the address, or who we are, is wrong */
};
enum otlp_verdict otlp_judge(int status);
/* Of an answer that was OK: how many spans it did not take, and why. */
size_t otlp_rejected(const char *body, size_t n, char why[static CL_ERR_TEXT]);

#endif
