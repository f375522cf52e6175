foreach(name virtq mmio rng blk vsock balloon net state)
  cl_fuzz(vmm_${name} DEPS vmm base)
endforeach()
