/* vmm/ioapic.c - see vmm/ioapic.h.  § are those of the 82093AA's data sheet. */
#include "vmm/ioapic.h"

#include <stdbool.h>

enum {
    OFFSET_SELECT = 0x00, /* IOREGSEL, §3.1.1 */
    OFFSET_WINDOW = 0x10, /* IOWIN, §3.1.2 */
    REG_ID = 0x00,
    REG_VERSION = 0x01,
    REG_ARBITRATION = 0x02,
    REG_REDIRECT = 0x10, /* two a pin: low half, high half */
    VERSION = 0x11,
};
#define ID_BITS UINT32_C(0x0f000000)

/* A redirection entry, §3.2.4. */
#define ENTRY_VECTOR(e) ((uint32_t)((e)&0xff))
#define ENTRY_DELIVERY(e) ((uint32_t)(((e) >> 8) & 7))
#define ENTRY_LOGICAL(e) ((uint32_t)(((e) >> 11) & 1))
#define ENTRY_DESTINATION(e) ((uint32_t)((e) >> 56))
#define ENTRY_MASKED (UINT64_C(1) << 16)
/* Vector, delivery and destination mode, polarity, mask, destination.  Delivery status, remote IRR
 * and the trigger mode stay 0: edges are gone as soon as they are sent. */
#define ENTRY_WRITABLE UINT64_C(0xff00000000012fff)

enum delivery { FIXED = 0, LOWEST_PRIORITY = 1 };
enum { FIRST_VECTOR = 16 }; /* lower ones are the processor's own: Intel SDM 3A §11.5.2 */

void ioapic_init(struct ioapic *chip, ioapic_send_fn *send, void *arg)
{
    *chip = (struct ioapic){.send = send, .arg = arg};
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
        chip->redirect[pin] = ENTRY_MASKED;
}

static uint32_t read_register(const struct ioapic *chip)
{
    unsigned pin = (chip->select - REG_REDIRECT) / 2;
    if (chip->select == REG_ID || chip->select == REG_ARBITRATION)
        return chip->id;
    if (chip->select == REG_VERSION)
        return VERSION | (IOAPIC_PINS - 1) << 16;
    if (chip->select < REG_REDIRECT || pin >= IOAPIC_PINS)
        return 0;
    return (uint32_t)(chip->select % 2 ? chip->redirect[pin] >> 32 : chip->redirect[pin]);
}

static void write_register(struct ioapic *chip, uint32_t value)
{
    unsigned pin = (chip->select - REG_REDIRECT) / 2;
    if (chip->select == REG_ID)
        chip->id = value & ID_BITS;
    if (chip->select < REG_REDIRECT || pin >= IOAPIC_PINS)
        return;
    unsigned shift = chip->select % 2 ? 32 : 0;
    uint64_t keep = chip->redirect[pin] & ~(UINT64_C(0xffffffff) << shift);
    chip->redirect[pin] = (keep | (uint64_t)value << shift) & ENTRY_WRITABLE;
}

uint32_t ioapic_read(const struct ioapic *chip, uint32_t offset, uint32_t width)
{
    if (width != sizeof(uint32_t))
        return 0;
    if (offset == OFFSET_SELECT)
        return chip->select;
    return offset == OFFSET_WINDOW ? read_register(chip) : 0;
}

void ioapic_write(struct ioapic *chip, uint32_t offset, uint32_t width, uint32_t value)
{
    if (width != sizeof(uint32_t))
        return;
    if (offset == OFFSET_SELECT)
        chip->select = value & 0xff;
    if (offset == OFFSET_WINDOW)
        write_register(chip, value);
}

/* SMI, NMI, INIT and ExtINT through a device's pin serve no guest that we know, and each is one
 * more way into the host's interrupt code. */
static bool is_served(uint64_t entry)
{
    uint32_t delivery = ENTRY_DELIVERY(entry);
    return (delivery == FIXED || delivery == LOWEST_PRIORITY) &&
           ENTRY_VECTOR(entry) >= FIRST_VECTOR;
}

void ioapic_raise(void *arg, unsigned pin)
{
    struct ioapic *chip = arg;
    CL_ASSERT(pin < IOAPIC_PINS);
    uint64_t entry = chip->redirect[pin];
    if (entry & ENTRY_MASKED)
        return; /* "ignored (i.e., not delivered or held pending)", §3.2.4 */
    if (!is_served(entry)) {
        chip->refused++;
        return;
    }
    uint32_t address =
        UINT32_C(0xfee00000) | ENTRY_DESTINATION(entry) << 12 | ENTRY_LOGICAL(entry) << 2;
    uint32_t data = ENTRY_VECTOR(entry) | ENTRY_DELIVERY(entry) << 8;
    chip->send(chip->arg, address, data);
}

void ioapic_save(const struct ioapic *chip, struct state_writer *out)
{
    state_begin(out, STATE_IOAPIC);
    state_put_u32(out, chip->id);
    state_put_u32(out, chip->select);
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
        state_put_u64(out, chip->redirect[pin]);
    state_end(out);
}

int ioapic_load(struct ioapic *chip, struct state_reader *in, struct cl_err *err)
{
    struct ioapic was = {.send = chip->send, .arg = chip->arg};
    if (state_enter(in, STATE_IOAPIC, err) < 0)
        return -1;
    was.id = state_get_u32(in) & ID_BITS;
    was.select = state_get_u32(in) & 0xff;
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
        was.redirect[pin] = state_get_u64(in) & ENTRY_WRITABLE;
    if (state_leave(in, err) < 0)
        return cl_wrap(err, "interrupt controller");
    *chip = was;
    return 0;
}
