/* worker/told.c - see worker/told.h. */
#include "worker/told.h"

#include "base/mem.h"
#include "proto/copy.h"

struct row {
    struct cl_list link;
    Cloche__V1__SessionRequest *m; /* owned */
    uint64_t number;
    size_t bytes;
    bool is_sent;
};

void told_init(struct told *told)
{
    *told = (struct told){.number = 0};
    cl_list_init(&told->rows);
}

static void drop(struct told *told, struct row *row)
{
    cl_list_unlink(&row->link);
    told->bytes -= row->bytes;
    pb_free(&row->m->base);
    cl_free(row);
}

void told_clear(struct told *told)
{
    CL_LIST_FOREACH (node, &told->rows)
        drop(told, CL_LIST_ENTRY(node, struct row, link));
}

static void mark(Cloche__V1__SessionRequest *m, uint64_t number, bool again)
{
    if (m->body_case == CLOCHE__V1__SESSION_REQUEST__BODY_WATCHED) {
        m->watched->number = number;
        m->watched->again = again;
    } else {
        CL_ASSERT(m->body_case == CLOCHE__V1__SESSION_REQUEST__BODY_EXEC_CHANGED);
        m->exec_changed->number = number;
        m->exec_changed->again = again;
    }
}

bool told_keep(struct told *told, Cloche__V1__SessionRequest *m, bool is_sent)
{
    ProtobufCMessage *copy = NULL;
    size_t bytes = cloche__v1__session_request__get_packed_size(m) + TOLD_COPY_COST;
    if (told->bytes + bytes > TOLD_BYTES_MAX)
        return false;
    struct row *row = cl_zalloc(sizeof *row);
    mark(m, told->number + 1, false);
    if (!row || pb_copy(&m->base, &copy, NULL) < 0) {
        mark(m, 0, false);
        cl_free(row);
        return false;
    }
    *row = (struct row){.m = (Cloche__V1__SessionRequest *)copy,
                        .number = ++told->number,
                        .bytes = bytes,
                        .is_sent = is_sent};
    cl_list_init(&row->link);
    cl_list_push(&told->rows, &row->link);
    told->bytes += bytes;
    return true;
}

void told_confirmed(struct told *told, uint64_t number)
{
    CL_LIST_FOREACH (node, &told->rows) {
        struct row *row = CL_LIST_ENTRY(node, struct row, link);
        if (row->number > number)
            return;
        drop(told, row);
    }
}

void told_again(struct told *told, told_fn *fn, void *arg)
{
    CL_LIST_FOREACH (node, &told->rows) {
        struct row *row = CL_LIST_ENTRY(node, struct row, link);
        mark(row->m, row->number, row->is_sent);
        row->is_sent = true;
        fn(arg, row->m);
    }
}
