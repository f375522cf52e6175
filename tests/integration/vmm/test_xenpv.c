/* A stock kernel, entered by Xen PV, on the host's own KVM: it boots, serves its programs, and
 * ends.
 *
 * Needs an image (CLOCHE_IMAGES) for its kernel.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/guest.h"
#include "vmm/shim/state.h"
#include "vmm/xenpv.h"

enum { MEM_MIB = 256, WAIT_S = 240, TEXT_MAX = 1 << 17, LAST_WORDS = 900 };

static const char kernel_path[] = CLOCHE_IMAGES "/base/current/vmlinux";

/* --- an initrd of one file ------------------------------------------------------------------- */

/* Linux, Documentation/driver-api/early-userspace/buffer-format.rst: "newc". */
static void put_member(int fd, const char *name, unsigned mode, const void *data, size_t n)
{
    static const uint8_t zeros[4];
    char head[111];
    size_t name_n = strlen(name) + 1;
    (void)snprintf(head, sizeof head,
                   "070701%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x", 1, mode, 0, 0, 1,
                   0, n, 0, 0, 0, 0, name_n, 0);
    assert_int_equal(write(fd, head, 110), 110);
    assert_int_equal(write(fd, name, name_n), name_n);
    size_t pad = -(110 + name_n) % 4;
    assert_int_equal(write(fd, zeros, pad), pad);
    if (n > 0)
        assert_int_equal(write(fd, data, n), n);
    pad = -n % 4;
    assert_int_equal(write(fd, zeros, pad), pad);
}

static int initrd_of(const char *program)
{
    struct stat st;
    int from = open(program, O_RDONLY | O_CLOEXEC), to = memfd_create("initrd", MFD_CLOEXEC);
    assert_true(from >= 0 && to >= 0 && fstat(from, &st) == 0);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, from, 0);
    assert_true(bytes != MAP_FAILED);
    put_member(to, "dev", S_IFDIR | 0755, NULL, 0);
    put_member(to, "init", S_IFREG | 0755, bytes, (size_t)st.st_size);
    put_member(to, "TRAILER!!!", 0, NULL, 0);
    (void)munmap(bytes, (size_t)st.st_size);
    (void)close(from);
    return to;
}

/* --- its kernel ------------------------------------------------------------------------------ */

/* What is not found costs a transition for each hypercall, and nothing else tells. */
static void test_no_hypercall_is_a_system_call(void **state)
{
    struct stat st;
    int fd = open(kernel_path, O_RDONLY | O_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    uint8_t *text = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_true(text != MAP_FAILED);
    assert_int_equal(xenpv_patch(text, (size_t)st.st_size, 1, 2), 2);
    (void)munmap(text, (size_t)st.st_size);
    (void)close(fd);
}

/* --- a machine ------------------------------------------------------------------------------- */

struct machine {
    struct guest guest; /* its vm and files */
    int initrd_fd;
    uint64_t begin_ns;
};

/* A mode is a word for /init, too; of several processors it may be asked to try only these. */
static const char shared[] = "shared", isolated[] = "isolated",
                  shared_short[] = "shared processors", isolated_short[] = "isolated processors";

static struct vm_config open_files(struct machine *m, const char *mode, unsigned vcpus)
{
    *m = (struct machine){.begin_ns = cl_now_ns(), .initrd_fd = initrd_of(XENPV_INIT)};
    m->guest = (struct guest){.ram_fd = memfd_create("guest", MFD_CLOEXEC),
                              .console_fd = memfd_create("console", MFD_CLOEXEC),
                              .kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC),
                              .kernel_fd = open(kernel_path, O_RDONLY | O_CLOEXEC)};
    struct vm_config c = guest_config(&m->guest, vcpus);
    c.mem_bytes = (uint64_t)MEM_MIB << 20;
    c.own_ram = true;
    c.entry = VM_ENTRY_XENPV;
    c.is_isolated = mode == isolated || mode == isolated_short;
    c.cmdline = mode;
    c.initrd_fd = m->initrd_fd;
    return c;
}

static void close_files(struct machine *m)
{
    guest_close(&m->guest);
    cl_closep(&m->initrd_fd);
}

static void open_machine(struct machine *m, const char *mode, unsigned vcpus)
{
    struct cl_err err = {0};
    struct vm_config c = open_files(m, mode, vcpus);
    if (vm_create(&c, &m->guest.vm, &err) < 0 || vm_boot(m->guest.vm, &err) < 0)
        fail_msg("%s", err.text);
}

