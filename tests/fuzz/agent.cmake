cl_fuzz(agent_gate DEPS agent)
cl_fuzz(image_conf DEPS agent)
cl_fuzz(sensor_text DEPS agent)
