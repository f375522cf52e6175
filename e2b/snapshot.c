/* e2b/snapshot.c - see e2b/snapshot.h. */
#include "e2b/snapshot.h"

#include <string.h>

#include "base/id.h"
#include "mcp/json.h"

enum { WORD_MAX = 63 };

static bool is_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

int e2b_snapshot_read(const json_t *body, const char **ret_name, struct cl_err *err)
{
    const json_t *memory = json_object_get(body, "memory");
    const char *name = mcp_json_text(body, "name");
    if (!is_absent(memory) && !json_is_boolean(memory))
        return cl_fail(err, CL_E_INVALID, 0, "memory: want true or false");
    if (json_is_false(memory))
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "memory: a snapshot keeps the memory; without it (a new start from its "
                       "disk) is not served");
    if (!name && !is_absent(json_object_get(body, "name")))
        return cl_fail(err, CL_E_INVALID, 0, "name: want text");
    *ret_name = name ? name : "";
    return 0;
}

bool e2b_snapshot_is_meant(const char *word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(word);
    return n > 0 && n <= WORD_MAX && strspn(word, letters) == n && !strchr("._-", word[0]) &&
           !cl_name_is_valid(word);
}
