#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/model/linear.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/weights.hpp"
#include "support/packed.hpp"

using namespace driftless;
using namespace driftless::detail;
using namespace driftless::test;

namespace {

/// What quantizeRow is to do, number by number.
template <class Scalar>
struct PlainRow {
  std::vector<int> values;
  std::vector<Index> outliers;
  Scalar scale = 0;
};

/// The sum in the order of the lanes' tree.
template <class Scalar>
Scalar meanMagnitude(const Scalar* x, Index width) {
  Lanes<Scalar> total = Lanes<Scalar>::broadcast(0);
  for (Index i = 0; i < width; i += kLanes) {
    Scalar some[kLanes] = {};
    for (Index lane = 0; lane < std::min(kLanes, width - i); ++lane) some[lane] = std::abs(x[i + lane]);
    total = total + Lanes<Scalar>::load(some);
  }
  return sumOfLanes(total) / static_cast<Scalar>(width);
}

template <class Scalar>
PlainRow<Scalar> quantizePlainly(const Scalar* x, Index width) {
  PlainRow<Scalar> row{std::vector<int>(static_cast<std::size_t>(width)), {}, 0};
  const Scalar limit = meanMagnitude(x, width) * 6;
  Scalar largest = 0;
  for (Index i = 0; i < width; ++i) {
    if (std::abs(x[i]) > limit)
      row.outliers.push_back(i);
    else
      largest = std::max(largest, std::abs(x[i]));
  }
  row.scale = largest / 127;
  for (Index i = 0; i < width; ++i)
    if (largest > 0 && std::abs(x[i]) <= limit)
      row.values[static_cast<std::size_t>(i)] =
          static_cast<int>(std::nearbyint(static_cast<long double>(x[i]) * static_cast<long double>(127 / largest)));
  return row;
}

template <class Scalar>
Scalar someNumber(std::mt19937& engine) {
  return static_cast<Scalar>(static_cast<int>(engine() % 2001) - 1000) / 1000;
}

/// Rows with and without outliers, of few and many digits.
template <class Scalar>
PaddedRows<Scalar> someRows(Index rows, Index width, std::mt19937& engine) {
  PaddedRows<Scalar> x(rows, width);
  for (Index r = 0; r < rows; ++r) {
    std::fill_n(x.row(r), x.stride(), std::numeric_limits<Scalar>::quiet_NaN());  // padding may hold anything
    for (Index i = 0; i < width; ++i) x.row(r)[i] = someNumber<Scalar>(engine);
    for (Index outlier = 0; outlier < r % 4; ++outlier) x.row(r)[static_cast<Index>(engine()) % width] *= 50;
  }
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("quantized: a row is rounded to a scale that its outliers do not set", Scalar, float, double) {
  std::mt19937 engine(1);
  ThreadPool pool(2);
  QuantizedRows<Scalar> quantized;
  Index outliers = 0;
  for (const Index width : {1, 5, 16, 31, 32, 33, 64, 100, 769})
    for (const Index group : {width, kInt4Group}) {
      const PaddedRows<Scalar> x = someRows<Scalar>(40, width, engine);
      quantized.assign(x, group, pool);
      for (Index r = 0; r < x.rows(); ++r) {
        INFO("width " << width << ", group " << group << ", row " << r);
        const PlainRow<Scalar> expected = quantizePlainly(x.row(r), width);
        const QuantizedTile<Scalar> actual = quantized.from(r);
        CHECK(*actual.scales == expected.scale);
        CHECK(actual.numbers == x.row(r));
        bool same = true;
        std::vector<int> sums(static_cast<std::size_t>(actual.groups));
        for (Index i = 0; i < actual.stride; ++i) {
          const int value = i < width ? expected.values[static_cast<std::size_t>(i)] : 0;
          same = same && actual.values[i] == value;
          if (i < width) sums[static_cast<std::size_t>(i / group)] += value;
        }
        CHECK(same);
        CHECK(std::equal(sums.begin(), sums.end(), actual.sums));
        for (std::size_t i = 0; i < expected.outliers.size(); ++i) CHECK(actual.outliers[i] == expected.outliers[i]);
        CHECK(actual.outliers[expected.outliers.size()] == -1);
        outliers += static_cast<Index>(expected.outliers.size());
      }
    }
  CHECK(outliers > 100);
}

TEST_CASE_TEMPLATE("quantized: rows at the ends of the range", Scalar, float, double) {
  using Limits = std::numeric_limits<Scalar>;
  ThreadPool pool(1);
  QuantizedRows<Scalar> quantized;
  PaddedRows<Scalar> x(7, 96);
  x.matrix().setZero();
  x.row(1)[3] = Limits::quiet_NaN();
  x.row(2)[95] = -Limits::infinity();
  for (Index i = 0; i < 48; ++i) x.row(3)[2 * i] = Limits::denorm_min();  // whose mean rounds to zero
  for (Index i = 0; i < 96; ++i) x.row(4)[i] = i % 2 == 0 ? Limits::max() : Limits::lowest();
  x.row(5)[7] = 1;
  x.row(5)[8] = Limits::denorm_min();
  for (Index i = 0; i < 96; ++i) x.row(6)[i] = -1;
  quantized.assign(x, 96, pool);
  CHECK(*quantized.from(0).scales == 0);
  CHECK(std::isnan(*quantized.from(1).scales));
  CHECK(std::isnan(*quantized.from(2).scales));
  CHECK(*quantized.from(3).scales == 0);
  CHECK(*quantized.from(4).scales == Limits::max() / 127);
  CHECK(quantized.from(4).values[0] == 127);
  CHECK(quantized.from(4).values[95] == -127);
  CHECK(*quantized.from(5).scales == 0);
  CHECK(quantized.from(5).outliers[0] == 7);
  for (const Index r : {0, 1, 2, 3, 4, 6}) CHECK(quantized.from(r).outliers[0] == -1);
  CHECK(*quantized.from(6).sums == -96 * 127);
}

TEST_CASE("quantized: as many outliers as a mean that has lost its last digits lets through") {
  // In each of three lanes, sums above 1024 lose the fraction of 1 + 480 / 2^23.
  const Index width = 65536;
  PaddedRows<float> x(16, width);
  x.matrix().setZero();
  Index count = 0;
  for (Index first = 0; first < 3641 * kLanes; first += kLanes)
    for (Index lane = 0; lane < 3; ++lane, ++count) x.matrix().col(first + lane).setConstant(1 + 480 * 0x1p-23f);
  CHECK(count == width / 6 + 1);
  for (const Index rows : {1, 2, 16}) {
    const PaddedRows<float> some(Matrix<float>(x.matrix().topRows(rows)));
    ThreadPool pool(1);
    QuantizedRows<float> quantized;
    quantized.assign(some, width, pool);
    for (Index r = 0; r < rows; ++r) {
      const std::int32_t* const outliers = quantized.from(r).outliers;
      CHECK(std::find(outliers, outliers + count + 1, -1) - outliers == count);
    }
  }
}

TEST_CASE_TEMPLATE(
    "quantized: a product is the exact sum of whole numbers, times the row's scale, and a fused multiply-add for every "
    "outlier, for any shape and number of threads",
    Scalar, float, double) {
  std::mt19937 engine(2);
  for (const StoredType stored : {StoredType::int8, StoredType::int4})
    for (const Index in : {1, 3, 4, 31, 32, 70, 200})
      for (const Index out : {1, 15, 16, 17, 64, 80, 130})
        for (const Index rows : {1, 2, 3, 4, 5, 6, 7, 100}) {
          INFO("in " << in << ", out " << out << ", rows " << rows << ", stored as " << nameOf(stored));
          const PaddedRows<Scalar> x = someRows<Scalar>(rows, in, engine);
          Matrix<Scalar> numbers(in, out);
          for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = someNumber<Scalar>(engine);
          const PackedMatrix<Scalar> matrix = packed(numbers, stored, ComputeType::int8);
          const Matrix<Scalar> weights = unpacked(matrix);  // int8: whole numbers; int4: with their scales
          Workspace<Scalar> workspace(Threads(1 + static_cast<int>(engine() % 3)));
          PaddedRows<Scalar> product(rows, out);
          multiply(workspace.step(), x, matrix, destinationOf(product));

          Matrix<Scalar> expected(rows, out);
          for (Index r = 0; r < rows; ++r) {
            const PlainRow<Scalar> row = quantizePlainly(x.row(r), in);
            for (Index c = 0; c < out; ++c) {
              Scalar value = 0;
              for (Index first = 0; first < in; first += stored == StoredType::int4 ? kInt4Group : in) {
                const Index end = stored == StoredType::int4 ? std::min(in, first + kInt4Group) : in;
                const Scalar scale = stored == StoredType::int4 ? int4Scale(matrix, first, c) : Scalar(1);
                std::int64_t sum = 0;
                for (Index k = first; k < end; ++k)
                  if (scale != 0) sum += row.values[static_cast<std::size_t>(k)] * std::llround(weights(k, c) / scale);
                value = stored == StoredType::int4 ? std::fma(static_cast<Scalar>(sum), scale, value)
                                                   : static_cast<Scalar>(sum);
              }
              value *= row.scale;
              for (const Index k : row.outliers) value = std::fma(x.row(r)[k], weights(k, c), value);
              expected(r, c) = stored == StoredType::int8
                                   ? std::fma(value, static_cast<Scalar>(matrix.scales()[c]), Scalar(0))
                                   : value + Scalar(0);
            }
          }
          CHECK(sameBits(Matrix<Scalar>(product.matrix()), expected));
        }
}

TEST_CASE("quantized: the largest sums that there can be") {
  // Every product is 127 * 127 and every partial sum as large as it gets, on every way of adding them.
  for (const float sign : {1.0f, -1.0f})
    for (const StoredType stored : {StoredType::int8, StoredType::int4}) {
      const Index in = 65536;
      const Matrix<float> numbers = Matrix<float>::Constant(in, 16, sign);
      const PackedMatrix<float> matrix = packed(numbers, stored, ComputeType::int8);
      PaddedRows<float> x(7, in), product(7, 16);
      x.matrix().setOnes();
      Workspace<float> workspace(Threads(1));
      multiply(workspace.step(), x, matrix, destinationOf(product));
      const float row_scale = 1.0f / 127;
      float expected = 0;
      if (stored == StoredType::int8) {
        expected = std::fma(sign * 127 * 127 * 65536 * row_scale, matrix.scales()[15], 0.0f);
      } else {
        const float scale = int4Scale(matrix, 0, 15);
        const float whole = unpacked(matrix)(0, 15) / scale;
        for (Index group = 0; group < in / kInt4Group; ++group) expected = std::fma(whole * 127 * 32, scale, expected);
        expected *= row_scale;
      }
      CHECK(expected == doctest::Approx(sign * 65536));
      for (Index r = 0; r < 7; ++r) CHECK(product.row(r)[15] == expected);
    }
}

TEST_CASE("quantized: a row with a number that is not finite gives NaN") {
  std::mt19937 engine(4);
  Matrix<float> numbers(40, 20);
  for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = someNumber<float>(engine);
  PaddedRows<float> x = someRows<float>(3, 40, engine), product(3, 20);
  x.row(1)[17] = std::numeric_limits<float>::infinity();
  Workspace<float> workspace(Threads(1));
  for (const StoredType stored : {StoredType::int8, StoredType::int4}) {
    multiply(workspace.step(), x, packed(numbers, stored, ComputeType::int8), destinationOf(product));
    CHECK(product.matrix().row(0).allFinite());
    CHECK(product.matrix().row(1).array().isNaN().all());
    CHECK(product.matrix().row(2).allFinite());
  }
}

TEST_CASE_TEMPLATE("int4: numbers that it can hold come back as they were", Scalar, float, double) {
  // In each group of a column, -8 is there and the scale is a power of two.
  std::mt19937 engine(5);
  Matrix<Scalar> numbers(75, 83);
  for (Index c = 0; c < numbers.cols(); ++c)
    for (Index first = 0; first < numbers.rows(); first += kInt4Group) {
      const Scalar scale = std::ldexp(Scalar(engine() % 2 == 0 ? 1 : -1), static_cast<int>(engine() % 12) - 8);
      for (Index k = first; k < std::min(first + kInt4Group, numbers.rows()); ++k)
        numbers(k, c) = scale * static_cast<Scalar>(k == first + 7 ? -8 : static_cast<int>(engine() % 16) - 8);
    }
  for (const ComputeType compute : {ComputeType::full, ComputeType::int8})
    CHECK(sameBits(unpacked(packed(numbers, StoredType::int4, compute)), Matrix<Scalar>(numbers.array() + 0)));
}

TEST_CASE("int4: the scale is the one of the least error among those from 0.8 to 1.1 of the plain one") {
  std::mt19937 engine(6);
  Matrix<float> numbers(64, 48);
  for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = someNumber<float>(engine) * someNumber<float>(engine);
  const Matrix<float> stored = unpacked(packed(numbers, StoredType::int4));
  double error = 0, plain_error = 0;
  for (Index c = 0; c < numbers.cols(); ++c)
    for (Index first = 0; first < numbers.rows(); first += kInt4Group) {
      const auto group = numbers.col(c).segment(first, kInt4Group).cast<double>();
      Index extreme = 0;
      group.cwiseAbs().maxCoeff(&extreme);
      double least = std::numeric_limits<double>::infinity();
      for (int percent = 80; percent <= 110; percent += 5) {
        const double scale =
            static_cast<float>(static_cast<Eigen::half>(static_cast<float>(group[extreme] / -8 * percent / 100)));
        double squares = 0;
        for (const double number : group) {
          const double rest = number - scale * std::clamp(std::nearbyint(number / scale), -8.0, 7.0);
          squares += rest * rest;
        }
        least = std::min(least, squares);
        if (percent == 100) plain_error += squares;
      }
      const double squares = (group - stored.col(c).segment(first, kInt4Group).cast<double>()).squaredNorm();
      CHECK(squares == doctest::Approx(least).epsilon(1e-4));
      error += squares;
    }
  CHECK(error < 0.97 * plain_error);
}

TEST_CASE("int4: groups of zeros, of hardly more, and numbers that are beyond it") {
  Matrix<float> numbers = Matrix<float>::Zero(64, 16);
  numbers(3, 1) = 1e-12f;
  numbers(40, 2) = -200'000;
  const Matrix<float> stored = unpacked(packed(numbers, StoredType::int4));
  CHECK(stored.col(0).isZero(0));
  CHECK(stored.col(1).isZero(0));
  CHECK(stored(40, 2) == doctest::Approx(-200'000).epsilon(0.05));
  CHECK(stored.col(2).head(40).isZero(0));

  Arena arena(PackedMatrix<float>::bytesFor(64, 16, StoredType::int4, ComputeType::full));
  PackedMatrix<float> matrix(64, 16, StoredType::int4, ComputeType::full, arena);
  for (const float bad :
       {270'000.0f, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    numbers(63, 15) = bad;
    CHECK_FALSE(matrix.setPanel(0, numbers.data()));
  }
}
