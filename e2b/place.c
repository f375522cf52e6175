/* e2b/place.c - see e2b/place.h. */
#include "e2b/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER "e2b-user"
#define CWD "e2b-cwd"
#define ENV "e2b-env-"
enum { PIECE = E2B_PLACE_TEXT - 1 };

int e2b_place_set_env(struct e2b_place *place, const json_t *env, struct cl_err *err)
{
    place->env[0] = '\0';
    if (json_object_size(env) == 0)
        return 0;
    char *text = json_dumps(env, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text)
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    size_t n = strlen(text);
    if (n < sizeof place->env)
        memcpy(place->env, text, n + 1);
    free(text);
    if (n < sizeof place->env)
        return 0;
    return cl_fail(err, CL_E_TOOBIG, 0, "ENV: %zu bytes in all; at most %zu", n,
                   sizeof place->env - 1);
}

static void add(struct e2b_place_labels *l, const char *key, const char *value)
{
    Cloche__V1__Label *m = &l->labels[l->n];
    if (!value[0])
        return;
    cloche__v1__label__init(m);
    m->key = (char *)(uintptr_t)key;
    m->value = (char *)(uintptr_t)value;
    l->list[l->n++] = m;
}

void e2b_place_write(const struct e2b_place *place, struct e2b_place_labels *ret)
{
    size_t n = strlen(place->env);
    ret->n = 0;
    add(ret, E2B_LABEL_TEMPLATE, place->template_);
    add(ret, USER, place->user);
    add(ret, CWD, place->cwd);
    for (size_t i = 0; i * PIECE < n; i++) {
        (void)snprintf(ret->keys[i], sizeof ret->keys[i], ENV "%c", (char)('a' + i));
        (void)snprintf(ret->pieces[i], sizeof ret->pieces[i], "%.*s", (int)PIECE,
                       place->env + i * PIECE);
        add(ret, ret->keys[i], ret->pieces[i]);
    }
}

static const char *find(Cloche__V1__Label *const *labels, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(labels[i]->key, key) == 0)
            return labels[i]->value;
    }
    return "";
}

void e2b_place_read(Cloche__V1__Label *const *labels, size_t n, struct e2b_place *ret)
{
    char key[E2B_PLACE_KEY];
    size_t at = 0;
    (void)snprintf(ret->template_, sizeof ret->template_, "%s",
                   find(labels, n, E2B_LABEL_TEMPLATE));
    (void)snprintf(ret->user, sizeof ret->user, "%s", find(labels, n, USER));
    (void)snprintf(ret->cwd, sizeof ret->cwd, "%s", find(labels, n, CWD));
    ret->env[0] = '\0';
    for (int i = 0; i < E2B_PLACE_ENV_LABELS; i++) {
        (void)snprintf(key, sizeof key, ENV "%c", 'a' + i);
        const char *piece = find(labels, n, key);
        size_t m = strnlen(piece, PIECE);
        memcpy(ret->env + at, piece, m);
        ret->env[at += m] = '\0';
    }
}

bool e2b_place_has(const char *key)
{
    return strcmp(key, E2B_LABEL_TEMPLATE) == 0 || strcmp(key, USER) == 0 ||
           strcmp(key, CWD) == 0 || strncmp(key, ENV, sizeof ENV - 1) == 0;
}
