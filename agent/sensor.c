/* agent/sensor.c - see agent/sensor.h. */
#include "agent/sensor.h"

#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/sensor_text.h"
#include "base/clock.h"

#include "agent/sensor_bpf.h" /* made from sensor/sensor.bpf.c */

enum {
    /* Between two looks: what user code does in masses wakes the agent 40 times a second.  With 5
     * ms a loop of /bin/true took a fifth longer. */
    QUIET_US = 25000,
    BATCH_MAX = 16,  /* events of a frame; each is at most 3.3 KiB with every byte escaped */
    RECORD_HEAD = 8, /* struct bpf_ringbuf_hdr: length and flags, offset of the page */
    COUNTS_EVERY_S = 10,
};

/* --- rings ------------------------------------------------------------------------------------ */

static int map_ring(struct sensor_ring *ring, int fd, size_t bytes, struct cl_err *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *ours = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *theirs = mmap(NULL, page + 2 * bytes, PROT_READ, MAP_SHARED, fd, (off_t)page);
    if (ours == MAP_FAILED || theirs == MAP_FAILED)
        return cl_fail(err, CL_E_SYS, errno, "map a ring of the sensor");
    *ring = (struct sensor_ring){.fd = fd,
                                 .consumed = ours,
                                 .produced = theirs,
                                 .data = (const uint8_t *)theirs + page,
                                 .bytes = bytes};
    return 0;
}

static bool has_records(const struct sensor_ring *ring)
{
    return __atomic_load_n(ring->produced, __ATOMIC_ACQUIRE) !=
           __atomic_load_n(ring->consumed, __ATOMIC_RELAXED);
}

/* The oldest record, or NULL: there is none, or a program is still writing it. */
static const void *ring_peek(const struct sensor_ring *ring, size_t *ret_bytes)
{
    if (!has_records(ring))
        return NULL;
    uint64_t at = *ring->consumed & (ring->bytes - 1);
    uint32_t head =
        __atomic_load_n((const uint32_t *)(const void *)(ring->data + at), __ATOMIC_ACQUIRE);
    if (head & BPF_RINGBUF_BUSY_BIT)
        return NULL;
    *ret_bytes = head & ~(uint32_t)BPF_RINGBUF_DISCARD_BIT;
    return ring->data + at + RECORD_HEAD;
}

static void ring_pop(struct sensor_ring *ring, size_t bytes)
{
    uint64_t whole = (bytes + RECORD_HEAD + 7) / 8 * 8;
    __atomic_store_n(ring->consumed, *ring->consumed + whole, __ATOMIC_RELEASE);
}

/* --- one event -------------------------------------------------------------------------------- */

static void fill_event(const struct sensor *sensor, const void *record, size_t bytes,
                       struct sensor_text *text, Cloche__V1__GuestEvent *out)
{
    sensor_describe(record, bytes, text, out);
    struct sensor_owner owner = sensor->owner(sensor->owner_arg, text->event.cgroup);
    out->number -= sensor->seen_before;
    out->stream = owner.stream;
    out->context = (char *)(uintptr_t)owner.context;
}

/* --- life ------------------------------------------------------------------------------------- */

void sensor_init(struct sensor *sensor, uint64_t quiet_us, sensor_owner_fn *owner, const void *arg)
{
    *sensor = (struct sensor){.owner = owner,
                              .owner_arg = arg,
                              .quiet_ns = (quiet_us ? quiet_us : QUIET_US) * CL_NS_PER_US};
}

static int load(struct sensor *sensor, struct cl_err *err)
{
    struct sensor_bpf *programs = sensor_bpf__open();
    if (!programs)
        return cl_fail(err, CL_E_NOMEM, 0, "sensor");
    if (sensor_bpf__load(programs) != 0) {
        int error = errno;
        sensor_bpf__destroy(programs);
        return cl_fail(err, CL_E_SYS, error, "load the sensor's programs");
    }
    if (sensor_bpf__attach(programs) < 0 ||
        map_ring(&sensor->rings[0], programs->maps.few.map_fd, SENSOR_FEW_BYTES, err) < 0 ||
        map_ring(&sensor->rings[1], programs->maps.many.map_fd, SENSOR_MANY_BYTES, err) < 0) {
        int error = errno;
        sensor_bpf__destroy(programs); /* closing them detaches them */
        return cl_fail(err, CL_E_SYS, error, "attach the sensor's programs");
    }
    skel_closenz(programs->links.on_call_fd); /* not before somebody asks for it */
    sensor->programs = programs;
    return 0;
}

