/* cli/templates.c - templates: build, push, pull, remove, prune, list, show. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cli/prune.h"
#include "cli/signers.h"
#include "cloche/v1/template.pb-c.h"
#include "proto/copy.h"

enum { WARM_UPS_MAX = 7 }; /* of TEMPLATE_WARMUPS_MAX the first is the image's own */

/* --- build
 * ----------------------------------------------------------------------------------------- */

static int build_dir(const struct cli_paths *p, char out[static PATH_TEXT], struct cl_err *err)
{
    plan_template_dir(p, out);
    if (access(out, F_OK) == 0 && access(out, W_OK) < 0)
        path_join(out, p->state, "templates");
    return cl_mkdir_p(out, 0755, err);
}

static int find_script(const struct cli_paths *p, const char *name, char out[static PATH_TEXT],
                       struct cl_err *err)
{
    if (!p->share[0])
        return cl_fail(err, CL_E_NOTFOUND, 0,
                       "the recipes (%s) are not found\nset CLOCHE_SHARE to the folder that holds "
                       "images/",
                       name);
    path_join(out, p->share, name);
    return 0;
}

/* The script talks to the user itself. */
static int run_script(char *const *argv, const char *what, struct cl_err *err)
{
    int status = 0;
    pid_t pid = fork();
    if (pid < 0)
        return cl_fail(err, CL_E_SYS, errno, "fork");
    if (pid == 0) {
        (void)execv(argv[0], argv);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return cl_fail(err, CL_E_SYS, 0,
                       "the %s failed (status %d)\nsee its messages above; `cloche doctor` "
                       "checks what it needs",
                       what, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}

/* The script's command line. */
struct words {
    const char *v[64]; /* ends with NULL */
    char numbers[3][24];
    size_t n, n_numbers;
};

static void add_words(struct words *w, const char *option, const char *value)
{
    CL_ASSERT(w->n + 3 <= CL_COUNT(w->v)); /* the lists are bounded */
    if (option)
        w->v[w->n++] = option;
    if (value)
        w->v[w->n++] = value;
}

static void add_number(struct words *w, const char *option, uint64_t number)
{
    if (number == 0)
        return;
    CL_ASSERT(w->n_numbers < CL_COUNT(w->numbers));
    char *text = w->numbers[w->n_numbers++];
    (void)snprintf(text, sizeof w->numbers[0], "%llu", (unsigned long long)number);
    add_words(w, option, text);
}

/* What build.sh is told of a container image; it knows which of these need which. */
static int add_image(struct words *w, const struct cli_opts *o, struct cl_err *err)
{
    if (o->warm_ups.n > WARM_UPS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "--warm-up: at most %d", WARM_UPS_MAX);
    if ((o->memory > 0 && o->memory < CL_MIB) || (o->max_size > 0 && o->max_size < CL_MIB))
        return cl_fail(err, CL_E_INVALID, 0,
                       "--memory or --max-size is less than 1 MiB\ngive a unit, as in 512MiB");
    if (o->image)
        add_words(w, "--image", o->image);
    add_number(w, "--memory", o->memory / CL_MIB);
    add_number(w, "--vcpus", o->cpus);
    add_number(w, "--max-size", o->max_size / CL_MIB);
    for (size_t i = 0; i < o->warm_ups.n; i++)
        add_words(w, "--warm-up", o->warm_ups.v[i]);
    if (o->no_contexts)
        add_words(w, "--no-contexts", NULL);
    if (o->plain_http)
        add_words(w, "--plain-http", NULL);
    return 0;
}

static int cmd_build(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_paths p;
    char script[PATH_TEXT], dir[PATH_TEXT], agent[PATH_TEXT], key[PATH_TEXT], pub[PATH_TEXT];
    int rc = paths_resolve(o, &p, &err);
    if (rc == 0 && !cl_name_is_valid(a->pos[0]))
        rc = cl_fail(&err, CL_E_INVALID, 0, "'%.64s' is no template name", a->pos[0]);
    if (rc < 0 || find_script(&p, "images/build.sh", script, &err) < 0 ||
        build_dir(&p, dir, &err) < 0)
        return cli_report(&err);
    path_join(agent, p.bin, "cloche-agent");
    path_join(key, dir, "signing.key");
    path_join(pub, dir, "signing.pub");
    if (signers_ensure(key, pub, &err) < 0)
        return cli_report(&err);
    struct words w = {
        .v = {"/bin/sh", script, a->pos[0], "--out", dir, "--agent", agent, "--key", key}, .n = 9};
    if (o->locked)
        add_words(&w, "--locked", NULL);
    if (o->update_lock)
        add_words(&w, "--update-lock", NULL);
    if (o->mirror)
        add_words(&w, "--mirror", o->mirror);
    if (add_image(&w, o, &err) < 0 || run_script((char *const *)(uintptr_t)w.v, "build", &err) < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_pack("{s:s, s:s}", "name", a->pos[0], "dir", dir));
    return EXIT_OK;
}

/* --- push, pull
 * ------------------------------------------------------------------------------------ */

static void add_store(struct words *w, const struct cli_opts *o)
{
    if (o->store)
        add_words(w, "--store", o->store);
    if (o->tag)
        add_words(w, "--tag", o->tag);
    if (o->plain_http)
        add_words(w, "--plain-http", NULL);
}

static int check_names(const struct args *a, struct cl_err *err)
{
    for (size_t i = 0; i < a->n_pos; i++)
        if (!cl_name_is_valid(a->pos[i]))
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no template name", a->pos[i]);
    return 0;
}

static int begin_move(const struct cli_opts *o, const struct args *a, struct cli_paths *p,
                      char script[static PATH_TEXT], struct cl_err *err)
{
    if (check_names(a, err) < 0 || paths_resolve(o, p, err) < 0)
        return -1;
    return find_script(p, "images/store.sh", script, err);
}

static int cmd_push(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_paths p;
    char script[PATH_TEXT], dir[PATH_TEXT];
    int rc = o->store ? 0 : cl_fail(&err, CL_E_INVALID, 0, "where to?\nname a store: --to STORE");
    if (rc < 0 || begin_move(o, a, &p, script, &err) < 0)
        return cli_report(&err);
    plan_template_dir(&p, dir);
    struct words w = {.v = {"/bin/sh", script, "push", a->pos[0], "--out", dir}, .n = 6};
    add_store(&w, o);
    if (run_script((char *const *)(uintptr_t)w.v, "push", &err) < 0)
        return cli_report(&err);
    return o->json ? out_json(json_pack("{s:s, s:s}", "name", a->pos[0], "store", o->store))
                   : EXIT_OK;
}

static int cmd_pull(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_paths p;
    char script[PATH_TEXT], dir[PATH_TEXT], pub[PATH_TEXT];
    if (begin_move(o, a, &p, script, &err) < 0 || build_dir(&p, dir, &err) < 0)
        return cli_report(&err);
    path_join(pub, dir, "signing.pub");
    if (o->public_key && signers_trust(pub, o->public_key, &err) < 0)
        return cli_report(&err);
    struct words w = {.v = {"/bin/sh", script, "pull", "--out", dir, "--trusted", pub}, .n = 7};
    for (size_t i = 0; i < a->n_pos; i++)
        add_words(&w, NULL, a->pos[i]);
    add_store(&w, o);
    if (o->max_size >= CL_MIB)
        add_number(&w, "--max-size", o->max_size / CL_MIB);
    if (run_script((char *const *)(uintptr_t)w.v, "pull", &err) < 0)
        return cli_report(&err);
    return o->json ? out_json(json_pack("{s:s}", "dir", dir)) : EXIT_OK;
}

/* --- remove
 * ---------------------------------------------------------------------------------------- */

/* What rests needs the build that it began with, so its files stay unless they are to go. */
static int take_away(const char *dir, const char *name, bool purge, struct cl_err *err)
{
    char own[PATH_TEXT], current[PATH_TEXT];
    path_join(own, dir, name);
    path_join(current, own, "current");
    if (access(purge ? own : current, F_OK) < 0)
        return cl_fail(err, CL_E_NOTFOUND, 0,
                       "no template '%s' in '%s'\nCLOCHE_TEMPLATE_DIR names another folder", name,
                       dir);
    if (unlink(current) < 0 && errno != ENOENT)
        return cl_fail(err, CL_E_SYS, errno, "remove '%s'", current);
    return purge ? cl_remove_tree(own, err) : 0;
}

static int cmd_remove(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_paths p;
    char dir[PATH_TEXT];
    const char *name = a->pos[0];
    int rc = cl_name_is_valid(name)
                 ? paths_resolve(o, &p, &err)
                 : cl_fail(&err, CL_E_INVALID, 0, "'%.64s' is no template name", name);
    if (rc < 0 || build_dir(&p, dir, &err) < 0 || take_away(dir, name, o->purge, &err) < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_pack("{s:s, s:s, s:b}", "name", name, "dir", dir, "purged", o->purge));
    cli_say("nothing begins with '%s' any more%s", name,
            o->purge ? "" : "; its builds stay for what rests");
    return EXIT_OK;
}

static int cmd_prune(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {
        {"name", "NAME"}, {"build", "BUILD"}, {"size", "FREES"}, {"state", "STATE"}};
    struct cl_err err = {0};
    struct cli_paths p;
    char dir[PATH_TEXT], text[CL_TEXT_BYTES];
    json_t *rows = NULL;
    if (check_names(a, &err) < 0 || paths_resolve(o, &p, &err) < 0)
        return cli_report(&err);
    plan_template_dir(&p, dir);
    const struct prune_options options = {.dir = dir,
                                          .name = a->n_pos > 0 ? a->pos[0] : NULL,
                                          .dry_run = o->dry_run,
                                          .force = o->force};
    if (prune(&options, &rows, &err) < 0)
        return cli_report(&err);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        cl_text_bytes((uint64_t)json_integer_value(json_object_get(row, "bytes")), text);
        (void)json_object_set_new(row, "size", json_string(text));
    }
    return out_rows(o->json, rows, cols, CL_COUNT(cols));
}

/* --- list, show
 * -------------------------------------------------------------------------------------- */

static json_t *template_json(const Cloche__V1__Template *t)
{
    const Cloche__V1__Resources *r = t->defaults;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i}", "name", t->name,
                     "driver", t->driver, "kernel", t->kernel, "image", t->image, "snapshot_key",
                     t->snapshot_key, "verity_root", t->verity_root, "vcpus",
                     (int)(r ? r->vcpus : 0), "memory_mib", (int)(r ? r->memory_mib : 0), "workers",
                     (int)t->workers, "warm", (int)t->warm);
}

