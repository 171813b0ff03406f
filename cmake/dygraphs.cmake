# The line charts of `ebb report`: Debian's libjs-dygraphs, built into the tool with its licence.
find_path(EBB_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs NO_DEFAULT_PATH)
find_file(EBB_DYGRAPHS_LICENCE copyright PATHS /usr/share/doc/libjs-dygraphs NO_DEFAULT_PATH)
if(NOT EBB_DYGRAPHS OR NOT EBB_DYGRAPHS_LICENCE)
  message(FATAL_ERROR "dygraphs is missing: install libjs-dygraphs, or call `make deps`")
endif()

set(page ${PROJECT_SOURCE_DIR}/src/report/page)
set(assets
  style ${page}/page.css
  charts ${page}/charts.html
  script ${page}/units.js script ${page}/lines.js script ${page}/canvas.js script ${page}/table.js
  script ${page}/page.js
  dygraphs ${EBB_DYGRAPHS}/dygraph.min.js
  dygraphs_style ${EBB_DYGRAPHS}/dygraph.min.css
  dygraphs_licence ${EBB_DYGRAPHS_LICENCE})
set(asset_files ${assets})
list(FILTER asset_files INCLUDE REGEX "/")
string(REPLACE ";" "|" assets "${assets}")
set(EBB_ASSETS ${PROJECT_BINARY_DIR}/report_assets.c)
add_custom_command(OUTPUT ${EBB_ASSETS}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${EBB_ASSETS} "-DFILES=${assets}"
    -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${asset_files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
