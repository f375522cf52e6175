cl_fuzz(jwt DEPS policy base)
