/* worker/snapshot_cache_io.c - see worker/snapshot_cache.h.
 *
 *   store:  RAM and state ─► the disk, if there is one ─► the record
 *   load:   the record ─► RAM and state ─► the disk ─► the template's
 */
#include "worker/snapshot_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/log.h"
#include "worker/disk.h"
#include "worker/sealed_file.h"
#include "worker/vm_driver.h"

enum {
    BOOT_ID = 36, /* characters of a UUID */
    LIST_MAX = 1024,
    ORPHAN_S = 3600, /* a file that no record names was on its way to one, or its worker died */
    HEADS_MIB = 64,  /* of a sealed file: device state, heads and tags */
};

struct snapshot_cache {
    const struct machine_host *host;
    struct snapshot_recipe recipe;
    char dir[PATH_MAX]; /* of this start of the host */
    struct cl_list jobs;
};

/* A snapshot on its way to or from the folder. */
struct job {
    struct cl_list link;
    struct snapshot_cache *cache;
    struct template *template; /* owned reference */
    struct snapshot_record record;
    struct rest *ram, *disk; /* owned */
    bool loads;
    snapshot_cache_fn *done;
    void *arg;
};

static void path_of(const struct snapshot_cache *c, const char *name, char path[static PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s", c->dir, name);
    CL_ASSERT(n > 0 && n < PATH_MAX); /* snapshot_cache_open() has left room */
}

static void free_job(struct job *j)
{
    cl_list_unlink(&j->link);
    rest_free(j->ram);
    rest_free(j->disk);
    template_unref(j->template);
    cl_free(j);
}

static struct job *new_job(struct snapshot_cache *c, struct template *t)
{
    struct job *j = cl_zalloc(sizeof *j);
    if (!j)
        return NULL;
    *j = (struct job){.cache = c, .template = template_ref(t)};
    cl_list_push(&c->jobs, &j->link);
    return j;
}

static uint64_t most_of_ram(const struct template *t)
{
    return (t->memory_mib + HEADS_MIB) * CL_MIB;
}

static uint64_t most_of_disk(void)
{
    return (DISK_DEFAULT_MIB + HEADS_MIB) * CL_MIB;
}

/* --- the folder ---------------------------------------------------------------------------------
 */

static int read_record(const struct snapshot_cache *c, const char *key,
                       struct snapshot_record *ret_record, struct cl_err *err)
{
    char path[PATH_MAX];
    struct cl_buf bytes;
    path_of(c, key, path);
    if (access(path, F_OK) < 0)
        return cl_fail(err, CL_E_NOTFOUND, 0, "no snapshot of that key");
    cl_buf_init(&bytes, SNAPSHOT_RECORD_MAX);
    int rc = cl_file_read(AT_FDCWD, path, &bytes, err);
    if (rc == 0)
        rc = snapshot_record_parse(bytes.data, bytes.len, key, ret_record, err);
    cl_buf_fini(&bytes);
    return rc;
}

/* A link to what is whole, so that a record is there or not; another worker's comes first. */
static int write_record(const struct snapshot_cache *c, struct snapshot_record *record,
                        struct cl_err *err)
{
    char path[PATH_MAX];
    struct cl_buf bytes;
    CL_AUTO(cl_closep) int fd = -1;
    path_of(c, record->key, path);
    cl_buf_init(&bytes, SNAPSHOT_RECORD_MAX);
    int rc = snapshot_record_print(record, &bytes, err);
    if (rc == 0)
        rc = cl_file_nameable(c->dir, &fd, err);
    if (rc == 0)
        rc = cl_write_all(fd, bytes.data, bytes.len, err);
    if (rc == 0)
        rc = cl_file_name(fd, path, err);
    cl_buf_fini(&bytes);
    return rc;
}

static void remove_file(const struct snapshot_cache *c, const char *name)
{
    char path[PATH_MAX];
    path_of(c, name, path);
    if (name[0])
        (void)unlink(path);
}

static void forget(const struct snapshot_cache *c, const char *key)
{
    struct snapshot_record record;
    bool is_known = read_record(c, key, &record, NULL) == 0;
    remove_file(c, key);
    if (!is_known)
        return; /* a sweep finds its files */
    remove_file(c, record.ram.name);
    remove_file(c, record.disk.name);
}

struct entry {
    char name[TEMPLATE_HEX];
    struct timespec used;
};

static int newest_first(const void *a, const void *b)
{
    return cl_newest_first(&((const struct entry *)a)->used, &((const struct entry *)b)->used);
}

static size_t list(const struct snapshot_cache *c, struct entry *entries)
{
    size_t n = 0;
    DIR *d = opendir(c->dir);
    for (struct dirent *e; d && n < LIST_MAX && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof entries->name ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        (void)snprintf(entries[n].name, sizeof entries->name, "%s", e->d_name);
        entries[n++].used = st.st_mtim;
    }
    if (d)
        (void)closedir(d);
    qsort(entries, n, sizeof *entries, newest_first);
    return n;
}

static bool is_named(const struct snapshot_record *records, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(records[i].ram.name, name) == 0 || strcmp(records[i].disk.name, name) == 0)
            return true;
    }
    return false;
}

