/* base/map.c - see base/map.h.  Open addressing, linear probing, tombstone-free deletion. */
#include "base/map.h"

#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct entry {
    char *key; /* owned; NULL = free slot */
    void *value;
    uint64_t hash;
};

struct cl_map {
    struct entry *slots; /* owned */
    size_t cap;          /* a power of two */
    size_t count, max;
    uint64_t k0, k1;
};

enum { MAP_FIRST = 16 };

static inline uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static void sip_round(struct sip *s)
{
    s->v0 += s->v1, s->v1 = rotl(s->v1, 13), s->v1 ^= s->v0, s->v0 = rotl(s->v0, 32);
    s->v2 += s->v3, s->v3 = rotl(s->v3, 16), s->v3 ^= s->v2;
    s->v0 += s->v3, s->v3 = rotl(s->v3, 21), s->v3 ^= s->v0;
    s->v2 += s->v1, s->v1 = rotl(s->v1, 17), s->v1 ^= s->v2, s->v2 = rotl(s->v2, 32);
}

/* SipHash-1-3 (Aumasson & Bernstein, 2012). */
static uint64_t hash_key(const struct cl_map *map, const char *key)
{
    size_t n = strlen(key);
    struct sip s = {UINT64_C(0x736f6d6570736575) ^ map->k0, UINT64_C(0x646f72616e646f6d) ^ map->k1,
                    UINT64_C(0x6c7967656e657261) ^ map->k0, UINT64_C(0x7465646279746573) ^ map->k1};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t m;
        memcpy(&m, key + i, 8);
        s.v3 ^= m;
        sip_round(&s);
        s.v0 ^= m;
    }
    uint64_t last = (uint64_t)n << 56;
    for (size_t j = 0; i + j < n; j++)
        last |= (uint64_t)(uint8_t)key[i + j] << (8 * j);
    s.v3 ^= last;
    sip_round(&s);
    s.v0 ^= last;
    s.v2 ^= 0xff;
    for (int r = 0; r < 3; r++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

int cl_map_new(size_t max, struct cl_map **ret_map, struct cl_err *err)
{
    struct cl_map *map = cl_zalloc(sizeof *map);
    if (!map)
        return cl_fail(err, CL_E_NOMEM, 0, "map");
    map->slots = cl_zalloc_array(MAP_FIRST, sizeof *map->slots);
    if (!map->slots) {
        cl_free(map);
        return cl_fail(err, CL_E_NOMEM, 0, "map table");
    }
    map->cap = MAP_FIRST;
    map->max = max;
    cl_random(&map->k0, sizeof map->k0);
    cl_random(&map->k1, sizeof map->k1);
    *ret_map = map;
    return 0;
}

void cl_map_free(struct cl_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->cap; i++)
        cl_free(map->slots[i].key);
    cl_free(map->slots);
    cl_free(map);
}

/* The slot that holds key, or the free slot where it would go. */
static struct entry *find(const struct cl_map *map, const char *key, uint64_t hash)
{
    for (size_t i = hash & (map->cap - 1);; i = (i + 1) & (map->cap - 1)) {
        struct entry *e = &map->slots[i];
        if (!e->key || (e->hash == hash && strcmp(e->key, key) == 0))
            return e;
    }
}

static int grow(struct cl_map *map, struct cl_err *err)
{
    struct entry *old = map->slots;
    size_t old_cap = map->cap;
    struct entry *slots = cl_zalloc_array(old_cap * 2, sizeof *slots);
    if (!slots)
        return cl_fail(err, CL_E_NOMEM, 0, "map table");
    map->slots = slots;
    map->cap = old_cap * 2;
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i].key)
            *find(map, old[i].key, old[i].hash) = old[i];
    }
    cl_free(old);
    return 0;
}

void *cl_map_get(const struct cl_map *map, const char *key)
{
    return find(map, key, hash_key(map, key))->value;
}

int cl_map_put(struct cl_map *map, const char *key, void *value, struct cl_err *err)
{
    CL_ASSERT(value);
    uint64_t hash = hash_key(map, key);
    struct entry *e = find(map, key, hash);
    if (e->key) {
        e->value = value;
        return 0;
    }
    if (map->count >= map->max)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %zu entries", map->max);
    if ((map->count + 1) * 4 > map->cap * 3) {
        if (grow(map, err) < 0)
            return -1;
        e = find(map, key, hash);
    }
    char *copy = cl_strdup(key);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "map key");
    *e = (struct entry){copy, value, hash};
    map->count++;
    return 0;
}

void *cl_map_del(struct cl_map *map, const char *key)
{
    struct entry *e = find(map, key, hash_key(map, key));
    if (!e->key)
        return NULL;
    void *value = e->value;
    cl_free(e->key);
    *e = (struct entry){0};
    map->count--;
    /* Close the gap: move back each follower whose home is not after the hole. */
    size_t mask = map->cap - 1, hole = (size_t)(e - map->slots);
    for (size_t i = (hole + 1) & mask; map->slots[i].key; i = (i + 1) & mask) {
        size_t home = map->slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        map->slots[hole] = map->slots[i];
        map->slots[i] = (struct entry){0};
        hole = i;
    }
    return value;
}

size_t cl_map_count(const struct cl_map *map)
{
    return map->count;
}

void *cl_map_next(const struct cl_map *map, size_t *at, const char **ret_key)
{
    for (; *at < map->cap; (*at)++) {
        struct entry *e = &map->slots[*at];
        if (!e->key)
            continue;
        if (ret_key)
            *ret_key = e->key;
        (*at)++;
        return e->value;
    }
    return NULL;
}
