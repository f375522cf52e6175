/* worker/unit_kept_io.c - paused sandboxes that outlive the worker; see worker/unit.h.
 *
 *   pause:   at rest ─► its files get names ─► its record is written ─► PAUSED
 *   resume:  its record is removed ─► its VM goes on ─► the names go, but of the commands' output
 *   start:   each record becomes a unit that is PAUSED; files that no record names are removed
 *
 * The record comes last and goes first: one that is there is of a VM that has not gone on since.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "vmm/control.h"
#include "worker/kept.h"
#include "worker/sealed_file.h"
#include "worker/template_file.h"
#include "worker/unit_priv.h"

enum { ARENA = 4 * KEPT_MAX };

static void path_of(const struct units *us, const char *unit_id, char path[static PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/%s", us->record_dir, unit_id);
}

/* --- its commands -------------------------------------------------------------------------------
 */

/* In a record, with all that it points to. */
struct kept_execs {
    struct exec_kept rows[UNIT_EXECS_MAX];
    Cloche__V1__ExecStartCommand starts[UNIT_EXECS_MAX];
    Cloche__V1__Command commands[UNIT_EXECS_MAX];
    Cloche__V1__KeptExec *list[UNIT_EXECS_MAX];
    size_t n;
};
_Static_assert((int)UNIT_EXECS_MAX <= (int)KEPT_EXECS_MAX,
               "a sandbox's commands are in its record");

/* How the names of the files of its output begin. */
static int output_path(const char *dir, const char *unit_id, const char *exec,
                       char path[static PATH_MAX], struct cl_err *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s.%s", dir, unit_id, exec);
    return n > 0 && n < PATH_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
}

static void not_kept(const struct unit *u, const char *exec, const struct cl_err *why)
{
    log_event(LOG_EXEC_NOT_KEPT, "unit=%s exec=%s text='%s'", u->assign->unit_id, exec, why->text);
}

/* One that cannot be kept is none of its sandbox's troubles. */
static void keep_exec(struct unit *u, const struct exec_slot *slot, struct kept_execs *execs)
{
    char path[PATH_MAX];
    struct cl_err why = {0};
    struct exec_kept *row = &execs->rows[execs->n];
    if (output_path(machine_host(u->machine)->kept_dir, u->assign->unit_id, exec_id(slot->exec),
                    path, &why) < 0 ||
        exec_keep_output(slot->exec, path, &why) < 0) {
        not_kept(u, exec_id(slot->exec), &why);
        return;
    }
    exec_get_kept(slot->exec, row);
    row->m.start = &execs->starts[execs->n];
    row->m.abandoned = slot->is_abandoned;
    *row->m.start = *slot->start;
    row->m.start->command = &execs->commands[execs->n];
    *row->m.start->command = *slot->start->command;
    row->m.start->command->n_env = 0;
    row->m.start->command->env = NULL;
    execs->list[execs->n++] = &row->m;
}

static struct kept_execs *keep_execs(struct unit *u, struct cl_err *err)
{
    struct kept_execs *execs = cl_zalloc(sizeof *execs);
    if (!execs)
        (void)cl_fail(err, CL_E_NOMEM, 0, "a record");
    CL_LIST_FOREACH (node, &u->execs) {
        const struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        if (execs && execs->n < UNIT_EXECS_MAX)
            keep_exec(u, slot, execs);
    }
    return execs;
}

static void free_kept_execs(struct kept_execs *execs)
{
    OPENSSL_cleanse(execs->rows, execs->n * sizeof execs->rows[0]);
    cl_free(execs);
}

static int restore_exec(struct unit *u, const char *dir, const Cloche__V1__KeptExec *m,
                        struct exec_slot *slot, struct cl_err *err)
{
    char path[PATH_MAX];
    ProtobufCMessage *copy;
    if (output_path(dir, u->assign->unit_id, m->start->exec_id, path, err) < 0 ||
        pb_copy(&m->start->base, &copy, err) < 0)
        return -1;
    slot->unit = u;
    slot->start = (Cloche__V1__ExecStartCommand *)copy;
    slot->is_abandoned = m->abandoned;
    const struct exec_options options = {.loop = u->units->loop,
                                         .guest = machine_guest(u->machine),
                                         .id = m->start->exec_id,
                                         .command = m->start->command,
                                         .on_end = unit_exec_ended,
                                         .arg = slot};
    if (exec_restore(&options, m, path, &slot->exec, err) == 0)
        return 0;
    pb_free(copy);
    return -1;
}

