/* worker/machine_kept_io.c - what of a machine at rest outlives its worker; see worker/machine.h.
 *
 * Three files: what its template's snapshot had in RAM, once for all its clones; its own image; its
 * scratch disk.  The image's name goes when it wakes; the disk's when it ends, for a file can be
 * named only once.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"
#include "worker/machine_priv.h"

static int path_of(const struct machine *m, const char *end, char path[static PATH_MAX],
                   struct cl_err *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s%s", m->host->kept_dir, m->kept_name, end);
    return n > 0 && n < PATH_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
}

/* --- to files -----------------------------------------------------------------------------------
 */

static int name_disk(struct machine *m, struct cl_err *err)
{
    char path[PATH_MAX];
    if (m->body.disk < 0 || m->disk_name)
        return 0;
    if (path_of(m, ".disk", path, err) < 0)
        return -1;
    (void)unlink(path); /* of one that nobody knows any more */
    if (cl_file_name(m->body.disk, path, err) < 0)
        return -1;
    m->disk_name = cl_strdup(path);
    return m->disk_name ? 0 : cl_fail(err, CL_E_NOMEM, 0, "a name");
}

static int name_image(struct machine *m, struct cl_err *err)
{
    char path[PATH_MAX];
    return path_of(m, ".image", path, err) < 0 ? -1 : rest_name(m->rest, path, err);
}

static void on_filed(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = err ? *err : (struct cl_err){0};
    vm_done_fn *done = m->keep_done;
    m->keep_done = NULL;
    if (!err && name_disk(m, &why) == 0)
        (void)!name_image(m, &why);
    done(m->keep_arg, why.code ? &why : NULL);
}

/* Its template's RAM is written once; the disk's reserve is for those who run. */
static int check_disk(const struct machine *m, struct cl_err *err)
{
    uint64_t left, need = m->template->file ? 0 : m->template->memory_mib * CL_MIB;
    if (cl_disk_free(m->host->kept_dir, &left, err) < 0)
        return -1;
    return left >= m->host->disk_reserve + need
               ? 0
               : cl_fail(err, CL_E_QUOTA, 0, "the disk has no room for the RAM of its template");
}

int machine_keep(struct machine *m, const char *name, vm_done_fn *done, void *arg,
                 struct cl_err *err)
{
    CL_ASSERT(m->state == MACHINE_AT_REST && !m->keep_done);
    if (!m->is_held || !m->rest_past)
        return cl_fail(err, CL_E_UNIMPL, 0, "its agent was not held");
    if (check_disk(m, err) < 0)
        return -1;
    (void)snprintf(m->kept_name, sizeof m->kept_name, "%s", name);
    m->keep_done = done;
    m->keep_arg = arg;
    m->filing.done = on_filed;
    m->filing.arg = m;
    if (template_keep(m->template, m->host->loop, m->host->kept_dir, &m->filing, err) == 0)
        return 0;
    m->keep_done = NULL;
    return -1;
}

bool machine_is_kept(const struct machine *m)
{
    return m->state == MACHINE_AT_REST && !m->keep_done && rest_has_name(m->rest) &&
           (m->body.disk < 0 || m->disk_name);
}

void machine_get_kept(const struct machine *m, struct machine_kept *ret_kept)
{
    CL_ASSERT(machine_is_kept(m));
    *ret_kept = (struct machine_kept){.template = m->template,
                                      .name = m->kept_name,
                                      .disk_bytes = m->body.disk < 0 ? 0 : m->body.disk_bytes,
                                      .scratch_bytes = m->disk_bytes,
                                      .cpu_ns = m->spent_cpu_ns,
                                      .flow = m->grant ? m->grant->past.flow : 0,
                                      .code_started = m->saved.code_started,
                                      .unwatched = m->unwatched,
                                      .calls = m->calls,
                                      .past = m->rest_past};
    machine_usage_keep(m, ret_kept);
    rest_get_ticket(m->rest, &ret_kept->image);
}

void machine_leave(struct machine *m)
{
    CL_ASSERT(machine_is_kept(m));
    rest_leave(m->rest);
    rest_leave(m->template->file);
    m->is_left = true;
    machine_stop(m);
}

void machine_give_away(struct machine *m)
{
    CL_ASSERT(machine_is_kept(m));
    machine_forget_kept(m);
    machine_stop(m);
}

void machine_forget_kept(struct machine *m)
{
    if (m->disk_name && !m->is_left)
        cl_file_unname(m->body.disk, m->disk_name); /* else the next worker's sweep does it */
    cl_free(m->disk_name);
    cl_free(m->rest_past);
    m->disk_name = NULL;
    m->rest_past = NULL;
}

/* --- from files ---------------------------------------------------------------------------------
 */

static int open_disk(struct machine *m, uint64_t bytes, struct cl_err *err)
{
    char path[PATH_MAX];
    if (path_of(m, ".disk", path, err) < 0)
        return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    m->disk_name = cl_strdup(path);
    if (!m->disk_name) {
        (void)close(fd);
        return cl_fail(err, CL_E_NOMEM, 0, "a name");
    }
    return vm_body_open_copy(&m->body, fd, bytes, err);
}

static int open_image(struct machine *m, const struct rest_ticket *ticket, struct cl_err *err)
{
    char path[PATH_MAX];
    return path_of(m, ".image", path, err) < 0
               ? -1
               : rest_open(m->host->loop, path, ticket, machine_rest_most(m), &m->rest, err);
}

static int take_kept(struct machine *m, const struct machine_kept *kept, struct cl_err *err)
{
    m->rest_past = cl_zalloc(sizeof *m->rest_past);
    if (!m->rest_past)
        return cl_fail(err, CL_E_NOMEM, 0, "machine");
    *m->rest_past = *kept->past;
    m->state = MACHINE_AT_REST;
    m->is_restored = m->is_held = true;
    m->spent_cpu_ns = kept->cpu_ns;
    m->saved.code_started = kept->code_started;
    (void)snprintf(m->kept_name, sizeof m->kept_name, "%s", kept->name);
    (void)snprintf(m->unwatched, sizeof m->unwatched, "%s", kept->unwatched);
    (void)snprintf(m->calls, sizeof m->calls, "%s", kept->calls);
    return (kept->disk_bytes ? open_disk(m, kept->disk_bytes, err)
                             : vm_body_open_copy(&m->body, -1, 0, err)) < 0
               ? -1
               : open_image(m, &kept->image, err);
}

int machine_restore(struct machine_host *host, const struct machine_kept *kept,
                    const struct machine_events *events, void *arg, struct machine **ret_machine,
                    struct cl_err *err)
{
    const struct birth b = {host, kept->template, VM_CLONE, false, NULL, -1, events, arg};
    struct machine *m;
    if (machine_conceive(&b, &m, err) < 0)
        return -1;
    if (take_kept(m, kept, err) < 0 || machine_usage_restore(m, kept, err) < 0 ||
        machine_take_claim(m, kept->claim, err) < 0 ||
        vm_state_save(host->state_dir, &m->saved, err) < 0 || /* of its cgroups */
        machine_open_guest(m, kept->past->next_stream, err) < 0) {
        machine_abort(m, err);
        return -1;
    }
    guest_take_up(m->guest, kept->past);
    guest_set_resting(m->guest, true);
    *ret_machine = m;
    return 0;
}
