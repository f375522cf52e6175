/* tests/fuzz/fuzz_walk.c - a log of any bytes: the walk tells each line that is a record, once and
 * in order, whatever stands between them and however much it may read at once; the newest N are the
 * last N of these, and from number N on come those that are not before it.
 *
 * Input: [bytes of a step][N] then the log: 0xff = a good line, 0xfe = the next file, 0xfd = 30,000
 * bytes without a newline, any other byte itself. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/files.h"
#include "base/fs.h"
#include "base/mem.h"
#include "trail/newest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { FILES = 4, LINES = 64, LOG_MAX = 4 << 20, FILLER = 30000 };

static char dir[] = "/tmp/cloche-fuzz-walk-XXXXXX";

struct log {
    struct audit_chain chain;
    struct cl_buf files[FILES];
    size_t n_files, n_lines;
    uint64_t good[LINES], told[LINES]; /* seqs */
    size_t n_good, n_told;
};

static void clean(void)
{
    (void)!cl_remove_tree(dir, NULL);
}

static void make_dir(void)
{
    static bool is_made;
    char path[AUDIT_PATH];
    if (is_made)
        return;
    is_made = true;
    CL_ASSERT(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/tenant/a", dir);
    CL_ASSERT(cl_mkdir_p(path, 0755, NULL) == 0);
    (void)atexit(clean);
}

static int add_line(struct log *l, struct cl_buf *out)
{
    struct audit_record r = {.epoch = 1,
                             .n = l->chain.next_seq,
                             .event = "unit.end",
                             .fields = "{\"unit\":\"sbx_1\"}",
                             .fields_n = 16,
                             .source = "scheduler"};
    cl_rfc3339((1767225600 + l->chain.next_seq) * CL_NS_PER_S, r.ts);
    return l->n_lines++ >= LINES ? 0 : audit_chain_append(&l->chain, &r, out, NULL);
}

static int make(struct log *l, const uint8_t *data, size_t n)
{
    static char filler[FILLER];
    memset(filler, 'x', sizeof filler);
    for (size_t i = 0; i < n; i++) {
        struct cl_buf *out = &l->files[l->n_files - 1];
        if (data[i] == 0xfe && l->n_files < FILES)
            l->n_files++;
        else if ((data[i] == 0xff   ? add_line(l, out)
                  : data[i] == 0xfd ? cl_buf_append(out, filler, sizeof filler, NULL)
                                    : cl_buf_append(out, data + i, 1, NULL)) < 0)
            return -1;
    }
    return 0;
}

/* The plain way: all of a file at once. */
static void look(struct log *l, const struct cl_buf *file)
{
    for (size_t at = 0; at < file->len;) {
        struct audit_record r;
        const char *line = (const char *)file->data + at, *end = memchr(line, '\n', file->len - at);
        if (!end)
            return;
        if (audit_record_parse(line, (size_t)(end - line), &r, NULL) == 0)
            l->good[l->n_good++] = r.seq;
        at += (size_t)(end - line) + 1;
    }
}

static int tell(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    struct log *l = arg;
    (void)line, (void)n, (void)err;
    CL_ASSERT(l->n_told < LINES);
    l->told[l->n_told++] = r->seq;
    return 0;
}

static void expect(struct log *l, size_t last)
{
    size_t n = CL_MIN(last, l->n_good);
    CL_ASSERT(l->n_told == n);
    CL_ASSERT(n == 0 || memcmp(l->told, l->good + l->n_good - n, n * sizeof *l->told) == 0);
    l->n_told = 0;
}

static int walk_it(struct log *l, uint64_t from, size_t step)
{
    const struct walk_place place = {"tenant/a", from};
    const struct walk_filter filter = {.stream = "tenant/a",
                                       .unit = "sbx_1",
                                       .may_come = true,
                                       .from = &place,
                                       .n_from = from > 0};
    struct walk *w;
    int more;
    if (walk_new(dir, &filter, &w, NULL) < 0)
        return -1;
    do
        more = walk_step(w, step, tell, l, NULL);
    while (more > 0);
    walk_free(w);
    return more;
}

static int newest_of_it(struct log *l, size_t count, size_t step)
{
    const struct walk_filter filter = {.may_come = true};
    struct newest *newest;
    int more;
    if (newest_new(dir, &filter, count, &newest, NULL) < 0)
        return -1;
    do
        more = newest_step(newest, step, NULL);
    while (more > 0);
    while (more == 0 && (more = newest_tell(newest, step, tell, l, NULL)) > 0)
        more = 0;
    newest_free(newest);
    return more;
}

static int try(struct log *l, const uint8_t *data, size_t n)
{
    size_t step = 1 + (size_t)data[0] * 64, count = 1 + data[1] % 8;
    if (make(l, data + 2, n - 2) < 0)
        return -1;
    for (size_t i = 0; i < l->n_files; i++) {
        char path[AUDIT_PATH];
        audit_file_path(dir, "tenant/a", (unsigned)i + 1, path);
        FILE *f = fopen(path, "wb");
        CL_ASSERT(f);
        size_t len = l->files[i].len;
        CL_ASSERT(len == 0 || fwrite(l->files[i].data, 1, len, f) == len);
        CL_ASSERT(fclose(f) == 0);
    }
    for (size_t i = 0; i < l->n_files; i++)
        look(l, &l->files[i]);
    if (walk_it(l, 0, step) < 0)
        return -1;
    expect(l, LINES);
    if (walk_it(l, count, step) < 0)
        return -1;
    size_t before = 0;
    while (before < l->n_good && l->good[before] < count)
        before++;
    expect(l, l->n_good - before);
    if (newest_of_it(l, count, step) < 0)
        return -1;
    expect(l, count);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct log l = {.n_files = 1};
    char path[AUDIT_PATH];
    make_dir();
    audit_chain_init(&l.chain, "tenant/a");
    for (size_t i = 0; i < FILES; i++)
        cl_buf_init(&l.files[i], LOG_MAX);
    if (n >= 2 && n < 2048)
        CL_ASSERT(try(&l, data, n) == 0 || cl_test_alloc_failed());
    for (size_t i = 0; i < FILES; i++) {
        cl_buf_fini(&l.files[i]);
        audit_file_path(dir, "tenant/a", (unsigned)i + 1, path);
        (void)remove(path);
    }
    return 0;
}
