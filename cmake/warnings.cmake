# The warnings of every target. They are errors if EBB_WERROR is on (dev preset, CI).
function(ebb_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion
    -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef)
  if(EBB_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
