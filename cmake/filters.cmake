# cl_filters(name header table var): NAME_filters[] as a source file, whose path goes to `var`.  libseccomp makes them when
# that is built, from NAME_profiles[] of the source file `table`; `header` declares both.
function(cl_filters name header table var)
  set(maker make_${name}_filters)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/${name}_filters.c)
  add_executable(${maker} ${CMAKE_SOURCE_DIR}/base/filters/make.c ${table})
  cl_options(${maker})
  target_compile_definitions(${maker} PRIVATE FILTERS_HEADER="${header}" FILTERS_FROM=${name}_profiles FILTERS_TO=${name}_filters)
  target_link_libraries(${maker} PRIVATE cl_base PkgConfig::seccomp)
  add_custom_command(OUTPUT ${made} COMMAND sh -c "$0 > $1" $<TARGET_FILE:${maker}> ${made} DEPENDS ${maker} VERBATIM)
  set(${var} ${made} PARENT_SCOPE)
endfunction()
