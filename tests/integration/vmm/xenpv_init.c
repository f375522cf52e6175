/* tests/integration/vmm/xenpv_init.c - the only program of a Xen-PV guest: /init, static.
 *
 * usage: init shared | isolated [processors | soak]
 * The word is the guest's mode; a soak is some of the checks, 500 times; "processors" are those of
 * several processors, alone.
 * Does what a kernel must do for its programs, says what it found a line each, and switches the
 * machine off.  A check that fails says so, and the last line is then missing.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/integration/vmm/xenpv_init.h"

enum { PAGE = 4096 };
#define NS_PER_S UINT64_C(1000000000)

static unsigned failures;

void check(bool good, const char *what)
{
    failures += !good;
    (void)printf("xenpv: %s %s\n", good ? "ok" : "FAILED", what);
}

bool has_failed(void)
{
    return failures > 0;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void tell(const char *what, uint64_t begin_ns, unsigned n)
{
    (void)printf("xenpv: %s %.2f us\n", what, (double)(now_ns() - begin_ns) / 1e3 / n);
}

static void system_calls(void)
{
    enum { N = 2000 };
    uint64_t begin = now_ns();
    long parent = 0;
    for (int i = 0; i < N; i++)
        parent |= syscall(SYS_getppid);
    tell("getppid", begin, N);
    check(parent == 0, "the first process has no parent");
}

static void page_faults(void)
{
    enum { N = 1000 };
    uint64_t begin = now_ns();
    uint8_t *at = mmap(NULL, N * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool zero = at != MAP_FAILED;
    for (int i = 0; i < N && zero; i++)
        zero = at[i * PAGE]++ == 0;
    tell("page fault", begin, N);
    check(zero && munmap(at, N * PAGE) == 0, "fresh pages are zero");
}

int wait_for(pid_t child)
{
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static void forks(void)
{
    enum { N = 20, STATUS = 7 };
    uint64_t begin = now_ns();
    bool good = true;
    for (int i = 0; i < N; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(STATUS);
        int status = wait_for(child);
        good &= WIFEXITED(status) && WEXITSTATUS(status) == STATUS;
    }
    tell("fork and wait", begin, N);
    check(good, "children end with their status");
}

static void execs(void)
{
    enum { N = 5 };
    uint64_t begin = now_ns();
    bool good = true;
    for (int i = 0; i < N; i++) {
        pid_t child = fork();
        if (child == 0) {
            (void)execl("/init", "init", "child", (char *)NULL);
            _exit(1);
        }
        good &= wait_for(child) == 0;
    }
    tell("fork, exec and wait", begin, N);
    check(good, "a program starts programs");
}

/* --- exceptions ------------------------------------------------------------------------------ */

static volatile sig_atomic_t caught;

static void on_fault(int signal)
{
    caught = signal;
    _exit(signal);
}

static void segv(void)
{
    __asm__ volatile("movl $1, 8" ::: "memory");
}

static void illegal(void)
{
    __asm__ volatile("ud2");
}

static void breakpoint(void)
{
    __asm__ volatile("int3");
}

/* The shim's own way to ask CPL0: anybody else's is an exception, and changes nothing. */
static void on_overflow(int signal, siginfo_t *info, void *context)
{
    const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    _exit(g[REG_RAX] == 0x12345678 && g[REG_RDI] == 8 ? signal : 0);
}

static void overflow(void)
{
    const struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO};
    (void)sigaction(SIGSEGV, &action, NULL);
    __asm__ volatile("int $4" ::"a"(0x12345678), "D"(UINT64_C(8)));
}

static void division(void)
{
    __asm__ volatile("xor %%ecx, %%ecx; div %%ecx" ::: "eax", "ecx", "edx", "cc");
}

static void privileged(void)
{
    __asm__ volatile("hlt");
}

