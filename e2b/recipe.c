/* e2b/recipe.c - see e2b/recipe.h. */
#include "e2b/recipe.h"

#include <stdio.h>
#include <string.h>

#include "mcp/json.h"

enum { VCPUS_MAX = 256, MEMORY_MAX = 1 << 20, DISK_MAX = 1 << 20 };

static bool is_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

/* --- what is asked for first --------------------------------------------------------------------
 */

static int read_size(const json_t *body, const char *name, uint64_t min, uint64_t max,
                     uint32_t *ret, struct cl_err *err)
{
    uint64_t v = mcp_json_u64(body, name, UINT64_MAX);
    bool is_said = !is_absent(json_object_get(body, name));
    *ret = is_said ? (uint32_t)v : 0;
    if (!is_said || (v >= min && v <= max))
        return 0;
    return cl_fail(err, CL_E_INVALID, 0, "%s: want %llu to %llu", name, (unsigned long long)min,
                   (unsigned long long)max);
}

static int check_name(const char *name, struct cl_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    if (name && strchr(name, ':'))
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "name '%.80s': templates have no tags here: say NAME-TAG, which is a "
                       "template of its own",
                       name);
    size_t n = name ? strlen(name) : 0;
    if (n > 0 && n < E2B_BUILD_NAME && strspn(name, letters) == n && !strchr("._-", name[0]) &&
        strncmp(name, "snp_", 4) != 0)
        return 0;
    return cl_fail(err, CL_E_INVALID, 0,
                   "name '%.80s': want 1 to 63 of a-z, 0-9, dot, dash and underscore, the first a "
                   "letter or digit",
                   name ? name : "");
}

int e2b_build_wish_read(const json_t *body, struct e2b_build_wish *ret, struct cl_err *err)
{
    const char *name = mcp_json_text(body, "name");
    ret->name = name ? name : mcp_json_text(body, "alias");
    if (json_array_size(json_object_get(body, "tags")) > 0)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "tags: templates have none here: say NAME-TAG as the name, which is a "
                       "template of its own");
    if (check_name(ret->name, err) < 0 ||
        read_size(body, "cpuCount", 1, VCPUS_MAX, &ret->vcpus, err) < 0 ||
        read_size(body, "memoryMB", 1, MEMORY_MAX, &ret->memory_mib, err) < 0)
        return -1;
    return read_size(body, "minFreeDiskMb", 0, DISK_MAX, &ret->free_mib, err);
}

/* --- steps --------------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    enum e2b_step_kind kind;
    size_t min, max; /* arguments */
} kinds[] = {{"RUN", E2B_RUN, 1, 2},
             {"COPY", E2B_COPY, 2, 4},
             {"ENV", E2B_ENV, 2, 2 * 256},
             {"WORKDIR", E2B_WORKDIR, 1, 1},
             {"USER", E2B_USER, 1, 1}};

static const char *arg(const json_t *args, size_t i)
{
    const char *s = json_string_value(json_array_get(args, i));
    return s ? s : "";
}

/* Texts, without NUL. */
static bool are_texts(const json_t *args)
{
    size_t i;
    json_t *v;
    json_array_foreach(args, i, v)
    {
        if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
            return false;
    }
    return true;
}

static int read_kind(const json_t *step, enum e2b_step_kind *ret, struct cl_err *err)
{
    const json_t *args = json_object_get(step, "args");
    const char *type = mcp_json_text(step, "type");
    size_t n = json_array_size(args);
    for (size_t i = 0; type && i < CL_COUNT(kinds); i++) {
        if (strcmp(type, kinds[i].name) != 0)
            continue;
        *ret = kinds[i].kind;
        if (n >= kinds[i].min && n <= kinds[i].max && are_texts(args))
            return 0;
        return cl_fail(err, CL_E_INVALID, 0, "%s: want %zu to %zu texts as args", type,
                       kinds[i].min, kinds[i].max);
    }
    return cl_fail(err, CL_E_INVALID, 0, "type '%.20s': want RUN, COPY, ENV, WORKDIR or USER",
                   type ? type : "");
}

static int set_user(const char *name, char user[static 8], struct cl_err *err)
{
    if (strcmp(name, "user") != 0 && strcmp(name, "root") != 0)
        return cl_fail(err, CL_E_INVALID, 0, "user '%.40s': a sandbox has `user` and `root`", name);
    memcpy(user, name, 5);
    return 0;
}

static const char *user_of(const struct e2b_place *place)
{
    return place->user[0] ? place->user : "user";
}

/* As the place's folder has it; a slash at the end means something. */
static int resolve(const struct e2b_place *place, const char *path, char out[static E2B_PATH_MAX],
                   struct cl_err *err)
{
    const char *home = strcmp(user_of(place), "root") == 0 ? "/root" : "/home/user";
    const char *base = place->cwd[0] ? place->cwd : home;
    int n = path[0] == '/' ? snprintf(out, E2B_PATH_MAX, "%s", path)
            : path[0] == '~' && (path[1] == '/' || !path[1])
                ? snprintf(out, E2B_PATH_MAX, "%s%s", home, path + 1)
                : snprintf(out, E2B_PATH_MAX, "%s/%s", base, path);
    return path[0] && n > 0 && n < E2B_PATH_MAX
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "path '%.80s' is empty, or too long", path);
}

