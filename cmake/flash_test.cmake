foreach(label unit unit-torch program learning golden system vm)
  add_custom_target(tests-${label})
endforeach()

# What nearly every test includes, compiled once (preset dev): a test then takes half as long to compile. Not in builds that
# compile several tests as one, where it saves little.
if(FLASH_TEST_PCH)
  file(WRITE ${CMAKE_BINARY_DIR}/test_pch.cc "")
  add_library(flash_test_pch OBJECT ${CMAKE_BINARY_DIR}/test_pch.cc)
  target_compile_options(flash_test_pch PRIVATE -O0 -U_FORTIFY_SOURCE)
  target_include_directories(flash_test_pch PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(flash_test_pch PRIVATE GTest::gmock GTest::gtest nlohmann_json::nlohmann_json)
  target_precompile_headers(flash_test_pch PRIVATE <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <chrono> <cmath> <filesystem>
                            <fstream> <functional> <map> <memory> <optional> <set> <span> <sstream> <string> <string_view>
                            <vector>)
endif()

# flash_test_needs(LABEL targets...)
function(flash_test_needs label)
  add_dependencies(tests-${label} ${ARGN})
endfunction()

# flash_check(LABEL COMMAND command... [NEEDS targets...])
#
# Enters a unit or program test into its room's check: the target check-ROOM builds what it needs, and the command is a line
# of BUILD/checks/ROOM ("LABEL command"), which scripts/check runs. A room's tests are in tests/ROOM, or in ROOM itself
# (fuzz).
function(flash_check label)
  cmake_parse_arguments(ARG "" "" "COMMAND;NEEDS" ${ARGN})
  if(NOT label MATCHES "^(unit|program)$")
    return()
  endif()
  file(RELATIVE_PATH room ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^tests/" "" room ${room})
  string(REPLACE "/" "_" room ${room})
  if(NOT TARGET check-${room})
    add_custom_target(check-${room})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/checks/${room}
         CONTENT "$<JOIN:$<TARGET_GENEX_EVAL:check-${room},$<TARGET_PROPERTY:check-${room},FLASH_CHECKS>>,\n>\n")
  endif()
  if(ARG_NEEDS)
    add_dependencies(check-${room} ${ARG_NEEDS})
  endif()
  list(JOIN ARG_COMMAND " " command)
  set_property(TARGET check-${room} APPEND PROPERTY FLASH_CHECKS "${label} ${command}")
endfunction()

# flash_command_test(NAME LABEL label COMMAND command... [NEEDS targets...] [TIMEOUT seconds])
#
# A test that is no gtest program; the command must not have spaces within its words.
function(flash_command_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "COMMAND;NEEDS" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_NEEDS)
    flash_test_needs(${ARG_LABEL} ${ARG_NEEDS})
  endif()
  flash_check(${ARG_LABEL} COMMAND ${ARG_COMMAND} NEEDS ${ARG_NEEDS})
endfunction()

# flash_test(NAME LABEL label SOURCES... [DEPS rooms...] [LIBS libraries...] [TIMEOUT seconds] [BESIDE_OTHERS])
#
# One gtest program with the label (unit, program, golden, system, vm, learning). The target tests-LABEL builds all of a
# label; what the tests run themselves is added to it (flash_test_needs). A program of unit tests is one ctest entry: two
# thousand processes would cost more than what they test. Of other labels each TEST is an entry.
# What is of label system shares the machine with nothing, so that its times and loads are its own, but for what is
# BESIDE_OTHERS.
# A test that cannot run here calls GTEST_SKIP() << "reason"; tests/allowed_skips.txt lists those allowed.
function(flash_test name)
  cmake_parse_arguments(ARG "BESIDE_OTHERS" "LABEL;TIMEOUT" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    message(FATAL_ERROR "flash_test(${name}) needs a LABEL")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # Unit tests that link libtorch take most of a build with sanitizers: they have a target and a second label of their own.
  set(labels ${ARG_LABEL})
  string(REGEX MATCH "(^|;)(agents|meta|learner|lab/pretrain|torch_cpu|flash_curve_model|flash_adapt_summary)(;|$)" torch
         "${ARG_DEPS};${ARG_LIBS}")
  if(torch AND ARG_LABEL STREQUAL "unit")
    list(APPEND labels torch)
    flash_test_needs(unit-torch ${name})
  else()
    flash_test_needs(${ARG_LABEL} ${name})
  endif()
  flash_check(${ARG_LABEL} COMMAND $<TARGET_FILE:${name}> NEEDS ${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${FLASH_UNITY_TESTS} UNITY_BUILD_BATCH_SIZE 6)
  if(FLASH_TEST_PCH)
    target_precompile_headers(${name} REUSE_FROM flash_test_pch)
  endif()
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  # A test's own code need not be fast, and with gtest's macros it takes half the time to compile (ASan: 8 s
  # instead of 17 s for the knob board's tests); the rooms under test keep the preset's optimisation.
  target_compile_options(${name} PRIVATE -O0 -U_FORTIFY_SOURCE)
  flash_rooms_targets(deps ${ARG_DEPS})
  target_link_libraries(${name} PRIVATE ${deps} ${ARG_LIBS} flash_core GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE FLASH_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             FLASH_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(ARG_LABEL STREQUAL "unit")
    if(NOT ARG_TIMEOUT)
      set(ARG_TIMEOUT 600)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  set(alone OFF)
  if(ARG_LABEL STREQUAL "system" AND NOT ARG_BESIDE_OTHERS)
    set(alone ON)
  endif()
  # Asked for its tests when ctest runs, not when it is linked.
  gtest_discover_tests(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${alone}
                       DISCOVERY_TIMEOUT 60 DISCOVERY_MODE PRE_TEST)
endfunction()
