/* tests/mcp_fixtures/main.c - the gateway under conformance test. */
#include <stdio.h>

#include "gateway/gateway.h"
#include "tests/mcp_fixtures/fixtures.h"

int main(int argc, char **argv)
{
    static struct mcp_extra extra; /* what it points to lives as long */
    struct cl_err err = {0};
    if (fixtures_open(&extra, &err) < 0) {
        (void)fprintf(stderr, "fixtures: %s\n", err.text);
        return 1;
    }
    return gateway_main(argc, argv, &extra);
}
