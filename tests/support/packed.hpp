#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "driftless/detail/model/weights.hpp"

/// Matrices packed as weights are, and back.
namespace driftless::test {

template <class Scalar>
detail::PackedMatrix<Scalar> packed(const Matrix<Scalar>& numbers, StoredType stored,
                                    ComputeType compute = ComputeType::full) {
  const Index in = numbers.rows(), out = numbers.cols();
  detail::Arena arena(detail::PackedMatrix<Scalar>::bytesFor(in, out, stored, compute));
  detail::PackedMatrix<Scalar> matrix(in, out, stored, compute, arena);
  for (Index panel = 0; panel < matrix.panels(); ++panel) {
    const Index first = matrix.panelColumn(panel), width = matrix.panelWidth(panel);
    Matrix<Scalar> block = Matrix<Scalar>::Zero(in, width);
    const Index count = std::min(width, out - first);
    block.leftCols(count) = numbers.middleCols(first, count);
    REQUIRE(matrix.setPanel(panel, block.data()));
  }
  return matrix;
}

/// The numbers [in, out] as they are stored, without the scales of whole columns.
template <class Scalar>
Matrix<Scalar> unpacked(const detail::PackedMatrix<Scalar>& matrix) {
  const RowVector<Scalar> zeros = RowVector<Scalar>::Zero(matrix.in());
  RowVector<Scalar> column(matrix.in());
  Matrix<Scalar> numbers(matrix.in(), matrix.out());
  for (Index c = 0; c < matrix.out(); ++c) {
    matrix.addColumn(c, zeros.data(), column.data());
    // Where there is a scale, all numbers are whole ones times it.
    if (matrix.scales() != nullptr && matrix.scales()[c] != 0)
      for (Scalar& number : column) number = std::nearbyint(number / static_cast<Scalar>(matrix.scales()[c]));
    numbers.col(c) = column.transpose();
  }
  return numbers;
}

/// The scale of a number of a matrix stored as int4, where it lies.
template <class Scalar>
Scalar int4Scale(const detail::PackedMatrix<Scalar>& matrix, Index row, Index column) {
  Index panel = 0;
  while (matrix.panelColumn(panel) + matrix.panelWidth(panel) <= column) ++panel;
  const Index width = matrix.panelWidth(panel);
  const std::byte* const scales = matrix.panel(panel) + row / 32 * 18 * width;
  Eigen::half scale;
  std::memcpy(&scale, scales + 2 * (column - matrix.panelColumn(panel)), 2);
  return static_cast<Scalar>(scale);
}

template <class Scalar>
bool sameBits(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(Scalar)) == 0;
}

}  // namespace driftless::test
