# Makes a C file that holds files as bytes. Called as a script, with OUTPUT and a list of pairs
# FILES, name and path, that are separated by `|`. A pair with the same name adds to the bytes.
#
# References to source maps are left out: the page must ask for nothing.
set(names)
string(REPLACE "|" ";" FILES "${FILES}")
list(LENGTH FILES length)
math(EXPR last "${length} - 1")
foreach(at RANGE 0 ${last} 2)
  math(EXPR behind "${at} + 1")
  list(GET FILES ${at} name)
  list(GET FILES ${behind} path)
  file(READ ${path} hex HEX)
  # "//# sourceMappingURL=" or "/*# sourceMappingURL=" up to the end of the line
  string(REGEX REPLACE "2f[2a][fa]2320736f757263654d617070696e6755524c3d([1-9a-f][0-9a-f]|0[0-9b-f])*" "" hex "${hex}")
  list(APPEND names ${name})
  string(APPEND hex_${name} "${hex}")
endforeach()
list(REMOVE_DUPLICATES names)
set(text "/* Made by cmake/embed.cmake. */\n#include \"report/assets.h\"\n")
foreach(name ${names})
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex_${name}}")
  string(APPEND text "static const unsigned char ${name}_bytes[] = {${bytes}};\n"
    "const struct ebb_asset ebb__asset_${name} = {${name}_bytes, sizeof ${name}_bytes};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
