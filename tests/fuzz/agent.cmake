cl_fuzz(agent_gate DEPS agent)
