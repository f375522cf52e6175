/* e2b/origin.c - see e2b/origin.h. */
#include "e2b/origin.h"

#include <stdio.h>
#include <string.h>

#include "cloche/v1/template.pb-c.h"
#include "e2b/labels.h"
#include "e2b/recipe.h"
#include "e2b/snapshot.h"

enum { TEMPLATES_MAX = 256 /* of the scheduler's answer: all that it knows */ };

/* E2B's two templates; any other name is one of Cloche's own. */
static const char *template_of(const struct e2b_call *c, const char *name)
{
    if (strcmp(name, "base") == 0)
        return c->server->conf.template_name;
    return strcmp(name, "code-interpreter-v1") == 0 ? "code" : name;
}

static void take_template(struct e2b_call *c)
{
    c->origin->snapshot[0] = '\0';
    c->found(c);
}

static void on_snapshot(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct e2b_origin *o = c->origin;
    if (err && err->code == CL_E_NOTFOUND && o->template_[0]) {
        take_template(c);
        return;
    }
    if (err && err->code == CL_E_NOTFOUND) {
        c->found(c);
        return;
    }
    if (err) {
        e2b_fail(c, err);
        return;
    }
    const Cloche__V1__Snapshot *m =
        ((const Cloche__V1__SnapshotServiceGetResponse *)reply)->snapshot;
    o->template_[0] = '\0';
    o->has_network = m->network_grant != NULL;
    for (size_t i = 0; i < m->n_labels; i++)
        o->is_built |= strcmp(m->labels[i]->key, E2B_LABEL_BUILD) == 0;
    e2b_place_read(m->labels, m->n_labels, &o->place);
    c->found(c);
}

static void ask_snapshot(struct e2b_call *c)
{
    static const struct e2b_method get =
        E2B_RPC("SnapshotService", "Get", snapshot_service_get_response);
    Cloche__V1__SnapshotServiceGetRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_GET_REQUEST__INIT;
    struct e2b_origin *o = c->origin;
    m.snapshot = o->snapshot;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_snapshot},
                   NULL);
}

static void on_template(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err && err->code == CL_E_NOTFOUND)
        ask_snapshot(c);
    else
        take_template(c);
}

static void ask_template(struct e2b_call *c)
{
    static const struct e2b_method get =
        E2B_RPC("TemplateService", "Get", template_service_get_response);
    Cloche__V1__TemplateServiceGetRequest m = CLOCHE__V1__TEMPLATE_SERVICE_GET_REQUEST__INIT;
    struct e2b_origin *o = c->origin;
    m.name = o->template_;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_template},
                   NULL);
}

void e2b_origin_find(struct e2b_call *c, const char *name, struct e2b_origin *origin,
                     e2b_run_fn *next)
{
    const char *template_ = template_of(c, name);
    *origin = (struct e2b_origin){.has_network = false};
    c->origin = origin;
    c->found = next;
    if (strlen(template_) >= sizeof origin->template_) {
        (void)e2b_fail_invalid(c, "the template's name is too long");
        return;
    }
    (void)snprintf(origin->snapshot, sizeof origin->snapshot, "%s", name);
    if (!e2b_snapshot_is_meant(name))
        (void)snprintf(origin->template_, sizeof origin->template_, "%s", template_);
    if (!origin->template_[0])
        ask_snapshot(c);
    else if (template_ == name)
        ask_template(c);
    else
        take_template(c);
}

/* --- by an image --------------------------------------------------------------------------------
 */

static void on_listed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__TemplateServiceListResponse *m =
        (const Cloche__V1__TemplateServiceListResponse *)reply;
    struct e2b_origin *o = c->origin;
    if (err) {
        e2b_fail(c, err);
        return;
    }
    for (size_t i = 0; i < m->n_templates && !o->template_[0]; i++) {
        if (e2b_image_is(m->templates[i]->image, o->image))
            (void)snprintf(o->template_, sizeof o->template_, "%s", m->templates[i]->name);
    }
    c->found(c);
}

void e2b_origin_find_image(struct e2b_call *c, const char *image, struct e2b_origin *origin,
                           e2b_run_fn *next)
{
    static const struct e2b_method list =
        E2B_RPC("TemplateService", "List", template_service_list_response);
    Cloche__V1__TemplateServiceListRequest m = CLOCHE__V1__TEMPLATE_SERVICE_LIST_REQUEST__INIT;
    *origin = (struct e2b_origin){.image = image};
    c->origin = origin;
    c->found = next;
    m.page_size = TEMPLATES_MAX;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &list, .request = &m.base, .on_end = on_listed},
                   NULL);
}
