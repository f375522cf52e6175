/* tests/integration/vmm/xenpv_attacks.c - what user code must not get away with in a Xen-PV guest.
 *
 * Each attack is a process of its own that is nobody.  It ends by the signal that it should, and
 * the guest goes on: init says so at its end.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/integration/vmm/xenpv_init.h"
#include "vmm/ports.h"
#include "vmm/shim/layout.h"

enum { PAGE = 4096, NOBODY = 65534, TOO_LONG_S = 20, INT3 = 0xcc };
#define SHIM_BYTES (UINT64_C(2) << 20)
#define NOT_CANONICAL UINT64_C(0x800000000000)
#define DIRECT_MAP UINT64_C(0xffff888000000000) /* Linux, Documentation/x86/x86_64/mm.rst */
#define KERNEL_TEXT UINT64_C(0xffffffff81000000)

enum { FLAG_TF = 0x100, FLAG_DF = 0x400, FLAG_NT = 0x4000, FLAG_AC = 0x40000 };
enum { FLAG_IOPL = 0x3000, FLAG_RF = 0x10000, FLAG_VM = 0x20000 };

/* --- processes ------------------------------------------------------------------------------- */

/* Its wait status. */
static int as_nobody(void (*attack)(const void *), const void *arg)
{
    pid_t child = fork();
    if (child != 0)
        return wait_for(child);
    if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        _exit(NOBODY % 256);
    (void)alarm(TOO_LONG_S);
    attack(arg);
    _exit(0);
}

static bool ended_by(int status, int signal)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

/* It may have died of anything, but it did not hang. */
static bool ended(int status)
{
    return status >= 0 && !ended_by(status, SIGALRM);
}

/* --- memory ---------------------------------------------------------------------------------- */

static sigjmp_buf after_signal;
static volatile sig_atomic_t caught;

static void on_signal(int signal)
{
    caught = signal;
    siglongjmp(after_signal, 1);
}

/* On a stack of its own: attacks have none. */
static void catch_signals(void)
{
    static uint8_t stack[64 << 10];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    (void)sigaltstack(&alternate, NULL);
    for (int signal = SIGILL; signal <= SIGSEGV; signal++)
        (void)sigaction(signal, &action, NULL);
}

enum touch { READ, WRITE, JUMP };

static void touch(uint64_t at, enum touch how)
{
    if (how == READ)
        (void)*(const volatile uint8_t *)at;
    else if (how == WRITE)
        *(volatile uint8_t *)at = 0;
    else
        ((void (*)(void))at)();
}

/* The signal of it; 0 = none. */
static int signal_of(uint64_t at, enum touch how)
{
    caught = 0;
    if (sigsetjmp(after_signal, 1) == 0)
        touch(at, how);
    return caught;
}

struct range {
    uint64_t from, bytes, step;
};

/* The page that SYSCALL leads to on some processor. */
static bool is_doors(uint64_t at)
{
    return at - SHIM_VA < processors() * SHIM_SLICE && (at - SHIM_VA) % SHIM_SLICE < PAGE;
}

/* All of them fault; the pages that SYSCALL leads to may be seen. */
static void reach(const void *arg)
{
    const struct range *r = arg;
    unsigned reached = 0;
    catch_signals();
    for (volatile uint64_t at = r->from; at - r->from < r->bytes; at += r->step) {
        bool is_door = is_doors(at);
        reached += signal_of(at, WRITE) != SIGSEGV;
        reached += !is_door && signal_of(at, READ) != SIGSEGV;
        reached += !is_door && signal_of(at, JUMP) != SIGSEGV;
    }
    _exit(reached > 0);
}

/* All is int3, but for the door's jump back to itself. */
static void door_shows_nothing(const void *arg)
{
    const volatile uint8_t *page = (const volatile uint8_t *)*(const uint64_t *)arg;
    unsigned jumps = 0;
    for (uint64_t i = 0; i < PAGE; i++) {
        if (page[i] == INT3)
            continue;
        if (i == 0 || i + 1 == PAGE || page[i] != 0xeb || page[i + 1] != 0xfd)
            _exit(1);
        jumps++;
        i++;
    }
    _exit(jumps != 1);
}

