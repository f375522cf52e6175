/* worker/'s pure parts: manifests, QMP lines, state files, spools, QEMU's command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/fs.h"
#include "base/mem.h"
#include "worker/guest_clock.h"
#include "worker/jail.h"
#include "worker/probe.h"
#include "worker/qemu.h"
#include "worker/disk.h"
#include "worker/qmp.h"
#include "worker/spool.h"
#include "worker/template.h"
#include "worker/vm_state.h"
#include "worker/warmup.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char manifest[] =
    "{\"version\":1,\"name\":\"base\",\"key\":\"" HEX64 "\",\"protocol_major\":1,"
    "\"kernel\":{\"version\":\"6.1\",\"sha256\":\"" HEX64 "\"},\"initrd\":{\"sha256\":\"" HEX64
    "\"},"
    "\"rootfs\":{\"sha256\":\"" HEX64 "\"},\"verity\":{\"root\":\"" HEX64 "\"},"
    "\"cmdline\":\"quiet\",\"memory_mib\":256,\"vcpus\":1,\"warm_up\":[[\"/bin/"
    "true\"],[\"python3\",\"-c\",\"pass\"]]}";

static void take_costs(struct host_probe *p, const char *line)
{
    *p = (struct host_probe){.costs_why = "nobody said"};
    host_probe_take_line(p, 2, line);
}

static void test_what_the_monitor_says_of_kvm_is_read(void **state)
{
    (void)state;
    struct host_probe p = {.vmm_can = false};
    host_probe_take_line(&p, 0, "cloche-vmm 0.1 0123456789abcdef");
    host_probe_take_line(&p, 1, "yes an instruction takes 1 ns");
    assert_string_equal(p.vmm_build, "cloche-vmm 0.1 0123456789abcdef");
    assert_true(p.vmm_can);
    assert_string_equal(p.vmm_why, "an instruction takes 1 ns");
    take_costs(&p, "costs 5749 17939 SYSCALL 255\n");
    assert_int_equal(p.transition_ns, 5749);
    assert_int_equal(p.page_fault_ns, 17939);
    assert_int_equal(p.cost_samples, 255);
    assert_string_equal(p.transition_by, "SYSCALL");
    assert_string_equal(p.costs_why, "");
    take_costs(&p, "nocosts KVM did not answer in time\n");
    assert_int_equal(p.transition_ns, 0);
    assert_string_equal(p.costs_why, "KVM did not answer in time");
}

static void test_costs_that_cannot_be_are_not_believed(void **state)
{
    (void)state;
    static const char *const bad[] = {"costs 0 17939 SYSCALL 255", "costs 5749 0 SYSCALL 255",
                                      "costs 10000001 17939 SYSCALL 255",
                                      "costs 5749 99999999999999999999 SYSCALL 255"};
    struct host_probe p;
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        take_costs(&p, bad[i]);
        assert_int_equal(p.transition_ns, 0);
        assert_int_equal(p.page_fault_ns, 0);
        assert_non_null(strstr(p.costs_why, "which cannot be"));
    }
    static const char *const none[] = {"", "costs", "costs a b", "costs 1 2 syscall 255", "x"};
    for (size_t i = 0; i < CL_COUNT(none); i++) {
        take_costs(&p, none[i]);
        assert_int_equal(p.transition_ns, 0);
        assert_string_equal(p.costs_why, "nobody said");
    }
}

static void test_a_manifest_is_read(void **state)
{
    (void)state;
    struct template_manifest m;
    struct cl_err err = {0};
    assert_int_equal(template_parse(manifest, strlen(manifest), &m, &err), 0);
    assert_string_equal(m.name, "base");
    assert_int_equal(m.default_memory_mib, 256);
    assert_int_equal(m.n_warmups, 2);
    assert_string_equal(m.warmups[1].argv[2], "pass");
    assert_null(m.warmups[1].argv[3]);
    template_manifest_fini(&m);
}

static void test_a_manifest_of_an_older_image_has_no_scratch_disk(void **state)
{
    (void)state;
    static const char with[] = "{\"scratch\":{\"file\":\"scratch.img\",\"sha256\":\"" HEX64 "\"},";
    struct template_manifest m;
    char text[2048];
    assert_int_equal(template_parse(manifest, strlen(manifest), &m, NULL), 0);
    assert_string_equal(m.scratch_sha256, "");
    template_manifest_fini(&m);
    (void)snprintf(text, sizeof text, "%s%s", with, manifest + 1);
    assert_int_equal(template_parse(text, strlen(text), &m, NULL), 0);
    assert_string_equal(m.scratch_sha256, HEX64);
    template_manifest_fini(&m);
}

static void test_a_manifest_names_the_image_of_a_registry(void **state)
{
    (void)state;
    static const struct {
        const char *source, *image;
    } rows[] = {{"\"docker://node:22-slim\"", "node:22-slim"},
                {"\"docker://\"", ""},
                {"\"oci:/home/me/secret\"", ""},
                {"7", ""},
                {"\"docker://" HEX64 HEX64 HEX64 HEX64 "\"", ""}};
    struct template_manifest m;
    char text[2048];
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        (void)snprintf(text, sizeof text, "{\"container\":{\"source\":%s,\"id\":\"x\"},%s",
                       rows[i].source, manifest + 1);
        assert_int_equal(template_parse(text, strlen(text), &m, NULL), 0);
        assert_string_equal(m.image, rows[i].image);
        template_manifest_fini(&m);
    }
}

static void test_disks_start_from_the_template_and_stay_sparse(void **state)
{
    (void)state;
    static const char text[] = "what the template holds";
    char back[sizeof text] = "";
    struct stat st;
    struct cl_err err = {0};
    int disk = -1, source = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    static const char zeros[2 * CL_MIB]; /* holes that a copy of the template has filled */
    assert_true(source >= 0 && ftruncate(source, 16 * CL_MIB) == 0);
    assert_int_equal(pwrite(source, zeros, sizeof zeros, 4 * CL_MIB), sizeof zeros);
    assert_int_equal(pwrite(source, text, sizeof text, 5 * CL_MIB), sizeof text);
    assert_int_equal(disk_make("/tmp", source, 512 * CL_MIB, &disk, NULL), 0);
    assert_int_equal(pread(disk, back, sizeof back, 5 * CL_MIB), sizeof back);
    assert_memory_equal(back, text, sizeof text);
    assert_int_equal(fstat(disk, &st), 0);
    assert_int_equal(st.st_size, 512 * CL_MIB);
    assert_int_equal(st.st_nlink, 0);
    assert_true(disk_taken(disk) >= sizeof text && disk_taken(disk) < CL_MIB);
    (void)close(disk);
    assert_int_equal(disk_make("/no/such/folder", source, CL_MIB, &disk, &err), -1);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    (void)close(source);
}

