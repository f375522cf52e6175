cl_fuzz(vmm_control DEPS vmm)
