/* cli/doctor.c - `cloche doctor`: what this host can do, what is missing and how to mend it.
 *
 * Owns:    the list of findings, for one run.
 * Thread:  the only one; starts `cloche-worker --probe` and `redis-server --version`.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cli/supervisor.h"
#include "cli/values.h"

#define DISK_WANTED (4 * CL_GIB)
#define MEMORY_WANTED (1 * CL_GIB)

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_FAIL };

struct doctor {
    json_t *list; /* owned */
    bool fatal;   /* nothing can run */
    bool json;
};

static void note(struct doctor *d, enum level level, const char *what, const char *text,
                 const char *remedy)
{
    static const char *const names[] = {"ok", "warn", "fail"};
    d->fatal = d->fatal || level == LEVEL_FAIL;
    (void)json_array_append_new(d->list, json_pack("{s:s, s:s, s:o, s:s}", "check", what, "level",
                                                   names[level], "text", out_string(text), "remedy",
                                                   level == LEVEL_OK ? "" : remedy));
    if (d->json)
        return;
    (void)printf("%-4s  %-18s  %s\n", names[level], what, text);
    if (level != LEVEL_OK)
        (void)printf("      %-18s  remedy: %s\n", "", remedy);
}

/* --- the host, as the worker sees it -------------------------------------------------------------
 */

static json_t *ask_worker(const struct cli_paths *p)
{
    char command[PATH_TEXT + 64];
    if (strpbrk(p->bin, "'\\"))
        return NULL;
    (void)snprintf(command, sizeof command, "'%s/cloche-worker' --probe 2>/dev/null", p->bin);
    FILE *f = popen(command, "re");
    json_t *probe = f ? json_loadf(f, 0, NULL) : NULL;
    if (f)
        (void)pclose(f);
    return probe;
}

static bool is_true(const json_t *probe, const char *key)
{
    return json_is_true(json_object_get(probe, key));
}

static const char *text_of(const json_t *probe, const char *key)
{
    const char *s = json_string_value(json_object_get(probe, key));
    return s ? s : "";
}

/* One of them is enough, so that another cannot run here is no fault of the host. */
static void check_possible(struct doctor *d, const json_t *probe, const char *driver,
                           const char *can, const char *why)
{
    char text[256], name[VALUE_TEXT];
    (void)snprintf(name, sizeof name, "driver %s", driver);
    (void)snprintf(text, sizeof text, "%s: %s", is_true(probe, can) ? "possible" : "not possible",
                   text_of(probe, why));
    note(d, LEVEL_OK, name, text, "");
}

/* What `auto` means here. */
static void check_driver(struct doctor *d, const json_t *probe)
{
    char text[384];
    const char *driver = text_of(probe, "driver"), *drivers = text_of(probe, "drivers");
    (void)snprintf(text, sizeof text, "%s (%s)%s", drivers, text_of(probe, "driver_why"),
                   strstr(drivers, "-shared")
                       ? "; the shared one for tenants that are shared-ok, as `local` is: user "
                         "code in its guests can reach their kernel, not the host"
                       : "");
    note(d, strcmp(driver, "qemu/tcg") != 0 ? LEVEL_OK : LEVEL_WARN, "driver", text,
         "works, but runs several times slower; enable virtualization (VMX/SVM, nested on a VM) "
         "and access to /dev/kvm");
    check_possible(d, probe, "kvm", "vmm_can", "vmm_why");
    check_possible(d, probe, "kvm/xenpv", "xenpv_can", "xenpv_why");
}

enum { CHEAP_NS = 3000 }; /* an AMD host has about 1,100, Intel hosts 5,700 to 24,000 */

static const char *costs_mean(const json_t *probe, uint64_t transition_ns)
{
    if (!is_true(probe, "xenpv_can"))
        return "little: guests' kernels run natively and come to KVM for devices and timers only";
    return transition_ns <= CHEAP_NS
               ? "each system call of a kvm/xenpv guest takes one way out and back, isolated "
                 "several: cheap here, programs run near the host's speed"
               : "each system call of a kvm/xenpv guest takes one way out and back, isolated "
                 "several: dear here, what computes is native, what mostly calls its kernel gains "
                 "least over qemu/tcg";
}

/* What a guest takes of KVM here, and what that means.  `auto` goes by what can run, not by these
 * figures: where they were worst, whole programs were still slower under qemu/tcg
 * (docs/results/vmm.md). */
static void check_costs(struct doctor *d, const json_t *probe)
{
    char text[384], transition[VALUE_TEXT], fault[VALUE_TEXT];
    uint64_t transition_ns = (uint64_t)json_integer_value(json_object_get(probe, "transition_ns"));
    int n = (int)json_integer_value(json_object_get(probe, "cost_samples"));
    if (transition_ns == 0) {
        (void)snprintf(text, sizeof text, "not measured: %s", text_of(probe, "costs_why"));
        note(d, LEVEL_OK, "kvm costs", text, "");
        return;
    }
    value_us_text(transition_ns, transition);
    value_us_text((uint64_t)json_integer_value(json_object_get(probe, "page_fault_ns")), fault);
    (void)snprintf(
        text, sizeof text,
        "out of a guest and back %s (%s in ring 3), a page fault of a guest %s, each the "
        "median of %d",
        transition, text_of(probe, "transition_by"), fault, n);
    note(d, LEVEL_OK, "kvm costs", text, "");
    (void)snprintf(text, sizeof text, "%s; auto goes by what can run, not by this",
                   costs_mean(probe, transition_ns));
    note(d, LEVEL_OK, "what they mean", text, "");
}

