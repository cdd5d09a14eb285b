# cmake -DOUTPUT=FILE -P embed.cmake: writes a header with the page as strings: what comes before its data, and after.

set(source ${CMAKE_CURRENT_LIST_DIR})
file(READ ${source}/page.html page)
foreach(part page.css page.js)
  file(READ ${source}/${part} text)
  string(REPLACE "@${part}@" "${text}" page "${page}")
endforeach()
# A string literal of bytes that are not ASCII depends on the compiler's options.
string(REGEX MATCH "[^\t\n -~]" strange "${page}")
if(NOT strange STREQUAL "")
  message(FATAL_ERROR "${source}: expected page.html, page.css and page.js in ASCII, found ${strange}")
endif()

string(FIND "${page}" "@data@" at)
string(SUBSTRING "${page}" 0 ${at} Before)
math(EXPR at "${at} + 6")
string(SUBSTRING "${page}" ${at} -1 After)

set(header "#pragma once\n\n#include <string_view>\n\nnamespace driftless::cli {\n")
foreach(name Before After)
  string(APPEND header "\ninline constexpr std::string_view kPage${name}[] = {\n")
  string(LENGTH "${${name}}" length)
  # MSVC takes no literal above 16 KB.
  foreach(begin RANGE 0 ${length} 12000)
    string(SUBSTRING "${${name}}" ${begin} 12000 piece)
    string(APPEND header "R\"~~~(${piece})~~~\",\n")
  endforeach()
  string(APPEND header "};\n")
endforeach()
string(APPEND header "\n}  // namespace driftless::cli\n")
file(WRITE ${OUTPUT} "${header}")
