/* web/page.h - the dashboard: files of web/page/, built in.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_WEB_PAGE_H
#define CL_WEB_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What it may load and do, as its browser is told: our own scripts, styles and calls, nothing from
 * elsewhere, nothing written in the page itself, and in no frame. */
#define WEB_PAGE_POLICY \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " \
    "'self'; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct web_page {
    const char *type;
    const uint8_t *data;
    size_t n;
};

/* "/", "/dashboard" and what that asks for. */
bool web_page_find(const char *path, struct web_page *ret);

#endif
