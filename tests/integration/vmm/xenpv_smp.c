/* tests/integration/vmm/xenpv_smp.c - what a Xen-PV guest of several processors owes its programs.
 *
 * Each check runs between the first processor, which is this one, and each of the others.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

#include "tests/integration/vmm/xenpv_init.h"

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE };

unsigned processors(void)
{
    static unsigned n; /* from before any process stays on one */
    cpu_set_t set;
    if (n == 0 && sched_getaffinity(0, sizeof set, &set) == 0)
        n = (unsigned)CPU_COUNT(&set);
    return n;
}

bool run_on(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 && sched_getcpu() == (int)cpu;
}

void run_anywhere(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned i = 0; i < processors(); i++)
        CPU_SET(i, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* While another processor goes on: it may be one of more than the host has. */
static void nap(void)
{
    const struct timespec short_while = {0, 20000};
    (void)nanosleep(&short_while, NULL);
}

static void *shared_page(void)
{
    void *at = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* --- they are there -------------------------------------------------------------------------- */

static unsigned count_in_cpuinfo(void)
{
    static const char word[] = "processor";
    char line[1024];
    unsigned n = 0;
    (void)mkdir("/proc", 0755);
    (void)mount("proc", "/proc", "proc", 0, NULL);
    FILE *info = fopen("/proc/cpuinfo", "r");
    while (info && fgets(line, sizeof line, info))
        n += strncmp(line, word, sizeof word - 1) == 0;
    if (info)
        (void)fclose(info);
    return n;
}

static bool counts_to(unsigned cpu)
{
    enum { N = 1000000 };
    volatile unsigned n = 0;
    if (!run_on(cpu))
        return false;
    while (n < N)
        n = n + 1;
    return sched_getcpu() == (int)cpu;
}

static void are_there(unsigned cpus)
{
    bool good = count_in_cpuinfo() == cpus;
    for (unsigned i = 0; i < cpus; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(!counts_to(i));
        good = wait_for(child) == 0 && good;
    }
    (void)printf("xenpv: %u processors\n", cpus);
    check(good, "each processor runs programs");
}

/* --- time and signals on each ---------------------------------------------------------------- */

static volatile sig_atomic_t arrived;

static void on_arrival(int signal)
{
    (void)signal;
    arrived = arrived + 1;
}

/* While it computes, and while it sleeps. */
static bool has_time(unsigned cpu)
{
    enum { TICKS = 50, NAPS = 10, NAP_NS = 2000000 };
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    const struct timespec rest = {0, NAP_NS};
    bool good = run_on(cpu) && signal(SIGALRM, on_arrival) != SIG_ERR &&
                setitimer(ITIMER_REAL, &often, NULL) == 0;
    while (good && arrived < TICKS)
        ;
    (void)setitimer(ITIMER_REAL, &never, NULL);
    for (int i = 0; i < NAPS && good; i++) {
        struct timespec from, to;
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        good = nanosleep(&rest, NULL) == 0;
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        good =
            good && (to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec >= NAP_NS;
    }
    return good;
}

static void have_time(unsigned cpus)
{
    pid_t children[CPU_SETSIZE];
    bool good = true;
    for (unsigned i = 0; i < cpus; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(!has_time(i));
    }
    for (unsigned i = 0; i < cpus; i++)
        good = wait_for(children[i]) == 0 && good;
    check(good, "each processor has its timers");
}

/* A process there that computes, and tells how many signals it has had. */
static _Noreturn void be_signalled(unsigned cpu, atomic_uint *ret_arrived, unsigned n)
{
    if (!run_on(cpu) || signal(SIGUSR1, on_arrival) == SIG_ERR)
        _exit(1);
    atomic_store(ret_arrived, 1);
    while ((unsigned)arrived < n)
        atomic_store(ret_arrived, 1 + (unsigned)arrived);
    atomic_store(ret_arrived, 1 + n);
    _exit(0);
}

static bool signals_reach(unsigned cpu)
{
    enum { N = 100 };
    atomic_uint *count = shared_page();
    pid_t child = count ? fork() : -1;
    if (child == 0)
        be_signalled(cpu, count, N);
    for (unsigned i = 1; i <= N && child > 0; i++) {
        while (atomic_load(count) < i)
            nap();
        (void)kill(child, SIGUSR1);
    }
    return wait_for(child) == 0;
}

/* --- talk ------------------------------------------------------------------------------------ */

static bool pipes_lead_to(unsigned cpu)
{
    enum { N = 300 };
    int there[2], back[2];
    unsigned n = 0;
    bool good = pipe(there) == 0 && pipe(back) == 0;
    pid_t child = good ? fork() : -1;
    if (child == 0) {
        good = run_on(cpu);
        for (unsigned i = 0; i < N; i++)
            good = good && read(there[0], &n, sizeof n) == sizeof n && n == i &&
                   write(back[1], &n, sizeof n) == sizeof n;
        _exit(!good);
    }
    for (unsigned i = 0; i < N; i++)
        good = good && write(there[1], &i, sizeof i) == sizeof i &&
               read(back[0], &n, sizeof n) == sizeof n && n == i;
    for (int i = 0; i < 2; i++)
        (void)(close(there[i]), close(back[i]));
    return wait_for(child) == 0 && good;
}

static void await(atomic_uint *word, unsigned value)
{
    for (unsigned now; (now = atomic_load(word)) != value;)
        (void)syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
}

static void tell(atomic_uint *word, unsigned value)
{
    atomic_store(word, value);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

struct partner {
    unsigned cpu, n;
    atomic_uint word;
};

static void *answer(void *arg)
{
    struct partner *p = arg;
    bool good = run_on(p->cpu);
    for (unsigned i = 0; i < p->n; i++) {
        await(&p->word, 2 * i + 1);
        tell(&p->word, 2 * i + 2);
    }
    return good ? p : NULL;
}

static bool futexes_wake(unsigned cpu)
{
    struct partner p = {.cpu = cpu, .n = 300};
    pthread_t thread;
    void *good;
    if (pthread_create(&thread, NULL, answer, &p) != 0)
        return false;
    for (unsigned i = 0; i < p.n; i++) {
        tell(&p.word, 2 * i + 1);
        await(&p.word, 2 * i + 2);
    }
    return pthread_join(thread, &good) == 0 && good != NULL;
}

/* --- what is taken away is gone for the other processor, too -----------------------------------
 *
 * A thread there uses a page without end.  What it sees after it was told that the page is not what
 * it was any more, must be so.
 */

enum change { TAKEN, READ_ONLY, REPLACED, CHANGES };
enum { NOT_YET = 0, OLD_VALUE = 1, THE_END = UINT_MAX };

static struct {
    unsigned cpu;
    volatile unsigned *at;
    enum change change;
    atomic_uint round; /* NOT_YET, or which change is done */
    atomic_uint seen;  /* that round is seen there */
    atomic_uint uses, wrong;
} race;

static __thread sigjmp_buf after_fault;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(after_fault, 1);
}

/* Is the page still what it was? */
static bool is_as_before(void)
{
    if (sigsetjmp(after_fault, 1) != 0)
        return false;
    if (race.change == READ_ONLY)
        *race.at = OLD_VALUE;
    return *race.at == OLD_VALUE;
}

static void *use(void *arg)
{
    atomic_fetch_add(&race.wrong, !run_on(race.cpu));
    for (unsigned round; (round = atomic_load(&race.round)) != (unsigned)THE_END;) {
        bool before = is_as_before();
        if (round == NOT_YET)
            atomic_fetch_add(&race.uses, before);
        else if (before)
            atomic_fetch_add(&race.wrong, 1);
        if (round != NOT_YET)
            atomic_store(&race.seen, round);
        while (round != NOT_YET && atomic_load(&race.round) == round)
            nap();
    }
    return arg;
}

static void do_change(void)
{
    void *at = (void *)(uintptr_t)race.at;
    if (race.change == READ_ONLY)
        (void)mprotect(at, PAGE, PROT_READ);
    else if (race.change == TAKEN)
        (void)munmap(at, PAGE);
    else
        (void)mmap(at, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* A page that is used there, until it is changed. */
static void change_once(unsigned round)
{
    void *at = (void *)(uintptr_t)race.at;
    race.change = (enum change)(round % CHANGES);
    (void)mmap(at, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *race.at = OLD_VALUE;
    unsigned uses = atomic_load(&race.uses);
    atomic_store(&race.round, NOT_YET);
    while (atomic_load(&race.uses) - uses < 3)
        nap();
    do_change();
    atomic_store(&race.round, round);
    while (atomic_load(&race.seen) != round)
        nap();
}

static bool nothing_is_stale(unsigned cpu)
{
    enum { ROUNDS = 150, PAGES = 2 }; /* nobody else maps something there */
    pthread_t thread;
    void *at = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || signal(SIGSEGV, on_fault) == SIG_ERR)
        return false;
    race.cpu = cpu;
    race.at = at;
    atomic_store(&race.round, ROUNDS + 1);
    atomic_store(&race.seen, ROUNDS + 1);
    race.change = TAKEN;
    if (pthread_create(&thread, NULL, use, NULL) != 0)
        return false;
    for (unsigned round = 1; round <= ROUNDS; round++)
        change_once(round);
    atomic_store(&race.round, THE_END);
    bool good = pthread_join(thread, NULL) == 0 && atomic_load(&race.wrong) == 0;
    if (!good)
        (void)printf("xenpv: %u stale uses\n", atomic_load(&race.wrong));
    (void)munmap(at, PAGES * PAGE);
    return good;
}

/* A thread there counts in a page; in a child's copy of it the count stands still. */
static volatile unsigned counter;
static atomic_bool stop_counting;

static void *count(void *arg)
{
    atomic_store(&race.seen, run_on(race.cpu));
    while (!atomic_load(&stop_counting))
        counter = counter + 1;
    return arg;
}

static bool copies_stand_still(unsigned cpu)
{
    enum { COPIES = 30, LOOKS = 20000 };
    pthread_t thread;
    bool good = true;
    race.cpu = cpu;
    atomic_store(&stop_counting, false);
    if (pthread_create(&thread, NULL, count, NULL) != 0)
        return false;
    for (int i = 0; i < COPIES; i++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned first = counter;
            for (int n = 0; n < LOOKS && good; n++)
                good = counter == first;
            _exit(!good);
        }
        good = wait_for(child) == 0 && good;
    }
    atomic_store(&stop_counting, true);
    return pthread_join(thread, NULL) == 0 && good && atomic_load(&race.seen) == 1;
}

/* --- all at once --------------------------------------------------------------------------------
 */

/* Maps, uses, protects and unmaps, beside threads that do so in the same address space. */
static void *churn(void *arg)
{
    enum { ROUNDS = 40, PAGES = 32 };
    bool good = run_on(*(unsigned *)arg);
    for (int round = 0; round < ROUNDS && good; round++) {
        uint8_t *at = mmap(NULL, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        good = at != MAP_FAILED;
        for (int i = 0; i < PAGES && good; i++)
            good = at[i * PAGE]++ == 0;
        good = good && mprotect(at, PAGES * PAGE, PROT_READ) == 0 &&
               mprotect(at, PAGES * PAGE, RW) == 0;
        for (int i = 0; i < PAGES && good; i++)
            good = at[i * PAGE]++ == 1;
        good = good && munmap(at, PAGES * PAGE) == 0;
    }
    return good ? arg : NULL;
}

static bool threads_share_memory(unsigned cpus)
{
    enum { EACH = 2 };
    pthread_t threads[EACH * CPU_SETSIZE];
    unsigned on[EACH * CPU_SETSIZE];
    bool good = true;
    for (unsigned i = 0; i < EACH * cpus; i++) {
        on[i] = i % cpus;
        good = pthread_create(&threads[i], NULL, churn, &on[i]) == 0 && good;
    }
    for (unsigned i = 0; i < EACH * cpus && good; i++) {
        void *result;
        good = pthread_join(threads[i], &result) == 0 && result != NULL;
    }
    return good;
}

static bool starts_programs(unsigned cpu)
{
    enum { N = 10 };
    bool good = run_on(cpu);
    for (int i = 0; i < N && good; i++) {
        pid_t child = fork();
        if (child == 0) {
            (void)execl("/init", "init", "child", (char *)NULL);
            _exit(1);
        }
        good = wait_for(child) == 0;
    }
    return good;
}

static bool all_start_programs(unsigned cpus)
{
    pid_t children[CPU_SETSIZE];
    bool good = true;
    for (unsigned i = 0; i < cpus; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(!starts_programs(i));
    }
    for (unsigned i = 0; i < cpus; i++)
        good = wait_for(children[i]) == 0 && good;
    return good;
}

/* --- off and on ------------------------------------------------------------------------------- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        (void)close(fd);
    return good;
}

static bool goes_off_and_on(unsigned cpu)
{
    char path[64];
    (void)mkdir("/sys", 0755);
    (void)mount("sysfs", "/sys", "sysfs", 0, NULL);
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/online", cpu);
    run_anywhere();
    bool good = write_text(path, "0") && !run_on(cpu) && write_text(path, "1");
    pid_t child = fork();
    if (child == 0)
        _exit(!counts_to(cpu));
    return wait_for(child) == 0 && good;
}

/* The kernel logs faults of the first process. */
static bool in_child(bool (*good)(unsigned), unsigned cpu)
{
    pid_t child = fork();
    if (child == 0)
        _exit(!good(cpu));
    return wait_for(child) == 0;
}

/* --- all of it ----------------------------------------------------------------------------------
 */

void several_processors(void)
{
    unsigned cpus = processors();
    are_there(cpus);
    have_time(cpus);
    if (cpus == 1)
        return;
    for (unsigned i = 1; i < cpus; i++) {
        bool good = run_on(0);
        check(good && signals_reach(i), "signals reach the other processor");
        check(pipes_lead_to(i), "pipes lead there, and back");
        check(futexes_wake(i), "futexes wake there, and here");
        check(in_child(nothing_is_stale, i), "what is taken away is gone there");
        check(in_child(copies_stand_still, i), "copies of pages are apart there");
    }
    check(threads_share_memory(cpus), "threads share their memory");
    check(all_start_programs(cpus), "all start programs");
    run_anywhere();
}

void off_and_on(void)
{
    for (unsigned i = 1; i < processors(); i++)
        check(goes_off_and_on(i), "the other processor goes off and on");
    run_anywhere();
}