static void exceptions(void)
{
    static const struct {
        void (*provoke)(void);
        int signal;
        const char *what;
    } cases[] = {{segv, SIGSEGV, "a wild store is SIGSEGV"},
                 {illegal, SIGILL, "an undefined instruction is SIGILL"},
                 {breakpoint, SIGTRAP, "int3 is SIGTRAP"},
                 {overflow, SIGSEGV, "INT 4 is SIGSEGV, its registers as they were"},
                 {division, SIGFPE, "a division by 0 is SIGFPE"},
                 {privileged, SIGSEGV, "a privileged instruction is SIGSEGV"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pid_t child = fork();
        if (child == 0) {
            (void)signal(cases[i].signal, on_fault);
            cases[i].provoke();
            _exit(0);
        }
        int status = wait_for(child);
        check(WIFEXITED(status) && WEXITSTATUS(status) == cases[i].signal, cases[i].what);
    }
}

/* --- the address of a fault ------------------------------------------------------------------- */

static sigjmp_buf after_fault;
static char *volatile fault_at;

static void on_address(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    fault_at = info->si_addr;
    siglongjmp(after_fault, 1);
}

static char *address_of_fault(void (*provoke)(char *), char *at)
{
    fault_at = NULL;
    if (sigsetjmp(after_fault, 1) == 0)
        provoke(at);
    return fault_at;
}

static void store(char *at)
{
    __asm__ volatile("movl %%eax, 8(%0,%1,4)" ::"r"(at - 16), "r"(UINT64_C(2)) : "memory");
}

static void fill(char *at)
{
    uint64_t n = PAGE;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n)::"memory");
}

static void copy(char *at)
{
    char to[PAGE], *end = to;
    uint64_t n = PAGE;
    __asm__ volatile("rep movsb" : "+D"(end), "+S"(at), "+c"(n)::"memory");
}

static void store_x87(char *at) /* which the shim does not decode */
{
    __asm__ volatile("fnstcw (%0)" ::"r"(at) : "memory");
}

static void by_segment(char *at) /* nor this */
{
    __asm__ volatile("incl %%fs:(%0)" ::"r"(at - (char *)__builtin_thread_pointer()) : "memory");
}

static void run_there(char *at)
{
    __asm__ volatile("call *%0" ::"r"(at) : "memory");
}

/* Of two pages the second may not be used. */
static void addresses(void)
{
    static const struct {
        void (*provoke)(char *);
        int before;
        const char *what;
    } cases[] = {{store, 0, "a store tells where it faulted"},
                 {store, 2, "a store across a page's end tells the page that it faulted in"},
                 {fill, 1000, "a string that is written"},
                 {copy, 1000, "a string that is read"},
                 {store_x87, 0, "a word of x87"},
                 {by_segment, 0, "an address by a segment"},
                 {run_there, 0, "a jump"}};
    const struct sigaction action = {.sa_sigaction = on_address, .sa_flags = SA_SIGINFO};
    char *pages =
        mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction was;
    if (pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_NONE) < 0 ||
        sigaction(SIGSEGV, &action, &was) < 0) {
        check(false, "memory that faults");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(address_of_fault(cases[i].provoke, pages + PAGE - cases[i].before) == pages + PAGE,
              cases[i].what);
    (void)sigaction(SIGSEGV, &was, NULL);
    (void)munmap(pages, (size_t)2 * PAGE);
}

/* --- time --------------------------------------------------------------------------------------
 */

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
    (void)signal;
    ticks = ticks + 1;
}

/* Events come while the kernel serves page faults: what must not happen is that one is delivered in
 * place of the other. */
static void ticks_among_faults(void)
{
    enum { TICKS = 100, PAGES = 256 };
    const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    bool good = signal(SIGALRM, on_tick) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0;
    uint64_t rounds = 0;
    while (good && ticks < TICKS) {
        uint8_t *at =
            mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        good = at != MAP_FAILED;
        for (int i = 0; i < PAGES && good; i++)
            good = at[i * PAGE]++ == 0;
        good = good && munmap(at, PAGES * PAGE) == 0;
        rounds++;
    }
    (void)setitimer(ITIMER_REAL, &never, NULL);
    (void)printf("xenpv: %d ticks in %llu rounds\n", (int)ticks, (unsigned long long)rounds);
    check(good, "ticks come among page faults");
}

