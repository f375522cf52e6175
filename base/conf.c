/* base/conf.c - see base/conf.h.  The INI reader is libinih. */
#include "base/conf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"

enum { CONF_FILE_MAX = 256 * 1024 };

struct unit {
    const char *name;
    uint64_t factor;
};

static int parse_scaled(const char *s, const struct unit *units, size_t n_units, const char *what,
                        uint64_t *ret, struct cl_err *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (end == s || !isdigit((unsigned char)s[0]) || errno != 0)
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is not a %s", s, what);
    for (size_t i = 0; i < n_units; i++) {
        if (strcasecmp(end, units[i].name) != 0)
            continue;
        if (v > UINT64_MAX / units[i].factor)
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is too large a %s", s, what);
        *ret = (uint64_t)v * units[i].factor;
        return 0;
    }
    return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is not a %s: unknown unit '%.16s'", s, what, end);
}

int cl_parse_u64(const char *s, uint64_t *ret, struct cl_err *err)
{
    static const struct unit units[] = {{"", 1}};
    return parse_scaled(s, units, CL_COUNT(units), "number", ret, err);
}

int cl_parse_bytes(const char *s, uint64_t *ret, struct cl_err *err)
{
    static const struct unit units[] = {
        {"", 1},       {"b", 1},        {"k", CL_KIB}, {"kib", CL_KIB},
        {"m", CL_MIB}, {"mib", CL_MIB}, {"g", CL_GIB}, {"gib", CL_GIB},
    };
    return parse_scaled(s, units, CL_COUNT(units), "size (as 512MiB)", ret, err);
}

int cl_parse_duration_ns(const char *s, uint64_t *ret, struct cl_err *err)
{
    static const struct unit units[] = {
        {"ns", 1},
        {"us", CL_NS_PER_US},
        {"ms", CL_NS_PER_MS},
        {"s", CL_NS_PER_S},
        {"", CL_NS_PER_S},
        {"m", 60 * CL_NS_PER_S},
        {"h", 3600 * CL_NS_PER_S},
        {"d", 86400 * CL_NS_PER_S},
    };
    return parse_scaled(s, units, CL_COUNT(units), "duration (as 30s)", ret, err);
}

static int parse_bool(const char *s, bool *ret, struct cl_err *err)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"yes", true}, {"true", true},   {"1", true},
                 {"no", false}, {"false", false}, {"0", false}};
    for (size_t i = 0; i < CL_COUNT(words); i++) {
        if (strcasecmp(s, words[i].word) == 0) {
            *ret = words[i].value;
            return 0;
        }
    }
    return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is not yes or no", s);
}

static int parse_number(const struct cl_conf_row *row, const char *s, uint64_t *ret,
                        struct cl_err *err)
{
    uint64_t v = 0;
    int rc = row->type == CL_CONF_BYTES      ? cl_parse_bytes(s, &v, err)
             : row->type == CL_CONF_DURATION ? cl_parse_duration_ns(s, &v, err)
                                             : cl_parse_u64(s, &v, err);
    if (rc < 0)
        return -1;
    if (v < row->min || (row->max != 0 && v > row->max))
        return cl_fail(err, CL_E_INVALID, 0, "%s is outside its range (see --help)", s);
    *ret = v;
    return 0;
}

static int set_value(const struct cl_conf_row *row, void *values, const char *s, struct cl_err *err)
{
    char *at = (char *)values + row->offset;
    switch (row->type) {
    case CL_CONF_STRING:
        if (strlen(s) >= CL_CONF_STR)
            return cl_fail(err, CL_E_INVALID, 0, "longer than %d bytes", CL_CONF_STR - 1);
        memcpy(at, s, strlen(s) + 1);
        return 0;
    case CL_CONF_BOOL: {
        bool b = false;
        if (parse_bool(s, &b, err) < 0)
            return -1;
        memcpy(at, &b, sizeof b);
        return 0;
    }
    case CL_CONF_U64:
    case CL_CONF_BYTES:
    case CL_CONF_DURATION: {
        uint64_t v = 0;
        if (parse_number(row, s, &v, err) < 0)
            return -1;
        memcpy(at, &v, sizeof v);
        return 0;
    }
    }
    return cl_fail(err, CL_E_INVALID, 0, "unknown type");
}