static void restore_execs(struct unit *u, const char *dir, const Cloche__V1__KeptSandbox *m)
{
    for (size_t i = 0; i < m->n_execs; i++) {
        struct cl_err why = {0};
        struct exec_slot *slot = cl_zalloc(sizeof *slot);
        if (!slot || restore_exec(u, dir, m->execs[i], slot, &why) < 0) {
            not_kept(u, m->execs[i]->start->exec_id, &why);
            cl_free(slot);
            continue;
        }
        cl_list_push(&u->execs, &slot->link);
        u->n_execs++;
        if (slot->is_abandoned && exec_is_running(slot->exec))
            (void)!exec_signal(slot->exec, SIGKILL, &why); /* once it is released */
    }
}

/* --- records ------------------------------------------------------------------------------------
 */

static int write_record(struct unit *u, struct cl_err *err)
{
    char path[PATH_MAX];
    struct cl_buf bytes;
    struct machine_kept machine;
    uint64_t now = cl_now_ns();
    struct kept_execs *execs = keep_execs(u, err);
    if (!execs)
        return -1;
    machine_get_kept(u->machine, &machine);
    const struct kept_source source = {
        .assign = u->assign,
        .machine = &machine,
        .expires_unix_ns = cl_wall_ns() + (u->expires_ns > now ? u->expires_ns - now : 0),
        .paused_for_idle = u->paused_for_idle,
        .goes_on = u->goes_on,
        .watch = &u->watch,
        .network = &u->network,
        .sent_bytes = u->sent_bytes,
        .received_bytes = u->received_bytes,
        .execs = execs->list,
        .n_execs = execs->n,
    };
    path_of(u->units, u->assign->unit_id, path);
    cl_buf_init(&bytes, KEPT_MAX);
    int rc = kept_print(&source, &bytes, err);
    if (rc == 0)
        rc = cl_file_write(path, bytes.data, bytes.len, 0600, err);
    if (bytes.data)
        OPENSSL_cleanse(bytes.data, bytes.len);
    cl_buf_fini(&bytes);
    free_kept_execs(execs);
    OPENSSL_cleanse(&machine.image, sizeof machine.image);
    return rc;
}

bool units_has_record(const struct units *us, const char *unit_id)
{
    char path[PATH_MAX];
    path_of(us, unit_id, path);
    return us->record_dir[0] && unit_id[0] && access(path, F_OK) == 0;
}

void unit_keep_again(struct unit *u)
{
    struct cl_err err = {0};
    if (u->state != UNIT_PAUSED || !machine_is_kept(u->machine))
        return;
    u->is_kept = write_record(u, &err) == 0;
    u->n_records++;
    if (!u->is_kept)
        log_event(LOG_UNIT_NOT_KEPT, "unit=%s text='%s'", u->assign->unit_id, err.text);
}

int unit_forget_kept(struct unit *u, struct cl_err *err)
{
    char path[PATH_MAX];
    if (!u->is_kept)
        return 0;
    path_of(u->units, u->assign->unit_id, path);
    if (unlink(path) < 0 && errno != ENOENT)
        return cl_fail(err, CL_E_SYS, errno, "remove '%s'", path);
    u->is_kept = false;
    return 0;
}

static void on_kept(void *arg, const struct cl_err *err)
{
    struct unit *u = arg;
    struct cl_err why = err ? *err : (struct cl_err){0};
    u->is_kept = !err && write_record(u, &why) == 0;
    if (!u->is_kept)
        log_event(LOG_UNIT_NOT_KEPT, "unit=%s text='%s'", u->assign->unit_id, why.text);
    unit_rests(u);
}

void unit_keep(struct unit *u)
{
    struct cl_err err = {0};
    if (!u->units->record_dir[0])
        unit_rests(u);
    else if (machine_keep(u->machine, u->assign->unit_id, on_kept, u, &err) < 0)
        on_kept(u, &err);
}

void unit_leave(struct unit *u)
{
    u->is_left = true;
    CL_LIST_FOREACH (node, &u->execs)
        exec_leave(CL_LIST_ENTRY(node, struct exec_slot, link)->exec);
    unit_set_state(u, UNIT_ENDING);
    machine_leave(u->machine);
}

void unit_give_away(struct unit *u)
{
    struct cl_err err = {0};
    if (unit_forget_kept(u, &err) < 0) /* who finds it there asks for a lease that is none's */
        log_event(LOG_UNIT_NOT_KEPT, "unit=%s text='%s'", u->assign->unit_id, err.text);
    u->is_left = u->is_given = true;
    CL_LIST_FOREACH (node, &u->execs)
        exec_give_away(CL_LIST_ENTRY(node, struct exec_slot, link)->exec);
    unit_set_state(u, UNIT_ENDING);
    machine_give_away(u->machine);
}

