#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/text/utf8.hpp"
#include "driftless/error.hpp"

// What all text files have in common, whatever editor or system they come from.

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// What follows UTF-8's byte order mark, if there is one. Throws FileError, which begins with `name`, for that of
/// UTF-16.
inline std::string_view skipByteOrderMark(std::string_view bytes, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF"))
    raise<FileError>({name, ": it is UTF-16: save it as UTF-8"});
  return bytes.substr(bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

/// The text in the bytes of a text file: UTF-8, perhaps after a byte order mark, which is no part of it. `name` stands
/// before every error's text. Throws FileError for bytes that are no such text, and for a file without any.
inline std::string_view readText(std::string_view bytes, const std::string& name) {
  const std::string_view text = skipByteOrderMark(bytes, name);
  if (text.empty()) raise<FileError>({name, ": it is empty"});
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = readUtf8(text.substr(at));
    if (unit.state == Utf8State::valid && unit.code_point != 0) {
      at += unit.size;
      continue;
    }
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    raise<FileError>({name, ": line ", line, ": expected text in UTF-8, found the byte ",
                      static_cast<int>(static_cast<unsigned char>(text[at]))});
  }
  return text;
}

/// Takes the first line and its end, which is LF, CR LF or CR, off the start of `text`. The last line needs no end.
inline std::string_view takeLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  text.remove_prefix(line.size());
  if (!text.empty()) text.remove_prefix(text.starts_with("\r\n") ? 2 : 1);
  return line;
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
