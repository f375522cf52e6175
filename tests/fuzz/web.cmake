cl_fuzz(grpcweb DEPS web)
cl_fuzz(web DEPS web)
