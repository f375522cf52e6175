/* worker/qmp.c - see worker/qmp.h. */
#include "worker/qmp.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static enum qmp_kind event_kind(const json_t *root, const char *event)
{
    static const struct {
        const char *name;
        enum qmp_kind kind;
    } events[] = {
        {"RESUME", QMP_EVENT_RESUME}, {"STOP", QMP_EVENT_STOP}, {"SHUTDOWN", QMP_EVENT_SHUTDOWN}};
    for (size_t i = 0; i < CL_COUNT(events); i++) {
        if (strcmp(event, events[i].name) == 0)
            return events[i].kind;
    }
    if (strcmp(event, "MIGRATION") != 0)
        return QMP_OTHER;
    const char *status =
        json_string_value(json_object_get(json_object_get(root, "data"), "status"));
    if (status && strcmp(status, "completed") == 0)
        return QMP_MIGRATED;
    return status && strcmp(status, "failed") == 0 ? QMP_MIGRATE_FAILED : QMP_OTHER;
}

int qmp_parse(const char *line, size_t n, struct qmp_line *ret_line, struct cl_err *err)
{
    json_error_t where;
    json_t *root = json_loadb(line, n, 0, &where);
    if (!json_is_object(root)) {
        json_decref(root);
        return cl_fail(err, CL_E_PEER, 0, "QMP line is no JSON object");
    }
    struct qmp_line l = {.kind = QMP_OTHER};
    const char *event = json_string_value(json_object_get(root, "event"));
    const json_t *error = json_object_get(root, "error");
    if (event)
        l.kind = event_kind(root, event);
    else if (error)
        l.kind = QMP_ERROR;
    else if (json_object_get(root, "return"))
        l.kind = QMP_RETURN;
    else if (json_object_get(root, "QMP"))
        l.kind = QMP_GREETING;
    const char *desc = json_string_value(json_object_get(error, "desc"));
    (void)snprintf(l.text, sizeof l.text, "%s", desc ? desc : "");
    json_decref(root);
    *ret_line = l;
    return 0;
}
