/* vmm/shim/operand.c - where an instruction's operand is in memory.
 *
 * Known are the instructions with one such operand, of which each byte is used: moves, arithmetic,
 * SSE, AVX, and of AVX-512 what the C library has; besides PUSH, POP, CALL, RET, STOS and MOVS. Not
 * known, on purpose: segments, masks, gathers, state (XSAVE), x87, and bits at any distance (BT).
 *
 * Reference: Intel SDM 2A §2.1 to §2.3, §2.7, and 2D appendix A.
 */
#include "vmm/shim/operand.h"

enum { REX_B = 1, REX_X = 2, REX_R = 4, REX_W = 8 };
enum map { ONE_BYTE, AFTER_0F, AFTER_0F38, AFTER_0F3A, NO_MAP }; /* as VEX numbers them */
enum { NO_OPERAND = -1 };
#define FLAG_DF UINT64_C(0x400)

/* An instruction, read from its start. */
struct reader {
    const uint8_t *code;
    unsigned n, room; /* read, and there */
    bool is_short;    /* it goes on behind `room` */
    bool has_66, is_vex, is_evex, is_scalar;
    uint8_t rex;
    enum map map;
    unsigned bytes; /* of memory, at most */
    unsigned unit;  /* that a displacement of one byte counts */
};

static uint8_t next(struct reader *r)
{
    if (r->n == r->room) {
        r->is_short = true;
        return 0;
    }
    return r->code[r->n++];
}

/* --- prefixes and opcode --------------------------------------------------------------------- */

static uint8_t skip_prefixes(struct reader *r)
{
    for (;;) {
        uint8_t byte = next(r);
        if (byte == 0x66)
            r->has_66 = true;
        else if (byte != 0xf0 && byte != 0xf2 && byte != 0xf3 && byte != 0x2e && byte != 0x3e)
            return byte;
    }
}

/* R, X and B are the other way round in VEX and EVEX. */
static uint8_t rex_of(uint8_t byte)
{
    return (uint8_t)~byte >> 5 & (REX_R | REX_X | REX_B);
}

static enum map map_of(unsigned number)
{
    return number >= AFTER_0F && number <= AFTER_0F3A ? (enum map)number : NO_MAP;
}

/* C5 RvvvvLpp, or C4 RXBmmmmm WvvvvLpp */
static void read_vex(struct reader *r, uint8_t first)
{
    enum { MAP = 31 };
    uint8_t byte = next(r);
    r->is_vex = true;
    r->bytes = 32;
    r->rex = rex_of(byte) & (first == 0xc5 ? REX_R : REX_R | REX_X | REX_B);
    r->map = first == 0xc5 ? AFTER_0F : map_of(byte & MAP);
    if (first == 0xc4)
        (void)next(r);
}

/* 62 RXBR'0mmm Wvvvv1pp zLLbV'aaa: no masks, no element that stands for all, no more registers. */
static void read_evex(struct reader *r)
{
    enum { MAP = 7, ZERO = 8, ONE = 4, SCALAR = 2, LENGTH = 3, BROADCAST_OR_MASK = 0x17 };
    uint8_t first = next(r), second = next(r), third = next(r);
    unsigned length = third >> 5 & LENGTH;
    bool is_plain =
        (first & ZERO) == 0 && second & ONE && (third & BROADCAST_OR_MASK) == 0 && length < LENGTH;
    r->is_evex = true;
    r->is_scalar = second & SCALAR;
    r->rex = rex_of(first);
    r->map = is_plain ? map_of(first & MAP) : NO_MAP;
    r->bytes = r->unit = 16U << length;
}

static uint8_t read_legacy(struct reader *r, uint8_t byte)
{
    if ((byte & 0xf0) == 0x40) {
        r->rex = byte & (REX_W | REX_R | REX_X | REX_B);
        byte = next(r);
    }
    if (byte != 0x0f)
        return byte;
    r->bytes = 16;
    r->map = AFTER_0F;
    byte = next(r);
    if (byte != 0x38 && byte != 0x3a)
        return byte;
    r->map = byte == 0x38 ? AFTER_0F38 : AFTER_0F3A;
    return next(r);
}

static uint8_t read_opcode(struct reader *r)
{
    uint8_t byte = skip_prefixes(r);
    r->bytes = 8;
    r->unit = 1;
    if (byte == 0xc4 || byte == 0xc5)
        read_vex(r, byte);
    else if (byte == 0x62)
        read_evex(r);
    else
        return read_legacy(r, byte);
    return next(r);
}

/* --- which have one operand, and how many bytes come after it --------------------------------- */

