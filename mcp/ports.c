/* mcp/ports.c - the tool port_url: an address for people to see what listens in a sandbox. */
#include "base/mem.h"
#include "cloche/v1/port.pb-c.h"
#include "mcp/call_priv.h"
#include "mcp/port_url.h"
#include "mcp/tools_priv.h"

static uint32_t port_of(const struct mcp_call *c)
{
    return (uint32_t)mcp_json_u64(c->args, "port", 0);
}

static void on_link(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct cl_err bad = {0};
    char url[PORT_URL_MAX];
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    const Cloche__V1__CreateLinkResponse *m = (const Cloche__V1__CreateLinkResponse *)reply;
    if (port_url(c->server->conf.ports_domain, m->link, port_of(c), url, &bad) < 0) {
        mcp_end_tool_error(c, &bad);
        return;
    }
    json_t *o =
        json_pack("{s:s, s:i, s:s}", "sandbox_id", c->box, "port", (int)port_of(c), "url", url);
    struct mcp_result r = {
        .structured = o,
        .text =
            cl_asprintf("%s\nWhoever has this address reaches port %u of sandbox %s, as long as "
                        "a program listens there.",
                        url, (unsigned)port_of(c), c->box)};
    mcp_end_tool(c, &r);
}

static void make_link(struct mcp_call *c)
{
    static const struct mcp_method_of link =
        MCP_RPC("PortService", "CreateLink", create_link_response);
    Cloche__V1__CreateLinkRequest m = CLOCHE__V1__CREATE_LINK_REQUEST__INIT;
    m.sandbox_id = c->box;
    m.port = port_of(c);
    m.ttl_ns = mcp_seconds_ns(c->args, "ttl_seconds", 0);
    struct mcp_ask_spec ask = {.method = &link, .request = &m.base, .on_end = on_link};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_port_url(struct mcp_call *c)
{
    struct cl_err err = {0};
    if (c->server->conf.ports_domain && c->server->conf.ports_domain[0]) {
        mcp_box_check(c, mcp_json_text(c->args, "sandbox_id"), make_link);
        return;
    }
    (void)cl_fail(&err, CL_E_STATE, 0,
                  "this server knows no gateway that serves ports of sandboxes: its operator sets "
                  "ports-domain");
    mcp_end_tool_error(c, &err);
}