static int read_run(const json_t *args, const struct e2b_place *place, struct e2b_step *ret,
                    struct cl_err *err)
{
    const char *user = arg(args, 1);
    ret->text = arg(args, 0);
    if (!ret->text[0] || strlen(ret->text) > E2B_COMMAND_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "RUN: a command has 1 to %d bytes", E2B_COMMAND_MAX);
    return set_user(user[0] ? user : user_of(place), ret->user, err);
}

/* "user" and "root" by their ids: an image may call them otherwise. */
static int set_owner(const char *name, char owner[static 72], struct cl_err *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:";
    if (strcmp(name, "user") == 0)
        name = "1000:1000";
    else if (strcmp(name, "root") == 0)
        name = "0:0";
    size_t n = strlen(name);
    if (n >= 72 || strspn(name, letters) != n || name[0] == '-')
        return cl_fail(err, CL_E_INVALID, 0, "COPY: user '%.40s' is no name or name:group", name);
    memcpy(owner, name, n + 1);
    return 0;
}

bool e2b_is_hash(const char *hash)
{
    return strlen(hash) == E2B_HASH && strspn(hash, "0123456789abcdef") == E2B_HASH;
}

static int read_copy(const json_t *step, const struct e2b_place *place, struct e2b_step *ret,
                     struct cl_err *err)
{
    const json_t *args = json_object_get(step, "args");
    const char *owner = arg(args, 2);
    ret->text = arg(args, 0);
    ret->mode = arg(args, 3);
    ret->hash = mcp_json_text(step, "filesHash");
    if (!ret->text[0] || strlen(ret->text) >= E2B_PATH_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "COPY: the source is empty, or too long");
    if (!ret->hash || !e2b_is_hash(ret->hash))
        return cl_fail(err, CL_E_INVALID, 0, "COPY: filesHash: want %d hexadecimal digits",
                       E2B_HASH);
    if (strlen(ret->mode) > 4 || strspn(ret->mode, "01234567") != strlen(ret->mode))
        return cl_fail(err, CL_E_INVALID, 0, "COPY: mode '%.20s': want octal digits, as 0755",
                       ret->mode);
    if (set_owner(owner[0] ? owner : user_of(place), ret->owner, err) < 0)
        return -1;
    return resolve(place, arg(args, 1), ret->to, err);
}

/* The names that execve(2) can take. */
static int add_vars(json_t *env, const json_t *args, struct cl_err *err)
{
    for (size_t i = 0; i < json_array_size(args); i += 2) {
        const char *name = arg(args, i);
        if (i + 1 == json_array_size(args) || !name[0] || strchr(name, '='))
            return cl_fail(err, CL_E_INVALID, 0,
                           "ENV: want names and values in turn, and no `=` in a name");
        if (json_object_set(env, name, json_array_get(args, i + 1)) < 0)
            return cl_fail(err, CL_E_NOMEM, 0, "environment");
    }
    return 0;
}

static int set_env(const json_t *args, struct e2b_place *place, struct cl_err *err)
{
    json_t *env = NULL;
    if (!place->env[0])
        env = json_object();
    else if (mcp_json_parse(place->env, strlen(place->env), &env, err) < 0)
        return -1;
    int rc = add_vars(env, args, err);
    if (rc == 0)
        rc = e2b_place_set_env(place, env, err);
    json_decref(env);
    return rc;
}

static int set_cwd(const char *path, struct e2b_place *place, struct e2b_step *ret,
                   struct cl_err *err)
{
    if (resolve(place, path, ret->to, err) < 0)
        return -1;
    if (strlen(ret->to) >= sizeof place->cwd)
        return cl_fail(err, CL_E_TOOBIG, 0, "WORKDIR: at most %zu bytes", sizeof place->cwd - 1);
    (void)snprintf(place->cwd, sizeof place->cwd, "%s", ret->to);
    return set_user(user_of(place), ret->user, err);
}

static int do_step(const json_t *step, struct e2b_place *place, struct e2b_step *ret,
                   struct cl_err *err)
{
    const json_t *args = json_object_get(step, "args");
    if (read_kind(step, &ret->kind, err) < 0)
        return -1;
    ret->text = arg(args, 0);
    switch (ret->kind) {
    case E2B_RUN:
        return read_run(args, place, ret, err);
    case E2B_COPY:
        return read_copy(step, place, ret, err);
    case E2B_ENV:
        return set_env(args, place, err);
    case E2B_WORKDIR:
        return set_cwd(ret->text, place, ret, err);
    case E2B_USER:
        if (set_user(ret->text, ret->user, err) < 0)
            return -1;
        (void)snprintf(place->user, sizeof place->user, "%s", ret->user);
        return 0;
    }
    return -1;
}