static int one_byte(const struct reader *r, uint8_t opcode, unsigned reg)
{
    const int word = r->has_66 && !(r->rex & REX_W) ? 2 : 4;
    switch (opcode) {
    case 0x63:          /* MOVSXD */
    case 0x84 ... 0x8b: /* TEST, XCHG, MOV */
    case 0xd0 ... 0xd3: /* shifts */
        return 0;
    case 0x6b: /* IMUL */
    case 0x80: /* ADD to CMP */
    case 0x83:
    case 0xc0: /* shifts */
    case 0xc1:
        return 1;
    case 0x69:
    case 0x81:
        return word;
    case 0xc6: /* MOV */
        return reg == 0 ? 1 : NO_OPERAND;
    case 0xc7:
        return reg == 0 ? word : NO_OPERAND;
    case 0xf6: /* TEST to IDIV */
        return reg < 2 ? 1 : 0;
    case 0xf7:
        return reg < 2 ? word : 0;
    case 0xfe: /* INC, DEC */
        return reg < 2 ? 0 : NO_OPERAND;
    case 0xff: /* and JMP */
        return reg < 2 || reg == 4 ? 0 : NO_OPERAND;
    default: /* ADD to CMP */
        return opcode < 0x40 && (opcode & 4) == 0 ? 0 : NO_OPERAND;
    }
}

static int two_bytes(uint8_t opcode, unsigned reg)
{
    switch (opcode) {
    case 0x10 ... 0x17: /* MOVUPS and so on */
    case 0x28 ... 0x2f:
    case 0x40 ... 0x6f: /* CMOV, SSE */
    case 0x74 ... 0x76:
    case 0x7c ... 0x7f:
    case 0x90 ... 0x9f: /* SETcc */
    case 0xa5:          /* SHLD, SHRD by CL */
    case 0xad:
    case 0xaf:          /* IMUL */
    case 0xb0 ... 0xb1: /* CMPXCHG */
    case 0xb6 ... 0xb8: /* MOVZX, POPCNT */
    case 0xbc ... 0xc1: /* BSF, BSR, MOVSX, XADD */
    case 0xc3:          /* MOVNTI */
    case 0xd0 ... 0xfe: /* SSE */
        return 0;
    case 0x70: /* PSHUFD */
    case 0xa4: /* SHLD, SHRD */
    case 0xac:
    case 0xba: /* BT by a constant */
    case 0xc2: /* CMPPS */
    case 0xc4: /* PINSRW */
    case 0xc6: /* SHUFPS */
        return 1;
    case 0xc7: /* CMPXCHG8B and 16B */
        return reg == 1 ? 0 : NO_OPERAND;
    default:
        return NO_OPERAND;
    }
}

static bool is_in(uint8_t opcode, uint8_t first, uint8_t last)
{
    return opcode >= first && opcode <= last;
}

/* Moves by a mask and gathers skip what they do not use; tiles are none of a vector's size. */
static int after_0f38(const struct reader *r, uint8_t opcode)
{
    bool is_known = r->is_vex ? !is_in(opcode, 0x2c, 0x2f) && !is_in(opcode, 0x48, 0x4b) &&
                                    !is_in(opcode, 0x8c, 0x93)
                              : opcode < 0x42 || is_in(opcode, 0xc8, 0xdf) ||
                                    is_in(opcode, 0xf0, 0xf1) || opcode == 0xf6;
    return is_known ? 0 : NO_OPERAND;
}

/* Whole vectors: MOVUPS, MOVAPS, MOVNTPS, MOVDQA and -U, PCMPEQ, PMINUB, PAND, PMAXUB, PANDN,
 * MOVNTDQ, POR, PXOR; PTESTM, PTESTNM; PCMP, PTERNLOG. */
static int of_evex(const struct reader *r, uint8_t opcode)
{
    static const uint8_t after_0f[] = {0x10, 0x11, 0x28, 0x29, 0x2b, 0x6f, 0x74, 0x75, 0x76,
                                       0x7f, 0xda, 0xdb, 0xde, 0xdf, 0xe7, 0xeb, 0xef},
                         after_0f3a[] = {0x1e, 0x1f, 0x25, 0x3e, 0x3f};
    for (unsigned i = 0; r->map == AFTER_0F && i < sizeof after_0f; i++) {
        if (after_0f[i] == opcode)
            return opcode <= 0x11 && r->is_scalar ? NO_OPERAND : 0;
    }
    for (unsigned i = 0; r->map == AFTER_0F3A && i < sizeof after_0f3a; i++) {
        if (after_0f3a[i] == opcode)
            return 1;
    }
    return r->map == AFTER_0F38 && is_in(opcode, 0x26, 0x27) ? 0 : NO_OPERAND;
}