int unit_fail_given(struct cl_err *err)
{
    return cl_fail(err, CL_E_UNAVAILABLE, 0,
                   "the sandbox goes to another worker; try again in a moment");
}

void unit_lose(struct unit *u)
{
    if (unit_is_paused(u) && u->is_kept)
        unit_give_away(u);
    else
        unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED, CLOCHE__V1__REASON__REASON_WORKER_LOST,
                 "its lease was given to another");
}

/* --- back from a record -------------------------------------------------------------------------
 */

/* As the one that made it; false = there is none. */
static bool find_maker(const struct units_past *past, const Cloche__V1__KeptTemplate *t,
                       struct template_maker *ret_maker)
{
    for (size_t i = 0; i < past->n_makers; i++) {
        const struct vm_driver *d = past->makers[i].driver;
        if (strcmp(d->name, t->driver) != 0 || d->is_shared != t->is_shared)
            continue;
        *ret_maker = past->makers[i];
        if (template_is_about_tsc(ret_maker->tsc_khz, t->tsc_khz))
            ret_maker->tsc_khz = t->tsc_khz;
        return true;
    }
    return false;
}

static bool has_file(const struct template *t, const char *name)
{
    return t->file && strcmp(t->file_name, name) == 0;
}

/* The one of that file that is here, another unit's or the pool's; NULL = none is. */
static const struct template *find_template(const struct units *us, const char *file_name)
{
    struct pool_flavour_info infos[POOL_FLAVOURS];
    for (const struct cl_list *l = us->all.next; l != &us->all; l = l->next) {
        const struct unit *u = (const struct unit *)(const void *)l; /* link comes first */
        if (u->machine && has_file(machine_template(u->machine), file_name))
            return machine_template(u->machine);
    }
    size_t n = pool_list(us->pool, infos, POOL_FLAVOURS);
    for (size_t i = 0; i < n; i++) {
        if (has_file(infos[i].template, file_name))
            return infos[i].template;
    }
    return NULL;
}
_Static_assert(offsetof(struct unit, link) == 0, "find_template() relies on it");

/* A name is given once; who says other things of it has no part in it. */
static int check_same(const struct template *t, const Cloche__V1__KeptTemplate *m,
                      struct cl_err *err)
{
    struct rest_ticket have, said;
    rest_get_ticket(t->file, &have);
    sealed_file_ticket(m->memory, &said);
    bool same = strcmp(t->snapshot_key, m->snapshot_key) == 0 && have.bytes == said.bytes &&
                CRYPTO_memcmp(have.key, said.key, sizeof have.key) == 0;
    OPENSSL_cleanse(&have, sizeof have);
    OPENSSL_cleanse(&said, sizeof said);
    return same ? 0 : cl_fail(err, CL_E_DATALOSS, 0, "the memory of its template is another one's");
}

/* The maker's monitor becomes the one that saved it, if that is another.  QEMU's is in the key. */
static int find_monitor(const struct units_past *past, const Cloche__V1__KeptMonitor *m,
                        struct template_maker *maker, struct monitor_build *older,
                        struct cl_err *err)
{
    if (!m || !maker->monitor || strcmp(m->build, maker->vmm_build) == 0)
        return 0;
    if (!past->older_monitors)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "it was paused under '%s', and this worker runs no monitors but its own "
                       "(older-monitors)",
                       m->build);
    if (m->control_version != CONTROL_VERSION)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "it was paused under '%s', which this release cannot talk to", m->build);
    if (monitor_find(past->monitor_dir, m->sha256, older, err) < 0)
        return cl_wrap(err, "it was paused under '%s'", m->build);
    (void)snprintf(older->build, sizeof older->build, "%s", m->build);
    maker->monitor = older;
    maker->vmm_build = older->build;
    return 0;
}

static int make_template(struct units *us, const Cloche__V1__KeptTemplate *m,
                         struct template **ret_template, struct cl_err *err)
{
    struct template_maker maker;
    struct monitor_build older;
    struct template *t;
    if (!find_maker(us->past, m, &maker))
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "this worker has no driver '%s' any more",
                       m->driver);
    if (find_monitor(us->past, m->monitor, &maker, &older, err) < 0)
        return -1;
    const struct template_request request = {.dir = us->past->template_dir,
                                             .name = m->name,
                                             .public_keys = us->past->public_key,
                                             .image_key = m->image_key,
                                             .memory_mib = m->memory_mib,
                                             .vcpus = m->vcpus,
                                             .network = m->network,
                                             .maker = &maker,
                                             .files = us->past->files};
    if (template_open(&request, &t, err) < 0)
        return -1;
    t->dials = m->dials;
    t->cell_env = m->cell_env;
    t->holds = true;
    if (strcmp(t->snapshot_key, m->snapshot_key) != 0) {
        template_unref(t);
        return cl_fail(
            err, CL_E_UNAVAILABLE, 0,
            "it was paused under another release of its monitor, or on another processor");
    }
    *ret_template = t;
    return 0;
}