/* Replace the first `from` in the good manifest. */
static int parse_changed(const char *from, const char *to, struct cl_err *err)
{
    struct template_manifest m;
    const char *at = strstr(manifest, from);
    assert_non_null(at);
    char *text = cl_asprintf("%.*s%s%s", (int)(at - manifest), manifest, to, at + strlen(from));
    assert_non_null(text);
    int rc = template_parse(text, strlen(text), &m, err);
    if (rc == 0)
        template_manifest_fini(&m);
    cl_free(text);
    return rc;
}

#define CONTEXTS "\"vcpus\":1,\"contexts\":"

static void expect_contexts(const char *list, const char *want)
{
    struct cl_err err = {0};
    char *text = cl_asprintf(CONTEXTS "%s", list);
    assert_non_null(text);
    assert_int_equal(parse_changed("\"vcpus\":1", text, &err), want ? -1 : 0);
    if (want && !strstr(err.text, want))
        fail_msg("%s: got '%s', want '%s'", list, err.text, want);
    cl_free(text);
}

static void test_contexts_of_a_manifest_are_checked(void **state)
{
    (void)state;
    expect_contexts("[]", NULL);
    expect_contexts("[{\"language\":\"python\",\"preload\":\"import re\",\"warm_up\":\"1\"},"
                    "{\"language\":\"bash\"}]",
                    NULL);
    expect_contexts("7", "contexts");
    expect_contexts("[{}]", "language");
    expect_contexts("[{\"language\":\"cobol\"}]", "language");
    expect_contexts("[{\"language\":\"python\",\"preload\":[]}]", "preload");
    expect_contexts("[{\"language\":\"bash\"},{\"language\":\"bash\"}]", "two contexts");
    expect_contexts("[{},{},{},{},{}]", "contexts");
}

/* The kinds of all steps, one letter each: c command, x context, p preload, w warm-up cell,
 * R rehearse, i identity. */
static void steps(const struct template_manifest *m, bool boot, char *out)
{
    struct warmup_step step;
    size_t n = 0;
    for (; warmup_step(m, boot, n, &step); n++)
        out[n] = " cxpwRi"[step.kind];
    out[n] = '\0';
}