static int cmd_list(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    static const struct client_method list =
        CLIENT_METHOD("TemplateService", "List", template_service_list_response);
    static const struct out_col cols[] = {
        {"name", "NAME"},       {"driver", "DRIVER"}, {"vcpus", "VCPUS"},  {"memory_mib", "MIB"},
        {"workers", "WORKERS"}, {"warm", "WARM"},     {"kernel", "KERNEL"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__TemplateServiceListRequest req = CLOCHE__V1__TEMPLATE_SERVICE_LIST_REQUEST__INIT;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &list, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__TemplateServiceListResponse *m =
        (const Cloche__V1__TemplateServiceListResponse *)msg;
    json_t *rows = json_array();
    for (size_t i = 0; i < m->n_templates; i++)
        (void)json_array_append_new(rows, template_json(m->templates[i]));
    pb_free(msg);
    return out_rows(o->json, rows, cols, CL_COUNT(cols));
}

static int cmd_show(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method get =
        CLIENT_METHOD("TemplateService", "Get", template_service_get_response);
    static const struct out_col lines[] = {{"name", "name"},
                                           {"driver", "driver"},
                                           {"kernel", "kernel"},
                                           {"image", "image"},
                                           {"snapshot_key", "snapshot key"},
                                           {"verity_root", "verity root"},
                                           {"vcpus", "vCPUs"},
                                           {"memory_mib", "MiB"},
                                           {"workers", "workers"},
                                           {"warm", "warm"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__TemplateServiceGetRequest req = CLOCHE__V1__TEMPLATE_SERVICE_GET_REQUEST__INIT;
    req.name = pb_text(a->pos[0]);
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &get, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    json_t *j = template_json(((const Cloche__V1__TemplateServiceGetResponse *)msg)->template_);
    pb_free(msg);
    return out_object(o->json, j, lines, CL_COUNT(lines));
}

static const struct arg_opt build_opts[] = {
    OPT_JSON,
    {"locked", 0, ARG_FLAG, OPT(locked), NULL,
     "fail when the mirror has not what the lock names any more"},
    {"update-lock", 0, ARG_FLAG, OPT(update_lock), NULL, "take the newest packages and lock them"},
    {"mirror", 0, ARG_STRING, OPT(mirror), "URL", "Debian mirror"},
    {"image", 0, ARG_STRING, OPT(image), "SOURCE",
     "from a container image: a name in a registry, a file that `docker save` wrote, a folder"},
    {"memory", 0, ARG_BYTES, OPT(memory), "512MiB", "of its VMs, unless a job asks for other"},
    {"cpus", 0, ARG_U64, OPT(cpus), "N", "of its VMs, unless a job asks for other"},
    {"warm-up", 0, ARG_LIST, OPT(warm_ups), "TEXT",
     "for /bin/sh, before the snapshot: what it reads and starts is fast later; repeatable"},
    {"no-contexts", 0, ARG_FLAG, OPT(no_contexts), NULL,
     "start no interpreter before the snapshot, even where the image has Python"},
    {"plain-http", 0, ARG_FLAG, OPT(plain_http), NULL,
     "speak HTTP, or TLS without a check, to the registry"},
    {"max-size", 0, ARG_BYTES, OPT(max_size), "16GiB", "most that the image may take, unpacked"},
    OPT_DIRS,
};
static const struct arg_opt push_opts[] = {
    OPT_JSON,
    {"to", 0, ARG_STRING, OPT(store), "STORE", "where it goes: STORE/NAME"},
    {"tag", 0, ARG_STRING, OPT(tag), "TAG", "what this build is called there (latest)"},
    {"plain-http", 0, ARG_FLAG, OPT(plain_http), NULL,
     "speak HTTP, or TLS without a check, to the registry"},
    OPT_DIRS,
};
static const struct arg_opt pull_opts[] = {
    OPT_JSON,
    {"from", 0, ARG_STRING, OPT(store), "STORE",
     "where they are: STORE/NAME (where each came from before)"},
    {"tag", 0, ARG_STRING, OPT(tag), "TAG", "which build (latest, or as before)"},
    {"key", 0, ARG_STRING, OPT(public_key), "FILE",
     "trust these signers from now on: signing.pub of the folder where they are built"},
    {"plain-http", 0, ARG_FLAG, OPT(plain_http), NULL,
     "speak HTTP, or TLS without a check, to the registry"},
    {"max-size", 0, ARG_BYTES, OPT(max_size), "16GiB", "most that one may take"},
    OPT_DIRS,
};
static const struct arg_opt prune_opts[] = {
    OPT_JSON,
    {"dry-run", 0, ARG_FLAG, OPT(dry_run), NULL, "only say what would go"},
    {"force", 0, ARG_FLAG, OPT(force), NULL,
     "even if no worker runs, which would know what rests; what runs is kept all the same"},
    OPT_DIRS,
};
static const struct arg_opt remove_opts[] = {
    OPT_JSON,
    {"purge", 0, ARG_FLAG, OPT(purge), NULL,
     "its files, too: what rests or is kept of it can then not go on"},
    OPT_DIRS,
};
static const struct arg_opt json_opts[] = {OPT_JSON};

const struct cli_command template_commands[] = {
    {"template build", "[OPTIONS] NAME",
     "build a template from its recipe, or of a container image",
     "Recipes are images/NAME.recipe.  Needs root, or a subuid range for mmdebstrap.  What did "
     "not\n"
     "change is not built again.  A running worker takes the new template at its next claim.\n"
     "images/NAME.lock names the packages; of what the mirror has not any more, as after a "
     "security\nupdate, the newest are taken, told, and kept to.\n"
     "With --image the template is what the image is: files, ENV, WORKDIR, USER; its commands run\n"
     "in VMs like all others (docs/templates.md).  Without it NAME is built from what it was "
     "built\n"
     "from before, if that has changed.\n\n"
     "  cloche template build python\n"
     "  cloche template build node22 --image node:22-slim --memory 1GiB --warm-up 'node -e 0'\n"
     "  docker save my-app -o my-app.tar && cloche template build my-app --image my-app.tar\n",
     SPEC(build_opts, 1, 1), cmd_build, false},
    {"template list", "[--json]", "list the templates that workers have", NULL,
     SPEC(json_opts, 0, 0), cmd_list, false},
    {"template prune", "[OPTIONS] [NAME]", "take away builds that nothing needs any more",
     "Neither the current one of a template, nor one with which something runs, waits or rests, "
     "as\n"
     "this host's worker knows.\n\n"
     "  cloche template prune --dry-run\n",
     SPEC(prune_opts, 0, 1), cmd_prune, false},
    {"template pull", "[OPTIONS] [NAME...]", "take templates from a store",
     "Where they were pushed to, by another host.  Signatures are checked before anything else is\n"
     "fetched, every file is compared with what was signed, and what a build here has already is\n"
     "not fetched.  Without a name: all that were pulled before, if there is something new.  A\n"
     "running worker takes it at its next claim (docs/templates.md).\n\n"
     "  cloche template pull python my-app --from registry.example.com/cloche --key builder.pub\n"
     "  cloche template pull\n",
     SPEC(pull_opts, 0, ARGS_POS), cmd_pull, false},
    {"template push", "[OPTIONS] NAME", "put a template into a store, for other hosts",
     "STORE is a place in a registry of container images (`skopeo login` for one that wants to "
     "know\n"
     "you), or a folder.  There the template is an OCI artifact, signed; what the store has "
     "already\n"
     "is not sent again.\n\n"
     "  cloche template push my-app --to registry.example.com/cloche\n"
     "  cloche template push my-app --to /mnt/stick/templates\n",
     SPEC(push_opts, 1, 1), cmd_push, false},
    {"template remove", "[OPTIONS] NAME", "take a template away",
     "A running worker takes no new work for it within 5 s.  What runs goes on; so does what "
     "rests,\n"
     "unless --purge removes the builds that it began with; `prune` takes those that nothing "
     "needs.\n\n"
     "  cloche template remove my-app\n",
     SPEC(remove_opts, 1, 1), cmd_remove, false},
    {"template show", "NAME", "look at a template", NULL, SPEC(json_opts, 1, 1), cmd_show, false},
};
const size_t template_commands_n = CL_COUNT(template_commands);
