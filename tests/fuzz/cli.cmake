cl_fuzz(rules DEPS cli base)