static void memory_is_out_of_reach(void)
{
    static const struct {
        struct range range;
        const char *what;
    } cases[] = {
        {{SHIM_VA, SHIM_BYTES, PAGE}, "the shim is out of reach"},
        {{SHIM_VA + SHIM_BYTES, UINT64_C(1) << 39, UINT64_C(1) << 31}, "what follows it is, too"},
        {{SHIM_M2P_VA, SHIM_BYTES, PAGE}, "the table of frames is out of reach"},
        {{SHIM_FRAMES_VA, UINT64_C(512) << 20, UINT64_C(1) << 20}, "RAM is out of reach"},
        {{DIRECT_MAP, UINT64_C(512) << 20, UINT64_C(1) << 20}, "the kernel's data is out of reach"},
        {{KERNEL_TEXT, UINT64_C(64) << 20, UINT64_C(1) << 16}, "its code is out of reach"},
        {{UINT64_C(0xffffff0000000000), UINT64_C(1) << 39, UINT64_C(1) << 30},
         "its stacks are out of reach"},
        {{UINT64_C(0xfffffffffd000000), UINT64_C(0x2000000), PAGE * 16},
         "the last pages are, too"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(as_nobody(reach, &cases[i].range) == 0, cases[i].what);
    for (uint64_t i = 0, at = SHIM_VA; i < processors(); i++, at += SHIM_SLICE)
        check(as_nobody(door_shows_nothing, &at) == 0, "SYSCALL's page is int3, and a jump back");
}

/* --- instructions ---------------------------------------------------------------------------- */

static void write_port(const void *port)
{
    __asm__ volatile("outb %%al, %%dx" ::"a"(0xff), "d"(*(const uint16_t *)port));
}

static void read_port(const void *port)
{
    uint8_t byte;
    __asm__ volatile("inb %%dx, %%al" : "=a"(byte) : "d"(*(const uint16_t *)port));
}

static void ports_are_closed(void)
{
    static const uint16_t ports[] = {SHIM_PORT,  PORT_RESET, PORT_SLEEP_CONTROL,
                                     PORT_PANIC, PORT_EXIT,  0x20,
                                     0x60,       0x80,       0x3f8,
                                     0xcf8,      0xcf9,      0xffff};
    bool closed = true;
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        closed = closed && ended_by(as_nobody(write_port, &ports[i]), SIGSEGV) &&
                 ended_by(as_nobody(read_port, &ports[i]), SIGSEGV);
    check(closed, "no port is open");
}

struct code {
    uint8_t bytes[16];
    unsigned n;
    int signal; /* 0 = any, or none */
    const char *what;
};

/* In fresh memory, ended by a return. */
static void execute(const void *arg)
{
    enum { RET = 0xc3 };
    const struct code *c = arg;
    uint8_t *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (at == MAP_FAILED)
        _exit(1);
    memset(at, RET, PAGE);
    memcpy(at, c->bytes, c->n);
    uint64_t ax = (uint64_t)at, si = SHIM_VA + SHIM_STATE, cx = 0xc0000082, dx = 0;
    __asm__ volatile("call *%%rax"
                     : "+a"(ax), "+c"(cx), "+d"(dx)
                     : "S"(si), "D"(si)
                     : "rbx", "r8", "r9", "r10", "r11", "memory", "cc");
}

/* pushfq; orl $0x100, (%rsp); popfq */
#define STEP_FROM_HERE 0x9c, 0x81, 0x0c, 0x24, 0, 1, 0, 0, 0x9d

static void instructions_are_refused(void)
{
    static const struct code codes[] = {
        {{0xf4}, 1, SIGSEGV, "hlt"},
        {{0xfa}, 1, SIGSEGV, "cli"},
        {{0xfb}, 1, SIGSEGV, "sti"},
        {{0x0f, 0x06}, 2, SIGSEGV, "clts"},
        {{0x0f, 0x09}, 2, SIGSEGV, "wbinvd"},
        {{0x0f, 0x01, 0x17}, 3, SIGSEGV, "lgdt"},
        {{0x0f, 0x01, 0x1f}, 3, SIGSEGV, "lidt"},
        {{0x0f, 0x01, 0x3f}, 3, SIGSEGV, "invlpg"},
        {{0x0f, 0x00, 0xd8}, 3, SIGSEGV, "ltr"},
        {{0x0f, 0x22, 0xd8}, 3, SIGSEGV, "mov to cr3"},
        {{0x0f, 0x20, 0xd8}, 3, SIGSEGV, "mov from cr3"},
        {{0x0f, 0x23, 0xf8}, 3, SIGSEGV, "mov to dr7"},
        {{0x0f, 0x30}, 2, SIGSEGV, "wrmsr"},
        {{0x0f, 0x32}, 2, SIGSEGV, "rdmsr"},
        {{0x0f, 0x01, 0xf8}, 3, SIGSEGV, "swapgs"},
        {{0x0f, 0x07}, 2, 0, "sysret"},
        {{0x0f, 0x34}, 2, 0, "sysenter"},
        {{0x0f, 0x35}, 2, 0, "sysexit"},
        {{0x0f, 0x01, 0xd1}, 3, 0, "xsetbv"},
        {{0x0f, 0x01, 0xc1}, 3, 0, "vmcall"},
        {{0x0f, 0x01, 0xd9}, 3, 0, "vmmcall"},
        {{0x0f, 0x01, 0xc8}, 3, 0, "monitor"},
        {{0x0f, 0xaa}, 2, 0, "rsm"},
        {{0x0f, 0x0b}, 2, SIGILL, "ud2"},
        {{0xcc}, 1, SIGTRAP, "int3"},
        {{0xf1}, 1, SIGTRAP, "int1"},
        {{0x31, 0xc9, 0xf7, 0xf1}, 4, SIGFPE, "div by 0"},
        {{0x0f, 0xae, 0x17}, 3, SIGSEGV, "ldmxcsr of the shim's state"},
        {{0x48, 0xcf}, 2, 0, "iretq"},
        {{0x48, 0xcb}, 2, 0, "lretq"},
        {{0x8c, 0xd0, 0x8e, 0xd0, 0xcc}, 5, SIGTRAP, "int3 behind a move to ss"},
        {{0x8c, 0xd0, 0x8e, 0xd0, 0x0f, 0x05}, 6, 0, "syscall behind a move to ss"},
        {{0x8c, 0xd0, STEP_FROM_HERE, 0x8e, 0xd0, 0xcc}, 14, SIGTRAP, "int3 there, stepped"},
        {{0x8c, 0xd0, STEP_FROM_HERE, 0x8e, 0xd0, 0x0f, 0x05},
         15,
         SIGTRAP,
         "syscall there, stepped"},
        {{0xb8, 0x2b, 0, 0, 0, 0x8e, 0xe8, 0x8e, 0xe0, 0x8e, 0xd8}, 11, 0, "segments of user code"},
        {{0x31, 0xc0, 0x8e, 0xe8, 0x8e, 0xd8, 0x8e, 0xc0}, 8, 0, "segments of nothing"},
        {{0xb8, 0x1b, 0, 0, 0, 0x8e, 0xd8}, 7, SIGSEGV, "a segment of CPL0"},
        {{0xf3, 0x48, 0x0f, 0xae, 0xde, 0x6a, 0x27, 0x58, 0x0f, 0x05}, 10, 0, "a gs in the shim"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        int status = as_nobody(execute, &codes[i]);
        bool good = codes[i].signal ? ended_by(status, codes[i].signal) : ended(status);
        check(good, codes[i].what);
        if (!good)
            (void)printf("xenpv: wait status %#x\n", (unsigned)status);
    }
}

/* Gates for user code: one.  What else INT does is the KVM's choice: #GP, #UD, and for some vectors
 * nothing at all. */
static void only_int3_is_a_gate(void)
{
    enum { VECTORS = 256, BREAK = 3 };
    bool good = true;
    for (unsigned n = 0; n < VECTORS; n++) {
        struct code c = {{0xcd, (uint8_t)n}, 2, 0, NULL};
        int status = as_nobody(execute, &c);
        bool want = n == BREAK
                        ? ended_by(status, SIGTRAP)
                        : ended_by(status, SIGSEGV) || ended_by(status, SIGILL) || status == 0;
        if (!want)
            (void)printf("xenpv: int %#x: wait status %#x\n", n, (unsigned)status);
        good = good && want;
    }
    check(good, "of all vectors only int3's is user code's");
}

/* --- SYSCALL's door -------------------------------------------------------------------------- */

struct registers {
    uint64_t rip, rcx, rsp, r11, flags, rax;
};

/* To r->rip with the others; back only when it was a system call that returns to `back`. */
static void go(const struct registers *r)
{
    register uint64_t rax __asm__("rax") = r->rax;
    register uint64_t rcx __asm__("rcx") = r->rcx;
    register uint64_t r11 __asm__("r11") = r->r11;
    register uint64_t r8 __asm__("r8") = r->rip;
    register uint64_t r9 __asm__("r9") = r->rsp;
    register uint64_t r10 __asm__("r10") = r->flags;
    __asm__ volatile("push %%rbp\n\t"
                     "push %%rbx\n\t"
                     "mov %%rsp, %%rbx\n\t"
                     "test %%rcx, %%rcx\n\t"
                     "jnz 1f\n\t"
                     "lea 3f(%%rip), %%rcx\n"
                     "1: pushq %%r10\n\t"
                     "test %%r9, %%r9\n\t"
                     "jz 2f\n\t"
                     "popfq\n\t"
                     "mov %%r9, %%rsp\n\t"
                     "jmp *%%r8\n"
                     "2: popfq\n\t"
                     "jmp *%%r8\n"
                     "3: mov %%rbx, %%rsp\n\t"
                     "pushfq\n\t"
                     "pop %%r10\n\t"
                     "pushq $0x202\n\t"
                     "popfq\n\t"
                     "pop %%rbx\n\t"
                     "pop %%rbp"
                     : "+r"(rax), "+r"(rcx), "+r"(r11), "+r"(r8), "+r"(r9), "+r"(r10)
                     :
                     : "memory", "cc", "rdi", "rsi", "rdx", "r12", "r13", "r14", "r15");
    if ((r10 & FLAG_IOPL) != 0)
        _exit(2);
}

enum { PLAIN_FLAGS = 0x202 };

/* Where SYSCALL leads to on this processor: the only int3 of all these pages that is a system call,
 * and its jump back. */
static uint64_t find_door(void)
{
    const uint64_t bytes = processors() * PAGE;
    volatile uint64_t door = 0;
    volatile unsigned doors = 0;
    catch_signals();
    for (volatile uint64_t n = 0; n < bytes; n++) {
        const uint64_t at = SHIM_VA + n / PAGE * SHIM_SLICE + n % PAGE;
        const struct registers r = {at, 0, 0, PLAIN_FLAGS, PLAIN_FLAGS, SYS_getppid};
        caught = 0;
        if (sigsetjmp(after_signal, 1) == 0) {
            go(&r);
            if (doors++ == 0)
                door = at;
            else if (at != door + 1)
                return 0;
        } else if (caught != SIGTRAP) {
            return 0;
        }
    }
    return doors == 2 ? door : 0;
}

static uint64_t *shared_word(void)
{
    void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void tell_door(const void *arg)
{
    **(uint64_t *const *)arg = find_door();
}

static void go_there(const void *arg)
{
    go(arg);
}

static void go_and_write_port(const void *arg)
{
    static const uint16_t port = SHIM_PORT;
    go(arg);
    write_port(&port);
}

static void the_door_takes_any_registers(uint64_t door)
{
    static const uint64_t rips[] = {0,       NOT_CANONICAL, UINT64_C(1) << 63,
                                    SHIM_VA, KERNEL_TEXT,   UINT64_MAX},
                          stacks[] = {0, 8, NOT_CANONICAL, SHIM_VA + SHIM_TRAP_STACK, DIRECT_MAP},
                          flags[] = {PLAIN_FLAGS, 0,         FLAG_TF,           FLAG_DF,   FLAG_NT,
                                     FLAG_AC,     FLAG_IOPL, FLAG_VM | FLAG_RF, UINT64_MAX},
                          popped[] = {PLAIN_FLAGS, FLAG_TF, FLAG_DF | FLAG_NT | FLAG_AC};
    enum { RIPS = sizeof rips / sizeof rips[0], STACKS = sizeof stacks / sizeof stacks[0] };
    enum { FLAGS = sizeof flags / sizeof flags[0], POPPED = sizeof popped / sizeof popped[0] };
    bool good = true;
    for (unsigned i = 0; i < RIPS * STACKS * FLAGS * POPPED; i++) {
        const struct registers r = {.rip = door,
                                    .rcx = rips[i % RIPS],
                                    .rsp = stacks[i / RIPS % STACKS],
                                    .r11 = flags[i / (RIPS * STACKS) % FLAGS],
                                    .flags = popped[i / (RIPS * STACKS * FLAGS)],
                                    .rax = SYS_getppid};
        int status = as_nobody(go_there, &r);
        bool want = ended(status) && !(WIFEXITED(status) && WEXITSTATUS(status) == 2);
        if (!want)
            (void)printf("xenpv: rcx %#llx rsp %#llx r11 %#llx flags %#llx: wait status %#x\n",
                         (unsigned long long)r.rcx, (unsigned long long)r.rsp,
                         (unsigned long long)r.r11, (unsigned long long)r.flags, (unsigned)status);
        good = good && want;
    }
    check(good, "any registers at SYSCALL's door");
    struct registers r = {door, 0, 0, PLAIN_FLAGS, PLAIN_FLAGS, SYS_getppid};
    check(as_nobody(go_there, &r) == 0, "good registers there make a system call");
    r.rcx = NOT_CANONICAL;
    check(ended_by(as_nobody(go_there, &r), SIGSEGV), "a return to nowhere is SIGSEGV");
    r.rcx = 0;
    r.r11 = PLAIN_FLAGS | FLAG_IOPL;
    check(ended_by(as_nobody(go_and_write_port, &r), SIGSEGV), "no flags open a port");
}

/* --- sigreturn() ----------------------------------------------------------------------------- */

struct change {
    int reg; /* of the saved registers */
    uint64_t mask, value;
};

static const struct change *change;

static void change_context(int signal, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    greg_t *reg = &u->uc_mcontext.gregs[change->reg];
    (void)signal, (void)info;
    *reg = (greg_t)(((uint64_t)*reg & ~change->mask) | change->value);
}

static void return_changed(const void *arg)
{
    struct sigaction action = {.sa_sigaction = change_context, .sa_flags = SA_SIGINFO};
    change = arg;
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)raise(SIGUSR1);
    (void)getppid();
}

struct change_case {
    struct change change;
    const char *what;
};

static void returns_end(const struct change_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int status = as_nobody(return_changed, &cases[i].change);
        check(ended_by(status, SIGSEGV) || ended_by(status, SIGBUS), cases[i].what);
    }
}

static void no_return_leads_to_the_kernel(void)
{
    static const struct change_case cases[] = {
        {{REG_RIP, UINT64_MAX, KERNEL_TEXT}, "sigreturn into the kernel is SIGSEGV"},
        {{REG_RIP, UINT64_MAX, SHIM_VA + SHIM_GATES}, "into the shim, too"},
        {{REG_RSP, UINT64_MAX, SHIM_VA + SHIM_TRAP_STACK}, "to the shim's stack, too"}};
    returns_end(cases, sizeof cases / sizeof cases[0]);
}

static void returns_are_checked(void)
{
    static const struct change_case cases[] = {
        {{REG_RIP, UINT64_MAX, NOT_CANONICAL}, "sigreturn to nowhere is SIGSEGV"},
        {{REG_RIP, UINT64_MAX, UINT64_C(1) << 63}, "far nowhere, too"},
        {{REG_RSP, UINT64_MAX, NOT_CANONICAL}, "to a stack that is nowhere, too"}};
    returns_end(cases, sizeof cases / sizeof cases[0]);
}

static void selectors_are_checked(void)
{
    enum { SELECTORS = 256, SS_SHIFT = 48, CS64 = 0x33, CS32 = 0x23 };
    bool good = true;
    for (uint64_t n = 0; n < SELECTORS; n++) {
        const struct change cs = {REG_CSGSFS, 0xffff, n},
                            ss = {REG_CSGSFS, UINT64_C(0xffff) << SS_SHIFT, n << SS_SHIFT};
        int status = as_nobody(return_changed, &cs);
        bool want = (n | 3) == CS64   ? status == 0
                    : (n | 3) == CS32 ? ended(status)
                                      : ended_by(status, SIGSEGV);
        if (!want)
            (void)printf("xenpv: cs %#x: wait status %#x\n", (unsigned)n, (unsigned)status);
        good = good && want && ended(as_nobody(return_changed, &ss));
    }
    check(good, "sigreturn takes no other code segment than user code's");
    const struct change flags = {REG_EFL, 0, FLAG_IOPL | FLAG_NT | FLAG_VM | FLAG_AC | FLAG_DF};
    check(ended(as_nobody(return_changed, &flags)), "it takes any flags");
}

/* --- flags, and single steps -------------------------------------------------------------------
 */

static volatile uint64_t stepped[32];
static volatile unsigned n_stepped;

static void on_step(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *u = context;
    (void)signal;
    if (n_stepped < 32 && info->si_code == TRAP_TRACE)
        stepped[n_stepped++] = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
}

/* The step over SYSCALL ends with the instruction behind it: SYSCALL clears the flag (FMASK). */
static void step_over_syscall(const void *arg)
{
    extern const uint8_t steps_1[], steps_2[], steps_3[], steps_4[], steps_5[];
    const uint8_t *const want[] = {steps_1, steps_2, steps_3, steps_4, steps_5};
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    long parent = SYS_getppid;
    (void)arg;
    (void)sigaction(SIGTRAP, &action, NULL);
    __asm__ volatile("pushfq\n\t"
                     "orq $0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     "nop\n"
                     "steps_1: nop\n"
                     "steps_2: syscall\n\t"
                     "nop\n"
                     "steps_3: pushfq\n"
                     "steps_4: andq $~0x100, (%%rsp)\n"
                     "steps_5: popfq\n\t"
                     "nop"
                     : "+a"(parent)
                     :
                     : "rcx", "r11", "memory", "cc");
    bool good = parent == getppid();
    unsigned n = 0;
    for (unsigned i = 0; i < n_stepped && n < 5; i++)
        n += stepped[i] == (uint64_t)want[n];
    for (unsigned i = 0; i < n_stepped && n != 5; i++)
        (void)printf("xenpv: step %u: %+lld\n", i, (long long)(stepped[i] - (uint64_t)steps_1));
    _exit(!(good && n == 5 && n_stepped <= 7));
}

static void flags_survive(const void *arg)
{
    uint64_t flags = *(const uint64_t *)arg;
    long parent = SYS_getppid;
    uint64_t after;
    __asm__ volatile("pushq %2\n\t"
                     "popfq\n\t"
                     "syscall\n\t"
                     "pushfq\n\t"
                     "pop %1\n\t"
                     "pushq $0x202\n\t"
                     "popfq"
                     : "+a"(parent), "=&r"(after)
                     : "r"(flags)
                     : "rcx", "r11", "memory", "cc");
    _exit(parent != getppid() || (after & FLAG_IOPL) || (flags & ~(uint64_t)FLAG_NT & ~after));
}

static void flags_are_harmless(void)
{
    static const uint64_t flags[] = {PLAIN_FLAGS | FLAG_DF, PLAIN_FLAGS | FLAG_NT,
                                     PLAIN_FLAGS | FLAG_AC,
                                     PLAIN_FLAGS | FLAG_DF | FLAG_NT | FLAG_AC};
    bool good = true;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        int status = as_nobody(flags_survive, &flags[i]);
        if (status != 0)
            (void)printf("xenpv: flags %#llx: wait status %#x\n", (unsigned long long)flags[i],
                         (unsigned)status);
        good = good && status == 0;
    }
    check(good, "SYSCALL with odd flags is a system call");
    int status = as_nobody(step_over_syscall, NULL);
    check(status == 0, "single steps go over a system call");
}

/* --- 32-bit code -------------------------------------------------------------------------------
 */

static void execute_32(const void *arg)
{
    const struct code *c = arg;
    enum { UD2_0 = 0x0f, UD2_1 = 0x0b };
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (at == MAP_FAILED)
        _exit(1);
    memcpy(at, c->bytes, c->n);
    at[c->n] = UD2_0;
    at[c->n + 1] = UD2_1;
    __asm__ volatile("mov %1, %%rsp\n\t"
                     "pushq $0x23\n\t"
                     "push %0\n\t"
                     "mov $20, %%eax\n\t"
                     "lretq" ::"r"((uint64_t)at),
                     "r"((uint64_t)at + 2 * PAGE - 64)
                     : "memory", "rax");
    __builtin_unreachable();
}

static void code_of_32_bits_is_harmless(void)
{
    static const struct code codes[] = {{{0xcd, 0x80}, 2, 0, NULL},
                                        {{0x0f, 0x05}, 2, 0, NULL},
                                        {{0x0f, 0x34}, 2, 0, NULL},
                                        {{0xcc}, 1, 0, NULL},
                                        {{0xce}, 1, 0, NULL},
                                        {{0xf4}, 1, 0, NULL},
                                        {{0xe6, 0x64}, 2, 0, NULL},
                                        {{0xa1, 0, 0, 0, 0}, 5, 0, NULL},
                                        {{0x31, 0xc0, 0x8e, 0xd0}, 4, 0, NULL},
                                        {{0xea, 0, 0, 0, 0, 0x33, 0}, 7, 0, NULL},
                                        {{0}, 0, SIGILL, NULL}};
    bool good = true;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        int status = as_nobody(execute_32, &codes[i]);
        bool want = codes[i].signal ? ended_by(status, codes[i].signal)
                                    : WIFSIGNALED(status) && ended(status);
        if (!want)
            (void)printf("xenpv: 32-bit code %zu: wait status %#x\n", i, (unsigned)status);
        good = good && want;
    }
    check(good, "32-bit code dies alone");
}

