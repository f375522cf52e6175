/* cli/spec.c - see cli/spec.h. */
#include "cli/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/client.h"
#include "cli/tty.h"

static int set_env(struct spec *s, const struct arg_list *list, struct cl_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *value = NULL;
        if (value_pair(list->v[i], s->env_names[i], &value, err) < 0)
            return cl_wrap(err, "--env");
        cloche__v1__env_var__init(&s->env[i]);
        s->env[i].name = s->env_names[i];
        s->env[i].value = pb_text(value);
        s->env_list[i] = &s->env[i];
    }
    s->command.n_env = list->n;
    s->command.env = s->env_list;
    return 0;
}

static int set_labels(struct spec *s, const struct arg_list *list, struct cl_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *value = NULL;
        if (value_pair(list->v[i], s->label_keys[i], &value, err) < 0)
            return cl_wrap(err, "--label");
        cloche__v1__label__init(&s->labels[i]);
        s->labels[i].key = s->label_keys[i];
        s->labels[i].value = pb_text(value);
        s->label_list[i] = &s->labels[i];
    }
    s->job.n_labels = list->n;
    s->job.labels = s->label_list;
    return 0;
}

/* Bytes to whole MiB, upwards; a size below 1 MiB is a forgotten unit. */
static int to_mib(const char *option, uint64_t bytes, uint32_t *ret, struct cl_err *err)
{
    uint64_t mib = bytes / CL_MIB + (bytes % CL_MIB != 0);
    if (bytes > 0 && bytes < CL_MIB)
        return cl_fail(err, CL_E_INVALID, 0, "%s is less than 1 MiB\ngive a unit, as in 512MiB",
                       option);
    if (mib > UINT32_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%s is too large", option);
    *ret = (uint32_t)mib;
    return 0;
}

static int set_resources(struct spec *s, const struct cli_opts *o, struct cl_err *err)
{
    cloche__v1__resources__init(&s->resources);
    if (o->cpus > 64)
        return cl_fail(err, CL_E_INVALID, 0, "--cpus is too large");
    s->resources.vcpus = (uint32_t)o->cpus;
    s->job.resources = &s->resources;
    return to_mib("--memory", o->memory, &s->resources.memory_mib, err) < 0 ||
                   to_mib("--disk", o->disk, &s->resources.disk_mib, err) < 0
               ? -1
               : 0;
}

static int set_network(struct spec *s, const struct cli_opts *o, struct cl_err *err)
{
    s->job.network = o->snapshot ? CLOCHE__V1__NETWORK__NETWORK_UNSPECIFIED /* as that has it */
                                 : CLOCHE__V1__NETWORK__NETWORK_NONE;
    if (o->net.n == 1 && strcmp(o->net.v[0], "none") == 0) {
        s->job.network = CLOCHE__V1__NETWORK__NETWORK_NONE;
        return o->egress ? cl_fail(err, CL_E_INVALID, 0, "--egress with --net none") : 0;
    }
    if (o->net.n == 0)
        return o->egress ? cl_fail(err, CL_E_INVALID, 0, "--egress without --net") : 0;
    for (size_t i = 0, at = 0; i < o->net.n; i++) {
        int n =
            snprintf(s->net_text + at, sizeof s->net_text - at, "%s%s", i ? "," : "", o->net.v[i]);
        if (n < 0 || (size_t)n >= sizeof s->net_text - at)
            return cl_fail(err, CL_E_INVALID, 0, "--net: the rules are too long");
        at += (size_t)n;
    }
    cloche__v1__network_grant__init(&s->grant);
    s->grant.allow = s->allow;
    s->grant.egress_bytes = o->egress;
    char *rest = s->net_text;
    for (char *rule; (rule = strsep(&rest, ",")) != NULL;) {
        if (s->grant.n_allow == SPEC_NET_RULES)
            return cl_fail(err, CL_E_INVALID, 0, "--net: more than %d rules", SPEC_NET_RULES);
        s->allow[s->grant.n_allow++] = rule;
    }
    s->job.network = CLOCHE__V1__NETWORK__NETWORK_UNSPECIFIED;
    s->job.network_grant = &s->grant;
    return 0;
}

static void set_command(struct spec *s, const struct cli_opts *o, const struct args *a)
{
    Cloche__V1__Command *c = &s->command;
    c->n_argv = a->n_tail;
    c->argv = a->tail;
    c->cwd = pb_text(o->workdir);
    c->user = pb_text(o->user);
    c->timeout_ns = o->timeout;
    c->output_max_bytes = o->output_max;
    c->open_stdin = !o->detach && (o->interactive || o->tty || !tty_stdin_is_null());
    if (o->tty) {
        cloche__v1__pty__init(&s->pty);
        tty_size(&s->pty.rows, &s->pty.columns);
        s->pty.term = pb_text(getenv("TERM"));
        c->pty = &s->pty;
    }
}

int spec_template(const struct cli_opts *o, const struct args *a, const char **ret_template,
                  struct cl_err *err)
{
    *ret_template = a->n_pos > 0 ? a->pos[0] : NULL;
    if (*ret_template && o->snapshot)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%s' and --snapshot: a template or a snapshot, not both\nwrite a command "
                       "after `--`",
                       *ret_template);
    return *ret_template || o->snapshot
               ? 0
               : cl_fail(err, CL_E_INVALID, 0,
                         "no template is given\n`cloche template list` shows them, as in: cloche "
                         "run base -- echo hello");
}

int spec_new(const struct cli_opts *o, const char *template, const struct args *a,
             struct spec **ret_spec, struct cl_err *err)
{
    CL_AUTO(spec_freep) struct spec *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "request");
    cloche__v1__job_spec__init(&s->job);
    cloche__v1__command__init(&s->command);
    s->job.template_ = pb_text(template);
    s->job.snapshot = pb_text(o->snapshot);
    s->job.command = &s->command;
    s->job.max_queue_wait_ns = o->queue_wait;
    if (o->retry >= 1000)
        return cl_fail(err, CL_E_INVALID, 0, "--retry is too large");
    s->job.max_attempts = o->retry ? (uint32_t)o->retry + 1 : 0;
    set_command(s, o, a);
    if (set_network(s, o, err) < 0 || set_resources(s, o, err) < 0 ||
        set_env(s, &o->env, err) < 0 || set_labels(s, &o->labels, err) < 0)
        return -1;
    *ret_spec = CL_STEAL(&s);
    return 0;
}

void spec_free(struct spec *s)
{
    cl_free(s);
}
