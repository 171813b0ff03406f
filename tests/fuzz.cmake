# One executable a harness: tests/fuzz_<format>.c with LLVMFuzzerTestOneInput, and the folder
# tests/corpus/<format>/, which is replayed in every test run. With EBB_FUZZ (clang) the same
# executable is the fuzzer: cmake --preset fuzz; .../tests/fuzz_trace NEW_FOLDER tests/corpus/trace
function(ebb_fuzz format)
  set(name fuzz_${format})
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.c)
  ebb_settings(${name})
  ebb_sanitize(${name})
  target_link_libraries(${name} PRIVATE ebb_core)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${format})
  if(EBB_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${name} COMMAND ${name} -runs=0 ${corpus})
  else()
    target_sources(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_replay.c)
    add_test(NAME ${name} COMMAND ${name} ${corpus})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

if(EBB_FUZZ)
  # Coverage of what is fuzzed steers the fuzzer.
  target_compile_options(ebb_core PRIVATE -fsanitize=fuzzer-no-link)
endif()

ebb_fuzz(trace)
ebb_fuzz(import)
ebb_fuzz(plan)
ebb_fuzz(pack)
ebb_fuzz(machine)
ebb_fuzz(profile)
