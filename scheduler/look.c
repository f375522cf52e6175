/* scheduler/look.c - see scheduler/look.h. */
#include "scheduler/look.h"

#include <string.h>

#include "base/mem.h"
#include "proto/copy.h"

enum { PAGE_DEFAULT = 100 };

struct look {
    struct api_call *a; /* held */
    enum books_kind kind;
    look_one_fn *one;
    look_many_fn *many;
    struct look_list list;
};

static void end(struct look *l)
{
    api_release(l->a);
    cl_free(l);
}

static struct look *begin(struct api_call *a, enum books_kind kind)
{
    struct look *l = cl_zalloc(sizeof *l);
    if (!l) {
        api_fail_with(a, CL_E_NOMEM, "%s", books_kind_name(kind));
        return NULL;
    }
    l->a = a;
    l->kind = kind;
    api_hold(a);
    return l;
}

static void row_open(struct look_row *o, struct sched *s, const struct books_unit *row)
{
    o->row = row;
    o->record = row->spec ? cloche__v1__unit_record__unpack(NULL, row->spec_n, row->spec) : NULL;
    o->terminal = row->terminal
                      ? cloche__v1__terminal_record__unpack(NULL, row->terminal_n, row->terminal)
                      : NULL;
    o->live = unit_find(s, row->tenant, row->id);
}

static void row_close(struct look_row *o)
{
    if (o->record)
        pb_free(&o->record->base);
    if (o->terminal)
        pb_free(&o->terminal->base);
}

/* --- one ------------------------------------------------------------------------------------ */

static void on_get(const struct books_unit *rows, size_t n, const char *next,
                   const struct cl_err *err, void *arg)
{
    (void)next;
    struct look *l = arg;
    struct look_row row;
    if (err && err->code != CL_E_NOTFOUND) {
        api_fail(l->a, err);
    } else if (err || n != 1 || rows[0].kind != l->kind) {
        api_fail_with(l->a, CL_E_NOTFOUND, "no %s '%.40s'", books_kind_name(l->kind), l->a->object);
    } else {
        row_open(&row, l->a->s, &rows[0]);
        l->one(l->a, &row);
        row_close(&row);
    }
    end(l);
}

void look_get(struct api_call *a, enum books_kind kind, const char *id, look_one_fn *fn)
{
    struct cl_err err = {0};
    api_about(a, id);
    if (!cl_id_is(id, books_kind_prefix(kind))) {
        api_fail_with(a, CL_E_INVALID, "'%.40s' is no %s id", id, books_kind_name(kind));
        return;
    }
    struct look *l = begin(a, kind);
    if (!l)
        return;
    l->one = fn;
    if (books_get(a->s->books, a->p.tenant, id, BOOKS_WITH_SPEC | BOOKS_WITH_TERMINAL, on_get, l,
                  &err) < 0) {
        api_fail(a, &err);
        end(l);
    }
}

/* --- many ----------------------------------------------------------------------------------- */

static bool fits(const struct look *l, const struct look_row *row)
{
    const Cloche__V1__JobSpec *spec = row->record ? row->record->spec : NULL;
    const char *of = l->list.fork_of;
    if (of && of[0] && (!row->record || strcmp(row->record->fork_of, of) != 0))
        return false;
    return api_labels_match(spec ? spec->labels : NULL, spec ? spec->n_labels : 0, l->list.labels,
                            l->list.n_labels);
}

static void on_list(const struct books_unit *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    struct look *l = arg;
    struct look_row *out = err ? NULL : cl_zalloc_array(n, sizeof *out);
    size_t kept = 0;
    for (size_t i = 0; out && i < n; i++) {
        row_open(&out[kept], l->a->s, &rows[i]);
        if (fits(l, &out[kept]))
            kept++;
        else
            row_close(&out[kept]);
    }
    if (err)
        api_fail(l->a, err);
    else if (!out)
        api_fail_with(l->a, CL_E_NOMEM, "list");
    else
        l->many(l->a, out, kept, next);
    for (size_t i = 0; i < kept; i++)
        row_close(&out[i]);
    cl_free(out);
    end(l);
}

void look_list(struct api_call *a, const struct look_list *what, look_many_fn *fn)
{
    struct cl_err err = {0};
    struct books_list req = {.tenant = a->p.tenant,
                             .kind = what->kind,
                             .token = what->page_token,
                             .states = what->states,
                             .with = BOOKS_WITH_SPEC | BOOKS_WITH_TERMINAL};
    struct look *l = begin(a, what->kind);
    if (!l)
        return;
    l->list = *what;
    l->many = fn;
    if (api_page_size(what->page_size, PAGE_DEFAULT, BOOKS_PAGE_MAX, &req.n, &err) < 0 ||
        books_list(a->s->books, &req, on_list, l, &err) < 0) {
        api_fail(a, &err);
        end(l);
    }
}
