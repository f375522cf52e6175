cl_fuzz(rules DEPS trail base)
cl_fuzz(walk DEPS trail base)
cl_fuzz(spans DEPS trail base)
