/* agent/stats.h - the guest's state in numbers.  Never fails: what cannot be read stays 0. */
#ifndef CL_AGENT_STATS_H
#define CL_AGENT_STATS_H

#include "agent/cgroup.h"
#include "cloche/v1/guest.pb-c.h"

/* MemAvailable: what could be used without swapping, page cache included. */
uint64_t stats_available_bytes(void);
void stats_read(const struct cgroups *groups, int scratch_fd, Cloche__V1__GuestStats *stats);

#endif
