# The two programs of each VM are static and small, and linked against musl: the host's libc asks the processor for its caches
# before main(), some forty CPUIDs, each an exit where this host is itself a guest (0.8 ms of a VM's start on one such host).
# The headers of Linux are the host's.
option(CLOCHE_MUSL "link cloche-vmm and cloche-guard against musl; OFF: the host's libc, for instrumented builds" ON)
if(CLOCHE_MUSL)
  find_path(MUSL_INCLUDE stdlib.h REQUIRED NO_DEFAULT_PATH PATHS /usr/include/x86_64-linux-musl /usr/lib/musl/include /usr/local/musl/include)
  find_path(MUSL_LIB rcrt1.o REQUIRED NO_DEFAULT_PATH PATHS /usr/lib/x86_64-linux-musl /usr/lib/musl/lib /usr/local/musl/lib)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=include OUTPUT_VARIABLE MUSL_COMPILER_INCLUDE
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(MUSL_LINUX ${CMAKE_BINARY_DIR}/gen/linux-headers)
  file(MAKE_DIRECTORY ${MUSL_LINUX})
  foreach(folder linux asm-generic video asm)
    find_path(where_${folder} ${folder} REQUIRED PATHS /usr/include/x86_64-linux-gnu /usr/include)
    file(CREATE_LINK ${where_${folder}}/${folder} ${MUSL_LINUX}/${folder} SYMBOLIC)
  endforeach()
endif()

function(cl_musl target)
  if(NOT CLOCHE_MUSL)
    target_link_options(${target} PRIVATE -static-pie)
    return()
  endif()
  target_compile_options(${target} PRIVATE -nostdinc "SHELL:-isystem ${MUSL_INCLUDE}"
                         "SHELL:-isystem ${MUSL_COMPILER_INCLUDE}" "SHELL:-isystem ${MUSL_LINUX}"
                         -Wno-conversion -Wno-sign-conversion) # its ioctl() takes an int
  target_link_options(${target} PRIVATE -nostdlib -static-pie ${MUSL_LIB}/rcrt1.o ${MUSL_LIB}/crti.o)
  target_link_libraries(${target} PRIVATE ${MUSL_LIB}/libc.a -lgcc ${MUSL_LIB}/libc.a ${MUSL_LIB}/crtn.o)
endfunction()

# cl_vm_program(binary SOURCES main.c ... BASE clock ...): lands in the build folder's root.  What it needs of base/ is compiled
# again here, with its own flags.  A sanitizer's run time would make system calls of its own, and these are counted: where the
# preset asks for one, undefined behaviour is an illegal instruction here.
function(cl_vm_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;BASE" ${ARGN})
  list(TRANSFORM ARG_BASE REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/base/\\1.c")
  add_executable(${name} ${ARG_SOURCES} ${ARG_BASE})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE CLOCHE_VERSION="${PROJECT_VERSION}")
  target_compile_options(${name} PRIVATE ${CLOCHE_WARNINGS} -Os -ffunction-sections -fdata-sections -fstack-protector-strong
                         -fcf-protection=full -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
  if(CLOCHE_SANITIZE MATCHES "undefined")
    target_compile_options(${name} PRIVATE -fsanitize=undefined -fsanitize-undefined-trap-on-error)
  endif()
  target_link_options(${name} PRIVATE -Wl,--gc-sections -Wl,-z,relro,-z,now)
  cl_musl(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
