/* vmm/control.c - see vmm/control.h. */
#include "vmm/control.h"

#include <string.h>

#define FD(name) (1U << CONTROL_FD_##name)
#define FDS_ALWAYS (FD(KVM) | FD(RAM) | FD(STATE) | FD(ROOT) | FD(CHANNEL))
#define FDS_OPTIONAL (FD(SCRATCH) | FD(CONSOLE) | FD(NET))
#define FDS_OF_BOOT (FD(KERNEL) | FD(INITRD))
#define FDS_OF_SAVED_CLONE (FD(STATE) | FD(DELTA))

/* --- order ---------------------------------------------------------------------------------- */

static const enum control_phase edges[CONTROL_PHASES_NR][CONTROL_COMMANDS_NR] = {
    [CONTROL_NEW] =
        {
            [CONTROL_BOOT] = CONTROL_BOOTING,
            [CONTROL_RESTORE] = CONTROL_RESTORED,
            [CONTROL_STOP] = CONTROL_HAS_ENDED,
        },
    [CONTROL_BOOTING] =
        {
            [CONTROL_CMDLINE] = CONTROL_BOOTED,
            [CONTROL_STOP] = CONTROL_HAS_ENDED,
        },
    [CONTROL_BOOTED] =
        {
            [CONTROL_START] = CONTROL_RUNNING,
            [CONTROL_STATS] = CONTROL_BOOTED,
            [CONTROL_STOP] = CONTROL_HAS_ENDED,
        },
    [CONTROL_RESTORED] =
        {
            [CONTROL_START] = CONTROL_RUNNING,
            [CONTROL_STATS] = CONTROL_RESTORED,
            [CONTROL_STOP] = CONTROL_HAS_ENDED,
        },
    [CONTROL_RUNNING] =
        {
            [CONTROL_PAUSE] = CONTROL_IS_PAUSED,
            [CONTROL_RECORD] = CONTROL_RUNNING,
            [CONTROL_GROW] = CONTROL_RUNNING,
            [CONTROL_BALLOON] = CONTROL_RUNNING,
            [CONTROL_STATS] = CONTROL_RUNNING,
            [CONTROL_STOP] = CONTROL_HAS_ENDED,
        },
    [CONTROL_IS_PAUSED] =
        {
            [CONTROL_RESUME] = CONTROL_RUNNING,
            [CONTROL_SAVE] = CONTROL_IS_SAVED,
            [CONTROL_SAVE_CLONE] = CONTROL_IS_PAUSED,
            [CONTROL_GROW] = CONTROL_IS_PAUSED,
            [CONTROL_BALLOON] = CONTROL_IS_PAUSED,
            [CONTROL_STATS] = CONTROL_IS_PAUSED,
            [CONTROL_STOP] = CONTROL_HAS_ENDED,
        },
    /* Its RAM is the template's now: a guest that went on would change it. */
    [CONTROL_IS_SAVED] = {[CONTROL_STOP] = CONTROL_HAS_ENDED},
};

const char *control_phase_name(enum control_phase phase)
{
    static const char *const names[CONTROL_PHASES_NR] = {
        [CONTROL_PHASE_NONE] = "none",   [CONTROL_NEW] = "new",
        [CONTROL_BOOTING] = "booting",   [CONTROL_BOOTED] = "booted",
        [CONTROL_RESTORED] = "restored", [CONTROL_RUNNING] = "running",
        [CONTROL_IS_PAUSED] = "paused",  [CONTROL_IS_SAVED] = "saved",
        [CONTROL_HAS_ENDED] = "ended",
    };
    return (unsigned)phase < CONTROL_PHASES_NR ? names[phase] : "unknown";
}

const char *control_type_name(enum control_type type)
{
    static const char *const names[CONTROL_EVENTS_END] = {
        [CONTROL_BOOT] = "boot",
        [CONTROL_RESTORE] = "restore",
        [CONTROL_CMDLINE] = "cmdline",
        [CONTROL_START] = "start",
        [CONTROL_PAUSE] = "pause",
        [CONTROL_RESUME] = "resume",
        [CONTROL_RECORD] = "record",
        [CONTROL_SAVE] = "save",
        [CONTROL_SAVE_CLONE] = "save clone",
        [CONTROL_GROW] = "grow",
        [CONTROL_BALLOON] = "balloon",
        [CONTROL_STATS] = "stats",
        [CONTROL_STOP] = "stop",
        [CONTROL_UP] = "up",
        [CONTROL_PAUSED] = "paused",
        [CONTROL_SAVED] = "saved",
        [CONTROL_ENDED] = "ended",
        [CONTROL_STATS_ARE] = "stats are",
        [CONTROL_NOT_SAVED] = "not saved",
    };
    return (unsigned)type < CONTROL_EVENTS_END && names[type] ? names[type] : "unknown";
}

