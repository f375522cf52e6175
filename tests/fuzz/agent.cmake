cl_fuzz(agent_gate DEPS agent)
cl_fuzz(sensor_text DEPS agent)