static void test_a_boot_starts_contexts_and_a_clone_warms_them(void **state)
{
    (void)state;
    char got[32];
    struct template_manifest none = {0}, commands = {.n_warmups = 2},
                             both = {.n_warmups = 1, .n_contexts = 2};
    steps(&none, true, got);
    assert_string_equal(got, "Ri");
    steps(&commands, true, got);
    assert_string_equal(got, "ccccRicc");
    steps(&commands, false, got);
    assert_string_equal(got, "cccc");
    steps(&both, true, got);
    assert_string_equal(got, "ccxpxpwwwwRiww");
    steps(&both, false, got);
    assert_string_equal(got, "ccwwww");
    struct warmup_step step;
    assert_true(warmup_step(&both, true, 4, &step));
    assert_ptr_equal(step.context, &both.contexts[1]);
}

static void test_a_bad_manifest_names_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *want;
        enum cl_code code;
    } cases[] = {
        {"\"version\":1", "\"version\":2", "version 2", CL_E_UNIMPL},
        {"\"version\":1", "\"version\":\"1\"", "'version'", CL_E_INVALID},
        {"\"name\":\"base\"", "\"name\":\"../x\"", "no template name", CL_E_INVALID},
        {"\"vcpus\":1", "\"vcpus\":0", "'vcpus'", CL_E_INVALID},
        {"\"vcpus\":1", "\"vcpus\":1,\"vcpus\":2", "duplicate", CL_E_INVALID},
        {"\"cmdline\":\"quiet\",", "", "'cmdline'", CL_E_INVALID},
        {"{\"root\":\"0", "{\"root\":\"g", "'root'", CL_E_INVALID},
        {"[\"/bin/true\"]", "[]", "warm-up", CL_E_INVALID},
        {"[\"/bin/true\"]", "[7]", "warm-up", CL_E_INVALID},
        {"\"memory_mib\":256", "\"memory_mib\":1e9", "'memory_mib'", CL_E_INVALID},
        {"\"vcpus\":1", "\"vcpus\":1,\"scratch\":{\"sha256\":\"no\"}", "'sha256'", CL_E_INVALID},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        struct cl_err err = {0};
        assert_int_equal(parse_changed(cases[i].from, cases[i].to, &err), -1);
        if (err.code != cases[i].code || !strstr(err.text, cases[i].want))
            fail_msg("case %zu: '%s' (code %d)", i, err.text, (int)err.code);
    }
}

static void test_qmp_lines_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum qmp_kind kind;
    } cases[] = {
        {"{\"QMP\":{}}", QMP_GREETING},
        {"{\"return\":{}}", QMP_RETURN},
        {"{\"error\":{\"class\":\"X\",\"desc\":\"no\"}}", QMP_ERROR},
        {"{\"event\":\"RESUME\"}", QMP_EVENT_RESUME},
        {"{\"event\":\"MIGRATION\",\"data\":{\"status\":\"completed\"}}", QMP_MIGRATED},
        {"{\"event\":\"MIGRATION\",\"data\":{\"status\":\"failed\"}}", QMP_MIGRATE_FAILED},
        {"{\"event\":\"MIGRATION\",\"data\":{\"status\":\"active\"}}", QMP_OTHER},
        {"{\"event\":\"NEW\"}", QMP_OTHER},
        {"{\"event\":7}", QMP_OTHER},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        struct cl_err err = {0};
        struct qmp_line line;
        assert_int_equal(qmp_parse(cases[i].line, strlen(cases[i].line), &line, &err), 0);
        assert_int_equal(line.kind, cases[i].kind);
    }
    struct cl_err err = {0};
    struct qmp_line line;
    assert_int_equal(qmp_parse("[1]", 3, &line, &err), -1);
    assert_int_equal(err.code, CL_E_PEER);
}

static void test_a_state_file_round_trips(void **state)
{
    (void)state;
    struct vm_state s = {.name = "vm-7",
                         .guard_pid = 123,
                         .guard_start = 456,
                         .cgroups = "/a:/b",
                         .tenant = "acme",
                         .unit_id = "job_x",
                         .lease_id = "lease_y",
                         .fence = 99,
                         .code_started = 1};
    struct vm_state back;
    struct cl_err err = {0};
    char text[VM_STATE_MAX];
    assert_int_equal(vm_state_print(&s, text, sizeof text, &err), 0);
    assert_int_equal(strncmp(text, "version=1\n", 10), 0);
    assert_int_equal(vm_state_parse(text, strlen(text), &back, &err), 0);
    assert_memory_equal(&s, &back, sizeof s);
}