int control_step(enum control_phase *phase, enum control_type type, struct cl_err *err)
{
    bool known = (unsigned)*phase < CONTROL_PHASES_NR && (unsigned)type < CONTROL_COMMANDS_NR;
    enum control_phase next = known ? edges[*phase][type] : CONTROL_PHASE_NONE;
    if (next == CONTROL_PHASE_NONE)
        return cl_fail(err, CL_E_STATE, 0, "control: '%s' while %s", control_type_name(type),
                       control_phase_name(*phase));
    *phase = next;
    return 0;
}

/* --- form ----------------------------------------------------------------------------------- */

static bool is_setup(const struct control_message *m)
{
    return m->type == CONTROL_BOOT || m->type == CONTROL_RESTORE;
}

uint32_t control_fds(const struct control_message *m)
{
    if (m->type == CONTROL_SAVE_CLONE)
        return FDS_OF_SAVED_CLONE;
    return is_setup(m) ? m->setup.fds : 0;
}

static int check_fds(const struct control_message *m, unsigned n_fds, struct cl_err *err)
{
    bool boot = m->type == CONTROL_BOOT;
    uint32_t needed = FDS_ALWAYS | (boot ? FDS_OF_BOOT : 0);
    uint32_t known = needed | FDS_OPTIONAL | (boot ? 0 : FD(DELTA));
    uint32_t fds = control_fds(m);
    if (is_setup(m) && ((fds & needed) != needed || (fds & ~known)))
        return cl_fail(err, CL_E_PEER, 0, "control: fds %#x, needed %#x", fds, needed);
    if ((unsigned)__builtin_popcount(fds) != n_fds)
        return cl_fail(err, CL_E_PEER, 0, "control: %u fds came with '%s'", n_fds,
                       control_type_name((enum control_type)m->type));
    return 0;
}

/* §5.1.4 of virtio wants no more; a group address would be a card that nobody can answer. */
static int check_card(const struct control_setup *s, struct cl_err *err)
{
    static const uint8_t none[CONTROL_MAC_BYTES];
    if (memcmp(s->zero, none, sizeof s->zero) != 0)
        return cl_fail(err, CL_E_PEER, 0, "control: the setup's last field is not 0");
    bool has_card = s->fds & FD(NET), has_mac = memcmp(s->mac, none, sizeof none) != 0;
    if (has_card != has_mac || (s->mac[0] & 1))
        return cl_fail(err, CL_E_PEER, 0,
                       "control: a network card and no address of its own, or the reverse");
    return 0;
}

static int check_setup(const struct control_message *m, struct cl_err *err)
{
    const struct control_setup *s = &m->setup;
    const unsigned entries = CONTROL_BOOT_BY_PVH | CONTROL_BOOT_BY_XENPV;
    unsigned flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_ISOLATED |
                     (m->type == CONTROL_BOOT ? CONTROL_BOOT_BY_PVH | CONTROL_BOOT_OWN_RAM
                                              : CONTROL_RESTORE_HERE);
    if (s->version != CONTROL_VERSION)
        return cl_fail(err, CL_E_PEER, 0,
                       "control: version %u, not %d: worker and cloche-vmm are of two releases",
                       s->version, CONTROL_VERSION);
    if (s->flags & ~flags)
        return cl_fail(err, CL_E_PEER, 0, "control: flags %#x of '%s', known %#x", s->flags,
                       control_type_name((enum control_type)m->type), flags);
    if ((s->flags & entries) == entries)
        return cl_fail(err, CL_E_PEER, 0, "control: a boot by PVH and by Xen PV at once");
    if ((s->flags & CONTROL_BOOT_ISOLATED) && !(s->flags & CONTROL_BOOT_BY_XENPV))
        return cl_fail(err, CL_E_PEER, 0, "control: an isolated guest, and not by Xen PV");
    if (s->vcpus == 0 || s->vcpus > CONTROL_VCPUS_MAX)
        return cl_fail(err, CL_E_PEER, 0, "control: %u vCPUs, at most %d", s->vcpus,
                       CONTROL_VCPUS_MAX);
    if (s->mem_bytes < CONTROL_MEM_MIN_MIB * CL_MIB ||
        s->mem_bytes > CONTROL_MEM_MAX_MIB * CL_MIB ||
        s->mem_bytes % (CONTROL_MEM_STEP_MIB * CL_MIB))
        return cl_fail(err, CL_E_PEER, 0, "control: %llu bytes of memory",
                       (unsigned long long)s->mem_bytes);
    return check_card(s, err);
}

