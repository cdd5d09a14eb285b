#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

enum class Utf8State { valid, truncated, invalid };

/// What some bytes begin with: a character; a sequence that the end of the bytes cuts short; or a byte that no further
/// bytes can make part of a character.
struct Utf8Unit {
  Utf8State state;
  std::size_t size;     ///< in bytes; 1 if invalid
  char32_t code_point;  ///< if valid
};

/// Reads the first unit of `bytes`, which must not be empty. Well-formed is what table 3-7 of the Unicode standard
/// says: no overlong forms, no surrogates, nothing above U+10FFFF.
inline Utf8Unit readUtf8(std::string_view bytes) {
  constexpr Utf8Unit kInvalid{Utf8State::invalid, 1, 0};
  const unsigned lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {Utf8State::valid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return kInvalid;
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7Fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8State::truncated, i, 0};
    const unsigned byte = static_cast<unsigned char>(bytes[i]);
    if (byte < lowest || byte > highest) return kInvalid;
    code_point = code_point << 6 | (byte & 0x3F);
    lowest = 0x80;
    highest = 0xBF;
  }
  return {Utf8State::valid, size, code_point};
}

/// Appends a code point that is no surrogate and not above U+10FFFF.
inline void appendUtf8(std::string& text, char32_t code_point) {
  const auto append = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  const int continuations = code_point < 0x80 ? 0 : code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  constexpr char32_t kLeads[] = {0, 0xC0, 0xE0, 0xF0};
  append(kLeads[continuations] | code_point >> 6 * continuations);
  for (int left = continuations - 1; left >= 0; --left) append(0x80 | (code_point >> 6 * left & 0x3F));
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
