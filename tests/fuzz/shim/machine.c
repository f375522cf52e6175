/* tests/fuzz/shim/machine.c - see machine.h. */
#include "tests/fuzz/shim/machine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "tests/fuzz/bytes.h"
#include "vmm/ports.h"
#include "vmm/xenpv_priv.h"

/* Where a process can have them; the shim's own places are in tests/fuzz/vmm_xenpv.cmake. */
#define LINEAR_HOST UINT64_C(0x230000000000)
#define NOWHERE_HOST UINT64_C(0x240000000000)
enum { GUARD = 1 << 20, TABLE = 0x67, AREA_BYTES = SHIM_M2P };
enum { PROTECTION = 13, PAGE_FAULT = 14, NEVER_MAPPED = 1 << 16 };

static const struct window {
    uint64_t at, bytes;
    int rights;
} windows[] = {
    {SHIM_STATE, SHIM_CPUID - SHIM_STATE, PROT_READ | PROT_WRITE},
    {SHIM_CPUID, SHIM_PRIVATE - SHIM_CPUID, PROT_READ},
    {SHIM_COMMON, SHIM_MAIL - SHIM_COMMON, PROT_READ | PROT_WRITE},
    {SHIM_MAIL, SHIM_SHARED_INFO - SHIM_MAIL, PROT_READ | PROT_WRITE},
    {SHIM_SHARED_INFO, MACHINE_PAGE, PROT_READ | PROT_WRITE},
    {SHIM_FRAMES, MACHINE_PAGE, PROT_READ | PROT_WRITE},
    {MACHINE_LEVELS, MACHINE_PAGE, PROT_READ | PROT_WRITE},
};

static uint8_t area[AREA_BYTES], ram[MACHINE_RAM]; /* as they are at the start */
static uint64_t tsc, fs_base, gs_base;
static struct {
    uint64_t deadline, armed_at; /* TSC; 0 = not armed */
    bool is_due;
} timer;

static volatile bool is_running;
static volatile enum machine_end end;
static volatile uint64_t fault_at;
static volatile unsigned faults;
static sigjmp_buf at_end, at_fault;

const uint8_t may_wait[1], waited[1];

/* --- memory ---------------------------------------------------------------------------------- */

static void *map(uint64_t at, size_t bytes, int rights, int fd)
{
    int flags = MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    void *got = mmap((void *)at, bytes, rights, flags, fd, 0);
    CL_ASSERT(got == (void *)at);
    return got;
}

/* RAM is in two places: where the shim has all frames, and where the kernel has it, between pages
 * that fault. */
static void map_all(void)
{
    int fd = memfd_create("ram", MFD_CLOEXEC);
    CL_ASSERT(fd >= 0 && ftruncate(fd, MACHINE_RAM) == 0);
    (void)map(SHIM_FRAMES_VA, MACHINE_RAM, PROT_READ | PROT_WRITE, fd);
    (void)map(LINEAR_HOST, MACHINE_RAM, PROT_READ | PROT_WRITE, fd);
    (void)map(LINEAR_HOST - GUARD, GUARD, PROT_NONE, -1);
    (void)map(LINEAR_HOST + MACHINE_RAM, GUARD, PROT_NONE, -1);
    (void)map(NOWHERE_HOST - GUARD, 2 * GUARD, PROT_NONE, -1);
    (void)close(fd);
    for (size_t i = 0; i < CL_COUNT(windows); i++) {
        const struct window *w = &windows[i];
        uint8_t *at = map(SHIM_VA + w->at, w->bytes, PROT_READ | PROT_WRITE, -1);
        memcpy(at, area + w->at, w->bytes);
        CL_ASSERT(mprotect(at, w->bytes, w->rights) == 0);
    }
}

static void put_entry(unsigned frame, unsigned index, uint64_t entry)
{
    memcpy(ram + frame * MACHINE_PAGE + index * sizeof entry, &entry, sizeof entry);
}

static void put_tables(const uint64_t slots[static SHIM_SLOTS])
{
    for (unsigned i = 0; i < SHIM_SLOTS; i++)
        put_entry(FRAME_ROOT, SHIM_SLOT_FIRST + i, slots[i]);
    put_entry(FRAME_ROOT, 511, (FRAME_ROOT + 1) * MACHINE_PAGE | TABLE);
    put_entry(FRAME_ROOT + 1, 510, (FRAME_ROOT + 2) * MACHINE_PAGE | TABLE);
    put_entry(FRAME_ROOT + 2, 0, FRAME_TABLE * MACHINE_PAGE | TABLE);
    for (unsigned i = 0; i < MACHINE_FRAMES; i++)
        put_entry(FRAME_TABLE, i, i * MACHINE_PAGE | TABLE);
}

