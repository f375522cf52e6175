/* mcp/capture.c - see mcp/capture.h. */
#include "mcp/capture.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "base/utf8.h"

int mcp_capture_init(struct mcp_capture *c, size_t cap, struct cl_err *err)
{
    *c = (struct mcp_capture){.head_cap = cap / 2, .tail_cap = cap - cap / 2};
    c->head = cl_zalloc(c->head_cap);
    c->tail = cl_zalloc(c->tail_cap);
    if (c->head && c->tail)
        return 0;
    mcp_capture_fini(c);
    return cl_fail(err, CL_E_NOMEM, 0, "output");
}

void mcp_capture_fini(struct mcp_capture *c)
{
    cl_free(c->head);
    cl_free(c->tail);
    *c = (struct mcp_capture){0};
}

static void add_to_ring(struct mcp_capture *c, const uint8_t *p, size_t n)
{
    if (n > c->tail_cap) {
        c->in_tail += n - c->tail_cap;
        p += n - c->tail_cap;
        n = c->tail_cap;
    }
    while (n > 0) {
        size_t at = (size_t)(c->in_tail % c->tail_cap), room = CL_MIN(n, c->tail_cap - at);
        memcpy(c->tail + at, p, room);
        c->in_tail += room;
        p += room;
        n -= room;
    }
}

void mcp_capture_add(struct mcp_capture *c, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t first = CL_MIN(n, c->head_cap - c->head_n);
    c->total += n;
    if (first > 0)
        memcpy(c->head + c->head_n, p, first);
    c->head_n += first;
    if (n > first)
        add_to_ring(c, p + first, n - first);
}

bool mcp_capture_is_cut(const struct mcp_capture *c)
{
    return c->in_tail > c->tail_cap || c->total > c->head_n + c->in_tail;
}

/* --- text ---------------------------------------------------------------------------------------
 */

/* Length of the valid character at p, 0 when there is none.  NUL counts as none. */
static size_t char_at(const uint8_t *p, size_t n)
{
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    return p[0] != 0 && len <= n && cl_utf8_is_valid((const char *)p, len) ? len : 0;
}

/* Are these bytes the beginning of a character that goes on after them? */
static bool is_begun(const uint8_t *p, size_t n)
{
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    if (n >= len || p[0] > 0xf4)
        return false;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return false;
    }
    return true;
}

char *mcp_text_clean(const uint8_t *data, size_t n, bool cut_front, bool cut_end)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t at = 0, len = 0;
    char *out = cl_zalloc(3 * n + 1);
    while (cut_front && at < n && at < 3 && (data[at] & 0xc0) == 0x80)
        at++;
    while (out && at < n) {
        size_t c = char_at(data + at, n - at);
        if (c == 0 && cut_end && is_begun(data + at, n - at))
            break;
        memcpy(out + len, c ? (const char *)data + at : replacement, c ? c : 3);
        len += c ? c : 3;
        at += c ? c : 1;
    }
    return out;
}

char *mcp_capture_text(const struct mcp_capture *c)
{
    size_t kept = (size_t)CL_MIN(c->in_tail, (uint64_t)c->tail_cap);
    bool cut = mcp_capture_is_cut(c);
    CL_AUTO(cl_freep) uint8_t *flat = cl_zalloc(c->head_n + kept + 1);
    if (!flat)
        return NULL;
    memcpy(flat, c->head, c->head_n);
    for (size_t i = 0; i < kept; i++)
        flat[c->head_n + i] = c->tail[(c->in_tail - kept + i) % c->tail_cap];
    if (!cut)
        return mcp_text_clean(flat, c->head_n + kept, false, false);
    CL_AUTO(cl_freep) char *head = mcp_text_clean(flat, c->head_n, false, true);
    CL_AUTO(cl_freep) char *tail = mcp_text_clean(flat + c->head_n, kept, true, false);
    if (!head || !tail)
        return NULL;
    return cl_asprintf("%s\n[... %" PRIu64 " bytes left out ...]\n%s", head,
                       c->total - c->head_n - kept, tail);
}
