#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "driftless/detail/files/file_replacement.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/npy.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// What NumPy before 2.0 takes.
inline constexpr std::size_t kMostNpyDimensions = 32;

DRIFTLESS_INLINE void checkNpyShape(const std::vector<Index>& shape, std::size_t values) {
  if (shape.size() > kMostNpyDimensions)
    raise<ArgumentError>(
        {"writeNpy: expected a shape of at most ", kMostNpyDimensions, " dimensions, got ", shape.size()});
  if (std::ranges::any_of(shape, [](Index size) { return size < 0; }))
    raise<ArgumentError>({"writeNpy: expected a shape of sizes of 0 or more, got ", shapeText(shape)});
  // A count that is larger than any number of values need not be exact.
  constexpr auto kMost = (std::numeric_limits<std::size_t>::max)();
  std::size_t count = 1;
  bool is_empty = false;
  for (const Index size : shape) {
    const auto factor = static_cast<std::size_t>(size);
    is_empty = is_empty || size == 0;
    count = is_empty ? 0 : count > kMost / factor ? kMost : count * factor;
  }
  if (count != values)
    raise<ArgumentError>({"writeNpy: expected as many values as the shape ", shapeText(shape), " has, got ", values});
}

/// Version 1.0: a mark, the length of a text in two bytes, and the text, a dictionary of Python. Spaces and a newline
/// at its end have the values begin at a multiple of 64 bytes.
DRIFTLESS_INLINE std::string npyHeader(std::size_t value_bytes, const std::vector<Index>& shape) {
  const char* const order = std::endian::native == std::endian::little ? "<" : ">";
  std::string text = message({"{'descr': '", order, "f", value_bytes, "', 'fortran_order': False, 'shape': ("});
  for (std::size_t i = 0; i < shape.size(); ++i) text += message({i == 0 ? "" : ", ", shape[i]});
  text += shape.size() == 1 ? ",), }" : "), }";  // (3) is a number, (3,) a tuple
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  text.append(kAlignment - 1 - (kPrefix + text.size()) % kAlignment, ' ');
  text += '\n';
  const char length[] = {static_cast<char>(text.size() % 256), static_cast<char>(text.size() / 256)};
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(length, sizeof length) + text;
}

template <class Scalar>
void writeNpyFile(const std::filesystem::path& path, std::span<const Scalar> values, const std::vector<Index>& shape) {
  checkNpyShape(shape, values.size());
  FileReplacement file(path);
  file.write(std::as_bytes(std::span<const char>(npyHeader(sizeof(Scalar), shape))));
  file.write(std::as_bytes(values));
  file.commit();
}

}  // namespace detail

DRIFTLESS_INLINE void writeNpy(const std::filesystem::path& path, std::span<const float> values,
                               const std::vector<Index>& shape) {
  detail::writeNpyFile(path, values, shape);
}

DRIFTLESS_INLINE void writeNpy(const std::filesystem::path& path, std::span<const double> values,
                               const std::vector<Index>& shape) {
  detail::writeNpyFile(path, values, shape);
}

}}  // namespace driftless::DRIFTLESS_ABI
