cl_fuzz(http DEPS gateway)
cl_fuzz(mcp_h2 DEPS gateway)
cl_fuzz(port DEPS gateway)