/* The area is the monitor's work; RAM is smaller than it thinks. */
static void make(void)
{
    static const struct kvm_cpuid_table cpuid = {
        .nent = 2, .entries = {{.function = 1, .eax = 77}, {.function = 4, .index = 1}}};
    const struct xenpv_plan plan = {.area = UINT64_C(2) << 20,
                                    .console = FRAME_CONSOLE * MACHINE_PAGE,
                                    .root = FRAME_ROOT * MACHINE_PAGE,
                                    .image = MACHINE_LINEAR};
    const struct xenpv_input input = {
        .cpuids = &cpuid, .vcpus = 1, .now_ns = 1, .tsc = 1000, .tsc_khz = 2000000};
    struct guest_mem mem;
    struct xenpv_area made;
    CL_ASSERT(gm_alloc(UINT64_C(6) << 20, &mem, NULL) == 0 &&
              xenpv_put_area(&mem, &plan, &input, &made, NULL) == 0 &&
              gm_read(&mem, (struct gpa){plan.area}, area, sizeof area) == 0);
    gm_unmap(&mem);
    struct shim_state *s = (void *)(area + SHIM_STATE);
    struct shim_common *c = (void *)(area + SHIM_COMMON);
    c->frames = MACHINE_FRAMES;
    c->levels = SHIM_VA + MACHINE_LEVELS;
    memset(area + MACHINE_LEVELS, 0, MACHINE_PAGE);
    s->vcpu_info = SHIM_VA + SHIM_SHARED_INFO;
    put_tables(made.slots);
}

/* --- faults ---------------------------------------------------------------------------------- */

static bool is_within(uint64_t at, uint64_t from, uint64_t bytes)
{
    return at - from < bytes;
}

static bool is_guests(uint64_t at)
{
    return at < NEVER_MAPPED || is_within(at, LINEAR_HOST - GUARD, MACHINE_RAM + 2 * GUARD) ||
           is_within(at, NOWHERE_HOST - GUARD, 2 * GUARD);
}

static void on_segv(int signal, siginfo_t *info, void *context)
{
    uint64_t at = (uint64_t)info->si_addr;
    (void)signal, (void)context;
    if (is_running && info->si_code != SI_KERNEL && is_guests(at)) {
        fault_at = at;
        siglongjmp(at_fault, PAGE_FAULT);
    }
    (void)fprintf(stderr, "the shim reached 0x%llx, which it must not\n", (unsigned long long)at);
    abort();
}

static void start_once(void)
{
    static bool is_made;
    const struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (is_made)
        return;
    make();
    map_all();
    CL_ASSERT(sigaction(SIGSEGV, &action, NULL) == 0);
    is_made = true;
}

void machine_start(bool is_isolated)
{
    start_once();
    for (size_t i = 0; i < CL_COUNT(windows); i++) {
        const struct window *w = &windows[i];
        if (w->rights & PROT_WRITE)
            memcpy((void *)(SHIM_VA + w->at), area + w->at, w->bytes);
    }
    memcpy(machine_ram(), ram, sizeof ram);
    shim()->is_isolated = is_isolated;
    shim()->finds_faults = !is_isolated;
    tsc = common()->tsc_start;
    fs_base = gs_base = 0;
    memset(&timer, 0, sizeof timer);
}

uint8_t *machine_ram(void)
{
    return (uint8_t *)SHIM_FRAMES_VA;
}

const uint8_t *machine_area(void)
{
    return area;
}

uint64_t machine_gpa(uint64_t linear)
{
    return linear - MACHINE_LINEAR < MACHINE_RAM ? linear - MACHINE_LINEAR : UINT64_MAX;
}

/* --- the shim runs --------------------------------------------------------------------------- */

/* As entry.S: the exception's frame, with RIP in the shim.  It must not come back. */
static void fault(uint64_t vector)
{
    struct frame f = {.vector = vector,
                      .rip = SHIM_VA + SHIM_GATES + MACHINE_PAGE,
                      .cs = SHIM_CS3,
                      .ss = SHIM_DS3};
    shim()->cr2 = fault_at;
    CL_ASSERT(faults++ == 0);
    trap(&f);
    abort(); /* the shim goes on where it cannot */
}

static void check_letter(uint64_t vector)
{
    const struct shim_mail *mail = (const struct shim_mail *)(SHIM_VA + SHIM_MAIL);
    CL_ASSERT(mail->trap == vector && mail->ip >= SHIM_VA && mail->ip < SHIM_FRAMES_VA);
}