int sensor_begin(struct sensor *sensor, bool watch, uint64_t helpers, struct cl_err *err)
{
    sensor->is_watching = false;
    if (!sensor->programs && watch && sensor->failure.code == CL_OK)
        (void)!load(sensor, &sensor->failure);
    if (!sensor->programs) {
        *err = sensor->failure;
        return watch ? -1 : 0;
    }
    struct sensor_bpf__bss *shared = sensor->programs->bss;
    __atomic_store_n(&shared->watching, 0, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < CL_COUNT(sensor->rings); i++) {
        size_t bytes;
        while (ring_peek(&sensor->rings[i], &bytes))
            ring_pop(&sensor->rings[i], bytes);
    }
    sensor->seen_before = sensor->seen_told = __atomic_load_n(&shared->seen, __ATOMIC_SEQ_CST);
    sensor->lost_before = __atomic_load_n(&shared->lost, __ATOMIC_SEQ_CST);
    shared->turn++; /* nothing of it is told yet */
    shared->helpers = helpers;
    sensor->quiet_until_ns = 0;
    sensor->is_watching = watch;
    __atomic_store_n(&shared->watching, watch, __ATOMIC_SEQ_CST);
    return 0;
}

/* The oldest record of all rings, and its ring; NULL when there is none. */
static struct sensor_ring *oldest(struct sensor *sensor, const struct sensor_event **ret_record,
                                  size_t *ret_bytes)
{
    struct sensor_ring *from = NULL;
    for (size_t i = 0; i < CL_COUNT(sensor->rings); i++) {
        size_t bytes;
        const struct sensor_event *record = ring_peek(&sensor->rings[i], &bytes);
        if (!record || (from && record->number > (*ret_record)->number))
            continue;
        from = &sensor->rings[i];
        *ret_record = record;
        *ret_bytes = bytes;
    }
    return from;
}

/* As many as fit a frame; *ret_more: there may be others. */
static int tell_batch(struct sensor *sensor, struct chan *chan, bool *ret_more, struct cl_err *err)
{
    static struct sensor_text texts[BATCH_MAX]; /* the agent has one thread */
    Cloche__V1__GuestEvent events[BATCH_MAX], *list[BATCH_MAX];
    Cloche__V1__GuestEvents body = CLOCHE__V1__GUEST_EVENTS__INIT;
    body.events = list;
    const struct sensor_event *record = NULL;
    struct sensor_ring *ring;
    size_t bytes = 0;
    while (body.n_events < BATCH_MAX && (ring = oldest(sensor, &record, &bytes)) != NULL) {
        size_t at = body.n_events++;
        fill_event(sensor, record, bytes, &texts[at], &events[at]);
        list[at] = &events[at];
        ring_pop(ring, bytes);
    }
    *ret_more = body.n_events == BATCH_MAX;
    body.seen = __atomic_load_n(&sensor->programs->bss->seen, __ATOMIC_RELAXED);
    body.lost = __atomic_load_n(&sensor->programs->bss->lost, __ATOMIC_RELAXED);
    if (body.n_events == 0 && body.seen == sensor->seen_told)
        return 0;
    sensor->seen_told = body.seen;
    body.seen -= sensor->seen_before;
    body.lost -= sensor->lost_before;
    GUEST_FRAME(frame, 0, EVENTS, events, &body);
    return chan_send(chan, &frame, err);
}