/* Keep the newest records, and the files that they name. */
static void sweep(const struct snapshot_cache *c)
{
    struct entry *entries = cl_zalloc_array(LIST_MAX, sizeof *entries);
    struct snapshot_record *records = cl_zalloc_array(SNAPSHOT_CACHE_MAX, sizeof *records);
    size_t n = entries && records ? list(c, entries) : 0, n_records = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = entries[i].name;
        if (!sealed_file_is_hex(name))
            continue;
        if (n_records < SNAPSHOT_CACHE_MAX && read_record(c, name, &records[n_records], NULL) == 0)
            n_records++;
        else
            forget(c, name);
    }
    time_t now = time(NULL);
    for (size_t i = 0; i < n; i++) {
        const char *name = entries[i].name;
        if (!sealed_file_is_hex(name) && !is_named(records, n_records, name) &&
            now - entries[i].used.tv_sec > ORPHAN_S)
            remove_file(c, name);
    }
    cl_free(entries);
    cl_free(records);
}

/* Of other starts of the host; nothing else in the folder is ours. */
static void remove_others(const char *dir, const char *boot)
{
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strlen(e->d_name) != BOOT_ID || strspn(e->d_name, "0123456789abcdef-") != BOOT_ID ||
            strcmp(e->d_name, boot) == 0)
            continue;
        int n = snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (n > 0 && (size_t)n < sizeof path)
            (void)!cl_remove_tree(path, NULL);
    }
    if (d)
        (void)closedir(d);
}

static int read_boot_id(char boot[static BOOT_ID + 1], struct cl_err *err)
{
    struct cl_buf text;
    cl_buf_init(&text, 64);
    int rc = cl_file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &text, err);
    if (rc == 0 && text.len < BOOT_ID)
        rc = cl_fail(err, CL_E_INVALID, 0, "a boot id of %zu characters", text.len);
    if (rc == 0)
        (void)snprintf(boot, BOOT_ID + 1, "%.*s", BOOT_ID, (const char *)text.data);
    cl_buf_fini(&text);
    return rc;
}

