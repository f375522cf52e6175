/* agent/cmdline.h - the words of the kernel command line that are meant for the agent.
 *
 * Pure: text in, checked struct out.  The command line comes from the host and is trusted for its
 * meaning, but a word that is cut or misspelt must stop the boot rather than weaken it: without a
 * root hash the root file system is refused unless `cloche.noverity=1` says so.
 */
#ifndef CL_AGENT_CMDLINE_H
#define CL_AGENT_CMDLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    CMDLINE_MAX = 4096,   /* COMMAND_LINE_SIZE is 2048 on x86 */
    VERITY_HASH_HEX = 64, /* SHA-256 */
    VERITY_SALT_HEX_MAX = 128,
};

struct verity_args {
    char root_hash[VERITY_HASH_HEX + 1];
    char salt[VERITY_SALT_HEX_MAX + 1];
    uint64_t data_blocks; /* of 4096 bytes */
    uint64_t hash_start;  /* first block of the hash tree */
};

/* IPv4, host byte order; address 0 = there is no card. */
struct card_args {
    uint32_t address, gateway, dns;
    uint8_t prefix;
};

struct boot_args {
    bool noverity;
    bool has_verity;
    struct verity_args verity;
    uint64_t scratch_bytes; /* of the tmpfs, where there is no disk; 0 = half of the memory */
    uint64_t fault_around;  /* bytes of a file that a page fault maps; 0 = the kernel's own */
    uint64_t sensor_us;     /* between two looks at what the sensor saw; 0 = the agent's own */
    bool has_disk;          /* the writable layer is on the disk with the serial "scratch" */
    struct card_args card;
};

/* cloche.verity=<root hash>:<data blocks>:<hash start block>:<salt>  cloche.noverity=1
 * cloche.scratch=<bytes>  cloche.fault_around=<bytes>  cloche.sensor_us=<microseconds>
 * cloche.disk=1  cloche.net=<address>/<prefix>,<gateway>,<resolver>.  INVALID names the word. */
int cmdline_parse(const char *text, struct boot_args *ret_args, struct cl_err *err) CL_MUST;

#endif
