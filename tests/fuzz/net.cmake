foreach(name frame dns filter)
  cl_fuzz(net_${name} DEPS net)
endforeach()
