/* vmm/shim/operand.h beside the processor that the test runs on: instructions that fault, each with
 * the address that it has in CR2 and the one that the decoder tells.
 *
 * What the decoder knows is run: all opcodes with all prefixes, ModR/M, SIB and registers by
 * chance. No register leads to memory, so nothing that it knows rightly has an effect.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "vmm/shim/operand.h"

enum { PAGE = 4096, CODE_MAX = 15, INT3 = 0xcc, FLAG_DF = 0x400, STACK = 65536 };
/* Times 1, 2 and 4 nobody's memory, with a sanitizer's too; times 8 no address. */
#define NOWHERE UINT64_C(0x180000000000)
#define CODE_AT UINT64_C(0x200000000000) /* nor is anything near it, for operands by RIP */

/* What is tried next, and what came of it. */
static struct {
    uint8_t *page; /* where it runs; one of data is behind it, and then nothing */
    uint8_t code[CODE_MAX];
    uint64_t registers[16]; /* as ModR/M counts them */
    uint64_t left;
    bool (*next)(void);
    struct operand said;
    bool may_run;
    uint64_t compared, undefined, not_paging, unknown;
} t;

/* Not through the libc's rand(): a handler asks. */
static uint64_t random_state = 88172645463325252;
static uint64_t any(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* --- the processor --------------------------------------------------------------------------- */

static const int gregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};

static struct frame frame_of(const greg_t *g)
{
#define G(name) (uint64_t) g[REG_##name]
    return (struct frame){.rax = G(RAX),
                          .rcx = G(RCX),
                          .rdx = G(RDX),
                          .rbx = G(RBX),
                          .rsp = G(RSP),
                          .rbp = G(RBP),
                          .rsi = G(RSI),
                          .rdi = G(RDI),
                          .r8 = G(R8),
                          .r9 = G(R9),
                          .r10 = G(R10),
                          .r11 = G(R11),
                          .r12 = G(R12),
                          .r13 = G(R13),
                          .r14 = G(R14),
                          .r15 = G(R15),
                          .rip = G(RIP),
                          .error = G(ERR),
                          .flags = G(EFL),
                          .vector = 14};
#undef G
}

_Noreturn static void say_bytes(const char *what, uint64_t cr2)
{
    (void)fprintf(stderr, "%s: CR2 0x%llx, said 0x%llx, at most %u bytes:", what,
                  (unsigned long long)cr2, (unsigned long long)t.said.at, t.said.bytes);
    for (unsigned i = 0; i < CODE_MAX; i++)
        (void)fprintf(stderr, " %02x", t.code[i]);
    (void)fprintf(stderr, "\n");
    _exit(1);
}

static bool is_mapped(uint64_t at)
{
    return at - CODE_AT < (uint64_t)2 * PAGE;
}

/* As vmm/shim/fault.c: exactly one of the pages that the operand touches is to blame, or the answer
 * is none. */
static void compare(const greg_t *g)
{
    const struct frame f = frame_of(g);
    const uint64_t cr2 = (uint64_t)g[REG_CR2];
    if (f.rip != (uint64_t)t.page)
        say_bytes("it went on", cr2);
    bool is_known = operand_of(&f, t.page, CODE_MAX, &t.said); /* not by every error code */
    uint64_t second = (t.said.at | (PAGE - 1)) + 1;
    bool first_is_good = is_mapped(t.said.at),
         second_is_good = t.said.at + t.said.bytes <= second || is_mapped(second);
    if (!is_known || first_is_good == second_is_good)
        t.unknown++;
    else if (cr2 != (first_is_good ? second : t.said.at))
        say_bytes("another address", cr2);
    else
        t.compared++;
}

static void run_next(greg_t *g)
{
    memcpy(t.page, t.code, sizeof t.code);
    for (unsigned i = 0; i < CL_COUNT(gregs); i++)
        g[gregs[i]] = (greg_t)t.registers[i];
    g[REG_RIP] = (greg_t)t.page;
    g[REG_EFL] &= ~(greg_t)FLAG_DF;
}

/* From one instruction to the next; after the last back to where the first was asked for. */
static void on_signal(int signal, siginfo_t *info, void *context)
{
    enum { PAGE_FAULT = 14 };
    static greg_t start[NGREG];
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    if (signal == SIGUSR1)
        memcpy(start, g, sizeof start);
    else if (signal == SIGILL)
        t.undefined++;
    else if (signal == SIGSEGV && g[REG_TRAPNO] == PAGE_FAULT)
        compare(g);
    else if (signal == SIGSEGV || signal == SIGBUS)
        t.not_paging++; /* #GP, #SS: an address that is none */
    else if (signal != SIGTRAP || !t.may_run)
        say_bytes("it ran", (uint64_t)g[REG_CR2]);
    if (t.next())
        run_next(g);
    else
        memcpy(g, start, sizeof start);
}

