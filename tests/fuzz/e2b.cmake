cl_fuzz(e2b DEPS e2b)