static void check_cpu(struct doctor *d, const json_t *probe)
{
    char text[256], size[VALUE_TEXT];
    uint64_t memory = (uint64_t)json_integer_value(json_object_get(probe, "memory_bytes"));
    cl_text_bytes(memory, size);
    (void)snprintf(text, sizeof text, "%s, %d CPUs, %s", text_of(probe, "cpu_model"),
                   (int)json_integer_value(json_object_get(probe, "cpus")), size);
    note(d, memory < MEMORY_WANTED ? LEVEL_WARN : LEVEL_OK, "machine", text,
         "give the machine at least 1 GiB of memory");
    check_driver(d, probe);
    check_costs(d, probe);
    bool qemu = text_of(probe, "qemu_build")[0] != '\0';
    note(d, qemu ? LEVEL_OK : LEVEL_FAIL, "qemu",
         qemu ? text_of(probe, "qemu_build") : "QEMU is missing", "apt install qemu-system-x86");
}

static void check_separation(struct doctor *d, const json_t *probe)
{
    bool root = is_true(probe, "is_root"), groups = is_true(probe, "cgroups");
    note(d, is_true(probe, "namespaces") ? LEVEL_OK : LEVEL_WARN, "namespaces",
         is_true(probe, "namespaces") ? "every VM process gets its own"
                                      : "VM processes cannot have namespaces of their own",
         "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or run as root; in a "
         "container: --cap-add SYS_ADMIN --security-opt seccomp=unconfined");
    note(d, groups ? LEVEL_OK : LEVEL_WARN, "cgroups",
         !groups ? "no cgroups: memory and CPU of VMs are bounded by QEMU and rlimits alone"
         : is_true(probe, "cgroup_v2") ? "version 2"
                                       : "version 1",
         "run as root, or with a delegated cgroup (systemd-run --user -p Delegate=yes); in a "
         "container: --cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup");
    note(d, root ? LEVEL_OK : LEVEL_WARN, "user",
         root ? "root: a uid for every VM" : "an ordinary user: VMs share a uid",
         "root adds a uid per VM, cgroups, system users for the processes, and template builds");
    if (!root)
        note(d, is_true(probe, "subuid") ? LEVEL_OK : LEVEL_WARN, "subuid",
             is_true(probe, "subuid") ? "a range of subordinate uids"
                                      : "no subordinate uids: templates cannot be built here",
             "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER; or use "
             "templates that root built");
}

/* --- programs
 * -------------------------------------------------------------------------------------- */

