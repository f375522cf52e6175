cl_fuzz(vmm_elf DEPS vmm)
cl_fuzz(vmm_acpi DEPS vmm)
cl_fuzz(vmm_serial DEPS vmm)
cl_fuzz(vmm_ioapic DEPS vmm)