static const struct cl_conf_row *find_row(const struct cl_conf_row *rows, size_t n,
                                          const char *section, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if ((!section || strcmp(rows[i].section, section) == 0) && strcmp(rows[i].key, key) == 0)
            return &rows[i];
    }
    return NULL;
}

struct ini_context {
    const struct cl_conf_row *rows;
    size_t n_rows;
    void *values;
    struct cl_err first; /* what was wrong with the first bad option */
};

/* libinih keeps the line number of the first call that answers 0. */
static int on_ini(void *user, const char *section, const char *key, const char *value)
{
    struct ini_context *ctx = user;
    struct cl_err detail = {0};
    const struct cl_conf_row *row = find_row(ctx->rows, ctx->n_rows, section, key);
    if (row && value && set_value(row, ctx->values, value, &detail) == 0)
        return 1;
    if (ctx->first.code == CL_OK)
        (void)cl_fail(&ctx->first, CL_E_INVALID, 0, "[%.32s] %.64s: %s", section, key,
                      row ? detail.text : "no such option");
    return 0;
}

int cl_conf_parse(const struct cl_conf_row *rows, size_t n_rows, void *values, const char *name,
                  const char *text, size_t n, struct cl_err *err)
{
    if (memchr(text, '\0', n))
        return cl_fail(err, CL_E_INVALID, 0, "%s: contains a NUL byte", name);
    CL_AUTO(cl_freep) char *copy = cl_strndup(text, n);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "%s", name);
    struct ini_context ctx = {.rows = rows, .n_rows = n_rows, .values = values};
    int bad_line = ini_parse_string(copy, on_ini, &ctx);
    if (bad_line != 0)
        return cl_fail(err, CL_E_INVALID, 0, "%s:%d: %s", name, bad_line,
                       ctx.first.code ? ctx.first.text : "not an INI line");
    return 0;
}

static int load_file(const struct cl_conf_row *rows, size_t n_rows, void *values, const char *path,
                     struct cl_err *err)
{
    struct cl_buf buf;
    cl_buf_init(&buf, CONF_FILE_MAX);
    int rc = cl_file_read(AT_FDCWD, path, &buf, err);
    if (rc == 0 && buf.len > 0)
        rc = cl_conf_parse(rows, n_rows, values, path, (const char *)buf.data, buf.len, err);
    cl_buf_fini(&buf);
    return rc;
}

static int load_env(const struct cl_conf_row *row, void *values, struct cl_err *err)
{
    char name[96];
    int n = snprintf(name, sizeof name, "CLOCHE_%s_%s", row->section, row->key);
    CL_ASSERT(n > 0 && (size_t)n < sizeof name);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    const char *value = getenv(name);
    if (value && set_value(row, values, value, err) < 0)
        return cl_wrap(err, "environment variable %s", name);
    return 0;
}

/* Take one flag at argv[i]; returns how many words it used, 0 if it is not a flag, -1 on error. */
static int take_flag(const struct cl_conf_row *rows, size_t n_rows, void *values, int argc,
                     char **argv, int i, struct cl_err *err)
{
    const char *word = argv[i];
    if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
        return 0;
    const char *eq = strchr(word, '=');
    CL_AUTO(cl_freep) char *key = cl_strndup(word + 2, eq ? (size_t)(eq - word - 2) : strlen(word));
    if (!key)
        return cl_fail(err, CL_E_NOMEM, 0, "flag %s", word);
    const struct cl_conf_row *row = find_row(rows, n_rows, NULL, key);
    if (!row)
        return cl_fail(err, CL_E_INVALID, 0, "unknown option --%s (see --help)", key);
    bool bare_bool = !eq && row->type == CL_CONF_BOOL;
    const char *value = eq ? eq + 1 : bare_bool ? "yes" : i + 1 < argc ? argv[i + 1] : NULL;
    if (!value)
        return cl_fail(err, CL_E_INVALID, 0, "option --%s needs a value", key);
    if (set_value(row, values, value, err) < 0)
        return cl_wrap(err, "option --%s", key);
    return eq || bare_bool ? 1 : 2;
}