/* The lines of init, without the kernel's. */
static void print_lines(const char *text)
{
    for (const char *at = text; (at = strstr(at, "xenpv: ")) != NULL; at++)
        (void)printf("%.*s\n", (int)strcspn(at, "\r\n"), at);
}

/* Until it has printed the text or ended; what it printed is in `text`. */
static void await_text(struct machine *m, const char *want, char text[static TEXT_MAX])
{
    struct vm_report report;
    uint64_t deadline = cl_now_ns() + WAIT_S * CL_NS_PER_S;
    do {
        (void)usleep(500);
        vm_report(m->guest.vm, &report);
        guest_printed(&m->guest, text, TEXT_MAX);
    } while (!strstr(text, want) && report.end == VM_RUNS && cl_now_ns() < deadline);
    if (!strstr(text, want)) {
        size_t n = strlen(text), last = CL_MIN(n, (size_t)LAST_WORDS);
        print_lines(text);
        fail_msg("no '%s' (end %d: %s): %s", want, report.end, report.err.text, text + n - last);
    }
}

static double ms_since(uint64_t begin_ns)
{
    return (double)(cl_now_ns() - begin_ns) / 1e6;
}

static void serves_its_programs_and_ends(const char *mode, unsigned vcpus)
{
    static char text[TEXT_MAX];
    char processors[32];
    struct machine m;
    struct vm_report report;
    struct cl_err err = {0};
    open_machine(&m, mode, vcpus);
    assert_int_equal(vm_run(m.guest.vm, &err), 0);
    await_text(&m, "xenpv: init runs", text);
    (void)printf("%s, %u vCPUs, from nothing to /init: %.0f ms\n", mode, vcpus,
                 ms_since(m.begin_ns));
    (void)snprintf(processors, sizeof processors, "xenpv: %u processors", vcpus);
    await_text(&m, processors, text);
    await_text(&m, "xenpv: all is well", text);
    guest_await_end(&m.guest, &report);
    guest_printed(&m.guest, text, sizeof text);
    print_lines(text);
    assert_int_equal(report.end, VM_OFF);
    assert_null(strstr(text, "FAILED"));
    assert_null(strstr(text, "WARNING:"));
    close_files(&m);
}

static void test_a_stock_kernel_serves_its_programs_and_ends(void **state)
{
    (void)state;
    serves_its_programs_and_ends(shared, 1);
}

static void test_a_stock_kernel_serves_its_programs_apart_from_itself(void **state)
{
    (void)state;
    serves_its_programs_and_ends(isolated, 1);
}

static void test_two_processors_serve_programs_apart_from_their_kernel(void **state)
{
    (void)state;
    serves_its_programs_and_ends(isolated, 2);
}

static void test_two_and_four_processors_share_memory_and_time(void **state)
{
    (void)state;
    serves_its_programs_and_ends(shared_short, 2);
    serves_its_programs_and_ends(shared_short, 4);
    serves_its_programs_and_ends(isolated_short, 4);
}

/* --- its memory ------------------------------------------------------------------------------ */

/* The last of memory that begins as a shim does. */
static off_t find_area(int ram_fd)
{
    enum { STEP = 2 << 20 };
    uint64_t magic = 0;
    off_t at = (off_t)MEM_MIB << 20;
    do {
        at -= STEP;
        assert_true(at >= 0);
        assert_int_equal(pread(ram_fd, &magic, sizeof magic, at), sizeof magic);
    } while (magic != SHIM_MAGIC);
    return at;
}

/* What a guest's shim has come to when that text is printed. */
struct shims {
    struct shim_common common;
    struct shim_state first;
};

static void look_at_shim(const char *mode, unsigned vcpus, const char *when, struct shims *ret)
{
    static char text[TEXT_MAX];
    struct machine m;
    struct cl_err err = {0};
    open_machine(&m, mode, vcpus);
    assert_int_equal(vm_run(m.guest.vm, &err), 0);
    await_text(&m, when, text);
    assert_int_equal(vm_pause(m.guest.vm, &err), 0);
    assert_int_equal(vm_record(m.guest.vm, &err), 0);
    off_t area = find_area(m.guest.ram_fd);
    assert_int_equal(pread(m.guest.ram_fd, &ret->common, sizeof ret->common, area + SHIM_COMMON),
                     sizeof ret->common);
    assert_int_equal(pread(m.guest.ram_fd, &ret->first, sizeof ret->first, area + SHIM_STATE),
                     sizeof ret->first);
    (void)printf("%s: %" PRIu64 " large pages, %" PRIu64 " faults asked about, %" PRIu64
                 " tables released, %" PRIu64 " opened, %" PRIu64 " stores spared, %" PRIu64
                 " instructions done\n",
                 mode, ret->common.n_large, ret->first.asked, ret->first.released,
                 ret->first.opened, ret->first.spared, ret->first.privileged);
    close_files(&m);
}

