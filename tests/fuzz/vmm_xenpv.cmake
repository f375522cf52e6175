# The shim's C for the host: no assembler, places that a process can have, a processor of the target's
# (tests/fuzz/shim).  Its addresses are the guest's, so null and odd ones are no news.
set(shim_places SHIM_M2P_VA=0x200000000000ULL SHIM_VA=0x210000000000ULL SHIM_FRAMES_VA=0x220000000000ULL)
file(GLOB shim_host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/vmm/shim/*.c)
list(FILTER shim_host_sources EXCLUDE REGEX "/mem\\.c$")
add_library(cl_shim_host STATIC ${shim_host_sources} shim/machine.c shim/rules.c)
target_include_directories(cl_shim_host BEFORE PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/shim)
cl_options(cl_shim_host)
target_compile_definitions(cl_shim_host PUBLIC ${shim_places})
target_compile_options(cl_shim_host PRIVATE -fno-strict-aliasing) # as in vmm/shim/shim.cmake
if(CLOCHE_SAN_FLAGS)
  target_compile_options(cl_shim_host PRIVATE -fno-sanitize=null,alignment,pointer-overflow)
endif()
target_link_libraries(cl_shim_host PUBLIC cl_vmm)
cl_fuzz(vmm_shim DEPS shim_host)
target_include_directories(fuzz_vmm_shim BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/shim)
cl_fuzz(vmm_operand DEPS base)
target_sources(fuzz_vmm_operand PRIVATE ${CMAKE_SOURCE_DIR}/vmm/shim/operand.c)
# The monitor's side of such a guest.
cl_fuzz(vmm_xenpv DEPS vmm)
cl_fuzz(vmm_xenpv_load DEPS vmm)