static int tell(struct sensor *sensor, struct chan *chan, struct cl_err *err)
{
    /* In one call no more than the rings hold: user code may go on filling them. */
    size_t batches =
        (SENSOR_FEW_BYTES + SENSOR_MANY_BYTES) / sizeof(struct sensor_event) / BATCH_MAX;
    bool more = sensor->is_watching;
    for (size_t i = 0; more && i < batches && chan_has_room_for_events(chan); i++)
        if (tell_batch(sensor, chan, &more, err) < 0)
            return -1;
    return 0;
}

/* --- how often each system call was made ------------------------------------------------------ */

static int calls_map(const struct sensor *sensor, enum bpf_cmd cmd, const uint64_t *cgroup,
                     void *to)
{
    union bpf_attr attr = {.map_fd = (uint32_t)sensor->programs->maps.calls.map_fd,
                           .key = (uintptr_t)cgroup};
    attr.value = (uintptr_t)to; /* the same place as next_key */
    return (int)syscall(SYS_bpf, cmd, &attr, sizeof attr);
}

/* All cgroups that have made any; user code may make others meanwhile. */
static size_t counted(const struct sensor *sensor, uint64_t out[static SENSOR_COUNTED_MAX])
{
    size_t n = 0;
    const uint64_t *before = NULL;
    while (n < SENSOR_COUNTED_MAX && calls_map(sensor, BPF_MAP_GET_NEXT_KEY, before, &out[n]) == 0)
        before = &out[n++];
    return n;
}

static struct sensor_told *told_of(struct sensor *sensor, uint64_t cgroup)
{
    for (size_t i = 0; i < CL_COUNT(sensor->told); i++)
        if (sensor->told[i].cgroup == cgroup)
            return &sensor->told[i];
    return NULL;
}

/* The entry of a cgroup that is in the map: there is room for as many. */
static struct sensor_told *note_of(struct sensor *sensor, uint64_t cgroup)
{
    struct sensor_told *note = told_of(sensor, cgroup);
    if (!note)
        note = told_of(sensor, 0);
    CL_ASSERT(note);
    note->cgroup = cgroup;
    return note;
}

static void forget_calls(struct sensor *sensor, uint64_t cgroup)
{
    struct sensor_told *note = told_of(sensor, cgroup);
    (void)calls_map(sensor, BPF_MAP_DELETE_ELEM, &cgroup, NULL);
    if (note)
        *note = (struct sensor_told){0};
}

int sensor_count_calls(struct sensor *sensor, bool wanted, struct cl_err *err)
{
    bool was_counting = sensor->is_counting;
    sensor->is_counting = wanted && sensor->is_watching;
    if (was_counting && !sensor->is_counting)
        skel_closenz(sensor->programs->links.on_call_fd);
    if (wanted && !sensor->is_watching)
        return cl_fail(err, CL_E_STATE, 0, "nothing of it is watched");
    if (!wanted)
        return 0;
    uint64_t cgroups[SENSOR_COUNTED_MAX];
    for (size_t i = counted(sensor, cgroups); i > 0; i--)
        forget_calls(sensor, cgroups[i - 1]);
    sensor->uncounted_before = __atomic_load_n(&sensor->programs->bss->uncounted, __ATOMIC_RELAXED);
    sensor->counts_due_ns = cl_now_ns() + COUNTS_EVERY_S * CL_NS_PER_S;
    if (!was_counting && sensor_bpf__on_call__attach(sensor->programs) < 0) {
        sensor->is_counting = false;
        return cl_fail(err, CL_E_SYS, errno, "attach the program that counts");
    }
    return 0;
}