int cl_conf_load(const struct cl_conf_row *rows, size_t n_rows, void *values, const char *path,
                 int *argc, char **argv, struct cl_err *err)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (set_value(&rows[i], values, rows[i].def, err) < 0)
            return cl_wrap(err, "default of %s", rows[i].key);
    }
    if (path && load_file(rows, n_rows, values, path, err) < 0)
        return -1;
    for (size_t i = 0; i < n_rows; i++) {
        if (load_env(&rows[i], values, err) < 0)
            return -1;
    }
    int kept = argc ? CL_MIN(*argc, 1) : 0;
    for (int i = 1; argc && i < *argc;) {
        int used = take_flag(rows, n_rows, values, *argc, argv, i, err);
        if (used < 0)
            return -1;
        if (used == 0)
            argv[kept++] = argv[i++];
        i += used;
    }
    if (argc)
        *argc = kept;
    return 0;
}

void cl_conf_take_common(int *argc, char **argv, const char **ret_config, bool *ret_check)
{
    int kept = CL_MIN(*argc, 1);
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--check-config") == 0)
            *ret_check = true;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < *argc)
            *ret_config = argv[++i];
        else if (strncmp(argv[i], "--config=", 9) == 0)
            *ret_config = argv[i] + 9;
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
}

static size_t type_size(enum cl_conf_type type)
{
    switch (type) {
    case CL_CONF_STRING:
        return CL_CONF_STR;
    case CL_CONF_BOOL:
        return sizeof(bool);
    case CL_CONF_U64:
    case CL_CONF_BYTES:
    case CL_CONF_DURATION:
        return sizeof(uint64_t);
    }
    return 0;
}

int cl_conf_reload(const struct cl_conf_source *source, void *values, struct cl_err *err)
{
    CL_AUTO(cl_freep) char *fresh = cl_zalloc(source->size);
    CL_AUTO(cl_freep) char *merged = cl_zalloc(source->size);
    CL_AUTO(cl_freep) char **argv = cl_zalloc_array((size_t)source->argc + 1, sizeof *argv);
    if (!fresh || !merged || !argv)
        return cl_fail(err, CL_E_NOMEM, 0, "configuration");
    int argc = source->argc;
    memcpy(argv, source->argv, (size_t)argc * sizeof *argv);
    if (cl_conf_load(source->rows, source->n_rows, fresh, source->path, &argc, argv, err) < 0)
        return -1;
    memcpy(merged, values, source->size);
    for (size_t i = 0; i < source->n_rows; i++) {
        const struct cl_conf_row *row = &source->rows[i];
        if (row->reload)
            memcpy(merged + row->offset, fresh + row->offset, type_size(row->type));
    }
    if (source->check && source->check(merged, err) < 0)
        return -1;
    memcpy(values, merged, source->size);
    return 0;
}

bool cl_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

void cl_conf_help(const struct cl_conf_row *rows, size_t n_rows, FILE *out)
{
    const char *section = "";
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(section, rows[i].section) != 0)
            (void)fprintf(out, "\n[%s]\n", section = rows[i].section);
        (void)fprintf(out, "  --%-26s %s (default: %s)\n", rows[i].key, rows[i].help,
                      rows[i].def[0] ? rows[i].def : "none");
    }
}
