/* tests/integration/vmm/process.h - cloche-vmm as a worker would hold it: spawned, told, heard.
 *
 * No guardian and no jail around it.  Whatever is not as it should be fails the test.
 */
#ifndef CL_TESTS_VMM_PROCESS_H
#define CL_TESTS_VMM_PROCESS_H

#include <sys/types.h>

#include "tests/integration/vmm/guest.h"
#include "vmm/control.h"

struct process {
    struct guest guest; /* for its kernel and RAM files */
    pid_t pid;
    int control, channel, state_fd, scratch_fd;
    int delta_fd;       /* borrowed, of a setup that restores; 0 = none */
    int wire;           /* of its network card; -1 = it gets none */
    uint8_t boot_flags; /* of its setup, when that is a boot's */
};

/* The files of a guest with this code, and a process that knows nothing of them yet. */
void process_open(struct process *p, const uint8_t *code, const uint8_t *end);
/* The same files, a process of its own. */
void process_spawn(struct process *p);
/* From here on its setup brings a network card. */
void process_add_card(struct process *p);
/* Setup as a worker sends it; kernel and initrd only for a boot. */
void process_send_setup(struct process *p, enum control_type type);
/* From the setup to UP. */
void process_boot(struct process *p);
void process_close(struct process *p);

void process_tell(struct process *p, enum control_type type);
void process_tell_with(struct process *p, const struct control_message *m, const int *fds,
                       size_t n);
/* The next event; fails after 20 s without one. */
struct control_message process_hear(struct process *p);
void process_hears(struct process *p, enum control_type type);
/* ENDED for this cause and a reason that holds the text; then the process exits with 0. */
void process_hears_end(struct process *p, enum control_end cause, const char *text);

#endif
