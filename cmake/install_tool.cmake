# The command, the library that it loads into programs, manual pages, completions, and documents.
install(TARGETS ebb RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/ebb)
install(TARGETS ebb_malloc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ebb)
# The command and its library lie in one folder. The link makes the command known to the shell.
file(RELATIVE_PATH EBB_FROM_BIN
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/ebb/ebb)
install(CODE "
  set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
  file(MAKE_DIRECTORY \"\${bin}\")
  file(CREATE_LINK ${EBB_FROM_BIN} \"\${bin}/ebb\" SYMBOLIC)")

# Pages and completions are made of what the command says of itself.
set(EBB_MANUAL ${PROJECT_BINARY_DIR}/manual)
install(CODE "
  file(REMOVE_RECURSE \"${EBB_MANUAL}\")
  file(MAKE_DIRECTORY \"${EBB_MANUAL}/man\")
  execute_process(COMMAND \"${PROJECT_BINARY_DIR}/bin/ebb\" --describe
    OUTPUT_FILE \"${EBB_MANUAL}/describe.json\" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND /usr/bin/python3 \"${PROJECT_SOURCE_DIR}/cmake/manual.py\"
    \"${EBB_MANUAL}/describe.json\" \"${PROJECT_SOURCE_DIR}/docs/man\" \"${EBB_MANUAL}/man\"
    \"${EBB_MANUAL}\" COMMAND_ERROR_IS_FATAL ANY)")
if(NOT TARGET ebb-train)
  install(CODE "file(REMOVE \"${EBB_MANUAL}/man/man1/ebb-train.1\")")
endif()
install(DIRECTORY ${EBB_MANUAL}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${EBB_MANUAL}/ebb.bash RENAME ebb
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${EBB_MANUAL}/_ebb DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${EBB_MANUAL}/ebb.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The Python module. Debian's own packages have another folder than the administrator's.
execute_process(COMMAND /usr/bin/python3 -c
  "import sys; print('lib/python%d.%d/dist-packages' % sys.version_info[:2])"
  OUTPUT_VARIABLE EBB_PYTHON_DEFAULT OUTPUT_STRIP_TRAILING_WHITESPACE)
set(EBB_PYTHON_DIR "${EBB_PYTHON_DEFAULT}" CACHE STRING "where `import ebb` finds it")
install(DIRECTORY python/ebb DESTINATION ${EBB_PYTHON_DIR} FILES_MATCHING PATTERN "*.py"
  PATTERN "__pycache__" EXCLUDE)

install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs PATTERN "man" EXCLUDE)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
  PATTERN "__pycache__" EXCLUDE)