/* --- what is taken away is gone ----------------------------------------------------------------
 */

static void pages_are_gone(const void *arg)
{
    enum { ROUNDS = 100, RW = PROT_READ | PROT_WRITE };
    unsigned wrong = 0;
    (void)arg;
    catch_signals();
    for (volatile int i = 0; i < ROUNDS; i++) {
        uint8_t *volatile at = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            _exit(1);
        at[0] = at[PAGE] = 1;
        wrong += mprotect(at, PAGE, PROT_READ) != 0 || signal_of((uint64_t)at, WRITE) != SIGSEGV ||
                 at[0] != 1;
        wrong += mprotect(at, PAGE, PROT_NONE) != 0 || signal_of((uint64_t)at, READ) != SIGSEGV;
        wrong += mprotect(at, PAGE, RW) != 0 || signal_of((uint64_t)at, WRITE) != 0;
        wrong += madvise(at + PAGE, PAGE, MADV_DONTNEED) != 0 || at[PAGE] != 0;
        wrong += munmap(at, 2 * PAGE) != 0 || signal_of((uint64_t)at, READ) != SIGSEGV ||
                 signal_of((uint64_t)at + PAGE, WRITE) != SIGSEGV;
    }
    _exit(wrong > 0);
}

static void copies_are_apart(const void *arg)
{
    enum { ROUNDS = 50, PAGES = 16 };
    static volatile uint8_t mine[PAGES * PAGE];
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        for (int n = 0; n < PAGES; n++)
            mine[n * PAGE] = (uint8_t)i;
        pid_t child = fork();
        for (int n = 0; n < PAGES; n++)
            mine[n * PAGE] = (uint8_t)(mine[n * PAGE] + (child == 0 ? 1 : 2));
        bool good = true;
        for (int n = 0; n < PAGES; n++)
            good = good && mine[n * PAGE] == (uint8_t)(i + (child == 0 ? 1 : 2));
        if (child == 0)
            _exit(!good);
        if (wait_for(child) != 0 || !good)
            _exit(1);
    }
}

