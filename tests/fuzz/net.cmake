foreach(name frame dns filter hello)
  cl_fuzz(net_${name} DEPS net)
endforeach()
