cl_fuzz(jwt DEPS policy base)
cl_fuzz(net_rule DEPS policy base)
cl_fuzz(link DEPS policy base)
