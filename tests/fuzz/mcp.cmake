cl_fuzz(mcp_message DEPS mcp)
cl_fuzz(mcp_args DEPS mcp)
