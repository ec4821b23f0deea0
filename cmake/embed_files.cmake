# Run by flash_embed(): OUT, FOLDER, FILES.
set(text "#pragma once\n#include <string_view>\nnamespace flash::embedded {\n")
foreach(name ${FILES})
  file(READ ${FOLDER}/${name} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER "${name}" identifier)
  string(APPEND text "inline constexpr unsigned char ${identifier}_bytes[] = {${bytes}};\n"
                     "inline const std::string_view ${identifier}(reinterpret_cast<const char*>(${identifier}_bytes), "
                     "sizeof ${identifier}_bytes);\n")
endforeach()
string(APPEND text "}  // namespace flash::embedded\n")
file(WRITE ${OUT} "${text}")
