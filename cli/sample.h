/* cli/sample.h - what a sandbox or job used, as `vm usage` and `top` show it.
 *
 * Owns:    nothing; what is returned is the caller's.
 * Thread:  any.
 * Pure.
 */
#ifndef CL_CLI_SAMPLE_H
#define CL_CLI_SAMPLE_H

#include <jansson.h>
#include <stdint.h>

#include "cloche/v1/sandbox.pb-c.h"

/* As top(1) has it: 100 = one vCPU computes; one digit behind the point. */
double sample_cpu_percent(const Cloche__V1__UsageSample *s);
json_t *sample_json(const Cloche__V1__UsageSample *s);
/* "104 MiB of 219 MiB" */
json_t *sample_of_text(uint64_t part, uint64_t whole);

#endif
