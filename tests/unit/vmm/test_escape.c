/* tests/unit/vmm/test_escape.c - one forbidden act a row, done to a live disk: the device must stop
 * for the stated reason (or refuse and go on), in bounded time, with the host's file as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sched.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/unit/vmm/driver.h"
#include "vmm/blk.h"

enum {
    SIZE = 8,
    SECTORS = 16,
    HEADER = DRV_DATA,
    DATA = DRV_DATA + 0x1000,
    STATUS = DRV_DATA + 0x800
};
enum { T_IN, T_OUT };

static struct drv drv;
static struct blk disk;
static int file;

static void header(uint32_t type, uint64_t sector)
{
    const uint64_t words[2] = {type, sector};
    drv_put(&drv, HEADER, words, sizeof words);
}

/* A chain of up to three descriptors as they are, offered and notified. */
static void put(const struct drv_desc *d, uint16_t n)
{
    for (uint16_t i = 0; i < n; i++)
        drv_set_desc(&drv, 0, i, d[i]);
    drv_offer(&drv, 0, 0, SIZE);
    drv_notify(&disk.v, 0);
}

/* A read of `n` bytes to `at`. */
static void read_to(uint64_t at, uint32_t n)
{
    header(T_IN, 0);
    put((const struct drv_desc[]){{HEADER, 16, DRV_NEXT, 1},
                                  {at, n, DRV_NEXT | DRV_WRITE, 2},
                                  {STATUS, 1, DRV_WRITE, 0}},
        3);
}

static void start_with(const struct virtq_setup *s)
{
    drv_negotiate(&disk.v);
    drv_set_queue(&disk.v, 0, s);
    drv_w(&disk.v, 0x70, 0xf);
}

static void descriptor_loop(void)
{
    put((const struct drv_desc[]){{HEADER, 16, DRV_NEXT, 1}, {HEADER, 16, DRV_NEXT, 0}}, 2);
}

static void descriptor_to_itself(void)
{
    put((const struct drv_desc[]){{HEADER, 16, DRV_NEXT, 0}}, 1);
}

static void next_past_the_table(void)
{
    put((const struct drv_desc[]){{HEADER, 16, DRV_NEXT, 0xffff}}, 1);
}

static void head_past_the_table(void)
{
    drv_offer(&drv, 0, 0x8000, SIZE);
    drv_notify(&disk.v, 0);
}

static void index_ahead(void)
{
    drv_set_idx(&drv, 0, SIZE + 1);
    drv_notify(&disk.v, 0);
}

static void index_back(void)
{
    drv_set_idx(&drv, 0, 0xfff0);
    drv_notify(&disk.v, 0);
}

static void dma_past_ram(void)
{
    read_to(DRV_RAM - 511, 512);
}

static void dma_that_wraps(void)
{
    read_to(UINT64_MAX - 255, 512);
}

static void dma_into_mmio(void)
{
    read_to(0xd0000000, 512);
}

static void dma_into_the_local_apic(void)
{
    read_to(0xfee00000, 512);
}

static void dma_of_nothing(void)
{
    read_to(DATA, 0);
}

static void answer_before_the_request(void)
{
    put((const struct drv_desc[]){{STATUS, 1, DRV_WRITE | DRV_NEXT, 1}, {HEADER, 16, 0, 0}}, 2);
}

static void indirect_table(void)
{
    put((const struct drv_desc[]){{DATA, 16, DRV_INDIRECT, 0}}, 1);
}

static void request_without_an_answer(void)
{
    header(T_OUT, 0);
    put((const struct drv_desc[]){{HEADER, 16, DRV_NEXT, 1}, {DATA, 512, 0, 0}}, 2);
}

static void request_without_a_header(void)
{
    put((const struct drv_desc[]){{STATUS, 1, DRV_WRITE, 0}}, 1);
}

static void start_with_size_zero(void)
{
    struct virtq_setup s = drv_setup(0, 0);
    start_with(&s);
}

static void start_with_a_crooked_size(void)
{
    struct virtq_setup s = drv_setup(0, 7);
    start_with(&s);
}

static void start_with_a_huge_queue(void)
{
    struct virtq_setup s = drv_setup(0, 0x8000);
    start_with(&s);
}

static void start_with_a_used_ring_past_ram(void)
{
    struct virtq_setup s = drv_setup(0, SIZE);
    s.device.v = DRV_RAM - 4;
    start_with(&s);
}