static int send_calls(struct sensor *sensor, struct chan *chan, Cloche__V1__GuestEvent *event,
                      struct cl_err *err)
{
    struct sensor_bpf__bss *shared = sensor->programs->bss;
    Cloche__V1__GuestEvent *list[] = {event};
    Cloche__V1__GuestEvents body = CLOCHE__V1__GUEST_EVENTS__INIT;
    body.seen = __atomic_add_fetch(&shared->seen, 1, __ATOMIC_RELAXED);
    event->number = body.seen - sensor->seen_before;
    event->uncounted =
        __atomic_load_n(&shared->uncounted, __ATOMIC_RELAXED) - sensor->uncounted_before;
    if (!chan_has_room_for_events(chan)) {
        (void)__atomic_add_fetch(&shared->lost, 1, __ATOMIC_RELAXED);
        return 0;
    }
    body.events = list;
    body.n_events = 1;
    body.lost = __atomic_load_n(&shared->lost, __ATOMIC_RELAXED) - sensor->lost_before;
    sensor->seen_told = body.seen;
    body.seen -= sensor->seen_before;
    GUEST_FRAME(frame, 0, EVENTS, events, &body);
    return chan_send(chan, &frame, err);
}

static int tell_calls(struct sensor *sensor, struct chan *chan, uint64_t cgroup, bool last,
                      struct cl_err *err)
{
    static struct sensor_calls calls; /* the agent has one thread */
    static struct sensor_calls_text text;
    if (!sensor->is_counting || calls_map(sensor, BPF_MAP_LOOKUP_ELEM, &cgroup, &calls) < 0)
        return 0;
    struct sensor_told *note = note_of(sensor, cgroup);
    uint64_t total = sensor_calls_total(&calls);
    if (total == note->total && !last)
        return 0;
    note->total = total;
    struct sensor_owner owner = sensor->owner(sensor->owner_arg, cgroup);
    Cloche__V1__GuestEvent event;
    sensor_describe_calls(&calls, cl_now_ns(), &text, &event);
    event.stream = owner.stream;
    event.context = (char *)(uintptr_t)owner.context;
    event.last = last;
    return send_calls(sensor, chan, &event, err);
}

static int tell_all_calls(struct sensor *sensor, struct chan *chan, struct cl_err *err)
{
    uint64_t cgroups[SENSOR_COUNTED_MAX];
    size_t n = counted(sensor, cgroups);
    sensor->counts_due_ns = cl_now_ns() + COUNTS_EVERY_S * CL_NS_PER_S;
    for (size_t i = 0; i < n; i++)
        if (tell_calls(sensor, chan, cgroups[i], false, err) < 0)
            return -1;
    return 0;
}

/* --- when ------------------------------------------------------------------------------------- */

int sensor_tell_of(struct sensor *sensor, struct chan *chan, uint64_t cgroup, struct cl_err *err)
{
    return tell(sensor, chan, err) < 0 ? -1 : tell_calls(sensor, chan, cgroup, false, err);
}

int sensor_tell_end(struct sensor *sensor, struct chan *chan, uint64_t cgroup, struct cl_err *err)
{
    if (tell(sensor, chan, err) < 0 || tell_calls(sensor, chan, cgroup, true, err) < 0)
        return -1;
    if (sensor->is_counting)
        forget_calls(sensor, cgroup);
    return 0;
}

int sensor_turn(struct sensor *sensor, struct chan *chan, struct cl_err *err)
{
    if (sensor->is_counting && chan_has_room_for_data(chan) &&
        cl_now_ns() >= sensor->counts_due_ns && tell_all_calls(sensor, chan, err) < 0)
        return -1;
    bool has_some =
        sensor->is_watching && (has_records(&sensor->rings[0]) || has_records(&sensor->rings[1]));
    if (!has_some || !chan_has_room_for_data(chan) || cl_now_ns() < sensor->quiet_until_ns)
        return 0;
    sensor->quiet_until_ns = cl_now_ns() + sensor->quiet_ns;
    return tell(sensor, chan, err);
}

void sensor_wait(const struct sensor *sensor, const struct chan *chan, struct waits *waits)
{
    if (!sensor->is_watching || !chan_has_room_for_data(chan))
        return;
    if (sensor->is_counting)
        waits_until(waits, sensor->counts_due_ns);
    if (cl_now_ns() < sensor->quiet_until_ns) {
        waits_until(waits, sensor->quiet_until_ns);
        return;
    }
    for (size_t i = 0; i < CL_COUNT(sensor->rings); i++)
        waits_add(waits, sensor->rings[i].fd, POLLIN);
}
