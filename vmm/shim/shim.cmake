# The shim of Xen-PV guests (vmm/xenpv.h): freestanding, its own flags, one flat piece of code for each
# vCPU, linked for its slice (vmm/shim/layout.h), which becomes the array shim_code_N.  Optimized
# always: it is the guest's hypervisor.
set(shim_dir ${CMAKE_CURRENT_LIST_DIR})
file(GLOB shim_sources CONFIGURE_DEPENDS ${shim_dir}/*.c ${shim_dir}/*.S)
file(GLOB shim_headers CONFIGURE_DEPENDS ${shim_dir}/*.h)
set(shim_flags -std=gnu17 -O2 -ffreestanding -fno-builtin -fpie -fvisibility=hidden -fno-strict-aliasing
    -mgeneral-regs-only -mno-red-zone -mfsgsbase -fno-stack-protector -fcf-protection=none
    -fno-asynchronous-unwind-tables -fno-jump-tables -Wall -Wextra -Wshadow -Wconversion
    -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-command-line-argument)
if(CLOCHE_WERROR)
  list(APPEND shim_flags -Werror)
endif()
set(SHIM_SOURCES)
set(shim_here 0xffff810000000000 0xffff810000040000 0xffff810000080000 0xffff8100000c0000)
foreach(cpu RANGE 3)
  list(GET shim_here ${cpu} here)
  set(SHIM_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/shim_code_${cpu}.c)
  list(APPEND SHIM_SOURCES ${SHIM_SOURCE})
  add_custom_command(OUTPUT ${SHIM_SOURCE}
    COMMAND ${CMAKE_C_COMPILER} ${shim_flags} -I${CMAKE_SOURCE_DIR} -nostdlib -static -no-pie
            -Wl,-T,${shim_dir}/shim.lds -Wl,--defsym=here=${here} -Wl,--build-id=none
            -Wl,-z,noexecstack -o shim_${cpu}.elf ${shim_sources}
    COMMAND ${CMAKE_OBJCOPY} -O binary shim_${cpu}.elf shim_${cpu}.bin
    COMMAND ${CMAKE_COMMAND} -DIN=shim_${cpu}.bin -DOUT=${SHIM_SOURCE} -DNAME=shim_code_${cpu}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${shim_sources} ${shim_headers} ${shim_dir}/shim.lds ${CMAKE_SOURCE_DIR}/vmm/ports.h
            ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} VERBATIM)
endforeach()
