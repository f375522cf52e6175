cl_fuzz(web DEPS web)
