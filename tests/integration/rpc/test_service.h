/* tests/integration/rpc/test_service.h - grpc.testing.TestService, as interop clients expect it.
 *
 * Owns:    nothing but per-call state in the calls.
 * Thread:  the server's loop.
 */
#ifndef CL_TESTS_RPC_TEST_SERVICE_H
#define CL_TESTS_RPC_TEST_SERVICE_H

#include "rpc/server.h"

int test_service_add(struct rpc_server *server, struct cl_err *err) CL_MUST;

#endif
