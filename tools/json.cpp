#include "json.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "driftless/detail/text/utf8.hpp"

namespace driftless::cli {

std::string jsonText(std::string_view text) {
  constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t";
  constexpr std::string_view kEscapes = "\"\\bfnrt";
  std::string quoted = "\"";
  while (!text.empty()) {
    const detail::Utf8Unit unit = detail::readUtf8(text);
    const std::size_t special = kSpecial.find(text.front());
    if (unit.state != detail::Utf8State::valid) {
      quoted += "\uFFFD";
    } else if (special != std::string_view::npos) {
      quoted += std::string("\\") + kEscapes[special];
    } else if (unit.code_point < 0x20) {
      quoted += std::string("\\u00") + "01"[unit.code_point / 16] + "0123456789abcdef"[unit.code_point % 16];
    } else {
      quoted += text.substr(0, unit.size);
    }
    text.remove_prefix(unit.size);
  }
  return quoted + '"';
}

std::string jsonText(double number) {
  if (!std::isfinite(number)) return "null";
  const double size = std::abs(number);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e15);
  std::array<char, 64> digits;
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                                  is_plain ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  const std::string text(digits.data(), end);
  return text + (text.find_first_of(".e") == std::string::npos ? ".0" : "");
}

JsonObject& JsonObject::addMember(std::string_view key, std::string_view json) {
  if (!members_.empty()) members_ += ',';
  members_.append(jsonText(key)).append(":").append(json);
  return *this;
}

}  // namespace driftless::cli
