cl_fuzz(unpack DEPS proto base rpc_proto)
cl_fuzz(grpc_wire DEPS rpc base)
cl_fuzz(h2 DEPS rpc rpc_proto base)
