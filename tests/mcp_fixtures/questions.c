/* tests/mcp_fixtures/questions.c - legacy tools that send the client a request on their own stream
 * and wait for its response, which comes in a request of its own; see
 * tests/mcp_fixtures/fixtures.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"
#include "tests/mcp_fixtures/fixtures.h"

struct question {
    struct cl_list link;
    struct mcp_call *call;
    char id[32];
};

/* The calls that wait; the process has one loop. */
static struct cl_list waiting = {&waiting, &waiting};

static void question_free(void *obj)
{
    struct question *q = obj;
    cl_list_unlink(&q->link);
    cl_free(q);
}

void question_run(struct mcp_call *c)
{
    static unsigned count;
    struct question *q = cl_zalloc(sizeof *q);
    CL_ASSERT(q);
    q->call = c;
    (void)snprintf(q->id, sizeof q->id, "question-%u", ++count);
    cl_list_push(&waiting, &q->link);
    mcp_set_work(c, q, question_free);
    json_t *request = filled(fixture("questions", fixture_name(c)), mcp_args(c));
    mcp_json_set(request, "jsonrpc", json_string("2.0"));
    mcp_json_set(request, "id", json_string(q->id));
    mcp_send(c, request);
}

static void answer(struct question *q, const json_t *response)
{
    char *text = json_dumps(json_object_get(response, "result"), JSON_COMPACT);
    json_t *result = json_pack("{s:[{s:s, s:s}]}", "content", "type", "text", "text",
                               text ? text : "it was refused");
    free(text);
    mcp_end(q->call, result);
}

void question_answered(const json_t *response)
{
    const char *id = mcp_json_text(response, "id");
    CL_LIST_FOREACH (it, &waiting) {
        struct question *q = CL_LIST_ENTRY(it, struct question, link);
        if (id && strcmp(q->id, id) == 0)
            answer(q, response);
    }
}
