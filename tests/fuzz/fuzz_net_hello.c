/* The first bytes of a guest's connection: whole or in two parts they say the same, and a name is
 * one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[NET_NAME_MAX + 1], again[NET_NAME_MAX + 1];
    if (size < 1 || size > NET_HELLO_MAX)
        return 0;
    enum net_hello what = net_hello_parse(data, size, name);
    CL_ASSERT(what >= NET_HELLO_MORE && what <= NET_HELLO_NO_NAME);
    CL_ASSERT((what == NET_HELLO_NAME) == (name[0] != '\0'));
    CL_ASSERT(what != NET_HELLO_NAME || net_name_is_valid(name));
    for (size_t n = 1; n < size; n = n < 64 ? n + 1 : n * 2) {
        enum net_hello part = net_hello_parse(data, n, again);
        /* What was decided stays so, whatever comes behind it. */
        CL_ASSERT(part == NET_HELLO_MORE || (part == what && strcmp(name, again) == 0));
    }
    return 0;
}
