#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/text/unicode_ranges.hpp"
#include "driftless/detail/text/utf8.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// The classes that GPT-2's split pattern tells apart: \s, \p{L}, \p{N}, and the rest.
enum class CharacterKind { space, letter, number, other };

/// Where each run but the first begins.
template <std::size_t Count>
constexpr std::array<char32_t, Count> boundariesOf(const char32_t (&runs)[Count]) {
  std::array<char32_t, Count> boundaries{};
  for (std::size_t i = 0; i < Count; ++i) boundaries[i] = (i == 0 ? 0 : boundaries[i - 1]) + runs[i];
  return boundaries;
}

inline constexpr auto kLetterBoundaries = boundariesOf(kLetterRuns);
inline constexpr auto kNumberBoundaries = boundariesOf(kNumberRuns);
inline constexpr auto kSpaceBoundaries = boundariesOf(kSpaceRuns);

constexpr bool contains(std::span<const char32_t> boundaries, char32_t code_point) {
  const auto after = std::upper_bound(boundaries.begin(), boundaries.end(), code_point);
  return (after - boundaries.begin()) % 2 == 1;
}

constexpr CharacterKind lookUpKind(char32_t code_point) {
  if (contains(kLetterBoundaries, code_point)) return CharacterKind::letter;
  if (contains(kNumberBoundaries, code_point)) return CharacterKind::number;
  if (contains(kSpaceBoundaries, code_point)) return CharacterKind::space;
  return CharacterKind::other;
}

inline constexpr auto kAsciiKinds = [] {
  std::array<CharacterKind, 128> kinds{};
  for (std::size_t code_point = 0; code_point < kinds.size(); ++code_point) {
    kinds[code_point] = lookUpKind(static_cast<char32_t>(code_point));
  }
  return kinds;
}();

struct Character {
  CharacterKind kind;
  std::size_t size;  ///< bytes
};

/// The first character of `text`, which must not be empty. Each byte that is not part of well-formed UTF-8 stands for
/// itself, as a character that is neither space, letter nor number.
inline Character readCharacter(std::string_view text) {
  const Utf8Unit unit = readUtf8(text);
  if (unit.state != Utf8State::valid) return {CharacterKind::other, 1};
  const bool ascii = unit.code_point < kAsciiKinds.size();
  return {ascii ? kAsciiKinds[unit.code_point] : lookUpKind(unit.code_point), unit.size};
}

// Each of these gives the size in bytes of what matches at the start of `text`; 0 for no match.

/// 's|'t|'re|'ve|'m|'ll|'d
inline std::size_t contractionSize(std::string_view text) {
  if (!text.starts_with('\'')) return 0;
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(contraction)) return contraction.size();
  }
  return 0;
}

/// A run of characters of one kind.
inline std::size_t runSize(std::string_view text, CharacterKind kind) {
  std::size_t size = 0;
  while (size < text.size()) {
    const Character character = readCharacter(text.substr(size));
    if (character.kind != kind) break;
    size += character.size;
  }
  return size;
}

///  ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+
inline std::size_t visibleWordSize(std::string_view text) {
  const std::size_t lead = text.starts_with(' ') ? 1 : 0;
  const std::string_view rest = text.substr(lead);
  if (rest.empty()) return 0;
  const CharacterKind kind = readCharacter(rest).kind;
  return kind == CharacterKind::space ? 0 : lead + runSize(rest, kind);
}

/// \s+(?!\S)|\s+: all of the spaces if the text ends with them or there is only one, otherwise all but the last.
inline std::size_t spacesSize(std::string_view text) {
  std::size_t size = 0;
  std::size_t last = 0;
  while (size < text.size()) {
    const Character character = readCharacter(text.substr(size));
    if (character.kind != CharacterKind::space) return last > 0 ? last : size;
    last = size;
    size += character.size;
  }
  return size;
}

/// The first word of `text`, which must not be empty, in the sense of GPT-2's pattern
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (openai/gpt-2, encoder.py).
inline std::size_t firstWordSize(std::string_view text) {
  if (const std::size_t size = contractionSize(text)) return size;
  if (const std::size_t size = visibleWordSize(text)) return size;
  return spacesSize(text);
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
