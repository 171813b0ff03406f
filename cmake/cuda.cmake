# The library in front of the CUDA driver, for x86-64. No CUDA package is needed.
if(NOT EBB_CUDA OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  return()
endif()
enable_language(ASM)

file(GLOB door_sources CONFIGURE_DEPENDS shim/cuda/*.c)
list(FILTER door_sources EXCLUDE REGEX "/attach[a-z_]*\\.c$")

# The sources of the engine are compiled again: the library of a run is never instrumented.
set(engine_sources ${cuda_sources} src/runtime/protocol.c src/runtime/ledger.c src/runtime/script.c
  src/runtime/template.c src/trace/ring.c src/trace/waits.c src/base/status.c src/base/limits.c
  src/base/tuning.c)

function(ebb_cuda_settings target)
  ebb_settings(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/shim/cuda)
  target_compile_options(${target} PRIVATE -O2 $<$<COMPILE_LANGUAGE:C>:-ftls-model=initial-exec>)
endfunction()

add_library(ebb_cuda_door OBJECT ${door_sources} shim/cuda/trampolines.S)
ebb_cuda_settings(ebb_cuda_door)
add_library(ebb_cuda_inside OBJECT ${engine_sources})
ebb_cuda_settings(ebb_cuda_inside)
set(door $<TARGET_OBJECTS:ebb_cuda_door>)
set(inside $<TARGET_OBJECTS:ebb_cuda_inside>)

# A library with the door in front: its objects, and an engine and its attachment behind it.
function(ebb_cuda_library target)
  add_library(${target} SHARED ${ARGN})
  ebb_cuda_settings(${target})
  target_link_libraries(${target} PRIVATE Threads::Threads)
  # The program asks for the driver by this SONAME, and finds the library that is there already.
  target_link_options(${target} PRIVATE -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/shim/cuda/ebb_cuda.map -Wl,-z,now -Wl,-z,nodelete)
  set_target_properties(${target} PROPERTIES NO_SONAME ON
    LINK_DEPENDS "${PROJECT_SOURCE_DIR}/shim/cuda/ebb_cuda.map;${PROJECT_SOURCE_DIR}/shim/cuda/names.def")
endfunction()

# The library of a run, with the engine.
file(GLOB join_sources CONFIGURE_DEPENDS shim/join/*.c)
ebb_cuda_library(ebb_cuda ${door} ${inside} shim/cuda/attach.c ${join_sources})
target_link_libraries(ebb_cuda PRIVATE ${CMAKE_DL_LIBS})

add_library(ebb_cuda_audit SHARED shim/audit/audit.c)
ebb_settings(ebb_cuda_audit)
target_link_options(ebb_cuda_audit PRIVATE
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/shim/audit/audit.map -Wl,-z,now)

if(EBB_TESTS)
  ebb_cuda_library(ebb_cuda_double ${door} tests/cuda_double.c src/cuda/driver.c src/base/status.c)
  if(EBB_SANITIZE MATCHES "address") # instrumented, unlike the others
    set(door ${door_sources} shim/cuda/trampolines.S)
    set(inside ${engine_sources})
  endif()
  ebb_cuda_library(ebb_cuda_alone ${door} ${inside} tests/cuda_alone.c)
  ebb_sanitize_address(ebb_cuda_alone)
endif()
