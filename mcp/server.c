/* mcp/server.c - see mcp/server.h: what a server holds. */
#include "mcp/server.h"

#include <string.h>

#include "base/mem.h"
#include "mcp/call_priv.h"

static int make_maps(struct mcp_server *s, struct cl_err *err)
{
    if (cl_map_new(MCP_WHO_MAX, &s->who, err) < 0 ||
        cl_map_new(MCP_OWNERS_MAX, &s->owners, err) < 0)
        return -1;
    return cl_map_new(MCP_SESSIONS_MAX, &s->seats, err);
}

int mcp_server_new(const struct mcp_server_conf *conf, struct mcp_server **ret_server,
                   struct cl_err *err)
{
    const char *more = conf->extra ? conf->extra->capabilities_json : NULL;
    struct mcp_server *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "MCP server");
    s->conf = *conf;
    cl_list_init(&s->calls);
    if (make_maps(s, err) < 0 ||
        mcp_catalog_new(conf->extra, conf->aliases, &s->catalog, err) < 0 ||
        (more && mcp_json_parse(more, strlen(more), &s->extra_capabilities, err) < 0)) {
        mcp_server_free(s);
        return -1;
    }
    *ret_server = s;
    return 0;
}

static void free_map(struct cl_map *map)
{
    size_t at = 0;
    if (!map)
        return;
    for (void *v; (v = cl_map_next(map, &at, NULL)) != NULL;)
        cl_free(v);
    cl_map_free(map);
}

void mcp_server_free(struct mcp_server *s)
{
    if (!s)
        return;
    s->closing = true;
    CL_LIST_FOREACH (it, &s->calls)
        mcp_bare(CL_LIST_ENTRY(it, struct mcp_call, link), &(struct mcp_reply){.http = 503});
    free_map(s->who);
    free_map(s->owners);
    free_map(s->seats);
    mcp_catalog_free(s->catalog);
    json_decref(s->extra_capabilities);
    cl_free(s);
}

void mcp_server_drain(struct mcp_server *s)
{
    CL_LIST_FOREACH (it, &s->calls)
        mcp_listen_finish(CL_LIST_ENTRY(it, struct mcp_call, link));
}

size_t mcp_server_calls(const struct mcp_server *s)
{
    return s->n_calls;
}