static void start_with_a_table_in_mmio(void)
{
    struct virtq_setup s = drv_setup(0, SIZE);
    s.desc.v = 0xd0000000;
    start_with(&s);
}

static void start_with_an_odd_ring(void)
{
    struct virtq_setup s = drv_setup(0, SIZE);
    s.driver.v++;
    start_with(&s);
}

static void queue_size_after_driver_ok(void)
{
    drv_w(&disk.v, 0x38, 0x8000);
}

static void queue_address_after_driver_ok(void)
{
    drv_w(&disk.v, 0xa4, 1);
}

static void queue_ready_after_driver_ok(void)
{
    drv_w(&disk.v, 0x44, 0);
}

static void features_after_driver_ok(void)
{
    drv_w(&disk.v, 0x20, 0xffffffff);
}

static void status_back_without_a_reset(void)
{
    drv_w(&disk.v, 0x70, 0xb);
}

static void notify_of_no_queue(void)
{
    drv_notify(&disk.v, 0x10000);
}

static void narrow_notify(void)
{
    virtio_write(&disk.v, 0x50, 2, 0);
}

static void wide_status(void)
{
    virtio_write(&disk.v, 0x70, 8, 0);
}

static void config_past_its_end(void)
{
    (void)virtio_read(&disk.v, 0x130, 4);
}

static void config_write(void)
{
    virtio_write(&disk.v, 0x100, 4, 0xffffffff); /* a larger disk */
}

static const struct {
    const char *name;
    void (*act)(void);
    enum virtq_fault want; /* NO_FAULT: refused, and the device goes on */
} acts[] = {
    {"descriptor loop", descriptor_loop, VIRTQ_FAULT_LOOP},
    {"descriptor to itself", descriptor_to_itself, VIRTQ_FAULT_LOOP},
    {"next past the table", next_past_the_table, VIRTQ_FAULT_NEXT},
    {"head past the table", head_past_the_table, VIRTQ_FAULT_HEAD},
    {"index ahead", index_ahead, VIRTQ_FAULT_AHEAD},
    {"index back", index_back, VIRTQ_FAULT_AHEAD},
    {"DMA past RAM", dma_past_ram, VIRTQ_FAULT_BUFFER},
    {"DMA that wraps", dma_that_wraps, VIRTQ_FAULT_BUFFER},
    {"DMA into MMIO", dma_into_mmio, VIRTQ_FAULT_BUFFER},
    {"DMA into the local APIC", dma_into_the_local_apic, VIRTQ_FAULT_BUFFER},
    {"DMA of nothing", dma_of_nothing, VIRTQ_FAULT_EMPTY},
    {"answer before the request", answer_before_the_request, VIRTQ_FAULT_ORDER},
    {"indirect table", indirect_table, VIRTQ_FAULT_INDIRECT},
    {"request without an answer", request_without_an_answer, VIRTQ_FAULT_SHAPE},
    {"request without a header", request_without_a_header, VIRTQ_FAULT_SHAPE},
    {"start with size zero", start_with_size_zero, VIRTQ_FAULT_SIZE},
    {"start with a crooked size", start_with_a_crooked_size, VIRTQ_FAULT_SIZE},
    {"start with a huge queue", start_with_a_huge_queue, VIRTQ_FAULT_SIZE},
    {"start with a used ring past RAM", start_with_a_used_ring_past_ram, VIRTQ_FAULT_RANGE},
    {"start with a table in MMIO", start_with_a_table_in_mmio, VIRTQ_FAULT_RANGE},
    {"start with an odd ring", start_with_an_odd_ring, VIRTQ_FAULT_ALIGN},
    {"queue size after DRIVER_OK", queue_size_after_driver_ok, VIRTQ_NO_FAULT},
    {"queue address after DRIVER_OK", queue_address_after_driver_ok, VIRTQ_NO_FAULT},
    {"queue ready after DRIVER_OK", queue_ready_after_driver_ok, VIRTQ_NO_FAULT},
    {"features after DRIVER_OK", features_after_driver_ok, VIRTQ_NO_FAULT},
    {"status back without a reset", status_back_without_a_reset, VIRTQ_NO_FAULT},
    {"notify of no queue", notify_of_no_queue, VIRTQ_NO_FAULT},
    {"narrow notify", narrow_notify, VIRTQ_NO_FAULT},
    {"wide status", wide_status, VIRTQ_NO_FAULT},
    {"config past its end", config_past_its_end, VIRTQ_NO_FAULT},
    {"config write", config_write, VIRTQ_NO_FAULT},
};

