# flash_kernels(OUT NAME)
#
# The files NAME_{portable,avx2,avx512}.cc of the folder and NAME_avx512_bf16.cc, if there is one, those of this
# processor's architecture, each compiled for its instruction set: agents/mlp_kernels chooses one for the CPU at hand.
function(flash_kernels out name)
  set(options -O3 -ffp-contract=fast -fno-math-errno)
  set(sources ${name}_portable.cc)
  set_source_files_properties(${name}_portable.cc PROPERTIES COMPILE_OPTIONS "${options}")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    list(APPEND sources ${name}_avx2.cc ${name}_avx512.cc)
    string(APPEND options ";-mavx2;-mfma")
    set_source_files_properties(${name}_avx2.cc PROPERTIES COMPILE_OPTIONS "${options}")
    string(APPEND options ";-mavx512f;-mavx512vl;-mavx512dq;-mprefer-vector-width=512")
    set_source_files_properties(${name}_avx512.cc PROPERTIES COMPILE_OPTIONS "${options}")
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${name}_avx512_bf16.cc)
      list(APPEND sources ${name}_avx512_bf16.cc)
      set_source_files_properties(${name}_avx512_bf16.cc PROPERTIES COMPILE_OPTIONS
        "${options};-mavx512bw;-mavx512bf16")
    endif()
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
