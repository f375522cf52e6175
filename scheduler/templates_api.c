/* scheduler/templates_api.c - TemplateService: what the connected workers can make VMs from. */
#include <string.h>

#include "scheduler/api.h"

enum { TEMPLATES_MAX = 256 };

struct rows {
    Cloche__V1__Template m[TEMPLATES_MAX], *list[TEMPLATES_MAX];
    Cloche__V1__Resources defaults[TEMPLATES_MAX];
    size_t n;
};

static void add(struct rows *r, const struct worker_template *t)
{
    size_t i = 0;
    while (i < r->n && strcmp(r->m[i].name, t->name) != 0)
        i++;
    if (i == TEMPLATES_MAX)
        return;
    if (i == r->n) {
        cloche__v1__template__init(&r->m[i]);
        cloche__v1__resources__init(&r->defaults[i]);
        r->m[i].name = (char *)(uintptr_t)t->name;
        r->m[i].snapshot_key = (char *)(uintptr_t)t->snapshot_key;
        r->m[i].verity_root = (char *)(uintptr_t)t->verity_root;
        r->m[i].kernel = (char *)(uintptr_t)t->kernel;
        r->m[i].driver = (char *)(uintptr_t)t->driver;
        r->m[i].image = (char *)(uintptr_t)t->image;
        r->defaults[i].vcpus = t->vcpus;
        r->defaults[i].memory_mib = t->memory_mib;
        r->m[i].defaults = &r->defaults[i];
        r->list[i] = &r->m[i];
        r->n++;
    }
    r->m[i].workers++;
    r->m[i].warm += t->warm;
}

static void collect(struct sched *s, struct rows *r)
{
    size_t at = 0;
    r->n = 0;
    for (struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;) {
        for (size_t i = 0; i < w->n_templates; i++)
            if (!w->templates[i].building)
                add(r, &w->templates[i]);
    }
}

static void template_list(struct api_call *a)
{
    const Cloche__V1__TemplateServiceListRequest *q =
        (const Cloche__V1__TemplateServiceListRequest *)a->request;
    Cloche__V1__TemplateServiceListResponse m = CLOCHE__V1__TEMPLATE_SERVICE_LIST_RESPONSE__INIT;
    struct rows r;
    struct cl_err err = {0};
    size_t page, from = 0;
    if (api_page_size(q->page_size, 100, TEMPLATES_MAX, &page, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    collect(a->s, &r);
    for (size_t i = 0; q->page_token[0] && i < r.n; i++)
        from = strcmp(r.m[i].name, q->page_token) == 0 ? i + 1 : from;
    m.templates = r.list + from;
    m.n_templates = CL_MIN(r.n - from, page);
    if (from + m.n_templates < r.n)
        m.next_page_token = m.templates[m.n_templates - 1]->name;
    api_reply(a, &m.base);
}

static void template_get(struct api_call *a)
{
    const Cloche__V1__TemplateServiceGetRequest *q =
        (const Cloche__V1__TemplateServiceGetRequest *)a->request;
    Cloche__V1__TemplateServiceGetResponse m = CLOCHE__V1__TEMPLATE_SERVICE_GET_RESPONSE__INIT;
    struct rows r;
    collect(a->s, &r);
    for (size_t i = 0; i < r.n && !m.template_; i++)
        m.template_ = strcmp(r.m[i].name, q->name) == 0 ? &r.m[i] : NULL;
    if (m.template_)
        api_reply(a, &m.base);
    else
        api_fail_with(a, CL_E_NOTFOUND, "no connected worker has a template '%.63s'", q->name);
}

#define METHOD(name) "/cloche.v1.TemplateService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method template_api[] = {
    {METHOD("List"), TYPES(template_service_list_request, template_service_list_response),
     .scope = SCOPE_READ, .handle = template_list},
    {METHOD("Get"), TYPES(template_service_get_request, template_service_get_response),
     .scope = SCOPE_READ, .handle = template_get},
};
const size_t template_api_n = CL_COUNT(template_api);
