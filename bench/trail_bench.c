/* bench/trail_bench.c - how long reading the audit log takes: a unit's records out of all, one
 * minute by its time, the newest 200, a checked copy of all; and grep(1) for the unit and
 * sha256sum(1) over the same files, in the same run.
 *
 * usage: trail_bench [MIB] [ROUNDS]      (256 MiB, 9 rounds; the log is made in $TMPDIR, and read
 * from the page cache)
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/files.h"
#include "audit/sign.h"
#include "base/fs.h"
#include "trail/mirror.h"
#include "trail/newest.h"

enum { A_FILE = 64 << 20, UNITS = 1000, ROUNDS_MAX = 99 };
#define START UINT64_C(1767225600) /* 2026-01-01; 100 records a second */

static char dir[256];
static uint64_t n_records;

static void die(const struct cl_err *err)
{
    (void)fprintf(stderr, "trail_bench: %s\n", err->text);
    exit(1);
}

/* The record that signs those before it. */
static void sign(const struct audit_private_key *key, struct audit_chain *chain,
                 struct cl_buf *line)
{
    struct cl_err err = {0};
    struct audit_record r;
    CL_AUTO(cl_buf_fini) struct cl_buf fields;
    cl_buf_init(&fields, AUDIT_FIELDS_MAX);
    if (audit_checkpoint_make(key, 1, START * CL_NS_PER_S + n_records * 10 * CL_NS_PER_MS, chain,
                              &fields, &r, &err) < 0 ||
        audit_chain_append(chain, &r, line, &err) < 0)
        die(&err);
}

/* Records of the usual length, of a thousand units in turn; each hundred are signed. */
static void make_log(uint64_t bytes)
{
    CL_AUTO(audit_private_key_freep) struct audit_private_key *key = NULL;
    struct cl_err err = {0};
    struct audit_chain chain;
    char path[AUDIT_PATH], fields[512];
    struct cl_buf line;
    FILE *f = NULL;
    uint64_t in_file = A_FILE;
    unsigned file = 0;
    audit_chain_init(&chain, "tenant/acme");
    cl_buf_init(&line, (size_t)2 * AUDIT_RECORD_MAX);
    (void)snprintf(path, sizeof path, "%s/audit.key", dir);
    if (audit_private_key_open(path, &key, &err) < 0)
        die(&err);
    (void)snprintf(path, sizeof path, "%s/tenant/acme", dir);
    if (cl_mkdir_p(path, 0755, &err) < 0)
        die(&err);
    for (uint64_t n = 0; n < bytes; n += line.len, in_file += line.len, n_records++) {
        if (in_file >= A_FILE) {
            if (f)
                (void)fclose(f);
            audit_file_path(dir, "tenant/acme", ++file, path);
            f = fopen(path, "wb");
            in_file = 0;
        }
        struct audit_record r = {.epoch = 1, .n = n_records, .source = "scheduler"};
        int k = snprintf(
            fields, sizeof fields,
            "{\"argv\":[\"python3\",\"-c\",\"print(%" PRIu64
            ")\"],\"comm\":\"python3\",\"cut\":false,\"exec\":\"exec_01m8j50gcarxrsc6dramjgycr0\","
            "\"pid\":%u,\"unit\":\"sbx_%020u\"}",
            n_records, (unsigned)(n_records % 30000), (unsigned)(n_records % UNITS));
        (void)snprintf(r.event, sizeof r.event, "guest.exec");
        cl_rfc3339(START * CL_NS_PER_S + n_records * 10 * CL_NS_PER_MS, r.ts);
        r.fields = fields;
        r.fields_n = (size_t)k;
        cl_buf_clear(&line);
        if (!f || audit_chain_append(&chain, &r, &line, &err) < 0)
            die(&err);
        if (n_records % 100 == 99)
            sign(key, &chain, &line);
        if (fwrite(line.data, 1, line.len, f) != line.len)
            die(&err);
    }
    (void)fclose(f);
    cl_buf_fini(&line);
}

static int count(void *arg, const struct audit_record *r, const char *line, size_t n,
                 struct cl_err *err)
{
    (void)r, (void)line, (void)n, (void)err;
    ++*(uint64_t *)arg;
    return 0;
}

static uint64_t read_all(const struct walk_filter *f)
{
    struct cl_err err = {0};
    struct walk *w;
    uint64_t n = 0;
    if (walk_new(dir, f, &w, &err) < 0 || walk_all(w, count, &n, &err) < 0)
        die(&err);
    walk_free(w);
    return n;
}

static uint64_t one_unit(void)
{
    return read_all(&(struct walk_filter){.unit = "sbx_00000000000000000007"});
}

