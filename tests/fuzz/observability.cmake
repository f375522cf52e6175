cl_fuzz(traceparent DEPS observability base)
