cl_fuzz(vmm_control DEPS vmm)
cl_fuzz(vmm_delta DEPS vmm)
