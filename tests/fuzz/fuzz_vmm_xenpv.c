/* tests/fuzz/fuzz_vmm_xenpv.c - a Xen-PV guest against its monitor: letters, notes and waking over
 * an area in which anything may stand, and the patcher of a kernel's text.  First a byte: 0 the
 * patcher over the rest; otherwise steps:
 *
 *   0 poke   the area's first pages: at u24, n, bytes       3 note   device
 *   1 mail   word                                           4 time   which, gpa u64
 *   2 wake   slept u64
 *
 * What is printed is bounded, a guest that gave up stays so, and waking changes the times only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "tests/fuzz/bytes.h"
#include "vmm/shim/xen.h"
#include "vmm/xenpv_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 64, AREA_BYTES = SHIM_SHARED_INFO, TEXT_MAX = 4096 };
#define MEM (UINT64_C(6) << 20)

static struct guest_mem mem;
static struct xenpv xenpv;
static struct serial serial;
static size_t printed;

static void take(void *arg, const uint8_t *bytes, size_t n)
{
    (void)arg, (void)bytes;
    printed += n;
}

static uint64_t get_u64(struct fuzz_in *in)
{
    uint64_t low = fuzz_get(in, 4);
    return low | (uint64_t)fuzz_get(in, 4) << 32;
}

static uint8_t *area(void)
{
    return mem.base + xenpv.area;
}

static struct shim_state *state(void)
{
    return (struct shim_state *)(area() + SHIM_STATE);
}

static uint64_t *born(void)
{
    return &((struct shim_common *)(area() + SHIM_COMMON))->tsc_start;
}

static void start(void)
{
    struct cl_err err = {0};
    if (!mem.base)
        CL_ASSERT(gm_alloc(MEM, &mem, &err) == 0);
    CL_ASSERT(xenpv_wake(&mem, 1, 0, &xenpv, &err) == 0);
    memset(mem.base, 0, XENPV_PAGE);
    memset(area(), 0, AREA_BYTES);
    serial_init(&serial, (struct irq_line){0}, take, NULL);
}

/* --- steps ----------------------------------------------------------------------------------- */

static void step_poke(struct fuzz_in *in)
{
    size_t at = fuzz_get(in, 3) % AREA_BYTES, n = fuzz_get(in, 1);
    n = CL_MIN(n, in->left);
    n = CL_MIN(n, AREA_BYTES - at);
    memcpy(area() + at, in->data, n);
    in->data += n;
    in->left -= n;
}

static void step_mail(struct fuzz_in *in)
{
    uint8_t word = (uint8_t)fuzz_get(in, 1);
    const struct xenpv before = xenpv;
    struct cl_err err = {0};
    printed = 0;
    bool goes_on = xenpv_on_mail(&xenpv, &mem, word, &serial);
    serial_flush(&serial);
    CL_ASSERT(printed <= SHIM_TEXT_MAX && (printed == 0 || word == SHIM_PRINT));
    CL_ASSERT(goes_on == !(before.gave_up || word == SHIM_GIVE_UP));
    CL_ASSERT(xenpv.area == before.area && xenpv.on == before.on && xenpv.trap < SHIM_TRAPS);
    CL_ASSERT(!before.gave_up || memcmp(&before, &xenpv, sizeof before) == 0);
    CL_ASSERT(xenpv_explain(&xenpv, &err) == -1 && err.code == CL_E_GUEST);
}

/* A time of the guest's as it should become; false when nobody may follow it there. */
static bool read_time(uint64_t gpa, struct xen_time_info *ret_time)
{
    return gpa != 0 && gm_read(&mem, (struct gpa){gpa}, ret_time, sizeof *ret_time) == 0;
}

/* Whether both times and what says where they are lie apart, so that each moves once. */
static bool are_apart(const uint64_t times[static SHIM_TIMES])
{
    uint64_t at = xenpv.area + SHIM_STATE, end = xenpv.area + AREA_BYTES,
             each = sizeof(struct xen_time_info);
    for (int i = 0; i < SHIM_TIMES; i++) {
        if (times[i] < end && times[i] + each > at)
            return false;
    }
    return times[0] + each <= times[1] || times[1] + each <= times[0];
}

