# The seccomp filters of the monitor's threads, made by libseccomp from the tables of vmm/seccomp.c.
set(FILTERS_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/filters.c)
add_executable(vmm_make_filters ${CMAKE_CURRENT_LIST_DIR}/make.c ${CMAKE_CURRENT_SOURCE_DIR}/seccomp.c)
cl_options(vmm_make_filters)
target_link_libraries(vmm_make_filters PRIVATE cl_base PkgConfig::seccomp)
add_custom_command(OUTPUT ${FILTERS_SOURCE}
  COMMAND sh -c "$0 > filters.c" $<TARGET_FILE:vmm_make_filters>
  DEPENDS vmm_make_filters WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} VERBATIM)
