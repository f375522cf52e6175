/* cli/ocsf.h - findings as events of the Open Cybersecurity Schema Framework, which SIEMs read.
 *
 * Each is a Detection Finding (class 2004, https://schema.ocsf.io/1.3.0/classes/detection_finding).
 * Thread: any.  Pure.
 */
#ifndef CL_CLI_OCSF_H
#define CL_CLI_OCSF_H

#include "trail/detect.h"

enum { OCSF_TECHNIQUE = 16 };

/* The caller owns it; NULL without memory. */
json_t *ocsf_finding(const struct finding *f) CL_MUST;

#endif
