/* What comes over a monitor's control socket, in both directions: each 16 bytes of input make one
 * message (its type, the number of its fds, and the start of its body). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/control.h"

enum { STEP = 16, HEAD = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void command(enum control_phase *phase, const struct control_message *m, unsigned n_fds)
{
    struct control_message out;
    struct cl_err err = {0};
    int rc = control_parse(m, sizeof *m, n_fds, &out, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    if (rc < 0)
        return;
    unsigned either = CONTROL_BOOT_BY_PVH | CONTROL_BOOT_BY_XENPV;
    bool is_setup = out.type == CONTROL_BOOT || out.type == CONTROL_RESTORE;
    unsigned of_xenpv = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_ISOLATED;
    CL_ASSERT(out.type != CONTROL_RESTORE || !(out.setup.flags & ~of_xenpv));
    CL_ASSERT(!is_setup || (out.setup.flags & of_xenpv) != CONTROL_BOOT_ISOLATED);
    CL_ASSERT(!is_setup || (out.setup.flags & either) != either);
    CL_ASSERT(out.type != CONTROL_CMDLINE || strlen(out.cmdline.text) == out.cmdline.bytes);
    enum control_phase before = *phase;
    rc = control_step(phase, (enum control_type)out.type, NULL);
    CL_ASSERT(*phase > CONTROL_PHASE_NONE && *phase < CONTROL_PHASES_NR);
    CL_ASSERT(rc == 0 || *phase == before);
    CL_ASSERT(*phase != CONTROL_RUNNING || before != CONTROL_NEW);
}

static void check_stats(const struct control_stats *s)
{
    CL_ASSERT(s->cpu_ns < CONTROL_STAT_MAX && !(s->counts.known >> COUNTS_NR));
    for (int i = 0; i < COUNTS_MAX; i++) {
        CL_ASSERT(s->counts.of[i] < CONTROL_STAT_MAX);
        CL_ASSERT(s->counts.of[i] == 0 || s->counts.known >> i & 1);
    }
}

static void event(const struct control_message *m, size_t n)
{
    struct control_message out;
    if (control_parse_event(m, n, &out, NULL) < 0)
        return;
    if (out.type == CONTROL_STATS_ARE)
        check_stats(&out.stats);
    for (const char *c = out.type == CONTROL_ENDED ? out.ended.text : ""; *c; c++)
        CL_ASSERT(*c >= ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum control_phase phase = CONTROL_NEW;
    for (; size >= STEP; data += STEP, size -= STEP) {
        struct control_message m = {.type = data[0], .zero = data[1] & 1};
        memset(&m.cmdline, data[3], data[2] & 1 ? sizeof m.cmdline : 0);
        memcpy(&m.setup, data + HEAD, STEP - HEAD);
        if (m.type == CONTROL_BOOT || m.type == CONTROL_RESTORE) {
            m.setup.fds = (uint32_t)(data[12] | data[13] << 8);
            m.setup.mem_bytes = (uint64_t)data[14] << 21;
            m.setup.flags = (uint8_t)(data[15] >> 4);
        }
        if (m.type == CONTROL_STATS_ARE)
            memcpy(&m.stats.counts.known, data + 8, sizeof m.stats.counts.known);
        command(&phase, &m, data[15] & 15);
        event(&m, sizeof m - (data[2] >> 7));
    }
    return 0;
}
