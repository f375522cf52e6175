/* trail/rules.h - detections of the operator's own: a file of rules over the events of the audit
 * log.
 *
 *   {"rules": [{"name": "miner-pool", "severity": "high", "event": "net.dns",
 *               "where": {"name": ["*.minexmr.com", "pool.*"]},
 *               "of": 1, "within_s": 0, "subject": "unit", "value": "name",
 *               "technique": "T1496", "what": "...", "then": "..."}]}
 *
 * A record matches when each field of `where` is like one of its patterns (`*` any text, `?` one
 * byte).  name, event, severity and what must be there; `of` different values of `value` within
 * `within_s` seconds of one `subject` make a finding.  docs/rules.md tells it to people.
 *
 * Owns:    the text of its rules; findings of them borrow from it.  It is counted who holds them.
 * Limit:   RULES_MAX rules, RULE_FIELDS fields of each, RULE_PATTERNS patterns of each field.
 * Thread:  any.  Pure, but for rules_load().
 */
#ifndef CL_TRAIL_RULES_H
#define CL_TRAIL_RULES_H

#include "trail/detect.h"

enum {
    RULES_BYTES = 1024 * 1024,
    RULES_MAX = 256,
    RULE_FIELDS = 8,
    RULE_PATTERNS = 64,
    RULE_NAME = 30,
    RULE_FIELD = 40,
    RULE_TEXT = 400,
    RULE_WITHIN_MAX = DETECT_QUIET_S,
};

struct rules;

/* INVALID names the rule and what is wrong with it; a name that a detection has already, an event
 * or a field that there is not, are errors.  name: of the file, for those. */
int rules_parse(const char *name, const char *text, size_t n, struct rules **ret_rules,
                struct cl_err *err) CL_MUST;
/* The same of a file; an empty path is no rules, and NULL. */
int rules_load(const char *path, struct rules **ret_rules, struct cl_err *err) CL_MUST;
/* Another reference to the same; NULL is NULL. */
struct rules *rules_share(struct rules *rules);
/* Give a reference up; the last one ends them.  NULL is a no-op. */
void rules_free(struct rules *rules);
CL_DEFINE_AUTO(struct rules, rules_free)

size_t rules_count(const struct rules *rules);
const struct detection *rules_at(const struct rules *rules, size_t i);
/* Does the record match?  Then whose it is, and what is counted. */
bool rules_match(const struct rules *rules, size_t i, const struct detect_record *r,
                 char subject[static DETECT_SUBJECT], char value[static DETECT_VALUE]);

#endif