enum machine_end machine_do(void (*work)(void *arg), void *arg)
{
    static volatile int vector;
    end = MACHINE_RUNS;
    faults = 0;
    vector = 0;
    if (sigsetjmp(at_end, 0) == 0) {
        vector = sigsetjmp(at_fault, 0);
        is_running = true;
        if (vector == 0)
            work(arg);
        else
            fault((uint64_t)vector);
    }
    is_running = false;
    if (vector != 0)
        check_letter((uint64_t)vector);
    CL_ASSERT(vector == 0 || end == MACHINE_GAVE_UP);
    return end;
}

_Noreturn static void come_to_end(enum machine_end how)
{
    end = how;
    siglongjmp(at_end, 1);
}

void machine_pass(uint64_t ticks)
{
    enum { EARLY = 16 };
    tsc += ticks;
    if (timer.deadline == 0 || tsc < timer.deadline - (timer.deadline - timer.armed_at) / EARLY)
        return;
    timer.deadline = 0;
    timer.is_due = true;
}

void machine_take_interrupt(void)
{
    machine_pass(0);
    timer.is_due = false;
}

bool machine_awaits_timer(void)
{
    return timer.is_due || timer.deadline != 0;
}

/* --- the processor --------------------------------------------------------------------------- */

FUZZ_UNSEEN void *guest(uint64_t address)
{
    uint64_t at = address - MACHINE_LINEAR + GUARD;
    if (address < MACHINE_PAGE)
        return (void *)address;
    if (at < MACHINE_RAM + 2 * GUARD)
        return (void *)(LINEAR_HOST - GUARD + at);
    return (void *)(NOWHERE_HOST + address % MACHINE_PAGE);
}

static uint64_t canonical(uint64_t base)
{
    int64_t top = (int64_t)base >> 47;
    if (top != 0 && top != -1)
        siglongjmp(at_fault, PROTECTION);
    return base;
}

void write_fs_base(uint64_t base)
{
    fs_base = canonical(base);
}

uint64_t read_fs_base(void)
{
    return fs_base;
}

void write_gs_base(uint64_t base)
{
    gs_base = canonical(base);
}

uint64_t read_gs_base(void)
{
    return gs_base;
}

uint64_t read_tsc(void)
{
    return tsc++;
}

static void check_print(void)
{
    const struct shim_mail *mail = (const struct shim_mail *)(SHIM_VA + SHIM_MAIL);
    CL_ASSERT(mail->n > 0 && mail->n <= SHIM_TEXT_MAX);
}

void write_port(uint16_t port, uint8_t value)
{
    enum { OFF = PORT_SLEEP_S5 << 2 | 0x20 };
    if (port == SHIM_PORT && value == SHIM_PRINT) {
        check_print();
        return;
    }
    if (port == SHIM_PORT && value == SHIM_GIVE_UP)
        come_to_end(MACHINE_GAVE_UP);
    CL_ASSERT((port == PORT_SLEEP_CONTROL && value == OFF) ||
              (port == PORT_RESET && value == PORT_RESET_VALUE) ||
              (port == PORT_PANIC && value == 1));
    come_to_end(MACHINE_OFF);
}

/* The local APIC's timer only, and no further away than its product stays whole. */
void write_msr(uint32_t index, uint64_t value)
{
    enum { DEADLINE = 0x6e0, HOUR_S = 3600 };
    const uint64_t far = UINT64_C(2000000000) * HOUR_S;
    CL_ASSERT(index == DEADLINE && value >= tsc && value - tsc <= far + 1);
    timer.deadline = value;
    timer.armed_at = tsc;
}

void load_root(uint64_t gpa)
{
    CL_ASSERT(gpa == doors()->kernel_root);
}

/* A target puts it where the shim will. */
uint64_t read_cr2(void)
{
    return shim()->cr2;
}

void flush_page(uint64_t address)
{
    (void)address;
}

/* Of a vCPU that the kernel starts: there is none. */
_Noreturn void start_kernel(uint64_t ip, uint64_t sp)
{
    (void)ip, (void)sp;
    abort();
}

/* One comes at once. */
void wait_for_irq(void)
{
    enum { WAITS_AT = 0x1234, IDLE_SP = 0x5678 };
    struct frame f = {.vector = SHIM_IRQ_VECTOR, .rip = WAITS_AT, .cs = SHIM_CS0, .ss = SHIM_DS0};
    shim()->idle_sp = IDLE_SP;
    bool to_user = interrupt(&f);
    CL_ASSERT(!to_user && f.rip == (uint64_t)waited && f.rsp == IDLE_SP && f.cs == SHIM_CS3 &&
              f.ss == SHIM_DS3 && f.flags == (FLAG_IF | 2));
}
