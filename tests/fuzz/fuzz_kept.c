/* A record of a kept sandbox: any bytes, no crash, no leak, and what is accepted has its parts
 * within their bounds. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/id.h"
#include "proto/guest_frame.h"
#include "worker/kept.h"
#include "worker/sealed_file.h"
#include "worker/spool.h"
#include "worker/vm_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_file(const Cloche__V1__SealedFile *m)
{
    struct rest_ticket ticket;
    CL_ASSERT(m->key.len == sizeof ticket.key && m->name[0] && m->name[0] != '.' &&
              !strchr(m->name, '/') && strlen(m->name) < TEMPLATE_FILE_MAX);
    sealed_file_ticket(m, &ticket);
    CL_ASSERT(memcmp(ticket.key, m->key.data, sizeof ticket.key) == 0 && ticket.bytes == m->bytes);
}

static void use_count(const Cloche__V1__KeptCount *m)
{
    struct watch watch;
    kept_watch(m, &watch);
    (void)watch_has_news(&watch);
    watch_tell(&watch);
    CL_ASSERT(!watch_has_news(&watch));
    (void)watch_missing(&watch);
}

static void use_output(const Cloche__V1__KeptOutput *m, bool closed)
{
    CL_ASSERT(m->key.len == SPOOL_KEY && m->n_streams == SPOOL_STREAMS);
    for (size_t i = 0; i < m->n_streams; i++) {
        const Cloche__V1__KeptBytes *s = m->streams[i];
        CL_ASSERT(s->kept <= s->bytes && s->kept <= m->cap);
        CL_ASSERT(s->sha256.len == spool_digest_size(s->bytes, closed) &&
                  s->sha256.len <= SPOOL_DIGEST_MAX);
    }
    CL_ASSERT(m->streams[0]->kept + m->streams[1]->kept <= m->cap);
}

static void use_exec(const struct guest_past *past, const Cloche__V1__KeptExec *e)
{
    size_t found = 0;
    CL_ASSERT(cl_id_is(e->start->exec_id, "exec") && e->start->command->n_argv > 0);
    CL_ASSERT(e->stream > 0 && e->stream < past->next_stream);
    use_output(e->output, e->result != NULL);
    for (size_t i = 0; i < past->n && !e->result; i++) {
        const struct guest_past_stream *s = &past->streams[i];
        if (s->id != e->stream)
            continue;
        found++;
        CL_ASSERT(!s->ends && s->send_credit <= GUEST_WINDOW_INITIAL &&
                  s->recv_credit + s->consumed <= GUEST_WINDOW_INITIAL);
    }
    CL_ASSERT(e->result ? strlen(e->result->message) < CL_ERR_TEXT : found == 1);
}

static void use(const Cloche__V1__KeptSandbox *m)
{
    static struct guest_past past;
    CL_ASSERT(cl_id_is(m->assign->unit_id, "sbx") && cl_id_is(m->assign->lease_id, "lease"));
    CL_ASSERT(strcmp(m->image->name, m->assign->unit_id) == 0);
    CL_ASSERT(strlen(m->assign->tenant) < sizeof((struct vm_state *)0)->tenant);
    CL_ASSERT(strlen(m->template_->image_key) == TEMPLATE_HEX - 1 &&
              strlen(m->template_->snapshot_key) == TEMPLATE_HEX - 1);
    if (m->template_->monitor)
        CL_ASSERT(strlen(m->template_->monitor->sha256) == MONITOR_HEX - 1 &&
                  strlen(m->template_->monitor->build) < MONITOR_BUILD);
    use_file(m->image);
    use_file(m->template_->memory);
    use_count(m->watch);
    use_count(m->network);
    kept_past(m, &past);
    CL_ASSERT(past.n <= CL_COUNT(past.streams) && past.next_stream > 0);
    struct usage_sample samples[USAGE_MAX];
    CL_ASSERT(kept_usage(m, samples) <= USAGE_MAX);
    CL_ASSERT(m->n_execs <= KEPT_EXECS_MAX);
    for (size_t i = 0; i < m->n_execs; i++)
        use_exec(&past, m->execs[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const Cloche__V1__KeptSandbox *m;
    struct cl_arena *arena;
    struct cl_err err = {0};
    if (cl_arena_new(4 * KEPT_MAX, &arena, NULL) < 0)
        return 0;
    if (kept_parse(data, size, arena, &m, &err) == 0)
        use(m);
    else
        CL_ASSERT(err.code != CL_OK && (!m || m->base.descriptor));
    cl_arena_free(arena);
    return 0;
}
