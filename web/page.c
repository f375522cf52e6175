/* web/page.c - see web/page.h. */
#include "web/page.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "mcp/port_url.h"

extern const uint8_t web_index_html[], web_style_css[], web_app_js[], web_audit_js[],
    web_tenants_js[], web_shell_js[], web_screen_js[], web_api_js[], web_dom_js[];
extern const size_t web_index_html_size, web_style_css_size, web_app_js_size, web_audit_js_size,
    web_tenants_js_size, web_shell_js_size, web_screen_js_size, web_api_js_size, web_dom_js_size;

bool web_page_find(const char *path, struct web_page *ret)
{
    static const char html[] = "text/html; charset=utf-8", css[] = "text/css; charset=utf-8",
                      script[] = "text/javascript; charset=utf-8";
    const struct {
        const char *path;
        struct web_page page;
    } pages[] = {
        {"/", {html, web_index_html, web_index_html_size}},
        {"/dashboard", {html, web_index_html, web_index_html_size}},
        {"/dashboard/style.css", {css, web_style_css, web_style_css_size}},
        {"/dashboard/app.js", {script, web_app_js, web_app_js_size}},
        {"/dashboard/audit.js", {script, web_audit_js, web_audit_js_size}},
        {"/dashboard/tenants.js", {script, web_tenants_js, web_tenants_js_size}},
        {"/dashboard/shell.js", {script, web_shell_js, web_shell_js_size}},
        {"/dashboard/screen.js", {script, web_screen_js, web_screen_js_size}},
        {"/dashboard/api.js", {script, web_api_js, web_api_js_size}},
        {"/dashboard/dom.js", {script, web_dom_js, web_dom_js_size}},
    };
    for (size_t i = 0; i < CL_COUNT(pages); i++) {
        if (strcmp(pages[i].path, path) != 0)
            continue;
        *ret = pages[i].page;
        return true;
    }
    return false;
}

/* No character of such an address is one that JSON would escape. */
void web_page_config(const char *domain, char ret_json[static WEB_CONFIG_MAX])
{
    char url[PORT_URL_MAX];
    (void)snprintf(ret_json, WEB_CONFIG_MAX, "{}");
    if (domain && port_url(domain, "clp_{id}_{secret}", 0, url, NULL) == 0)
        (void)snprintf(ret_json, WEB_CONFIG_MAX, "{\"port_url\":\"%s\"}", url);
}
