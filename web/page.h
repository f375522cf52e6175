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

/* What the page has to know of this gateway. */
#define WEB_PAGE_CONFIG "/dashboard/config.json"
enum { WEB_CONFIG_MAX = 1024 };

/* "/", "/dashboard" and what that asks for, but for WEB_PAGE_CONFIG. */
bool web_page_find(const char *path, struct web_page *ret);
/* That one: "port_url", the address of a port of a sandbox as mcp/port_url.h makes it of the
 * domain, with "0", "{id}" and "{secret}" for the port and the parts of its link; without a domain
 * {}. */
void web_page_config(const char *domain, char ret_json[static WEB_CONFIG_MAX]);

#endif
