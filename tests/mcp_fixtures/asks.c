/* tests/mcp_fixtures/asks.c - input_required: rounds of questions to the client, with a state that
 * it cannot forge; see tests/mcp_fixtures/fixtures.h.
 * Source: MCP 2026-07-28, multi round-trip requests. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/mcp_fixtures/fixtures.h"

enum { STATE_S = 600 };

/* Of this process: a state from elsewhere is worth nothing. */
static const uint8_t *secret(void)
{
    static uint8_t bytes[MCP_SECRET];
    static bool made;
    if (!made)
        cl_random(bytes, sizeof bytes);
    made = true;
    return bytes;
}

static void purpose(const struct mcp_call *c, size_t round, char out[static 96])
{
    (void)snprintf(out, 96, "%s/%zu", fixture_name(c), round);
}

/* A question may only be asked of a client that said it can answer. */
static bool can_answer(const struct mcp_call *c, const json_t *request)
{
    const json_t *abilities =
        json_object_get(json_object_get(mcp_params(c), "_meta"), MCP_META "clientCapabilities");
    char name[32];
    (void)snprintf(name, sizeof name, "%s", mcp_json_text(request, "method"));
    name[strcspn(name, "/")] = '\0';
    return json_object_get(abilities, name) != NULL;
}

static bool is_answer(const json_t *request, const json_t *answer)
{
    const char *method = mcp_json_text(request, "method");
    if (strcmp(method, "elicitation/create") == 0)
        return mcp_json_text(answer, "action") != NULL;
    if (strcmp(method, "roots/list") == 0)
        return json_is_array(json_object_get(answer, "roots"));
    return json_is_object(answer) && json_object_get(answer, "content");
}

/* Which round does the client's state belong to?  rounds = none of ours. */
static size_t round_of(const struct mcp_call *c, const char *state, size_t rounds)
{
    char what[96];
    for (size_t i = 0; i < rounds; i++) {
        purpose(c, i, what);
        if (mcp_session_is_valid(secret(), what, state, cl_wall_ns() / CL_NS_PER_S))
            return i;
    }
    return rounds;
}

static void ask(struct mcp_call *c, const json_t *round, size_t number)
{
    uint8_t nonce[MCP_SESSION_NONCE];
    char what[96], state[MCP_SESSION_TEXT];
    json_t *wanted = json_object(), *requests = json_object_get(round, "requests"), *one;
    const char *key;
    json_object_foreach(requests, key, one)
    {
        if (can_answer(c, one))
            (void)json_object_set(wanted, key, one);
    }
    json_t *result =
        json_pack("{s:s, s:o}", "resultType", "input_required", "inputRequests", wanted);
    cl_random(nonce, sizeof nonce);
    purpose(c, number, what);
    mcp_session_make(secret(), what, nonce, cl_wall_ns() / CL_NS_PER_S + STATE_S, state);
    if (json_is_true(json_object_get(round, "state")))
        mcp_json_set(result, "requestState", json_string(state));
    mcp_end(c, result);
}

static bool is_answered(const struct mcp_call *c, const json_t *round)
{
    const json_t *answers = json_object_get(mcp_params(c), "inputResponses");
    json_t *requests = json_object_get(round, "requests"), *one;
    const char *key;
    json_object_foreach(requests, key, one)
    {
        if (can_answer(c, one) && !is_answer(one, json_object_get(answers, key)))
            return false;
    }
    return json_is_object(answers);
}

bool ask_first(struct mcp_call *c)
{
    const json_t *rounds = fixture("asks", fixture_name(c));
    const char *state = mcp_json_text(mcp_params(c), "requestState");
    struct mcp_refusal why = {0};
    size_t n = json_array_size(rounds), at = 0;
    if (n == 0)
        return false;
    if (state && (at = round_of(c, state, n)) == n) {
        (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "the requestState is not one of this server");
        mcp_end_error(c, &why);
        return true;
    }
    const json_t *round = json_array_get(rounds, at);
    bool needs_state = json_is_true(json_object_get(round, "state"));
    if (!is_answered(c, round) || (needs_state && !state)) {
        ask(c, round, at);
        return true;
    }
    if (at + 1 == n)
        return false;
    ask(c, json_array_get(rounds, at + 1), at + 1);
    return true;
}
