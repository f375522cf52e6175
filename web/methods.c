/* web/methods.c - see web/methods.h. */
#include "web/methods.h"

#include <string.h>

#include "cloche/v1/audit.pb-c.h"
#include "cloche/v1/code.pb-c.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/file.pb-c.h"
#include "cloche/v1/fleet.pb-c.h"
#include "cloche/v1/function.pb-c.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/port.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "cloche/v1/snapshot.pb-c.h"
#include "cloche/v1/template.pb-c.h"
#include "cloche/v1/tenant.pb-c.h"

/* Not of the WorkerService, which is the workers'. */
static const ProtobufCServiceDescriptor *const services[] = {
    &cloche__v1__audit_service__descriptor,    &cloche__v1__code_service__descriptor,
    &cloche__v1__exec_service__descriptor,     &cloche__v1__file_service__descriptor,
    &cloche__v1__fleet_service__descriptor,    &cloche__v1__function_service__descriptor,
    &cloche__v1__job_service__descriptor,      &cloche__v1__port_service__descriptor,
    &cloche__v1__sandbox_service__descriptor,  &cloche__v1__snapshot_service__descriptor,
    &cloche__v1__template_service__descriptor, &cloche__v1__tenant_service__descriptor,
};

/* What protobuf-c's descriptors do not tell. */
static const struct {
    const char *path;
    bool takes_many, streams;
} streams[] = {
    {"/cloche.v1.AuditService/Query", false, true},
    {"/cloche.v1.CodeService/RunCode", false, true},
    {"/cloche.v1.ExecService/Attach", false, true},
    {"/cloche.v1.ExecService/WriteStdin", true, false},
    {"/cloche.v1.FileService/Read", false, true},
    {"/cloche.v1.FileService/Write", true, false},
    {"/cloche.v1.FileService/Watch", false, true},
    {"/cloche.v1.JobService/Run", false, true},
    {"/cloche.v1.JobService/Watch", false, true},
    {"/cloche.v1.JobService/WriteStdin", true, false},
    {"/cloche.v1.PortService/Connect", true, true},
};

const ProtobufCServiceDescriptor *web_method_service(size_t i)
{
    return i < CL_COUNT(services) ? services[i] : NULL;
}

/* The service of the path; *ret_method is what stands behind it. */
static const ProtobufCServiceDescriptor *service_of(const char *path, const char **ret_method)
{
    for (size_t i = 0; i < CL_COUNT(services); i++) {
        size_t n = strlen(services[i]->name);
        if (path[0] != '/' || strncmp(path + 1, services[i]->name, n) != 0 || path[1 + n] != '/')
            continue;
        *ret_method = path + 1 + n + 1;
        return services[i];
    }
    return NULL;
}

bool web_method_serves(const char *path)
{
    const char *ignored;
    return service_of(path, &ignored) != NULL;
}

int web_method_find(const char *path, struct web_method *ret, struct cl_err *err)
{
    const char *name = NULL;
    const ProtobufCServiceDescriptor *service = service_of(path, &name);
    const ProtobufCMethodDescriptor *method =
        service ? protobuf_c_service_descriptor_get_method_by_name(service, name) : NULL;
    if (!method)
        return cl_fail(err, CL_E_NOTFOUND, 0, "%.100s: no such method", path);
    *ret = (struct web_method){.in = method->input, .out = method->output};
    for (size_t i = 0; i < CL_COUNT(streams); i++) {
        if (strcmp(streams[i].path, path) != 0)
            continue;
        ret->takes_many = streams[i].takes_many;
        ret->streams = streams[i].streams;
    }
    if (ret->takes_many && ret->streams)
        return cl_fail(err, CL_E_UNIMPL, 0, "%s is a conversation: call it by gRPC", path + 1);
    return 0;
}