static void what_is_taken_is_gone(void)
{
    check(as_nobody(pages_are_gone, NULL) == 0, "pages that are taken away are gone");
    check(as_nobody(copies_are_apart, NULL) == 0, "copies of pages are apart");
}

/* --- storms ------------------------------------------------------------------------------------
 */

enum { ALARMS = 300 };
static volatile sig_atomic_t alarms;

/* The last one ends them: on a slow machine each would come as soon as the one before is served. */
static void on_alarm(int signal)
{
    static const struct itimerval never;
    (void)signal;
    alarms = alarms + 1;
    if (alarms >= ALARMS)
        (void)setitimer(ITIMER_REAL, &never, NULL);
}

/* Each register over so many rounds of nothing, in which interrupts come. */
static bool registers_stay(void)
{
    uint64_t wrong = 0;
    __asm__ volatile("push %%rbp\n\t"
                     "mov $1, %%rax; mov $2, %%rbx; mov $3, %%rdx; mov $4, %%rsi\n\t"
                     "mov $5, %%rdi; mov $6, %%rbp; mov $8, %%r8; mov $9, %%r9\n\t"
                     "mov $10, %%r10; mov $11, %%r11; mov $12, %%r12; mov $13, %%r13\n\t"
                     "mov $14, %%r14; mov $300000, %%ecx\n"
                     "1: dec %%ecx\n\t"
                     "jnz 1b\n\t"
                     "xor $1, %%rax; xor $2, %%rbx; xor $3, %%rdx; xor $4, %%rsi\n\t"
                     "xor $5, %%rdi; xor $6, %%rbp; xor $8, %%r8; xor $9, %%r9\n\t"
                     "xor $10, %%r10; xor $11, %%r11; xor $12, %%r12; xor $13, %%r13\n\t"
                     "xor $14, %%r14\n\t"
                     "or %%rbx, %%rax; or %%rdx, %%rax; or %%rsi, %%rax; or %%rdi, %%rax\n\t"
                     "or %%rbp, %%rax; or %%r8, %%rax; or %%r9, %%rax; or %%r10, %%rax\n\t"
                     "or %%r11, %%rax; or %%r12, %%rax; or %%r13, %%rax; or %%r14, %%rax\n\t"
                     "pop %%rbp"
                     : "=&a"(wrong)
                     :
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
                       "r14", "cc", "memory");
    return wrong == 0;
}

