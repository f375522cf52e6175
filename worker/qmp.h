/* worker/qmp.h - what QEMU's monitor (QMP, docs/interop/qmp-spec) says, line by line.  Pure.
 *
 * QEMU is hostile once its guest has run: a line is at most QMP_LINE_MAX bytes and says one of the
 * few things below; everything else is ignored.
 */
#ifndef CL_WORKER_QMP_H
#define CL_WORKER_QMP_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum { QMP_LINE_MAX = 16384 };

enum qmp_kind {
    QMP_OTHER = 0,
    QMP_GREETING,
    QMP_RETURN,       /* a command succeeded */
    QMP_ERROR,        /* a command failed; text says why */
    QMP_EVENT_RESUME, /* the guest runs */
    QMP_EVENT_STOP,
    QMP_EVENT_SHUTDOWN,
    QMP_MIGRATED,       /* MIGRATION event: completed */
    QMP_MIGRATE_FAILED, /* MIGRATION event: failed */
};

struct qmp_line {
    enum qmp_kind kind;
    char text[256];
};

/* One line without its newline.  PEER when it is no JSON object. */
int qmp_parse(const char *line, size_t n, struct qmp_line *ret_line, struct cl_err *err) CL_MUST;

#endif