static void step_wake(struct fuzz_in *in)
{
    uint64_t slept = get_u64(in), times[SHIM_TIMES], birth = *born();
    struct xen_time_info before[SHIM_TIMES], after;
    bool there[SHIM_TIMES];
    struct xenpv clone;
    memcpy(times, state()->times, sizeof times);
    for (int i = 0; i < SHIM_TIMES; i++)
        there[i] = read_time(times[i], &before[i]);
    static uint8_t was[AREA_BYTES];
    memcpy(was, area(), sizeof was);
    CL_ASSERT(xenpv_wake(&mem, 1, slept, &clone, NULL) == 0);
    CL_ASSERT(clone.on && !clone.gave_up && clone.area == xenpv.area);
    if (!are_apart(times))
        return;
    for (int i = 0; i < SHIM_TIMES; i++) {
        if (!there[i])
            continue;
        CL_ASSERT(read_time(times[i], &after));
        before[i].version += 2;
        before[i].tsc_timestamp += slept;
        CL_ASSERT(memcmp(&before[i], &after, sizeof after) == 0);
        if (times[i] >= xenpv.area && times[i] - xenpv.area < AREA_BYTES - sizeof after)
            memcpy(was + (times[i] - xenpv.area), &after, sizeof after);
    }
    CL_ASSERT(*born() == birth + slept && state()->armed_ns == 0);
    memcpy(was + SHIM_COMMON + offsetof(struct shim_common, tsc_start), born(), 8);
    memset(was + SHIM_STATE + offsetof(struct shim_state, armed_ns), 0, 8);
    bool at_the_edge = times[0] + 32 > xenpv.area + AREA_BYTES - 32 ||
                       times[1] + 32 > xenpv.area + AREA_BYTES - 32 || times[0] < xenpv.area ||
                       times[1] < xenpv.area;
    CL_ASSERT(at_the_edge || memcmp(was, area(), sizeof was) == 0);
}

static void step_note(struct fuzz_in *in)
{
    unsigned n = fuzz_get(in, 1) % SHIM_DEVICE_EVENTS;
    const struct shim_mail *mail = (const struct shim_mail *)(area() + SHIM_MAIL);
    uint64_t before = mail->devices;
    xenpv_note(&xenpv, &mem, n);
    CL_ASSERT(mail->devices == (before | UINT64_C(1) << n));
}

static void step_time(struct fuzz_in *in)
{
    state()->times[fuzz_get(in, 1) % SHIM_TIMES] = get_u64(in);
}

/* --- the patcher ----------------------------------------------------------------------------- */

/* In memory of its own, so that a byte read behind it is seen. */
static void patch(const uint8_t *data, size_t n)
{
    enum { CHANGED_MAX = 13 + 2 + 13 };
    const uint64_t hypercall = UINT64_C(0x1122334455667788),
                   of_endbr = hypercall - SHIM_ENDBR_ENTRY, iret = UINT64_C(0x1020304050607080);
    uint8_t *text = malloc(n + (n == 0));
    size_t changed = 0;
    CL_ASSERT(text);
    memcpy(text, data, n);
    int places = xenpv_patch(text, n, hypercall, iret);
    for (size_t i = 0; i < n; i++)
        changed += text[i] != data[i];
    CL_ASSERT(places <= XENPV_PLACES && (changed > 0) == (places > 0) && changed <= CHANGED_MAX);
    if (places == XENPV_PLACES)
        CL_ASSERT((memmem(text, n, &hypercall, 8) || memmem(text, n, &of_endbr, 8)) &&
                  memmem(text, n, &iret, 8));
    CL_ASSERT(places != XENPV_PLACES || xenpv_patch(text, n, hypercall, iret) == 0);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const steps[])(struct fuzz_in *) = {step_poke, step_mail, step_wake, step_note,
                                                      step_time};
    struct fuzz_in in = {data, size};
    if (fuzz_get(&in, 1) == 0) {
        patch(in.data, CL_MIN(in.left, (size_t)TEXT_MAX));
        return 0;
    }
    start();
    for (unsigned i = 0; i < STEPS_MAX && in.left > 0; i++)
        steps[fuzz_get(&in, 1) % CL_COUNT(steps)](&in);
    return 0;
}
