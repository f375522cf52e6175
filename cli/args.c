/* cli/args.c - see cli/args.h. */
#include "cli/args.h"

#include <string.h>

#include "base/conf.h"

static const struct arg_opt *find_name(const struct arg_spec *spec, const char *name, size_t n)
{
    for (size_t i = 0; i < spec->n_opts; i++)
        if (strlen(spec->opts[i].name) == n && memcmp(spec->opts[i].name, name, n) == 0)
            return &spec->opts[i];
    return NULL;
}

static const struct arg_opt *find_letter(const struct arg_spec *spec, char letter)
{
    for (size_t i = 0; i < spec->n_opts; i++)
        if (spec->opts[i].letter == letter)
            return &spec->opts[i];
    return NULL;
}

static int set_list(struct arg_list *list, const struct arg_opt *opt, const char *value,
                    struct cl_err *err)
{
    if (list->n == ARGS_LIST)
        return cl_fail(err, CL_E_INVALID, 0, "--%s is given more than %d times", opt->name,
                       ARGS_LIST);
    list->v[list->n++] = value;
    return 0;
}

static int set_value(const struct arg_opt *opt, const char *value, void *values, struct cl_err *err)
{
    void *at = (char *)values + opt->offset;
    int rc = 0;
    switch (opt->type) {
    case ARG_FLAG:
        *(bool *)at = true;
        break;
    case ARG_STRING:
        *(const char **)at = value;
        break;
    case ARG_U64:
        rc = cl_parse_u64(value, at, err);
        break;
    case ARG_BYTES:
        rc = cl_parse_bytes(value, at, err);
        break;
    case ARG_DURATION:
        rc = cl_parse_duration_ns(value, at, err);
        break;
    case ARG_LIST:
        rc = set_list(at, opt, value, err);
        break;
    }
    return rc < 0 ? cl_wrap(err, "--%s", opt->name) : 0;
}

/* Where the parser stands. */
struct cursor {
    int at, argc;
    char **argv;
    void *values;
};

static int parse_long(const struct arg_spec *spec, struct cursor *c, struct cl_err *err)
{
    const char *word = c->argv[c->at] + 2;
    size_t n = strcspn(word, "=");
    const struct arg_opt *opt = find_name(spec, word, n);
    if (!opt)
        return cl_fail(err, CL_E_INVALID, 0, "no option '--%.*s' here; --help shows them",
                       (int)CL_MIN(n, (size_t)64), word);
    if (opt->type == ARG_FLAG && word[n] == '=')
        return cl_fail(err, CL_E_INVALID, 0, "--%s takes no value", opt->name);
    if (opt->type == ARG_FLAG)
        return set_value(opt, NULL, c->values, err);
    if (word[n] == '=')
        return set_value(opt, word + n + 1, c->values, err);
    if (c->at + 1 >= c->argc)
        return cl_fail(err, CL_E_INVALID, 0, "--%s needs a value", opt->name);
    return set_value(opt, c->argv[++c->at], c->values, err);
}

static int parse_letters(const struct arg_spec *spec, struct cursor *c, struct cl_err *err)
{
    for (const char *p = c->argv[c->at] + 1; *p; p++) {
        const struct arg_opt *opt = find_letter(spec, *p);
        if (!opt)
            return cl_fail(err, CL_E_INVALID, 0, "no option '-%c' here; --help shows them", *p);
        if (opt->type == ARG_FLAG) {
            if (set_value(opt, NULL, c->values, err) < 0)
                return -1;
            continue;
        }
        if (p[1])
            return set_value(opt, p + 1, c->values, err);
        if (c->at + 1 >= c->argc)
            return cl_fail(err, CL_E_INVALID, 0, "-%c needs a value", *p);
        return set_value(opt, c->argv[++c->at], c->values, err);
    }
    return 0;
}

bool args_wants_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int check_count(const struct arg_spec *spec, const struct args *a, struct cl_err *err)
{
    if (a->n_pos < spec->min_pos)
        return cl_fail(err, CL_E_INVALID, 0, "an argument is missing; --help shows the form");
    return 0;
}

int args_parse(const struct arg_spec *spec, int argc, char **argv, void *values, struct args *ret,
               struct cl_err *err)
{
    struct args a = {0};
    struct cursor c = {.argc = argc, .argv = argv, .values = values};
    for (; c.at < argc; c.at++) {
        const char *word = argv[c.at];
        bool dashed = word[0] == '-' && word[1];
        bool end = strcmp(word, "--") == 0;
        if (end || (!dashed && spec->tail && a.n_pos == spec->max_pos)) {
            a.tail = argv + c.at + end;
            a.n_tail = (size_t)(argc - c.at - end);
            break;
        }
        if (args_wants_help(word)) {
            *ret = (struct args){.help = true};
            return 0;
        }
        if (dashed) {
            if ((word[1] == '-' ? parse_long : parse_letters)(spec, &c, err) < 0)
                return -1;
            continue;
        }
        if (a.n_pos == spec->max_pos || a.n_pos == ARGS_POS)
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is one argument too many", word);
        a.pos[a.n_pos++] = word;
    }
    if (a.n_tail > 0 && !spec->tail) { /* `--` before positionals that begin with a dash */
        for (size_t i = 0; i < a.n_tail; i++) {
            if (a.n_pos == spec->max_pos || a.n_pos == ARGS_POS)
                return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is one argument too many", a.tail[i]);
            a.pos[a.n_pos++] = a.tail[i];
        }
    }
    if (check_count(spec, &a, err) < 0)
        return -1;
    *ret = a;
    return 0;
}