static int check_own(const char *dir, struct cl_err *err)
{
    struct stat st;
    if (stat(dir, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "look at '%s'", dir);
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return cl_fail(err, CL_E_DENIED, 0,
                       "others can write '%s', and could put guests of their own there", dir);
    return 0;
}

static int make_dir(struct snapshot_cache *c, const char *dir, struct cl_err *err)
{
    char boot[BOOT_ID + 1];
    if (cl_mkdir_p(dir, 0700, err) < 0 || check_own(dir, err) < 0 || read_boot_id(boot, err) < 0)
        return -1;
    int n = snprintf(c->dir, sizeof c->dir, "%s/%s", dir, boot);
    if (n < 0 || (size_t)n >= sizeof c->dir - TEMPLATE_HEX - 1)
        return cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
    remove_others(dir, boot);
    return cl_mkdir_p(c->dir, 0700, err) < 0 ? -1 : check_own(c->dir, err);
}

/* --- to the folder ------------------------------------------------------------------------------
 */

/* One that another worker has stored meanwhile is as good. */
static void finish_store(struct job *j, const struct cl_err *err)
{
    if (err && err->sys != EEXIST)
        log_event(LOG_SNAPSHOT_NOT_CACHED, "template=%s key=%.16s text='%s'", j->template->m.name,
                  j->record.snapshot_key, err->text);
    else if (!err)
        sweep(j->cache);
    free_job(j);
}

static int name_file(const struct job *j, struct rest *rest, const char *kind,
                     struct snapshot_file *file, struct cl_err *err)
{
    char path[PATH_MAX], id[CL_ID_MAX];
    cl_id_new(kind, id);
    (void)snprintf(file->name, sizeof file->name, "%s", id);
    rest_get_ticket(rest, &file->ticket);
    path_of(j->cache, file->name, path);
    return rest_name(rest, path, err);
}

/* Until the record is there the files lose their names with the job. */
static void store_record(struct job *j)
{
    struct cl_err err = {0};
    if (name_file(j, j->ram, "ram", &j->record.ram, &err) < 0 ||
        (j->disk && name_file(j, j->disk, "disk", &j->record.disk, &err) < 0) ||
        write_record(j->cache, &j->record, &err) < 0) {
        finish_store(j, &err);
        return;
    }
    rest_leave(j->ram);
    if (j->disk)
        rest_leave(j->disk);
    finish_store(j, NULL);
}

static void disk_stored(void *arg, const struct cl_err *err)
{
    if (err)
        finish_store(arg, err);
    else
        store_record(arg);
}

static void ram_stored(void *arg, const struct cl_err *err)
{
    struct job *j = arg;
    struct cl_loop *loop = j->cache->host->loop;
    struct cl_err why = err ? *err : (struct cl_err){0};
    int disk = j->template->disk_fd;
    if (err)
        finish_store(j, err);
    else if (disk < 0)
        store_record(j);
    else if (rest_new_of(loop, &(struct vm_rest){disk, -1}, most_of_disk(), &j->disk, &why) < 0 ||
             rest_store(j->disk, j->cache->dir, disk_stored, j, &why) < 0)
        finish_store(j, &why);
}

static int check_room(const struct snapshot_cache *c, const struct template *t, struct cl_err *err)
{
    uint64_t left;
    if (cl_disk_free(c->dir, &left, err) < 0)
        return -1;
    return left >= c->host->disk_reserve + t->memory_mib * CL_MIB
               ? 0
               : cl_fail(err, CL_E_QUOTA, 0, "the disk has no room for it");
}

static int begin_store(struct job *j, struct cl_err *err)
{
    const struct template *t = j->template;
    struct cl_loop *loop = j->cache->host->loop;
    const struct vm_rest files = {t->ram_fd, t->state_fd};
    if (check_room(j->cache, t, err) < 0 ||
        rest_new_of(loop, &files, most_of_ram(t), &j->ram, err) < 0)
        return -1;
    return rest_store(j->ram, j->cache->dir, ram_stored, j, err);
}

void snapshot_cache_store(struct snapshot_cache *cache, struct template *t)
{
    char path[PATH_MAX];
    struct cl_err err = {0};
    CL_ASSERT(t->sealed);
    struct job *j = new_job(cache, t);
    if (!j) {
        log_event(LOG_SNAPSHOT_NOT_CACHED, "template=%s text='out of memory'", t->m.name);
        return;
    }
    j->record = (struct snapshot_record){
        .tsc_khz = t->tsc_khz, .dials = t->dials, .holds = t->holds, .cell_env = t->cell_env};
    snapshot_record_key(t, &cache->recipe, j->record.key);
    (void)snprintf(j->record.snapshot_key, sizeof j->record.snapshot_key, "%s", t->snapshot_key);
    path_of(cache, j->record.key, path);
    if (access(path, F_OK) == 0)
        free_job(j);
    else if (begin_store(j, &err) < 0)
        finish_store(j, &err);
}

/* --- from the folder ----------------------------------------------------------------------------
 */

static int take_fd(int from, int *to, struct cl_err *err)
{
    cl_closep(to);
    *to = fcntl(from, F_DUPFD_CLOEXEC, 3);
    return *to >= 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "files of a snapshot");
}

/* As if it had been made here. */
static int give_to_template(struct job *j, struct cl_err *err)
{
    struct template *t = j->template;
    const struct snapshot_record *r = &j->record;
    const struct vm_rest *ram = rest_files(j->ram);
    if (take_fd(ram->memory, &t->ram_fd, err) < 0 || take_fd(ram->state, &t->state_fd, err) < 0 ||
        (j->disk && take_fd(rest_files(j->disk)->memory, &t->disk_fd, err) < 0))
        return -1;
    (void)snprintf(t->snapshot_key, sizeof t->snapshot_key, "%s", r->snapshot_key);
    t->tsc_khz = r->tsc_khz;
    t->dials = r->dials;
    t->holds = r->holds;
    t->cell_env = r->cell_env;
    return t->driver->adopt && t->driver->adopt(t, err) < 0 ? -1 : template_seal(t, err);
}