static void test_a_newer_or_broken_state_file_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum cl_code code;
    } cases[] = {
        {"version=2\nname=x\n", CL_E_UNIMPL},
        {"name=x\nversion=1\n", CL_E_INVALID},
        {"", CL_E_INVALID},
        {"version=1\nbogus=1\n", CL_E_INVALID},
        {"version=1\nname\n", CL_E_INVALID},
        {"version=1\nname=x\nfence=-1\n", CL_E_INVALID},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        struct vm_state s;
        struct cl_err err = {0};
        assert_int_equal(vm_state_parse(cases[i].text, strlen(cases[i].text), &s, &err), -1);
        assert_int_equal(err.code, cases[i].code);
    }
}

/* --- spools --------------------------------------------------------------------------------------
 */

static void test_a_spool_gives_back_what_was_written_at_any_offset(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct spool *s;
    enum { TOTAL = 100000 };
    static uint8_t all[TOTAL], got[TOTAL];
    for (size_t i = 0; i < TOTAL; i++)
        all[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(spool_new("/tmp", CL_MIB, &s, &err), 0);
    for (size_t at = 0; at < TOTAL;) {
        size_t n = CL_MIN((size_t)(1 + at % 977), TOTAL - at);
        spool_append(s, SPOOL_STDOUT, all + at, n);
        at += n;
    }
    spool_append(s, SPOOL_STDERR, "err", 3);
    for (size_t from = 0; from < TOTAL; from += 7919) {
        size_t have = 0, n = 1;
        while (n > 0 && have < TOTAL - from) {
            assert_int_equal(spool_read(s, SPOOL_STDOUT, from + have, got + have, 4093, &n, &err),
                             0);
            have += n;
        }
        assert_int_equal(have, TOTAL - from);
        assert_memory_equal(got, all + from, have);
    }
    spool_close(s);
    struct spool_total t;
    uint8_t digest[32];
    spool_total(s, SPOOL_STDOUT, &t);
    assert_int_equal(EVP_Digest(all, TOTAL, digest, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(t.sha256, digest, 32);
    assert_int_equal(t.bytes, TOTAL);
    assert_int_equal(t.kept, TOTAL);
    spool_free(s);
}

static void test_over_the_cap_bytes_are_counted_and_hashed_but_not_kept(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct spool *s;
    uint8_t bytes[1000], digest[32];
    size_t n;
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(spool_new("/tmp", 1500, &s, &err), 0);
    spool_append(s, SPOOL_STDOUT, bytes, 1000);
    spool_append(s, SPOOL_STDERR, bytes, 1000);
    spool_append(s, SPOOL_STDOUT, bytes, 1000);
    spool_close(s);
    struct spool_total out, errs;
    spool_total(s, SPOOL_STDOUT, &out);
    spool_total(s, SPOOL_STDERR, &errs);
    assert_int_equal(out.kept, 1000);
    assert_int_equal(out.bytes, 2000);
    assert_int_equal(errs.kept, 500);
    assert_int_equal(errs.bytes, 1000);
    assert_int_equal(spool_size(s), 1500);
    assert_int_equal(EVP_Digest(bytes, 1000, digest, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(errs.sha256, digest, 32);
    assert_int_equal(spool_read(s, SPOOL_STDOUT, 1500, bytes, 10, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(spool_read(s, SPOOL_STDOUT, 2001, bytes, 10, &n, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    spool_free(s);
}

static int told;

static void count_call(void *arg)
{
    (void)arg;
    told++;
}

static void test_waiters_hear_of_bytes_and_of_the_end(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct spool *s;
    struct spool_waiter w = {.fn = count_call};
    assert_int_equal(spool_new("/tmp", 100, &s, &err), 0);
    spool_wait(s, &w);
    told = 0;
    spool_append(s, SPOOL_STDOUT, "a", 1);
    spool_close(s);
    spool_close(s);
    assert_int_equal(told, 2);
    cl_list_unlink(&w.link);
    spool_free(s);
}

/* --- QEMU's command line
 * --------------------------------------------------------------------------- */

static bool has_arg(const struct qemu_args *a, const char *text)
{
    for (int i = 0; i < a->n; i++) {
        if (strstr(a->argv[i], text))
            return true;
    }
    return false;
}

static void test_qemu_gets_no_network_and_its_sandbox(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct template t = {.memory_mib = 512, .vcpus = 2};
    struct qemu_settings s = {.binary = "/usr/bin/qemu", .tsc_khz = 2600000};
    struct vm_spec spec = {.name = "vm-1", .template = &t, .origin = VM_CLONE};
    struct qemu_args a;
    (void)snprintf(t.m.cmdline, sizeof t.m.cmdline, "quiet");
    assert_int_equal(qemu_args_build(&s, &spec, &a, &err), 0);
    assert_true(has_arg(&a, "-nodefaults") &&
                has_arg(&a, "on,obsolete=deny,elevateprivileges=deny,spawn=deny"));
    assert_true(has_arg(&a, "size=512M") && has_arg(&a, "share=off") && has_arg(&a, "-incoming"));
    assert_false(has_arg(&a, "net") || has_arg(&a, "-kernel"));
    qemu_args_fini(&a);
    spec.origin = VM_BOOT;
    assert_int_equal(qemu_args_build(&s, &spec, &a, &err), 0);
    assert_true(has_arg(&a, "share=on") && has_arg(&a, "-kernel") &&
                has_arg(&a, "quiet tsc_early_khz=2600000"));
    assert_false(has_arg(&a, "-incoming"));
    qemu_args_fini(&a);
}

static void test_a_snapshot_belongs_to_the_processor_that_its_guest_saw(void **state)
{
    (void)state;
    struct template a = {.memory_mib = 256, .vcpus = 1}, b = a, tcg = a;
    static const struct vm_driver kvm = {.name = "qemu/kvm"}, tcg_driver = {.name = "qemu/tcg"};
    struct template_maker maker = {.driver = &kvm, .vmm_build = "qemu 7", .cpu = "EPYC/1"};
    template_compute_keys(&a, &maker);
    template_compute_keys(&b, &maker);
    assert_string_equal(a.snapshot_key, b.snapshot_key);
    maker.cpu = "EPYC/2";
    template_compute_keys(&b, &maker);
    assert_string_not_equal(a.snapshot_key, b.snapshot_key);
    maker = (struct template_maker){.driver = &tcg_driver, .vmm_build = "qemu 7", .cpu = ""};
    template_compute_keys(&tcg, &maker);
    assert_string_not_equal(a.snapshot_key, tcg.snapshot_key);
}

static void test_a_vm_opens_kvm_by_a_group_but_never_by_that_of_root(void **state)
{
    (void)state;
    gid_t group = 0;
    assert_int_equal(jail_kvm_groups(&(struct stat){.st_mode = S_IFCHR | 0666}, &group), 0);
    assert_int_equal(
        jail_kvm_groups(&(struct stat){.st_mode = S_IFCHR | 0660, .st_gid = 104}, &group), 1);
    assert_int_equal(group, 104);
    assert_int_equal(jail_kvm_groups(&(struct stat){.st_mode = S_IFCHR | 0660}, &group), -1);
    assert_int_equal(
        jail_kvm_groups(&(struct stat){.st_mode = S_IFCHR | 0640, .st_gid = 104}, &group), -1);
    assert_int_equal(jail_kvm_groups(&(struct stat){.st_mode = S_IFCHR | 0600}, &group), -1);
}

/* Asked at 10 s of the host's uptime, answered took_ms later, when it was `noon`. */
static int64_t lag_ms(uint64_t took_ms, uint64_t guest_ns)
{
    static const uint64_t noon = UINT64_C(1700000000000000000), asked_ns = 10 * CL_NS_PER_S;
    struct guest_clock_reading r = {.asked_ns = asked_ns,
                                    .answered_ns = asked_ns + took_ms * CL_NS_PER_MS,
                                    .host_ns = noon,
                                    .guest_ns = guest_ns ? guest_ns : noon};
    return guest_clock_lag(&r) / (int64_t)CL_NS_PER_MS;
}

static void test_a_guests_clock_is_told_what_it_surely_lacks(void **state)
{
    (void)state;
    static const uint64_t noon = UINT64_C(1700000000000000000), ms = CL_NS_PER_MS;
    assert_int_equal(lag_ms(0, noon), 0);
    assert_int_equal(lag_ms(0, noon - 6 * ms), 6);
    assert_int_equal(lag_ms(0, noon + 6 * ms), -6);
    assert_int_equal(lag_ms(0, noon - 4 * ms), 0);    /* the slack */
    assert_int_equal(lag_ms(2, noon - 21 * ms), 19);  /* read as soon as it was asked */
    assert_int_equal(lag_ms(2, noon + 19 * ms), -19); /* read just before the answer */
    assert_int_equal(lag_ms(2, noon - 3600000 * ms), 3599998);
    /* Stopped before it read its clock, or after: either may be all of it. */
    assert_int_equal(lag_ms(60000, noon), 0);
    assert_int_equal(lag_ms(60000, noon - 60000 * ms), 0);
    assert_int_equal(lag_ms(60000, noon - 100000 * ms), 40000);
    /* 90 ms ahead is never told as what the agent would step back by at once, however busy it is.
     */
    assert_int_equal(lag_ms(80, noon + 10 * ms), -10);
    assert_int_equal(lag_ms(80, noon + 90 * ms), -90);
    assert_false(guest_clock_is_unsure(7, 7 + 40 * ms));
    assert_true(guest_clock_is_unsure(7, 8 + 40 * ms));
    /* A guest may say anything. */
    assert_true(lag_ms(0, 1) > 0);
    assert_true(lag_ms(0, UINT64_MAX) > 0); /* a second and some before 1970 */
    assert_true(lag_ms(0, noon + (UINT64_C(1) << 63)) < 0);
    assert_true(lag_ms(0, noon + (UINT64_C(1) << 63) - 1) < 0);
}

static void test_qemu_gets_a_card_where_its_template_has_one(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct template t = {.memory_mib = 512, .vcpus = 2, .network = true};
    struct qemu_settings s = {.binary = "/usr/bin/qemu"};
    struct vm_spec spec = {.name = "vm-1", .template = &t, .origin = VM_CLONE};
    struct qemu_args a;
    assert_int_equal(qemu_args_build(&s, &spec, &a, &err), 0);
    assert_true(has_arg(&a, "dgram,id=wire,local.type=fd,local.str=13") &&
                has_arg(&a, "virtio-net-device,netdev=wire,host_mtu=9000,mac=02:c1:0c:4e:00:02"));
    qemu_args_fini(&a);
}

static void test_qemu_args_survive_each_failed_allocation(void **state)
{
    (void)state;
    struct template t = {.memory_mib = 256, .vcpus = 1, .network = true};
    struct qemu_settings s = {.binary = "/usr/bin/qemu"};
    struct vm_spec spec = {.name = "vm-1", .template = &t, .origin = VM_BOOT};
    for (long nth = 0;; nth++) {
        struct cl_err err = {0};
        struct qemu_args a;
        cl_test_fail_alloc(nth);
        int rc = qemu_args_build(&s, &spec, &a, &err);
        bool failed = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        if (!failed) {
            assert_int_equal(rc, 0);
            qemu_args_fini(&a);
            break;
        }
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, CL_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_monitor_says_of_kvm_is_read),
        cmocka_unit_test(test_costs_that_cannot_be_are_not_believed),
        cmocka_unit_test(test_a_manifest_is_read),
        cmocka_unit_test(test_a_manifest_of_an_older_image_has_no_scratch_disk),
        cmocka_unit_test(test_a_manifest_names_the_image_of_a_registry),
        cmocka_unit_test(test_disks_start_from_the_template_and_stay_sparse),
        cmocka_unit_test(test_a_bad_manifest_names_its_field),
        cmocka_unit_test(test_contexts_of_a_manifest_are_checked),
        cmocka_unit_test(test_a_boot_starts_contexts_and_a_clone_warms_them),
        cmocka_unit_test(test_qmp_lines_are_told_apart),
        cmocka_unit_test(test_a_state_file_round_trips),
        cmocka_unit_test(test_a_newer_or_broken_state_file_is_refused),
        cmocka_unit_test(test_a_spool_gives_back_what_was_written_at_any_offset),
        cmocka_unit_test(test_over_the_cap_bytes_are_counted_and_hashed_but_not_kept),
        cmocka_unit_test(test_waiters_hear_of_bytes_and_of_the_end),
        cmocka_unit_test(test_qemu_gets_no_network_and_its_sandbox),
        cmocka_unit_test(test_a_snapshot_belongs_to_the_processor_that_its_guest_saw),
        cmocka_unit_test(test_a_vm_opens_kvm_by_a_group_but_never_by_that_of_root),
        cmocka_unit_test(test_a_guests_clock_is_told_what_it_surely_lacks),
        cmocka_unit_test(test_qemu_gets_a_card_where_its_template_has_one),
        cmocka_unit_test(test_qemu_args_survive_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