int unit_open_template(struct units *us, const Cloche__V1__KeptSandbox *m,
                       struct template **ret_template, struct cl_err *err)
{
    if (m->assign->network_grant && !us->net->binary[0])
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "this worker gives no network to its VMs");
    const struct template *here = find_template(us, m->template_->memory->name);
    if (!here)
        return make_template(us, m->template_, ret_template, err);
    if (check_same(here, m->template_, err) < 0)
        return -1;
    *ret_template = template_ref((struct template *)(uintptr_t)here);
    return 0;
}

static int open_memory(struct units *us, struct template *t, const Cloche__V1__SealedFile *m,
                       struct cl_err *err)
{
    struct template_file file = {.dir = us->past->host->kept_dir, .name = m->name};
    if (t->file)
        return 0;
    sealed_file_ticket(m, &file.ticket);
    int rc = template_open_file(t, us->loop, &file, err);
    OPENSSL_cleanse(&file.ticket, sizeof file.ticket);
    return rc;
}

static int restore_machine(struct unit *u, const Cloche__V1__KeptSandbox *m, struct template *t,
                           struct cl_err *err)
{
    struct guest_past open;
    struct net_grant grant;
    struct machine_claim claim;
    struct usage_sample samples[USAGE_MAX];
    struct machine_kept kept = {.template = t,
                                .name = m->image->name,
                                .disk_bytes = m->disk_bytes,
                                .cpu_ns = m->cpu_ns,
                                .code_started = m->code_started,
                                .unwatched = m->unwatched,
                                .calls = m->calls,
                                .usage = {samples, kept_usage(m, samples), USAGE_MAX},
                                .usage_open_ns = m->usage_open_ns,
                                .usage_cpu_ns = m->usage_cpu_ns,
                                .past = &open,
                                .claim = &claim};
    kept_past(m, &open);
    if (unit_fill_claim(u, &grant, &claim, err) < 0)
        return -1;
    claim.scratch_bytes = m->scratch_bytes;
    if (claim.grant)
        grant.past = (struct net_past){u->network.seen, u->sent_bytes, u->received_bytes, m->flow};
    sealed_file_ticket(m->image, &kept.image);
    int rc =
        machine_restore(u->units->past->host, &kept, &unit_machine_events, u, &u->machine, err);
    OPENSSL_cleanse(&kept.image, sizeof kept.image);
    return rc;
}

static void take_numbers(struct unit *u, const Cloche__V1__KeptSandbox *m)
{
    uint64_t wall = cl_wall_ns();
    uint64_t left = m->expires_unix_ns > wall ? m->expires_unix_ns - wall : 0;
    u->expires_ns = cl_now_ns() + left;
    u->paused_for_idle = m->paused_for_idle;
    u->goes_on = m->goes_on;
    u->code_started = m->code_started;
    kept_watch(m->watch, &u->watch);
    kept_watch(m->network, &u->network);
    u->sent_bytes = m->sent_bytes;
    u->received_bytes = m->received_bytes;
}

/* Its template's file goes with the last that uses it from now on, and not before: as long as none
 * has been restored another record may name it. */
int unit_restore(struct units *us, const Cloche__V1__KeptSandbox *m, struct template *t,
                 struct unit **ret_unit, struct cl_err *err)
{
    struct unit *u;
    if (open_memory(us, t, m->template_->memory, err) < 0 || unit_new(us, m->assign, &u, err) < 0)
        return -1;
    take_numbers(u, m);
    if (restore_machine(u, m, t, err) < 0) {
        unit_free(u);
        return -1;
    }
    rest_own(t->file);
    u->is_kept = true;
    restore_execs(u, us->past->host->kept_dir, m);
    cl_list_push(&us->all, &u->link);
    unit_is_restored(u);
    log_event(LOG_UNIT_RESTORED, "unit=%s lease=%s bytes=%llu monitor='%s'", u->assign->unit_id,
              u->assign->lease_id, (unsigned long long)unit_image_bytes(u), t->monitor.build);
    *ret_unit = u;
    return 0;
}

