/* cli/ocsf.c - see cli/ocsf.h. */
#include "cli/ocsf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/output.h"

#define OCSF_VERSION "1.3.0"

enum {
    CATEGORY_FINDINGS = 2,
    CLASS_DETECTION_FINDING = 2004,
    ACTIVITY_CREATE = 1,
    STATUS_NEW = 1,
    ANALYTIC_RULE = 1,
};

/* Of the techniques of detections.def, as ATT&CK calls them. */
static const struct {
    const char *uid, *name;
} techniques[] = {{"T1018", "Remote System Discovery"},
                  {"T1041", "Exfiltration Over C2 Channel"},
                  {"T1046", "Network Service Discovery"},
                  {"T1055", "Process Injection"},
                  {"T1071", "Application Layer Protocol"},
                  {"T1071.004", "DNS"},
                  {"T1078", "Valid Accounts"},
                  {"T1087", "Account Discovery"},
                  {"T1105", "Ingress Tool Transfer"},
                  {"T1110", "Brute Force"},
                  {"T1486", "Data Encrypted for Impact"},
                  {"T1552", "Unsecured Credentials"},
                  {"T1552.001", "Credentials In Files"},
                  {"T1552.005", "Cloud Instance Metadata API"},
                  {"T1562", "Impair Defenses"},
                  {"T1562.006", "Indicator Blocking"},
                  {"T1611", "Escape to Host"}};

static json_t *technique(const char *uid)
{
    for (size_t i = 0; i < CL_COUNT(techniques); i++)
        if (strcmp(techniques[i].uid, uid) == 0)
            return json_pack("{s:s, s:s}", "uid", uid, "name", techniques[i].name);
    return json_pack("{s:s, s:s}", "uid", uid, "name", uid);
}

static json_t *attacks(const struct finding *f)
{
    char whole[OCSF_TECHNIQUE];
    if (!f->technique[0])
        return json_array();
    (void)snprintf(whole, sizeof whole, "%.*s", (int)strcspn(f->technique, "."), f->technique);
    json_t *attack = json_pack("{s:o}", "technique", technique(whole));
    if (strchr(f->technique, '.'))
        (void)json_object_set_new(attack, "sub_technique", technique(f->technique));
    return json_pack("[o]", attack);
}

static json_int_t ms_of(const char *ts)
{
    return (json_int_t)(cl_rfc3339_ns(ts) / CL_NS_PER_MS);
}

static const char *kind_of(const char *subject)
{
    return strncmp(subject, "sbx_", 4) == 0   ? "sandbox"
           : strncmp(subject, "job_", 4) == 0 ? "job"
                                              : "other";
}

static json_t *metadata(const struct finding *f, const char *uid)
{
    static const char tenant[] = "tenant/";
    json_t *m = json_pack("{s:s, s:s, s:s, s:I, s:{s:s, s:s, s:s}}", "version", OCSF_VERSION, "uid",
                          uid, "log_name", f->stream, "sequence", (json_int_t)f->seq, "product",
                          "name", "Cloche", "vendor_name", "Cloche", "version", CLOCHE_VERSION);
    if (m && strncmp(f->stream, tenant, strlen(tenant)) == 0)
        (void)json_object_set_new(m, "tenant_uid", json_string(f->stream + strlen(tenant)));
    return m;
}

static json_t *info(const struct finding *f, const char *uid)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:{s:i, s:s, s:s, s:s}, s:o}", "uid", uid,
                     "title", f->name, "desc", f->what, "created_time", (json_int_t)ms_of(f->first),
                     "first_seen_time", (json_int_t)ms_of(f->first), "last_seen_time",
                     (json_int_t)ms_of(f->last), "analytic", "type_id", ANALYTIC_RULE, "type",
                     "Rule", "name", f->name, "uid", f->name, "attacks", attacks(f));
}

json_t *ocsf_finding(const struct finding *f)
{
    static const struct {
        int id;
        const char *name;
    } severities[] = {
        [DETECT_LOW] = {2, "Low"}, [DETECT_MEDIUM] = {3, "Medium"}, [DETECT_HIGH] = {4, "High"}};
    char uid[sizeof f->stream + 64];
    (void)snprintf(uid, sizeof uid, "%s:%" PRIu64 ":%s", f->stream, f->seq, f->name);
    return json_pack(
        "{s:i, s:s, s:i, s:s, s:i, s:s, s:i, s:s, s:i, s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:o, "
        "s:o, s:[{s:o, s:s}], s:[{s:{s:o}}], s:{s:s}}",
        "category_uid", CATEGORY_FINDINGS, "category_name", "Findings", "class_uid",
        CLASS_DETECTION_FINDING, "class_name", "Detection Finding", "activity_id", ACTIVITY_CREATE,
        "activity_name", "Create", "type_uid", CLASS_DETECTION_FINDING * 100 + ACTIVITY_CREATE,
        "type_name", "Detection Finding: Create", "severity_id", severities[f->severity].id,
        "severity", severities[f->severity].name, "status_id", STATUS_NEW, "status", "New", "time",
        ms_of(f->last), "start_time", ms_of(f->first), "end_time", ms_of(f->last), "count",
        (json_int_t)f->count, "metadata", metadata(f, uid), "finding_info", info(f, uid),
        "resources", "uid", out_string(f->subject), "type", kind_of(f->subject), "evidences",
        "data", "value", out_string(f->value), "remediation", "desc", f->then);
}
