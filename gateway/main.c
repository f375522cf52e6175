/* gateway/main.c - cloche-gateway, with the product's tools and no others. */
#include "gateway/gateway.h"

int main(int argc, char **argv)
{
    return gateway_main(argc, argv, NULL);
}
