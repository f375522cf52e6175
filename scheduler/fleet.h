/* scheduler/fleet.h - the part of FleetService that is served without a key. */
#ifndef CL_SCHEDULER_FLEET_H
#define CL_SCHEDULER_FLEET_H

#include "rpc/call.h"

extern const struct rpc_method enroll_methods[];
extern const size_t enroll_methods_count;

#endif
