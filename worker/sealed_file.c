/* worker/sealed_file.c - see worker/sealed_file.h. */
#include "worker/sealed_file.h"

#include <string.h>

#include "worker/template.h"

void sealed_file_fill(Cloche__V1__SealedFile *m, const char *name, struct rest_ticket *ticket)
{
    cloche__v1__sealed_file__init(m);
    m->name = (char *)(uintptr_t)name; /* protobuf-c has no word for what it only reads */
    m->key.data = ticket->key;
    m->key.len = sizeof ticket->key;
    m->bytes = ticket->bytes;
    m->pieces = ticket->pieces;
    m->memory_bytes = ticket->memory_bytes;
    m->state_bytes = ticket->state_bytes;
}

int sealed_file_check(const Cloche__V1__SealedFile *m, const char *what, struct cl_err *err)
{
    if (!m || m->key.len != REST_KEY || !sealed_file_is_name(m->name, TEMPLATE_FILE_MAX))
        return cl_fail(err, CL_E_INVALID, 0, "a record whose %s has no name or no key", what);
    return 0;
}

void sealed_file_ticket(const Cloche__V1__SealedFile *m, struct rest_ticket *ret_ticket)
{
    *ret_ticket = (struct rest_ticket){.bytes = m->bytes,
                                       .pieces = m->pieces,
                                       .memory_bytes = m->memory_bytes,
                                       .state_bytes = m->state_bytes};
    memcpy(ret_ticket->key, m->key.data, sizeof ret_ticket->key);
}

bool sealed_file_is_name(const char *name, size_t size)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < size;
}

bool sealed_file_is_hex(const char *text)
{
    return strlen(text) == TEMPLATE_HEX - 1 && strspn(text, "0123456789abcdef") == TEMPLATE_HEX - 1;
}
