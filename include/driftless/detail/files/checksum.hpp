#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Copies a number from this processor's order of bytes to the little-endian one, or back.
inline void copyLittleEndian(const std::byte* from, std::size_t bytes, std::byte* to) {
  if constexpr (std::endian::native == std::endian::little)
    std::memcpy(to, from, bytes);
  else
    std::reverse_copy(from, from + bytes, to);
}

/// Tells numbers apart that are not the same, on every processor alike: FNV-1a over words of 64 bits instead of bytes.
/// After each word, the upper half is added to the lower one, which a product would never carry it to. No step forgets
/// anything: what differs in a single word has another sum for certain. Not for keeping out those who want a certain
/// sum.
class Checksum {
 public:
  void add(std::uint64_t word) {
    sum_ = (sum_ ^ word) * 0x100000001B3;
    sum_ ^= sum_ >> 32;
  }

  /// Numbers of so many bytes each, 1, 2, 4 or 8. The last word is filled up with zeros.
  void add(const void* numbers, std::size_t count, std::size_t number_bytes) {
    const auto* const bytes = static_cast<const std::byte*>(numbers);
    const std::size_t size = count * number_bytes, whole = size / sizeof(std::uint64_t) * sizeof(std::uint64_t);
    for (std::size_t at = 0; at < whole; at += sizeof(std::uint64_t))
      add(wordOf(bytes + at, sizeof(std::uint64_t), number_bytes));
    if (whole < size) add(wordOf(bytes + whole, size - whole, number_bytes));
  }

  std::uint64_t sum() const { return sum_; }

 private:
  static std::uint64_t wordOf(const std::byte* bytes, std::size_t size, [[maybe_unused]] std::size_t number_bytes) {
    std::uint64_t word = 0;
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(&word, bytes, size);
    } else {
      std::byte ordered[sizeof word] = {};
      for (std::size_t at = 0; at < size; at += number_bytes) copyLittleEndian(bytes + at, number_bytes, ordered + at);
      copyLittleEndian(ordered, sizeof word, reinterpret_cast<std::byte*>(&word));
    }
    return word;
  }

  std::uint64_t sum_ = 0xCBF29CE484222325;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