static bool in_path(const char *name)
{
    static const char *const dirs[] = {"/usr/bin", "/usr/sbin",      "/bin",
                                       "/sbin",    "/usr/local/bin", "/usr/local/sbin"};
    char path[PATH_TEXT];
    for (size_t i = 0; i < CL_COUNT(dirs); i++) {
        path_join(path, dirs[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_redis(struct doctor *d)
{
    unsigned major = 0, minor = 0, patch = 0;
    char text[96], line[256] = "";
    FILE *f = in_path("redis-server") ? popen("redis-server --version 2>/dev/null", "re") : NULL;
    const char *v = f && fgets(line, sizeof line, f) ? strstr(line, "v=") : NULL;
    if (f)
        (void)pclose(f);
    if (!v || sscanf(v, "v=%u.%u.%u", &major, &minor, &patch) != 3) {
        note(d, LEVEL_FAIL, "redis-server", "it is missing", "apt install redis-server");
        return;
    }
    bool enough = major > 7 || (major == 7 && (minor > 0 || patch >= 15));
    (void)snprintf(text, sizeof text, "%u.%u.%u", major, minor, patch);
    note(d, enough ? LEVEL_OK : LEVEL_FAIL, "redis-server", text,
         "7.0.15 or newer is needed: apt install redis-server");
    note(d, LEVEL_OK, "durability",
         "appendfsync always: nothing acknowledged is lost, not even with the power", "");
}

/* "" = all are there. */
static void list_missing(const char *const *tools, size_t n_tools, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < n_tools; i++) {
        size_t n = strlen(text);
        if (!in_path(tools[i]))
            (void)snprintf(text + n, size - n, "%s%s", n ? ", " : "missing: ", tools[i]);
    }
}

static void check_programs(struct doctor *d, const struct cli_paths *p)
{
    static const char *const own[] = {"cloche-scheduler", "cloche-worker", "cloche-guard",
                                      "cloche-vmm",       "cloche-audit",  "cloche-agent"};
    static const char *const tools[] = {"mmdebstrap", "mkfs.erofs", "veritysetup", "cpio",
                                        "depmod",     "openssl",    "xz"};
    static const char *const image_tools[] = {"skopeo", "umoci"};
    char path[PATH_TEXT], text[256];
    for (size_t i = 0; i < CL_COUNT(own); i++) {
        path_join(path, p->bin, own[i]);
        if (access(path, X_OK) < 0)
            note(d, LEVEL_FAIL, own[i], "it is not beside this program",
                 "build the whole project: cmake --build build");
    }
    list_missing(tools, CL_COUNT(tools), text, sizeof text);
    note(d, text[0] ? LEVEL_WARN : LEVEL_OK, "template tools", text[0] ? text : "all there",
         "templates cannot be built: apt install mmdebstrap erofs-utils cryptsetup-bin cpio kmod "
         "openssl xz-utils");
    list_missing(image_tools, CL_COUNT(image_tools), text, sizeof text);
    size_t n = strlen(text);
    if (n > 0)
        (void)snprintf(text + n, sizeof text - n,
                       "; for templates of them, `template push` and `pull`: apt install "
                       "--no-install-recommends skopeo umoci");
    note(d, LEVEL_OK, "container images", n > 0 ? text : "all there", "");
}

/* --- folders
 * ---------------------------------------------------------------------------------------- */

/* The deepest folder of the path that exists: there the disk is. */
static void existing_part(const char *path, char out[static PATH_TEXT])
{
    (void)snprintf(out, PATH_TEXT, "%s", path);
    for (char *slash; access(out, F_OK) < 0 && (slash = strrchr(out, '/')) != NULL && slash != out;)
        *slash = '\0';
}

static void check_disk(struct doctor *d, const struct cli_paths *p)
{
    uint64_t free_bytes = 0;
    char at[PATH_TEXT], size[VALUE_TEXT], text[PATH_TEXT + 64];
    existing_part(p->state, at);
    if (cl_disk_free(at, &free_bytes, NULL) < 0)
        return;
    cl_text_bytes(free_bytes, size);
    (void)snprintf(text, sizeof text, "%s free in %s", size, p->state);
    note(d, free_bytes < DISK_WANTED ? LEVEL_WARN : LEVEL_OK, "disk", text,
         "below 1 GiB work is refused; free some space or choose another --state-dir");
    if (access(at, W_OK) < 0)
        note(d, LEVEL_FAIL, "state folder", "it cannot be written",
             "choose another --state-dir, or run as its owner");
}

static void check_templates(struct doctor *d, const struct cli_paths *p)
{
    static const char *const names[] = {"base", "python"};
    char dir[PATH_TEXT], text[PATH_TEXT + 64], images[PATH_TEXT] = "";
    plan_template_dir(p, dir);
    plan_add_images(dir, images, sizeof images);
    bool any = images[0];
    for (size_t i = 0; i < CL_COUNT(names); i++)
        any = any || plan_template_is_built(dir, names[i]);
    (void)snprintf(text, sizeof text, "%s in %s", any ? "built" : "none is built", dir);
    note(d, any ? LEVEL_OK : LEVEL_WARN, "templates", text,
         "cloche template build python; or one that another host built: cloche template pull");
}

static void check_running(struct doctor *d, const struct cli_paths *p)
{
    bool running = supervisor_is_running(p->run);
    note(d, running ? LEVEL_OK : LEVEL_WARN, "service",
         running ? "it runs" : "it does not run here", "cloche up");
}

/* --- the whole
 * --------------------------------------------------------------------------------------- */

static int cmd_doctor(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    struct cli_paths p;
    struct doctor d = {.json = o->json};
    if (paths_resolve(o, &p, &err) < 0)
        return cli_report(&err);
    d.list = json_array();
    json_t *probe = ask_worker(&p);
    check_programs(&d, &p);
    check_redis(&d);
    if (probe) {
        check_cpu(&d, probe);
        check_separation(&d, probe);
    } else {
        note(&d, LEVEL_FAIL, "probe", "cloche-worker --probe gave no answer",
             "build the whole project: cmake --build build");
    }
    check_disk(&d, &p);
    check_templates(&d, &p);
    check_running(&d, &p);
    int code = d.fatal ? EXIT_FAILED : EXIT_OK;
    if (o->json)
        (void)out_json(json_pack("{s:b, s:s, s:o, s:o}", "usable", !d.fatal, "driver",
                                 text_of(probe, "driver"), "host",
                                 probe ? json_incref(probe) : json_null(), "checks", d.list));
    else
        json_decref(d.list);
    json_decref(probe);
    return code;
}

static const struct arg_opt doctor_opts[] = {OPT_JSON, OPT_DIRS};

const struct cli_command doctor_commands[] = {
    {"doctor", "[--json]", "what this host can do, what is missing and how to mend it",
     "Exit code 1 only when nothing can run.\n", SPEC(doctor_opts, 0, 0), cmd_doctor, false},
};
const size_t doctor_commands_n = CL_COUNT(doctor_commands);
