#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Writes numbers to a file that NumPy reads by `np.load(path)`, as float32: an array of the given shape, whose last
/// index runs fastest in `values`. An older file of this name is replaced when the new one is complete and on the disk,
/// and stays as it is if anything fails. Throws ArgumentError if the shape has a negative size, more dimensions than
/// NumPy takes (32), or another number of elements than `values`, and FileError if the file cannot be written.
void writeNpy(const std::filesystem::path& path, std::span<const float> values, const std::vector<Index>& shape);
/// The same, as float64.
void writeNpy(const std::filesystem::path& path, std::span<const double> values, const std::vector<Index>& shape);

/// The same for a matrix: an array of its shape [rows, cols].
template <FloatingScalar Scalar>
void writeNpy(const std::filesystem::path& path, const Matrix<Scalar>& values) {
  writeNpy(path, std::span(values.data(), static_cast<std::size_t>(values.size())), {values.rows(), values.cols()});
}

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/files/npy.hpp"
#endif
