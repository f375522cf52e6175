/* trail/reader/key.c - AuditService.PublicKey: what the log's checkpoints are signed with. */
#include <fcntl.h>
#include <stdio.h>

#include "audit/files.h"
#include "audit/sign.h"
#include "base/fs.h"
#include "trail/reader/service_priv.h"

static int begin(struct reading *q, struct cl_err *err)
{
    (void)q, (void)err;
    return 0;
}

static int step(struct reading *q, struct cl_err *err)
{
    (void)q, (void)err;
    return 0;
}

/* It is read for each call: a log that has just begun may not have it yet. */
static int done(struct reading *q, struct cl_err *err)
{
    Cloche__V1__AuditServicePublicKeyResponse m =
        CLOCHE__V1__AUDIT_SERVICE_PUBLIC_KEY_RESPONSE__INIT;
    CL_AUTO(audit_public_key_freep) struct audit_public_key *key = NULL;
    CL_AUTO(cl_buf_fini) struct cl_buf pem;
    char path[AUDIT_PATH];
    const struct service_conf *conf = reading_conf(q);
    (void)snprintf(path, sizeof path, "%s%s", conf->public_key[0] ? conf->public_key : conf->dir,
                   conf->public_key[0] ? "" : "/audit.key.pub");
    cl_buf_init(&pem, AUDIT_PEM_MAX);
    if (cl_file_read(AT_FDCWD, path, &pem, err) < 0 ||
        audit_public_key_parse((const char *)pem.data, pem.len, &key, err) < 0 ||
        cl_buf_append(&pem, "", 1, err) < 0)
        return cl_wrap(err, "the log's public key");
    m.pem = (char *)pem.data;
    m.id = (char *)(uintptr_t)audit_public_key_id(key);
    reading_reply(q, &m.base);
    return 0;
}

const struct reading_kind reading_key = {begin, step, done};