static int restore_record(struct units *us, const Cloche__V1__KeptSandbox *m, struct cl_err *err)
{
    struct template *t;
    struct unit *u;
    if (unit_open_template(us, m, &t, err) < 0)
        return -1;
    int rc = unit_restore(us, m, t, &u, err);
    template_unref(t);
    return rc;
}

/* One record.  What cannot go on is erased. */
static void restore(struct units *us, const char *name, struct cl_arena *arena)
{
    char path[PATH_MAX];
    struct cl_buf bytes;
    const Cloche__V1__KeptSandbox *m = NULL;
    struct cl_err err = {0};
    path_of(us, name, path);
    cl_buf_init(&bytes, KEPT_MAX);
    int rc = cl_file_read(AT_FDCWD, path, &bytes, &err);
    if (rc == 0)
        rc = kept_parse(bytes.data, bytes.len, arena, &m, &err);
    if (rc == 0 && strcmp(m->assign->unit_id, name) != 0)
        rc = cl_fail(&err, CL_E_INVALID, 0, "a record of another sandbox");
    if (rc == 0)
        rc = restore_record(us, m, &err);
    if (rc < 0) {
        (void)unlink(path);
        log_event(LOG_UNIT_NOT_KEPT, "unit=%s text='%s'", name, err.text);
        if (m && m->assign && strcmp(m->assign->unit_id, name) == 0)
            us->past->lost(us->past->arg, m->assign, &err);
    }
    if (bytes.data)
        OPENSSL_cleanse(bytes.data, bytes.len);
    cl_buf_fini(&bytes);
}

static int restore_all(struct units *us, DIR *dir, struct cl_err *err)
{
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct cl_arena *arena;
        if (e->d_name[0] == '.')
            continue;
        if (!kept_is_id(e->d_name)) { /* one that was half written */
            (void)unlinkat(dirfd(dir), e->d_name, 0);
            continue;
        }
        if (cl_arena_new(ARENA, &arena, err) < 0)
            return -1;
        restore(us, e->d_name, arena);
        cl_arena_free(arena);
    }
    return 0;
}

/* --- files that nobody needs --------------------------------------------------------------------
 */

/* The rest of a name that begins like this; NULL = it does not. */
static const char *rest_of(const char *name, const char *begin)
{
    size_t n = strlen(begin);
    return strncmp(name, begin, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

/* `end` is of one of its own files. */
static bool is_own_file(const struct unit *u, const char *end)
{
    CL_LIST_FOREACH (node, (struct cl_list *)(uintptr_t)&u->execs) {
        const struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        if (rest_of(end, exec_id(slot->exec)))
            return true;
    }
    return strcmp(end, "image") == 0 || strcmp(end, "disk") == 0;
}

static bool is_needed(struct units *us, const char *name)
{
    CL_LIST_FOREACH (node, &us->all) {
        const struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        const char *end = rest_of(name, u->assign->unit_id);
        if (!u->is_kept)
            continue;
        if (strcmp(name, machine_template(u->machine)->file_name) == 0 ||
            (end && is_own_file(u, end)))
            return true;
    }
    return false;
}

static bool is_needed_monitor(const void *arg, const char *sha256)
{
    const struct units *us = arg;
    for (size_t i = 0; i < us->past->n_makers; i++) {
        const struct monitor_build *m = us->past->makers[i].monitor;
        if (m && strcmp(m->sha256, sha256) == 0)
            return true;
    }
    for (const struct cl_list *l = us->all.next; l != &us->all; l = l->next) {
        const struct unit *u = (const struct unit *)(const void *)l; /* link comes first */
        if (u->is_kept && strcmp(machine_template(u->machine)->monitor.sha256, sha256) == 0)
            return true;
    }
    return false;
}

static void sweep(struct units *us, DIR *dir)
{
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.' && !is_needed(us, e->d_name))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
}

static int restore_kept(struct units *us, struct cl_err *err)
{
    DIR *records = opendir(us->record_dir), *files = opendir(us->past->host->kept_dir);
    int rc = records && files ? restore_all(us, records, err)
                              : cl_fail(err, CL_E_SYS, errno, "open '%s'",
                                        records ? us->past->host->kept_dir : us->record_dir);
    if (rc == 0)
        sweep(us, files);
    if (records)
        (void)closedir(records);
    if (files)
        (void)closedir(files);
    return rc;
}

int units_restore(struct units *us, struct cl_err *err)
{
    int rc = us->record_dir[0] ? restore_kept(us, err) : 0;
    if (rc == 0)
        monitor_sweep(us->past->monitor_dir, is_needed_monitor, us);
    return rc;
}
