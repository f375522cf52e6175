/* mcp/catalog.c - see mcp/catalog.h. */
#include "mcp/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "mcp/call_priv.h"

extern const uint8_t mcp_tools_json[];
extern const size_t mcp_tools_json_size;
extern const uint8_t mcp_aliases_json[];
extern const size_t mcp_aliases_json_size;

enum { TOOLS_MAX = 64 };

struct mcp_catalog {
    json_t *texts[3]; /* owned: the product's, the build's own, the aliases' */
    struct mcp_tool tools[TOOLS_MAX];
    size_t n;
};

static mcp_run_fn *find_row(const struct mcp_row *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].run;
    }
    return NULL;
}

/* The place of the tool of this name, or a new one. */
static struct mcp_tool *place_of(struct mcp_catalog *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->tools[i].name, name) == 0)
            return &c->tools[i];
    }
    return c->n < TOOLS_MAX ? &c->tools[c->n++] : NULL;
}

static const struct mcp_alias *find_alias(const char *name)
{
    for (size_t i = 0; name && i < mcp_aliases_n; i++) {
        if (strcmp(mcp_aliases[i].name, name) == 0)
            return &mcp_aliases[i];
    }
    return NULL;
}

static int add_aliases(struct mcp_catalog *c, const json_t *list, struct cl_err *err)
{
    size_t i;
    json_t *spec;
    if (json_array_size(list) != mcp_aliases_n)
        return cl_fail(err, CL_E_INVALID, 0, "%zu aliases have a text and %zu a row",
                       json_array_size(list), mcp_aliases_n);
    json_array_foreach(list, i, spec)
    {
        const char *name = mcp_json_text(spec, "name");
        const struct mcp_alias *alias = find_alias(name);
        struct mcp_tool *tool = alias ? place_of(c, name) : NULL;
        if (!tool)
            return cl_fail(err, CL_E_INVALID, 0, "no row or no place for the alias '%.40s'",
                           name ? name : "");
        *tool = (struct mcp_tool){.name = name,
                                  .spec = spec,
                                  .input = json_object_get(spec, "inputSchema"),
                                  .alias = alias};
    }
    return 0;
}

static int add_tools(struct mcp_catalog *c, const json_t *list, const struct mcp_row *rows,
                     size_t n_rows, struct cl_err *err)
{
    if (json_array_size(list) != n_rows || c->n + n_rows > TOOLS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%zu tools have a text and %zu a function",
                       json_array_size(list), n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        const json_t *spec = json_array_get(list, i);
        const char *name = mcp_json_text(spec, "name");
        mcp_run_fn *run = name ? find_row(rows, n_rows, name) : NULL;
        const json_t *hints = json_object_get(spec, "annotations");
        if (!run)
            return cl_fail(err, CL_E_INVALID, 0, "the tool '%.40s' has no function",
                           name ? name : "");
        c->tools[c->n++] = (struct mcp_tool){name,
                                             spec,
                                             json_object_get(spec, "inputSchema"),
                                             run,
                                             json_is_true(json_object_get(hints, "readOnlyHint")),
                                             NULL};
    }
    return 0;
}

int mcp_catalog_new(const struct mcp_extra *extra, bool aliases, struct mcp_catalog **ret_catalog,
                    struct cl_err *err)
{
    struct mcp_catalog *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "tools");
    int rc = mcp_json_parse((const char *)mcp_tools_json, mcp_tools_json_size, &c->texts[0], err);
    if (rc == 0)
        rc = add_tools(c, c->texts[0], mcp_tool_rows, mcp_tool_rows_n, err);
    if (rc == 0 && aliases)
        rc = mcp_json_parse((const char *)mcp_aliases_json, mcp_aliases_json_size, &c->texts[2],
                            err);
    if (rc == 0 && aliases)
        rc = add_aliases(c, c->texts[2], err);
    if (rc == 0 && extra)
        rc = mcp_json_parse(extra->tools_json, strlen(extra->tools_json), &c->texts[1], err);
    if (rc == 0 && extra)
        rc = add_tools(c, c->texts[1], extra->tools, extra->n_tools, err);
    if (rc < 0) {
        mcp_catalog_free(c);
        return cl_wrap(err, "tools");
    }
    *ret_catalog = c;
    return 0;
}

void mcp_catalog_free(struct mcp_catalog *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < CL_COUNT(c->texts); i++)
        json_decref(c->texts[i]);
    cl_free(c);
}

const struct mcp_tool *mcp_catalog_find(const struct mcp_catalog *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->tools[i].name, name) == 0)
            return &c->tools[i];
    }
    return NULL;
}

json_t *mcp_catalog_page(const struct mcp_catalog *c, const char *cursor, char ret_next[static 16])
{
    char *end = NULL;
    size_t at = 0;
    ret_next[0] = '\0';
    if (cursor) {
        at = strncmp(cursor, "t", 1) == 0 ? strtoul(cursor + 1, &end, 10) : 0;
        if (!end || *end || at == 0 || at >= c->n || at % MCP_TOOLS_PAGE != 0)
            return NULL;
    }
    json_t *page = json_array();
    for (size_t i = at; i < c->n && i < at + MCP_TOOLS_PAGE; i++)
        (void)json_array_append(page, (json_t *)(uintptr_t)c->tools[i].spec);
    if (at + MCP_TOOLS_PAGE < c->n)
        (void)snprintf(ret_next, 16, "t%zu", at + MCP_TOOLS_PAGE);
    return page;
}
