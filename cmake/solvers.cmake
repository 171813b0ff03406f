# The solvers LAPACK and Clp. Loading their dozen shared libraries costs every `ebb run` 3 ms of
# processor time at its start. To measure this, run `perf stat ebb --version` with and without them.
# So the tool links their archives if they exist, as with Debian's -dev packages. Tests and
# benchmarks use the shared libraries, since these link faster.
pkg_check_modules(LAPACKE REQUIRED IMPORTED_TARGET lapacke)
# pkg-config is not used here, since its list has the libraries that Clp itself was linked with.
find_path(CLP_INCLUDE coin/Clp_C_Interface.h REQUIRED)
find_library(CLP_LIBRARY Clp REQUIRED)

option(EBB_STATIC_SOLVERS "link the archives of the solvers into the tool, if they exist" ON)
set(solver_archives)
set(EBB_SOLVERS_INSIDE ${EBB_STATIC_SOLVERS})
foreach(name lapacke lapack blas tmglib Clp CoinUtils bz2 z)
  find_library(EBB_ARCHIVE_${name} lib${name}.a)
  mark_as_advanced(EBB_ARCHIVE_${name})
  if(NOT EBB_ARCHIVE_${name})
    set(EBB_SOLVERS_INSIDE OFF)
  endif()
  list(APPEND solver_archives ${EBB_ARCHIVE_${name}})
endforeach()
# Only the compiler knows where its own run-time libraries are.
foreach(name gfortran quadmath stdc++)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${name}.a
    OUTPUT_VARIABLE archive OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${archive}" OR NOT EXISTS "${archive}")
    set(EBB_SOLVERS_INSIDE OFF)
  endif()
  list(APPEND solver_archives ${archive})
endforeach()
if(EBB_SANITIZE OR EBB_FUZZ)
  set(EBB_SOLVERS_INSIDE OFF)
endif()

add_library(ebb_solvers INTERFACE)
if(EBB_SOLVERS_INSIDE)
  set(inside $<BOOL:$<TARGET_PROPERTY:EBB_SOLVERS_INSIDE>>)
  target_link_libraries(ebb_solvers INTERFACE
    "$<${inside}:-Wl,--start-group;${solver_archives};-Wl,--end-group;-static-libgcc>"
    "$<$<NOT:${inside}>:PkgConfig::LAPACKE;${CLP_LIBRARY}>")
else()
  target_link_libraries(ebb_solvers INTERFACE PkgConfig::LAPACKE ${CLP_LIBRARY})
endif()
