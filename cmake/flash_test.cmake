foreach(label unit program learning golden system vm)
  add_custom_target(tests-${label})
endforeach()

# flash_test_needs(LABEL targets...)
function(flash_test_needs label)
  add_dependencies(tests-${label} ${ARGN})
endfunction()

# flash_test(NAME LABEL label SOURCES... [DEPS rooms...] [LIBS libraries...] [TIMEOUT seconds] [WHOLE] [BESIDE_OTHERS])
#
# One gtest program; each TEST becomes one ctest entry with the label (unit, program, golden, system, vm, learning).
# The target tests-LABEL builds all of a label; what the tests run themselves is added to it (flash_test_needs).
# What is of label system shares the machine with nothing, so that its times and loads are its own, but for what is
# BESIDE_OTHERS. WHOLE: the program is one entry; what links libtorch takes longer to load it (2.5 s with sanitizers) than
# most of its tests do. One skipped TEST skips it all.
# A test that cannot run here calls GTEST_SKIP() << "reason"; tests/allowed_skips.txt lists those allowed.
function(flash_test name)
  cmake_parse_arguments(ARG "WHOLE;BESIDE_OTHERS" "LABEL;TIMEOUT" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    message(FATAL_ERROR "flash_test(${name}) needs a LABEL")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  flash_test_needs(${ARG_LABEL} ${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${FLASH_UNITY_TESTS} UNITY_BUILD_BATCH_SIZE 6)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  # A test's own code need not be fast, and with gtest's macros it takes half the time to compile (ASan: 8 s
  # instead of 17 s for the knob board's tests); the rooms under test keep the preset's optimisation.
  target_compile_options(${name} PRIVATE -O0 -U_FORTIFY_SOURCE)
  flash_rooms_targets(deps ${ARG_DEPS})
  target_link_libraries(${name} PRIVATE ${deps} ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE FLASH_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             FLASH_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
                                            SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
    return()
  endif()
  set(alone OFF)
  if(ARG_LABEL STREQUAL "system" AND NOT ARG_BESIDE_OTHERS)
    set(alone ON)
  endif()
  gtest_discover_tests(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${alone}
                       DISCOVERY_TIMEOUT 60)
endfunction()