/* What else would tell is time. */
static void test_code_and_constants_are_in_large_pages(void **state)
{
    enum { AT_LEAST = 4, AT_MOST = 32 }; /* 2 MiB each; 6.1 has 11 */
    static struct shims one, two;
    (void)state;
    look_at_shim(shared, 1, "xenpv: init runs", &one);
    assert_in_range(one.common.n_large, AT_LEAST, AT_MOST);
    look_at_shim(isolated, 2, "xenpv: init runs", &two);
    assert_in_range(two.common.n_large, AT_LEAST, AT_MOST);
}

/* Those of the kernel's own code, when it copies for its programs, too: in large pages. */
static void test_faults_tell_their_address_by_themselves(void **state)
{
    enum { ASKED_MAX = 20 };
    static struct shims seen;
    (void)state;
    look_at_shim(shared, 1, "xenpv: 1 processors", &seen);
    assert_in_range(seen.first.asked, 0, ASKED_MAX);
}

/* Each of these is a transition, and a boot would have 7,800 of the first, 3,700 of the second and
 * 5,600 of the third, most of them alike. */
static void test_a_boot_does_nothing_a_thousand_times(void **state)
{
    enum { TABLES = 256, SPARED_MIN = 1000, INSTRUCTIONS = 1000 };
    const char *const modes[] = {shared, isolated};
    static struct shims seen;
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        look_at_shim(modes[i], 1, "xenpv: init runs", &seen);
        assert_in_range(seen.first.opened, 1, TABLES);
        assert_true(seen.first.spared >= SPARED_MIN);
        assert_in_range(seen.first.privileged, 1, INSTRUCTIONS);
    }
}

static uint64_t released_until(const char *mode, const char *when)
{
    static struct shims seen;
    look_at_shim(mode, 1, when, &seen);
    return seen.first.released;
}

/* Three levels at least of each process that has ended since, and 25 of them have. */
static void test_kvm_hears_which_tables_are_none_any_more(void **state)
{
    enum { PROCESSES = 25, LEVELS = 3 };
    const char *const modes[] = {shared, isolated};
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        uint64_t at_first = released_until(modes[i], "xenpv: init runs");
        uint64_t at_last = released_until(modes[i], "xenpv: 1 processors");
        assert_true(at_last >= at_first + PROCESSES * LEVELS);
    }
}

static void test_it_has_four_processors_at_most(void **state)
{
    struct machine m;
    struct cl_err err = {0};
    (void)state;
    struct vm_config c = open_files(&m, shared, 5);
    assert_int_equal(vm_create(&c, &m.guest.vm, &err), -1);
    assert_int_equal(err.code, CL_E_UNIMPL);
    assert_non_null(strstr(err.text, "at most 4"));
    close_files(&m);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_hypercall_is_a_system_call),
        cmocka_unit_test(test_a_stock_kernel_serves_its_programs_and_ends),
        cmocka_unit_test(test_a_stock_kernel_serves_its_programs_apart_from_itself),
        cmocka_unit_test(test_two_processors_serve_programs_apart_from_their_kernel),
        cmocka_unit_test(test_two_and_four_processors_share_memory_and_time),
        cmocka_unit_test(test_code_and_constants_are_in_large_pages),
        cmocka_unit_test(test_faults_tell_their_address_by_themselves),
        cmocka_unit_test(test_a_boot_does_nothing_a_thousand_times),
        cmocka_unit_test(test_kvm_hears_which_tables_are_none_any_more),
        cmocka_unit_test(test_it_has_four_processors_at_most),
    };
    int skip = guest_skip_xenpv();
    if (skip)
        return skip;
    if (access(kernel_path, R_OK) < 0) {
        (void)printf("skipped: no kernel at %s (images/build.sh; cmake -DCLOCHE_IMAGES=)\n",
                     kernel_path);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
