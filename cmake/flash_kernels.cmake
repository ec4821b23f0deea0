# flash_kernels(OUT NAME)
#
# The files NAME_{portable,avx2,avx512}.cc of the folder, those of this processor's architecture, each compiled for its
# instruction set: agents/mlp_kernels chooses one for the CPU at hand.
function(flash_kernels out name)
  set(options -O3 -ffp-contract=fast -fno-math-errno)
  set(sources ${name}_portable.cc)
  set_source_files_properties(${name}_portable.cc PROPERTIES COMPILE_OPTIONS "${options}")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    list(APPEND sources ${name}_avx2.cc ${name}_avx512.cc)
    set_source_files_properties(${name}_avx2.cc PROPERTIES COMPILE_OPTIONS "${options};-mavx2;-mfma")
    set_source_files_properties(${name}_avx512.cc PROPERTIES COMPILE_OPTIONS
      "${options};-mavx512f;-mavx512vl;-mavx512dq;-mavx2;-mfma;-mprefer-vector-width=512")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
