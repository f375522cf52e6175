/* vmm/state.h - the bytes of a snapshot's state: a head, then sections in a fixed order.
 *
 * Owns:    nothing; both ends work in a buffer of the caller.
 * Thread:  any; pure, no I/O, no allocation.
 * The reader takes every byte as hostile: a guest that broke its monitor may have written them.
 *
 *   head     "CLVMSTAT", u32 version, u8 baseline[32], u64 mem_bytes, u32 vcpus      (56 bytes)
 *   section  u32 type, u32 bytes, then that many bytes of little-endian fields; no padding
 *
 * Sections stand in the order in which the machine is built, so that a state fits exactly one
 * topology: a reader asks for the section it wants next and gets that or an error.
 *
 * A failed get or put sticks: the fields that follow are zero (or go nowhere) and the next
 * state_leave() or state_finish() reports it, so that a device reads as a list of its fields.
 */
#ifndef CL_VMM_STATE_H
#define CL_VMM_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { STATE_VERSION = 6, STATE_BASELINE_BYTES = 32, STATE_HEAD_BYTES = 56 };

enum state_section {
    STATE_NONE = 0,
    STATE_VCPU = 1, /* one a vCPU, by its index */
    STATE_CLOCK,
    STATE_IOAPIC,
    STATE_SERIAL,
    STATE_PORTS,
    STATE_WRITTEN,
    STATE_PROCESSOR, /* the first of all */
    STATE_HOLES,
    STATE_BLK = 16, /* one a device, in the order of the MMIO map */
    STATE_VSOCK,
    STATE_RNG,
    STATE_BALLOON,
    STATE_NET,
};

struct state_head {
    uint8_t
        baseline[STATE_BASELINE_BYTES]; /* digest of the CPUID and MSR tables of the host class */
    uint64_t mem_bytes;
    uint32_t vcpus;
};

struct state_writer {
    uint8_t *data; /* borrowed: the caller's, until state_finish() */
    size_t cap;
    size_t len;
    size_t body; /* where the open section's body starts */
    bool open;   /* between state_begin() and state_end() */
    bool full;   /* something did not fit */
};

/* Start with the head.  data: cap bytes of the caller, used until state_finish(). */
void state_writer_init(struct state_writer *w, uint8_t *data, size_t cap,
                       const struct state_head *head);
void state_begin(struct state_writer *w, enum state_section type);
void state_put_u8(struct state_writer *w, uint8_t v);
void state_put_u16(struct state_writer *w, uint16_t v);
void state_put_u32(struct state_writer *w, uint32_t v);
void state_put_u64(struct state_writer *w, uint64_t v);
void state_put_bytes(struct state_writer *w, const void *src, size_t n);
void state_end(struct state_writer *w);
/* The length of the whole state.  TOOBIG when it did not fit into the buffer. */
int state_finish(const struct state_writer *w, size_t *ret_n, struct cl_err *err) CL_MUST;

struct state_reader {
    const uint8_t *data; /* borrowed: the caller's, as long as the reader is used */
    size_t len;
    size_t at;
    size_t end;              /* of the open section; == at when none is open */
    enum state_section type; /* of the open section; STATE_NONE when none is open */
    bool bad;                /* something was read past the section's end */
};

/* Check the head's form (magic, version, length); what it says is for the caller to check.
 * Errors: INVALID. */
int state_reader_init(struct state_reader *r, const uint8_t *data, size_t len,
                      struct state_head *ret_head, struct cl_err *err) CL_MUST;
/* Open the next section, which must be of this type.  Errors: INVALID. */
int state_enter(struct state_reader *r, enum state_section type, struct cl_err *err) CL_MUST;
uint8_t state_get_u8(struct state_reader *r);
uint16_t state_get_u16(struct state_reader *r);
uint32_t state_get_u32(struct state_reader *r);
uint64_t state_get_u64(struct state_reader *r);
/* On failure dst is zeroed. */
void state_get_bytes(struct state_reader *r, void *dst, size_t n);
/* Bytes of the open section that were not read yet. */
size_t state_left(const struct state_reader *r);
/* Close the section: INVALID when a get failed or bytes are left over. */
int state_leave(struct state_reader *r, struct cl_err *err) CL_MUST;
/* INVALID when a section is open or left. */
int state_reader_finish(const struct state_reader *r, struct cl_err *err) CL_MUST;

#endif
