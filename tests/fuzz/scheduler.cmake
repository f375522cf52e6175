cl_fuzz(call DEPS scheduler)