static void finish_load(struct job *j, const struct cl_err *err)
{
    struct snapshot_cache *c = j->cache;
    snapshot_cache_fn *done = j->done;
    void *arg = j->arg;
    struct cl_err why = err ? *err : (struct cl_err){0};
    char path[PATH_MAX];
    if (!err && give_to_template(j, &why) == 0) {
        path_of(c, j->record.key, path);
        (void)utimensat(AT_FDCWD, path, NULL, 0);
    } else {
        log_event(LOG_SNAPSHOT_BAD, "template=%s key=%.16s text='%s'", j->template->m.name,
                  j->record.snapshot_key, why.text);
        forget(c, j->record.key);
    }
    free_job(j);
    done(arg, why.code ? &why : NULL);
}

static void disk_loaded(void *arg, const struct cl_err *err)
{
    finish_load(arg, err);
}

static int load_file(struct job *j, const struct snapshot_file *file, uint64_t most,
                     struct rest **ret_rest, rest_done_fn *done, struct cl_err *err)
{
    char path[PATH_MAX];
    path_of(j->cache, file->name, path);
    if (rest_open(j->cache->host->loop, path, &file->ticket, most, ret_rest, err) < 0)
        return -1;
    rest_leave(*ret_rest);
    return rest_load(*ret_rest, done, j, err);
}

static void ram_loaded(void *arg, const struct cl_err *err)
{
    struct job *j = arg;
    struct cl_err why = {0};
    const struct snapshot_file *disk = &j->record.disk;
    if (err || !disk->name[0])
        finish_load(j, err);
    else if (load_file(j, disk, most_of_disk(), &j->disk, disk_loaded, &why) < 0)
        finish_load(j, &why);
}

/* Of one start of one host; a virtual one may have moved to another since. */
static int check_tsc(const struct job *j, struct cl_err *err)
{
    return template_is_about_tsc(j->template->tsc_khz, j->record.tsc_khz)
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "another frequency of the time stamp counter");
}

static int check_disk(const struct job *j, struct cl_err *err)
{
    return (j->template->scratch_fd >= 0) == (j->record.disk.name[0] != 0)
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "a disk too many, or none");
}

int snapshot_cache_load(struct snapshot_cache *cache, struct template *t, snapshot_cache_fn *done,
                        void *arg, struct cl_err *err)
{
    char key[TEMPLATE_HEX];
    struct job *j = new_job(cache, t);
    if (!j)
        return cl_fail(err, CL_E_NOMEM, 0, "snapshot");
    j->loads = true;
    j->done = done;
    j->arg = arg;
    snapshot_record_key(t, &cache->recipe, key);
    if (read_record(cache, key, &j->record, err) == 0 && check_tsc(j, err) == 0 &&
        check_disk(j, err) == 0 &&
        load_file(j, &j->record.ram, most_of_ram(t), &j->ram, ram_loaded, err) == 0)
        return 0;
    free_job(j);
    if (err->code != CL_E_NOTFOUND) {
        log_event(LOG_SNAPSHOT_BAD, "template=%s text='%s'", t->m.name, err->text);
        forget(cache, key);
    }
    return -1;
}

void snapshot_cache_cancel(struct snapshot_cache *cache, const struct template *t)
{
    CL_LIST_FOREACH (node, &cache->jobs) {
        struct job *j = CL_LIST_ENTRY(node, struct job, link);
        if (j->loads && j->template == t)
            free_job(j);
    }
}

void snapshot_cache_forget(struct snapshot_cache *cache, const struct template *t)
{
    char key[TEMPLATE_HEX];
    snapshot_record_key(t, &cache->recipe, key);
    forget(cache, key);
}

/* --- life ---------------------------------------------------------------------------------------
 */

int snapshot_cache_open(const struct snapshot_cache_options *options,
                        struct snapshot_cache **ret_cache, struct cl_err *err)
{
    struct snapshot_cache *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "snapshots");
    c->host = options->host;
    c->recipe = options->recipe;
    cl_list_init(&c->jobs);
    if (make_dir(c, options->dir, err) < 0) {
        cl_free(c);
        return -1;
    }
    sweep(c);
    *ret_cache = c;
    return 0;
}

void snapshot_cache_free(struct snapshot_cache *cache)
{
    if (!cache)
        return;
    CL_LIST_FOREACH (node, &cache->jobs)
        free_job(CL_LIST_ENTRY(node, struct job, link));
    cl_free(cache);
}