static int trailing(const struct reader *r, uint8_t opcode, unsigned reg)
{
    if (r->is_evex)
        return of_evex(r, opcode);
    switch (r->map) {
    case ONE_BYTE:
        return one_byte(r, opcode, reg);
    case AFTER_0F:
        return two_bytes(opcode, reg);
    case AFTER_0F38:
        return after_0f38(r, opcode);
    case AFTER_0F3A:
        return 1;
    case NO_MAP:
    default:
        return NO_OPERAND;
    }
}

/* --- addresses ------------------------------------------------------------------------------- */

static uint64_t register_of(const struct frame *f, unsigned i)
{
    return ((const uint64_t *)f)[frame_word(i)];
}

static uint64_t read_byte(struct reader *r)
{
    return (uint64_t)(int8_t)next(r) * r->unit;
}

static uint64_t read_word(struct reader *r)
{
    uint32_t word = 0;
    for (unsigned i = 0; i < sizeof word; i++)
        word |= (uint32_t)next(r) << 8 * i;
    return (uint64_t)(int32_t)word;
}

enum { RSP = 4, RBP = 5 }; /* as ModR/M and SIB name them, and what they mean instead */

static uint64_t sib_address(const struct frame *f, struct reader *r, unsigned mod)
{
    const uint8_t sib = next(r);
    const unsigned index = (sib >> 3 & 7) | (r->rex & REX_X ? 8 : 0), base = sib & 7;
    uint64_t sum = index == RSP ? 0 : register_of(f, index) << (sib >> 6);
    return sum + (base == RBP && mod == 0 ? read_word(r)
                                          : register_of(f, base | (r->rex & REX_B ? 8 : 0)));
}

/* Intel SDM 2A, tables 2-2 and 2-3.  `more` bytes come after it. */
static uint64_t modrm_address(const struct frame *f, struct reader *r, uint8_t modrm, unsigned more)
{
    const unsigned mod = modrm >> 6, rm = modrm & 7;
    if (rm == RBP && mod == 0) {
        uint64_t distance = read_word(r);
        return f->rip + r->n + more + distance;
    }
    uint64_t base =
        rm == RSP ? sib_address(f, r, mod) : register_of(f, rm | (r->rex & REX_B ? 8 : 0));
    return base + (mod == 1 ? read_byte(r) : mod == 2 ? read_word(r) : 0);
}

static bool of_modrm(const struct frame *f, struct reader *r, uint8_t opcode, struct operand *ret)
{
    enum { IS_REGISTER = 3 };
    const uint8_t modrm = next(r);
    const int more = trailing(r, opcode, modrm >> 3 & 7);
    if (more == NO_OPERAND || modrm >> 6 == IS_REGISTER)
        return false;
    *ret = (struct operand){modrm_address(f, r, modrm, (unsigned)more), r->bytes};
    return true;
}

/* PUSH and CALL, POP and RET. */
static bool of_stack(const struct frame *f, const struct reader *r, uint8_t opcode,
                     struct operand *ret)
{
    bool writes = is_in(opcode, 0x50, 0x57) || opcode == 0x68 || opcode == 0x6a || opcode == 0xe8;
    bool reads = is_in(opcode, 0x58, 0x5f) || opcode == 0xc3;
    *ret = (struct operand){f->rsp - (writes ? 8 : 0), 8};
    return r->map == ONE_BYTE && !r->has_66 && (writes || reads);
}

/* MOVS and STOS, upwards; with REP the registers are those of the step that faulted. */
static bool of_string(const struct frame *f, const struct reader *r, uint8_t opcode,
                      struct operand *ret)
{
    enum { STEP_MAX = 64, FAULT_WRITE = 2 };
    bool moves = is_in(opcode, 0xa4, 0xa5), stores = is_in(opcode, 0xaa, 0xab);
    *ret = (struct operand){moves && !(f->error & FAULT_WRITE) ? f->rsi : f->rdi, STEP_MAX};
    return r->map == ONE_BYTE && !(f->flags & FLAG_DF) && (moves || stores);
}

bool operand_of(const struct frame *f, const uint8_t *code, unsigned room, struct operand *ret)
{
    struct reader r = {.code = code, .room = room};
    const uint8_t opcode = read_opcode(&r);
    bool is_known = of_stack(f, &r, opcode, ret) || of_string(f, &r, opcode, ret) ||
                    of_modrm(f, &r, opcode, ret);
    return is_known && !r.is_short;
}
