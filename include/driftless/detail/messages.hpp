#pragma once

#include <charconv>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/text/utf8.hpp"
#include "driftless/error.hpp"

#ifdef DRIFTLESS_NO_EXCEPTIONS
#include <cstdio>
#include <cstdlib>
#endif

// What error messages are put together from, and the one place where errors are thrown.

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A piece of a message: text, or a number in its shortest form that reads back, whatever the locale.
class MessagePart {
 public:
  MessagePart(const char* text) : text_(text) {}         // NOLINT(google-explicit-constructor)
  MessagePart(std::string_view text) : text_(text) {}    // NOLINT(google-explicit-constructor)
  MessagePart(const std::string& text) : text_(text) {}  // NOLINT(google-explicit-constructor)
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  MessagePart(Number number)  // NOLINT(google-explicit-constructor)
      : text_(number_, static_cast<std::size_t>(std::to_chars(number_, std::end(number_), number).ptr - number_)) {}
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;

  std::string_view text() const { return text_; }

 private:
  char number_[32];
  std::string_view text_;
};

/// All parts in one string.
inline std::string message(std::initializer_list<MessagePart> parts) {
  std::string text;
  for (const MessagePart& part : parts) text += part.text();
  return text;
}

/// A path's own characters as UTF-8. On Windows they are UTF-16, of which std::filesystem refuses to make text if the
/// code page lacks one, or half of a pair stands alone.
template <class Char>
std::string utf8Text(std::basic_string_view<Char> native) {
  if constexpr (sizeof(Char) == 1) {
    return {native.begin(), native.end()};
  } else {
    const auto isHalf = [&](std::size_t i, char32_t first) {
      return i < native.size() && static_cast<char32_t>(native[i]) - first < 0x400;
    };
    std::string text;
    for (std::size_t i = 0; i < native.size(); ++i) {
      char32_t code_point = static_cast<char32_t>(native[i]);
      if (isHalf(i, 0xD800) && isHalf(i + 1, 0xDC00)) {
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (static_cast<char32_t>(native[++i]) - 0xDC00);
      } else if (isHalf(i, 0xD800) || isHalf(i, 0xDC00)) {
        code_point = 0xFFFD;
      }
      appendUtf8(text, code_point);
    }
    return text;
  }
}

/// A path for an error message.
inline std::string pathText(const std::filesystem::path& path) {
  return utf8Text(std::basic_string_view<std::filesystem::path::value_type>(path.native()));
}

/// Throws an error with this text or, if exceptions are off, ends the program with it.
template <class AnyError>
[[noreturn]] void raise(std::initializer_list<MessagePart> parts) {
#ifdef DRIFTLESS_NO_EXCEPTIONS
  std::fputs((message(parts) + "\n").c_str(), stderr);
  std::abort();
#else
  throw AnyError(message(parts));
#endif
}

/// The text of what `run` throws, or nothing if it does not.
template <class Function>
std::string errorOf(const Function& run) {
#ifdef DRIFTLESS_NO_EXCEPTIONS
  run();
  return {};
#else
  try {
    run();
    return {};
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an error without a text" : error.what();
  }
#endif
}

/// What of a text stands in an error message.
inline constexpr std::size_t kMostMessageBytes = 200;

/// Text from a file, made fit for an error message: on one line, not longer than a line can bear, and with `\u00xx` for
/// control characters, so that no terminal obeys them. A backslash is also put before the characters in `escaped`.
inline std::string printable(std::string_view text, std::string_view escaped = "") {
  std::string line;
  while (!text.empty()) {
    if (line.size() >= kMostMessageBytes) return line + "...";
    const Utf8Unit unit = readUtf8(text);
    if (unit.state != Utf8State::valid) {
      line += "\uFFFD";
    } else if (unit.code_point < 0x20 || (unit.code_point >= 0x7F && unit.code_point < 0xA0)) {
      line += "\\u00";
      for (const char32_t digit : {unit.code_point / 16, unit.code_point % 16}) line += "0123456789abcdef"[digit];
    } else {
      if (escaped.find(text.front()) != std::string_view::npos) line += '\\';
      line += text.substr(0, unit.size);
    }
    text.remove_prefix(unit.size);
  }
  return line;
}

/// A name from a file, for an error message: printable and in quotes.
inline std::string quotedName(std::string_view name) { return message({"\"", printable(name, "\"\\"), "\""}); }

/// `[rows, cols]`, for an error message.
inline std::string shapeText(const std::vector<Eigen::Index>& shape) {
  std::string text;
  for (std::size_t i = 0; i < shape.size() && text.size() <= kMostMessageBytes; ++i)
    text += message({i == 0 ? "" : ", ", shape[i]});
  return message({"[", printable(text), "]"});
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
