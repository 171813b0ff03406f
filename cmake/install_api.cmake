# The C API for other programs: headers, library, and how pkg-config and CMake find them.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/ebb DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS ebb_api EXPORT ebb LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ebb NAMESPACE ebb:: FILE ebb-config.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ebb)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ebb-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ebb-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ebb)

# The prefix is taken from the place of the file, so that an installed tree can be moved.
file(RELATIVE_PATH EBB_PREFIX_FROM_LIB ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/ebb.pc.in ${PROJECT_BINARY_DIR}/ebb.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ebb.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A manual page for each function.
set(EBB_MAN3 "${PROJECT_BINARY_DIR}/man3")
install(CODE "execute_process(COMMAND /usr/bin/python3 \"${PROJECT_SOURCE_DIR}/cmake/man3.py\"
  \"${PROJECT_SOURCE_DIR}/include/ebb\" \"${EBB_MAN3}\" ${PROJECT_VERSION} COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${EBB_MAN3} DESTINATION ${CMAKE_INSTALL_MANDIR})
