# flash_bpf(TARGET NAME)
#
# Compiles NAME.bpf.c of the current folder for the kernel (clang, CO-RE) and makes NAME.skel.h of it, which holds
# the object; TARGET can include "NAME.skel.h". The object is the same for every kernel and every host architecture of
# one byte order.
find_program(FLASH_BPF_CLANG NAMES clang-14 clang REQUIRED)
find_program(FLASH_BPFTOOL NAMES bpftool HINTS /usr/sbin /sbin REQUIRED)  # sbin is not in every PATH
pkg_check_modules(BPF REQUIRED IMPORTED_TARGET libbpf>=1.1)

function(flash_bpf target name)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${name}.bpf.c)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name})
  get_filename_component(folder ${out} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  # -idirafter: <linux/types.h> wants the <asm/types.h> of the machine that it is for. bpftool drops DWARF and keeps BTF.
  add_custom_command(
    OUTPUT ${out}.skel.h ${out}.bpf.o
    COMMAND ${FLASH_BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -Wall -Werror -I${CMAKE_SOURCE_DIR}
            -idirafter ${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -fdebug-prefix-map=${CMAKE_SOURCE_DIR}=.
            -MD -MF ${out}.bpf.d -MT ${out}.skel.h -c ${source} -o ${out}.bpf.tmp.o
    COMMAND ${FLASH_BPFTOOL} gen object ${out}.bpf.o ${out}.bpf.tmp.o
    COMMAND ${FLASH_BPFTOOL} gen skeleton ${out}.bpf.o > ${out}.skel.h
    DEPENDS ${source}
    DEPFILE ${out}.bpf.d
    COMMENT "Building BPF object ${name}.bpf.o"
    VERBATIM)
  target_sources(${target} PRIVATE ${out}.skel.h)
  target_include_directories(${target} SYSTEM PRIVATE ${folder})
  target_link_libraries(${target} PRIVATE PkgConfig::BPF)
endfunction()
