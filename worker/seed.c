/* worker/seed.c - see worker/seed.h. */
#include "worker/seed.h"

#include "base/mem.h"
#include "base/own.h"

int seed_new(struct template *t, struct rest *rest, struct seed **ret_seed, struct cl_err *err)
{
    struct seed *s = cl_zalloc(sizeof *s);
    if (!s) {
        rest_free(rest);
        return cl_fail(err, CL_E_NOMEM, 0, "a copy of a VM");
    }
    s->rest = rest;
    s->refs = 1;
    s->template = template_ref(t);
    s->disk = -1;
    *ret_seed = s;
    return 0;
}

struct seed *seed_ref(struct seed *s)
{
    s->refs++;
    return s;
}

void seed_unref(struct seed *s)
{
    if (!s || --s->refs > 0)
        return;
    rest_free(s->rest);
    cl_closep(&s->disk);
    template_unref(s->template);
    cl_free(s);
}