static uint64_t one_minute(void)
{
    uint64_t at = START + n_records / 100 * 3 / 4;
    return read_all(
        &(struct walk_filter){.since_ns = at * CL_NS_PER_S, .until_ns = (at + 60) * CL_NS_PER_S});
}

static uint64_t newest(void)
{
    struct cl_err err = {0};
    struct newest *w;
    uint64_t n = 0;
    int more;
    if (newest_new(dir, &(struct walk_filter){0}, 200, &w, &err) < 0)
        die(&err);
    do
        more = newest_step(w, WALK_STEP, &err);
    while (more > 0);
    if (more < 0 || newest_tell(w, SIZE_MAX, count, &n, &err) < 0)
        die(&err);
    newest_free(w);
    return n;
}

/* What is there already is checked, and no more than that comes again. */
static uint64_t copy_more(void)
{
    static const char *const every[] = {"*"};
    struct cl_err err = {0};
    struct walk_filter f = {.events = every, .n_events = 1};
    CL_AUTO(mirror_closep) struct mirror *m = NULL;
    CL_AUTO(walk_freep) struct walk *w = NULL;
    CL_AUTO(cl_buf_fini) struct cl_buf pem;
    char path[AUDIT_PATH];
    cl_buf_init(&pem, AUDIT_PEM_MAX);
    (void)snprintf(path, sizeof path, "%s/audit.key.pub", dir);
    if (cl_file_read(AT_FDCWD, path, &pem, &err) < 0 || cl_buf_append(&pem, "", 1, &err) < 0)
        die(&err);
    (void)snprintf(path, sizeof path, "%s/copy", dir);
    if (mirror_open(&(struct mirror_conf){.dir = path}, &m, &err) < 0 ||
        mirror_begin(m, (const char *)pem.data, &f.from, &f.n_from, &err) < 0 ||
        walk_new(dir, &f, &w, &err) < 0 || walk_all(w, mirror_take, m, &err) < 0 ||
        mirror_settle(m, &err) < 0)
        die(&err);
    return mirror_state(m, 0).records;
}

static uint64_t copy_all(void)
{
    char path[AUDIT_PATH];
    (void)snprintf(path, sizeof path, "%s/copy", dir);
    (void)!cl_remove_tree(path, NULL);
    return copy_more();
}

/* The number that a shell's command prints first. */
static uint64_t by_shell(const char *command)
{
    char text[512], out[128] = "";
    (void)snprintf(text, sizeof text, "cat %s/tenant/acme/*.log | LC_ALL=C %s", dir, command);
    FILE *p = popen(text, "r"); // NOLINT(cert-env33-c): a fixed command over our own folder
    if (!p || !fgets(out, sizeof out, p))
        return 0;
    (void)pclose(p);
    return strtoull(out, NULL, 10);
}

static uint64_t grep(void)
{
    return by_shell("grep -c -F sbx_00000000000000000007");
}

static uint64_t sha256(void)
{
    (void)by_shell("sha256sum");
    return n_records;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint64_t (*run)(void);
    } rows[] = {{"a unit's records out of all", one_unit},
                {"the same by grep -F", grep},
                {"a minute, by its time", one_minute},
                {"the newest 200", newest},
                {"a copy of all", copy_all},
                {"the copy again, checked", copy_more},
                {"all by sha256sum", sha256}};
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 256, ns[CL_COUNT(rows)][ROUNDS_MAX],
             found[CL_COUNT(rows)] = {0};
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 9;
    const char *tmp = getenv("TMPDIR");
    rounds = CL_MAX(1, CL_MIN(rounds, ROUNDS_MAX));
    (void)snprintf(dir, sizeof dir, "%s/cloche-trail-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    make_log(mib << 20);
    (void)printf("%" PRIu64 " MiB, %" PRIu64 " records, N = %d\n", mib, n_records, rounds);
    for (int i = 0; i < rounds; i++)
        for (size_t r = 0; r < CL_COUNT(rows); r++) {
            uint64_t begin = cl_now_ns();
            found[r] = rows[r].run();
            ns[r][i] = cl_now_ns() - begin;
        }
    for (size_t r = 0; r < CL_COUNT(rows); r++) {
        qsort(ns[r], (size_t)rounds, sizeof ns[r][0], by_value);
        (void)printf("%-28s  median %8.1f ms  p99 %8.1f ms  %" PRIu64 " records\n", rows[r].name,
                     (double)ns[r][rounds / 2] / 1e6, (double)ns[r][rounds * 99 / 100] / 1e6,
                     found[r]);
    }
    (void)!cl_remove_tree(dir, NULL);
    return 0;
}