int e2b_recipe_step(const struct e2b_recipe *r, size_t i, struct e2b_place *place,
                    struct e2b_step *ret, struct cl_err *err)
{
    *ret = (struct e2b_step){.text = "", .hash = "", .mode = ""};
    struct cl_err why = {0};
    if (do_step(json_array_get(r->steps, i), place, ret, &why) == 0)
        return 0;
    return cl_fail(err, why.code, 0, "step %zu: %s", i + 1, why.text);
}

const char *e2b_recipe_archive(const struct e2b_recipe *r, size_t i)
{
    const json_t *step = json_array_get(r->steps, i);
    const char *type = mcp_json_text(step, "type");
    return type && strcmp(type, "COPY") == 0 ? mcp_json_text(step, "filesHash") : NULL;
}

void e2b_step_text(const struct e2b_step *s, char *out, size_t size)
{
    int line = (int)strcspn(s->text, "\n");
    const char *more = s->kind == E2B_COPY ? " " : "";
    (void)snprintf(out, size, "%s %.*s%s%s", kinds[s->kind].name, line, s->text, more,
                   s->kind == E2B_COPY ? s->to : "");
}

/* --- the whole ----------------------------------------------------------------------------------
 */

/* "docker.io/library/", as far as it is not said. */
static const char *short_name(const char *image)
{
    static const char *const hosts[] = {"docker.io/", "index.docker.io/"};
    static const char library[] = "library/";
    for (size_t i = 0; i < CL_COUNT(hosts); i++) {
        if (strncmp(image, hosts[i], strlen(hosts[i])) == 0) {
            image += strlen(hosts[i]);
            break;
        }
    }
    return strncmp(image, library, sizeof library - 1) == 0 ? image + sizeof library - 1 : image;
}

/* The tag or digest of a name, with its mark; a registry's port is none. */
static const char *version_of(const char *image)
{
    const char *slash = strrchr(image, '/'), *name = slash ? slash : image;
    size_t n = strcspn(name, ":@");
    return name[n] ? name + n : ":latest";
}

static size_t name_length(const char *image)
{
    const char *slash = strrchr(image, '/'), *name = slash ? slash : image;
    return (size_t)(name - image) + strcspn(name, ":@");
}

bool e2b_image_is(const char *a, const char *b)
{
    a = short_name(a);
    b = short_name(b);
    size_t n = name_length(a);
    return n > 0 && n == name_length(b) && strncmp(a, b, n) == 0 &&
           strcmp(version_of(a), version_of(b)) == 0;
}

/* E2B's own images are its two templates; of which templates others are, the host knows. */
static void read_image(const char *image, struct e2b_recipe *ret)
{
    static const struct {
        const char *image, *template_;
    } known[] = {{"e2bdev/base", "base"}, {"e2bdev/code-interpreter", "code-interpreter-v1"}};
    const char *name = short_name(image);
    size_t n = name_length(name);
    ret->image = image;
    for (size_t i = 0; i < CL_COUNT(known); i++) {
        if (n == strlen(known[i].image) && strncmp(name, known[i].image, n) == 0) {
            ret->base = known[i].template_;
            ret->image = NULL;
        }
    }
}

static int read_base(const json_t *body, struct e2b_recipe *ret, struct cl_err *err)
{
    const char *image = mcp_json_text(body, "fromImage");
    const char *template_ = mcp_json_text(body, "fromTemplate");
    ret->base = template_;
    ret->image = NULL;
    if (!image == !template_ || !(image ? image : template_)[0])
        return cl_fail(err, CL_E_INVALID, 0, "want one of fromTemplate and fromImage");
    if (image)
        read_image(image, ret);
    return 0;
}

static int read_command(const json_t *body, const char *name, const char **ret, struct cl_err *err)
{
    const char *s = mcp_json_text(body, name);
    if (!s && !is_absent(json_object_get(body, name)))
        return cl_fail(err, CL_E_INVALID, 0, "%s: want text", name);
    if (s && strlen(s) > E2B_COMMAND_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%s: a command has at most %d bytes", name,
                       E2B_COMMAND_MAX);
    *ret = s && s[0] ? s : NULL;
    return 0;
}

static int check_steps(const struct e2b_recipe *r, struct cl_err *err)
{
    struct e2b_place place = {.user = ""};
    struct e2b_step step;
    for (size_t i = 0; i < r->n; i++) {
        if (e2b_recipe_step(r, i, &place, &step, err) < 0)
            return -1;
    }
    return 0;
}

int e2b_recipe_read(const json_t *body, struct e2b_recipe *ret, struct cl_err *err)
{
    const json_t *steps = json_object_get(body, "steps");
    if (read_base(body, ret, err) < 0 || read_command(body, "startCmd", &ret->start, err) < 0 ||
        read_command(body, "readyCmd", &ret->ready, err) < 0)
        return -1;
    if (!is_absent(steps) && !json_is_array(steps))
        return cl_fail(err, CL_E_INVALID, 0, "steps: want a list");
    ret->steps = steps;
    ret->n = json_array_size(steps);
    if (ret->n > E2B_STEPS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "steps: %zu; at most %d", ret->n, E2B_STEPS_MAX);
    return check_steps(ret, err);
}