static int set_up(void **state)
{
    (void)state;
    drv_init(&drv);
    file = memfd_create("disk", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, SECTORS * BLK_SECTOR) < 0)
        return -1;
    return blk_init(&disk, file, false, "disk", &drv.mem, drv_irq(&drv));
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    return close(file);
}

static void check_file_is_as_it_was(void)
{
    static uint8_t bytes[SECTORS * BLK_SECTOR + 1], zero[sizeof bytes];
    assert_int_equal(pread(file, bytes, sizeof bytes, 0), SECTORS * BLK_SECTOR);
    assert_memory_equal(bytes, zero, SECTORS * BLK_SECTOR);
}

static void check_disk_works(void)
{
    uint8_t status = 0xee;
    uint16_t before = drv_used_idx(&drv, 0);
    drv_put(&drv, STATUS, &status, 1);
    read_to(DATA, 512);
    drv_get(&drv, STATUS, &status, 1);
    assert_int_equal(status, 0);
    assert_int_equal(drv_used_idx(&drv, 0), before + 1);
}

static void test_each_forbidden_act_is_stopped_for_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < CL_COUNT(acts); i++) {
        drv_start(&drv, &disk.v, SIZE);
        uint64_t refused = disk.v.refused;
        acts[i].act();
        if (disk.v.fault != acts[i].want)
            fail_msg("%s: %s", acts[i].name, virtq_fault_name(disk.v.fault));
        bool refuses = acts[i].want == VIRTQ_NO_FAULT;
        if (refuses && disk.v.refused == refused)
            fail_msg("%s: was not refused", acts[i].name);
        assert_int_equal(drv_r(&disk.v, 0x70), refuses ? 0xf : 0x4f);
        assert_int_equal(drv_used_idx(&drv, 0), 0);
        if (!refuses)
            drv_start(&drv, &disk.v, SIZE);
        check_disk_works();
        check_file_is_as_it_was();
    }
}

/* Used elements land in the avail ring, so that each answer makes new requests: the notify ends
 * all the same, and the index rule stops the queue. */
static void test_a_ring_that_feeds_itself_ends(void **state)
{
    (void)state;
    for (uint64_t shift = 0; shift < 32; shift += 4) {
        struct virtq_setup s = drv_setup(0, SIZE);
        s.device.v = s.driver.v + shift;
        drv_start(&drv, &disk.v, SIZE);
        start_with(&s);
        read_to(DATA, 512);
        for (int i = 0; i < 3 * SIZE; i++)
            drv_notify(&disk.v, 0);
        check_file_is_as_it_was();
    }
}

/* Another process (a second vCPU) turns the header between a read inside the disk and a write
 * outside of it while requests run: every answer is of one of the two, whole. */
static void flip_header(uint64_t *words)
{
    for (;;) {
        __atomic_store_n(&words[0], T_OUT, __ATOMIC_RELAXED);
        __atomic_store_n(&words[1], UINT64_MAX / 512, __ATOMIC_RELAXED);
        __atomic_store_n(&words[0], T_IN, __ATOMIC_RELAXED);
        __atomic_store_n(&words[1], 0, __ATOMIC_RELAXED);
    }
}

static void test_a_flipping_header_is_fetched_once(void **state)
{
    enum { PATIENCE_S = 60 };
    (void)state;
    unsigned seen[2] = {0};
    drv_start(&drv, &disk.v, SIZE);
    header(T_IN, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        flip_header((void *)(drv.mem.base + HEADER));
    uint64_t end_ns = cl_now_ns() + PATIENCE_S * CL_NS_PER_S;
    while ((seen[0] < 200 || seen[1] < 200) && cl_now_ns() < end_ns) {
        (void)sched_yield(); /* both may have one CPU, and others are on it, too */
        uint8_t status = 0xee;
        drv_put(&drv, STATUS, &status, 1);
        put((const struct drv_desc[]){{HEADER, 16, DRV_NEXT, 1},
                                      {DATA, 512, DRV_NEXT | DRV_WRITE, 2},
                                      {STATUS, 1, DRV_WRITE, 0}},
            3);
        drv_get(&drv, STATUS, &status, 1);
        assert_in_range(status, 0, 1);
        seen[status]++;
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(seen[0] > 0 && seen[1] > 0);
    assert_int_equal(disk.v.fault, VIRTQ_NO_FAULT);
    check_file_is_as_it_was();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_each_forbidden_act_is_stopped_for_its_reason),
        T(test_a_ring_that_feeds_itself_ends),
        T(test_a_flipping_header_is_fetched_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