static bool faults_are_served(void)
{
    enum { PAGES = 64 };
    uint8_t *at =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool good = at != MAP_FAILED;
    for (int i = 0; i < PAGES && good; i++)
        good = at[i * PAGE]++ == 0;
    return good && munmap(at, PAGES * PAGE) == 0;
}

static void storm(const void *arg)
{
    enum { PERIOD_US = 700 };
    const struct itimerval often = {{0, PERIOD_US}, {0, PERIOD_US}};
    bool good = signal(SIGALRM, on_alarm) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0;
    pid_t parent = getppid();
    (void)arg;
    while (good && alarms < ALARMS)
        good = registers_stay() && faults_are_served() && syscall(SYS_getppid) == parent;
    _exit(!good);
}

static void storms(void)
{
    enum { PROCESSES = 3 };
    pid_t children[PROCESSES];
    bool good = true;
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0)
            storm(NULL);
    }
    for (int i = 0; i < PROCESSES; i++)
        good = wait_for(children[i]) == 0 && good;
    check(good, "processes stay whole in a storm of timers, signals and faults");
}

/* --- all ---------------------------------------------------------------------------------------
 */

void what_may_be_tried(void)
{
    returns_are_checked();
    selectors_are_checked();
    flags_are_harmless();
    what_is_taken_is_gone();
    storms();
}

static void attacks_here(void)
{
    uint64_t *door = shared_word();
    memory_is_out_of_reach();
    ports_are_closed();
    instructions_are_refused();
    only_int3_is_a_gate();
    check(door && as_nobody(tell_door, &door) == 0 && *door != 0, "SYSCALL has one door");
    if (door && *door != 0)
        the_door_takes_any_registers(*door);
    no_return_leads_to_the_kernel();
    code_of_32_bits_is_harmless();
}

static pid_t attack_from(unsigned cpu)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    check(run_on(cpu), "attacks come from one processor");
    attacks_here();
    _exit(has_failed());
}

/* From the first processor and from the last at once: each has a door of its own, and no other's.
 */
void attacks(void)
{
    unsigned last = processors() - 1;
    pid_t first_child = attack_from(0), last_child = last > 0 ? attack_from(last) : 0;
    check(wait_for(first_child) == 0, "attacks from the first processor fail");
    check(last == 0 || wait_for(last_child) == 0, "attacks from the last processor fail");
}