/* In a process of its own; its counts are t's afterwards. */
static void run_all(bool (*next_one)(void))
{
    static uint8_t stack[STACK];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    static const int signals[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    int status, counts[2];
    assert_int_equal(pipe(counts), 0);
    pid_t child = fork();
    if (child == 0) {
        t.next = next_one;
        if (sigaltstack(&other, NULL) < 0)
            _exit(2);
        for (size_t i = 0; i < CL_COUNT(signals); i++)
            (void)sigaction(signals[i], &action, NULL);
        (void)raise(SIGUSR1);
        _exit(write(counts[1], &t, sizeof t) == (ssize_t)sizeof t ? 0 : 3);
    }
    (void)close(counts[1]);
    ssize_t n = read(counts[0], &t, sizeof t);
    (void)close(counts[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(n, sizeof t);
}

static int make_page(void **state)
{
    (void)state;
    uint8_t *at = mmap((void *)CODE_AT, (size_t)3 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == MAP_FAILED || mprotect(at + (size_t)2 * PAGE, PAGE, PROT_NONE) < 0)
        return -1;
    memset(at, INT3, PAGE);
    t.page = at;
    return 0;
}

/* --- what is tried --------------------------------------------------------------------------- */

static const char *const legacy[] = {"",     "\x66", "\xf2",     "\xf3",         "\xf0",     "\x48",
                                     "\x41", "\x42", "\x66\x4f", "\xf3\x4b",     "\x2e\x44", "\x67",
                                     "\x64", "\x65", "\xf2\x48", "\x3e\xf3\x47", "\x66\xf2"};
static const char *const escapes[] = {"", "\x0f", "\x0f\x38", "\x0f\x3a"};

static unsigned put(unsigned n, const char *bytes)
{
    size_t more = strlen(bytes);
    memcpy(t.code + n, bytes, more);
    return n + (unsigned)more;
}

static void put_vex(void)
{
    bool is_short = any() % 2;
    t.code[0] = is_short ? 0xc5 : 0xc4;
    if (!is_short && any() % 8) /* a map that there is */
        t.code[1] = (uint8_t)((t.code[1] & 0xe0) | (1 + any() % 3));
}

/* Mostly without what the decoder refuses. */
static void put_evex(void)
{
    t.code[0] = 0x62;
    if (any() % 8 == 0)
        return;
    t.code[1] = (uint8_t)((t.code[1] & 0xf0) | (1 + any() % 3));
    t.code[2] |= 4;
    t.code[3] &= 0x68;
}

static void put_legacy(void)
{
    (void)put(put(0, legacy[any() % CL_COUNT(legacy)]), escapes[any() % CL_COUNT(escapes)]);
}

/* One that the decoder says it knows. */
static bool next_by_chance(void)
{
    const struct frame f = {.rip = (uint64_t)t.page};
    do {
        if (t.left-- == 0)
            return false;
        for (unsigned i = 0; i < CODE_MAX; i++)
            t.code[i] = (uint8_t)any();
        for (unsigned i = 0; i < CL_COUNT(t.registers); i++)
            t.registers[i] = NOWHERE + (any() >> 28);
        unsigned kind = (unsigned)(any() % 8);
        (kind == 0 ? put_vex : kind == 1 ? put_evex : put_legacy)();
    } while (!operand_of(&f, t.code, CODE_MAX, &t.said));
    return true;
}

static void test_by_chance(void **state)
{
    (void)state;
    t.left = 1500000;
    run_all(next_by_chance);
    print_message(
        "%llu addresses are what CR2 had; %llu instructions and %llu addresses are none\n",
        (unsigned long long)t.compared, (unsigned long long)t.undefined,
        (unsigned long long)t.not_paging);
    assert_true(t.compared > 50000);
}

/* At the end of memory, by RDI, and what MOVS reads by RSI. */
static bool next_at_the_end(void)
{
#define CODE(bytes) \
    { \
        bytes, sizeof(bytes) - 1 \
    }
    static const struct {
        const char *bytes;
        size_t n;
    } them[] = {CODE("\x88\x07"),
                CODE("\x66\x89\x07"),
                CODE("\x89\x07"),
                CODE("\x48\x8b\x07"),
                CODE("\x0f\x11\x07"),
                CODE("\xf3\x0f\x7f\x07"),
                CODE("\xc5\xfe\x7f\x07"),
                CODE("\xc5\xfe\x6f\x07"),
                CODE("\x62\xf1\xfe\x48\x7f\x07"),
                CODE("\x62\xf1\xfe\x48\x6f\x07"),
                CODE("\x48\x83\x07\x01"),
                CODE("\xf0\x48\x01\x07"),
                CODE("\x0f\xb6\x07"),
                CODE("\xf3\xaa"),
                CODE("\xf3\x48\xab"),
                CODE("\xaa"),
                CODE("\xf3\xa4"),
                CODE("\xf3\x48\xa5"),
                CODE("\x48\xa5")};
#undef CODE
    enum { RCX = 1, RSI = 6, RDI = 7, NEAR = 64 };
    if (t.left == 0)
        return false;
    const size_t i = t.left-- % CL_COUNT(them);
    const uint64_t end = (uint64_t)t.page + 2 * PAGE, at = end - any() % NEAR;
    memset(t.code, INT3, sizeof t.code);
    memcpy(t.code, them[i].bytes, them[i].n);
    bool writes = any() % 2;
    t.registers[RCX] = PAGE / 16;
    t.registers[RDI] = writes ? at : end - PAGE;
    t.registers[RSI] = writes ? end - PAGE : at;
    return true;
}

static void test_at_the_end_of_memory(void **state)
{
    (void)state;
    t.left = 20000;
    t.compared = 0;
    t.may_run = true;
    run_all(next_at_the_end);
    assert_true(t.compared > 3000);
}

/* The answer is about the instruction, and about nothing behind it. */
static void test_what_is_not_there_is_not_read(void **state)
{
    static const uint8_t store[] = {0x66, 0x41, 0xc7, 0x84, 0x24, 1, 2, 3, 4, 5, 6};
    const struct frame f = {.r12 = 0x1000};
    struct operand o;
    (void)state;
    assert_true(operand_of(&f, store, sizeof store, &o));
    assert_int_equal(o.at, 0x1000 + 0x04030201);
    for (unsigned room = 0; room < 9; room++)
        assert_false(operand_of(&f, store, room, &o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_chance),
        cmocka_unit_test(test_at_the_end_of_memory),
        cmocka_unit_test(test_what_is_not_there_is_not_read),
    };
    return cmocka_run_group_tests(tests, make_page, NULL);
}
