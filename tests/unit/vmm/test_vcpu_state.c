/* A processor's state through bytes; SHA-256 against the standard's own examples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/sha256.h"
#include "vmm/vcpu_state.h"

static const struct state_head head = {.mem_bytes = 4096, .vcpus = 1};
static const struct msr_set msrs = {.nmsrs = 2,
                                    .entries = {{.index = 0x174}, {.index = MSR_TSC_DEADLINE}}};

static size_t write_state(const struct vcpu_state *s, uint8_t *bytes, size_t cap)
{
    struct state_writer w;
    size_t n = 0;
    state_writer_init(&w, bytes, cap, &head);
    vcpu_state_save(s, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    return n;
}

static int read_state(const uint8_t *bytes, size_t n, const struct msr_set *want,
                      struct vcpu_state *ret)
{
    struct state_reader r;
    struct state_head seen;
    if (state_reader_init(&r, bytes, n, &seen, NULL) < 0)
        return -1;
    return vcpu_state_load(&r, want, ret, NULL);
}

static void test_it_comes_back_as_it_was(void **state)
{
    (void)state;
    static struct vcpu_state s, again;
    static uint8_t bytes[16384];
    s.mp.mp_state = 3;
    memset(&s.regs, 0x51, sizeof s.regs);
    memset(&s.sregs, 0x52, sizeof s.sregs);
    memset(&s.xcrs, 0x53, sizeof s.xcrs);
    memset(s.xsave, 0x54, sizeof s.xsave);
    memset(&s.debug, 0x55, sizeof s.debug);
    memset(&s.lapic, 0x56, sizeof s.lapic);
    memset(&s.events, 0x57, sizeof s.events);
    s.msrs = msrs;
    s.msrs.entries[1].data = 77;
    s.tsc_offset = UINT64_MAX - 3;
    s.tsc_khz = 2600000;
    size_t n = write_state(&s, bytes, sizeof bytes);
    assert_int_equal(read_state(bytes, n, &msrs, &again), 0);
    assert_memory_equal(&again, &s, sizeof s);
    for (size_t cut = 0; cut < n; cut += 7)
        assert_int_equal(read_state(bytes, cut, &msrs, &again), -1);
}

static void test_other_registers_than_ours_are_refused(void **state)
{
    (void)state;
    static struct vcpu_state s, again;
    static uint8_t bytes[16384];
    s.msrs = msrs;
    s.msrs.entries[0].index = 0x175;
    size_t n = write_state(&s, bytes, sizeof bytes);
    assert_int_equal(read_state(bytes, n, &msrs, &again), -1);
    s.msrs = msrs;
    s.msrs.nmsrs = 1;
    n = write_state(&s, bytes, sizeof bytes);
    assert_int_equal(read_state(bytes, n, &msrs, &again), -1);
    s.msrs = msrs;
    s.msrs.nmsrs = 3;
    n = write_state(&s, bytes, sizeof bytes);
    assert_int_equal(read_state(bytes, n, &msrs, &again), -1);
}

static void digest_is(const char *text, size_t times, const char *want)
{
    struct sha256 sha;
    uint8_t digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1] = "";
    sha256_init(&sha);
    for (size_t i = 0; i < times; i++)
        sha256_add(&sha, text, strlen(text));
    sha256_end(&sha, digest);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    assert_string_equal(hex, want);
}

/* FIPS 180-4's examples (NIST, "SHA256" of the example values). */
static void test_sha256_is_that_of_the_standard(void **state)
{
    (void)state;
    digest_is("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_is("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    digest_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    digest_is("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_comes_back_as_it_was),
        cmocka_unit_test(test_other_registers_than_ours_are_refused),
        cmocka_unit_test(test_sha256_is_that_of_the_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