/* Behind a page fault it leaves the processor's ring 3 for nothing: IF must have outlived the
 * fault. */
static void a_tick_while_it_computes(void)
{
    const struct itimerval once = {{0, 0}, {0, 20000}};
    const uint64_t limit = 20 * NS_PER_S;
    uint8_t *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ticks = 0;
    bool good = at != MAP_FAILED && signal(SIGALRM, on_tick) != SIG_ERR &&
                setitimer(ITIMER_REAL, &once, NULL) == 0;
    uint64_t begin = now_ns();
    if (good)
        at[0] = 1;
    while (good && ticks == 0 && now_ns() - begin < limit)
        ;
    check(good && ticks == 1, "a program that has faulted and computes is interrupted");
    good = good && munmap(at, PAGE) == 0;
    check(good, "its page is given back");
}

static void sleeps(void)
{
    enum { N = 20 };
    const struct timespec nap = {0, 2000000};
    bool good = true;
    uint64_t begin = now_ns();
    for (int i = 0; i < N; i++) {
        uint64_t before = now_ns();
        good &= nanosleep(&nap, NULL) == 0 && now_ns() - before >= 2000000;
    }
    tell("sleep of 2000", begin, N);
    check(good, "no sleep is too short");
}

/* --- registers over switches of process --------------------------------------------------------
 */

static double harmonic(unsigned seed)
{
    enum { TERMS = 3000000 };
    double sum = 0;
    for (unsigned i = 1; i <= TERMS; i++)
        sum += 1.0 / (double)(i + seed);
    return sum;
}

static void floating_point(void)
{
    enum { CHILDREN = 4 };
    double want[CHILDREN];
    pid_t children[CHILDREN];
    bool good = true;
    for (unsigned i = 0; i < CHILDREN; i++)
        want[i] = harmonic(i);
    for (unsigned i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(memcmp(&want[i], &(double){harmonic(i)}, sizeof(double)) != 0);
    }
    for (unsigned i = 0; i < CHILDREN; i++)
        good &= wait_for(children[i]) == 0;
    check(good, "processes keep their registers");
}

static void pipes(void)
{
    enum { N = 200 };
    int there[2], back[2];
    char byte = 'x';
    bool good = pipe(there) == 0 && pipe(back) == 0;
    uint64_t begin = now_ns();
    pid_t child = good ? fork() : -1;
    if (child == 0) {
        for (int i = 0; i < N; i++)
            good = good && read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1;
        _exit(!good);
    }
    for (int i = 0; i < N; i++)
        good = good && write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1;
    good = wait_for(child) == 0 && good;
    tell("round trip of two pipes", begin, N);
    check(good, "processes talk");
}

/* --- for hours ---------------------------------------------------------------------------------
 */

static void soak(void)
{
    enum { ROUNDS = 500 };
    for (int i = 1; i <= ROUNDS; i++) {
        execs();
        exceptions();
        addresses();
        several_processors();
        what_may_be_tried();
        (void)printf("xenpv: round %d of %d, %u failures\n", i, ROUNDS, failures);
    }
}

static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    if (has_word(argc, argv, "child"))
        return 0; /* of execs() */
    (void)mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd <= 2 && console >= 0; fd++)
        (void)dup2(console, fd);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)printf("xenpv: init runs, on one of %u\n", processors());
    void (*const checks[])(void) = {system_calls, page_faults,         forks,
                                    execs,        exceptions,          addresses,
                                    sleeps,       ticks_among_faults,  a_tick_while_it_computes,
                                    pipes,        floating_point,      several_processors,
                                    off_and_on,   what_user_code_does, what_may_be_tried};
    bool is_short = has_word(argc, argv, "processors");
    if (is_short) {
        several_processors();
        off_and_on();
    }
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && !is_short; i++)
        checks[i]();
    if (has_word(argc, argv, "isolated") && !is_short)
        attacks();
    if (has_word(argc, argv, "soak"))
        soak();
    if (failures == 0)
        (void)printf("xenpv: all is well\n");
    (void)reboot(RB_POWER_OFF);
    return 1;
}