static int check_cmdline(const struct control_cmdline *c, struct cl_err *err)
{
    if (c->bytes > CONTROL_CMDLINE_MAX || strnlen(c->text, sizeof c->text) != c->bytes)
        return cl_fail(err, CL_E_PEER, 0, "control: a command line of %u bytes, at most %d",
                       c->bytes, CONTROL_CMDLINE_MAX);
    return 0;
}

static int check_balloon(const struct control_balloon *b, struct cl_err *err)
{
    if (b->bytes > CONTROL_MEM_MAX_MIB * CL_MIB)
        return cl_fail(err, CL_E_PEER, 0, "control: a balloon of %llu bytes",
                       (unsigned long long)b->bytes);
    return 0;
}

static int check_grow(const struct control_grow *g, struct cl_err *err)
{
    if (g->disk_bytes == 0 || g->disk_bytes % CONTROL_SECTOR ||
        g->disk_bytes > CONTROL_DISK_MAX_MIB * CL_MIB)
        return cl_fail(err, CL_E_PEER, 0, "control: a disk of %llu bytes",
                       (unsigned long long)g->disk_bytes);
    return 0;
}

/* Copied once, so that what is checked is what is used. */
static int take(const void *bytes, size_t n, struct control_message *m, struct cl_err *err)
{
    if (n != sizeof *m)
        return cl_fail(err, CL_E_PEER, 0, "control: a message of %zu bytes, not %zu", n, sizeof *m);
    memcpy(m, bytes, sizeof *m);
    return m->zero ? cl_fail(err, CL_E_PEER, 0, "control: the header's last field is not 0") : 0;
}

static int check_body(const struct control_message *m, struct cl_err *err)
{
    if (is_setup(m))
        return check_setup(m, err);
    if (m->type == CONTROL_CMDLINE)
        return check_cmdline(&m->cmdline, err);
    if (m->type == CONTROL_BALLOON)
        return check_balloon(&m->balloon, err);
    return m->type == CONTROL_GROW ? check_grow(&m->grow, err) : 0;
}

int control_parse(const void *bytes, size_t n, unsigned n_fds, struct control_message *ret_message,
                  struct cl_err *err)
{
    struct control_message m;
    if (take(bytes, n, &m, err) < 0)
        return -1;
    if (m.type == CONTROL_NONE || m.type >= CONTROL_COMMANDS_NR)
        return cl_fail(err, CL_E_PEER, 0, "control: unknown command %u", m.type);
    if (check_body(&m, err) < 0 || check_fds(&m, n_fds, err) < 0)
        return -1;
    *ret_message = m;
    return 0;
}

static void make_printable(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++)
        *c = *c < ' ' || *c > '~' ? ' ' : *c;
}

static int check_stats(struct control_stats *s, struct cl_err *err)
{
    bool fits = s->cpu_ns < CONTROL_STAT_MAX && s->peak_bytes < CONTROL_STAT_MAX &&
                s->free_bytes < CONTROL_STAT_MAX;
    if (s->counts.known >> COUNTS_NR)
        return cl_fail(err, CL_E_PEER, 0, "control: counters that nobody knows, %#llx",
                       (unsigned long long)s->counts.known);
    for (int i = 0; i < COUNTS_MAX; i++) {
        if (!(s->counts.known >> i & 1))
            s->counts.of[i] = 0;
        fits = fits && s->counts.of[i] < CONTROL_STAT_MAX;
    }
    return fits ? 0 : cl_fail(err, CL_E_PEER, 0, "control: statistics that cannot be");
}

int control_parse_event(const void *bytes, size_t n, struct control_message *ret_message,
                        struct cl_err *err)
{
    struct control_message m;
    if (take(bytes, n, &m, err) < 0)
        return -1;
    if (m.type < CONTROL_UP || m.type >= CONTROL_EVENTS_END)
        return cl_fail(err, CL_E_PEER, 0, "control: unknown event %u", m.type);
    if (m.type == CONTROL_ENDED &&
        (m.ended.cause < CONTROL_END_STOPPED || m.ended.cause > CONTROL_END_FAILED))
        return cl_fail(err, CL_E_PEER, 0, "control: ended by unknown cause %u", m.ended.cause);
    if (m.type == CONTROL_ENDED || m.type == CONTROL_NOT_SAVED)
        make_printable(m.ended.text, sizeof m.ended.text);
    if (m.type == CONTROL_STATS_ARE && check_stats(&m.stats, err) < 0)
        return -1;
    *ret_message = m;
    return 0;
}
