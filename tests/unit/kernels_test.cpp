#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "driftless/detail/kernels/own_kernels.hpp"
#include "driftless/detail/model/linear.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/threads.hpp"
#include "support/packed.hpp"

// A namespace with a name, so that `detail` is not open for sources that are compiled together with this one.
namespace driftless::kernels_test {

using namespace driftless::detail;
using namespace driftless::test;

/// Largest error of f over [low, high] against the standard library in long double, in units of epsilon.
template <class Scalar, class F, class Exact>
double worstError(double low, double high, F f, Exact exact) {
  double worst = 0;
  for (double begin = low; begin < high; begin += (high - low) / 20000) {
    Scalar x[kLanes], y[kLanes];
    for (Index i = 0; i < kLanes; ++i) x[i] = static_cast<Scalar>(begin + static_cast<double>(i) * 1e-5);
    f(Lanes<Scalar>::load(x)).store(y);
    for (Index i = 0; i < kLanes; ++i) {
      const long double expected = exact(static_cast<long double>(x[i]));
      const double error = static_cast<double>(std::abs((static_cast<long double>(y[i]) - expected) / expected));
      worst = std::max(worst, error / static_cast<double>(std::numeric_limits<Scalar>::epsilon()));
    }
  }
  return worst;
}

template <class Scalar>
std::vector<Scalar> eachLane(Lanes<Scalar> (*f)(const Lanes<Scalar>&), const std::vector<Scalar>& x) {
  std::vector<Scalar> y;
  for (const Scalar value : x) {
    Scalar result[kLanes];
    f(Lanes<Scalar>::broadcast(value)).store(result);
    for (const Scalar lane : result) CHECK(std::memcmp(&lane, result, sizeof(Scalar)) == 0);
    y.push_back(result[0]);
  }
  return y;
}

inline float randomFloat(std::mt19937& engine) { return static_cast<float>(engine() >> 8) * 0x1p-24f - 0.5f; }

/// The elements [in, out] of a type that has such.
template <class Scalar>
Matrix<Scalar> elementsOf(const PackedMatrix<Scalar>& matrix) {
  Matrix<Scalar> numbers(matrix.in(), matrix.out());
  withElement<Scalar>(matrix.stored(), [&]<class Element>(std::type_identity<Element>) {
    for (Index panel = 0; panel < matrix.panels(); ++panel) {
      const Element* const elements = reinterpret_cast<const Element*>(matrix.panel(panel));
      const Index first = matrix.panelColumn(panel), width = matrix.panelWidth(panel);
      for (Index k = 0; k < matrix.in(); ++k)
        for (Index c = first; c < std::min(first + width, matrix.out()); ++c)
          numbers(k, c) = static_cast<Scalar>(elements[k * width + c - first]);
    }
  });
  return numbers;
}

template <class Scalar>
Scalar activated(Activation activation, Scalar x) {
  Scalar lanes[kLanes];
  activate(activation, Lanes<Scalar>::broadcast(x)).store(lanes);
  return lanes[0];
}

TEST_CASE_TEMPLATE("kernels: exp, sigmoid and erf are within a few ulps of the exact functions", Scalar, float,
                   double) {
  const double range = sizeof(Scalar) == 8 ? 700 : 85;
  const auto exp_of = [](const Lanes<Scalar>& x) { return driftless::detail::exp(x); };
  CHECK(worstError<Scalar>(-range, range, exp_of, [](long double x) { return std::exp(x); }) < 1.5);
  CHECK(worstError<Scalar>(
            -range, 30, [](const Lanes<Scalar>& x) { return sigmoid(x); },
            [](long double x) { return 1 / (1 + std::exp(-x)); }) < 2.5);
  CHECK(worstError<Scalar>(
            0.001, 9, [](const Lanes<Scalar>& x) { return erfOverSqrt2(x); },
            [](long double x) { return std::erf(x / std::sqrt(2.0L)); }) < 12);
}

TEST_CASE_TEMPLATE("kernels: exp at the ends of its range", Scalar, float, double) {
  constexpr Scalar kInfinity = std::numeric_limits<Scalar>::infinity(), kNaN = std::numeric_limits<Scalar>::quiet_NaN();
  const auto y = eachLane<Scalar>(driftless::detail::exp, {-kInfinity, -10000, 0, -Scalar(0), 10000, kInfinity, kNaN});
  CHECK(std::vector<Scalar>(y.begin(), y.end() - 1) == std::vector<Scalar>{0, 0, 1, 1, kInfinity, kInfinity});
  CHECK(std::isnan(y.back()));
}

TEST_CASE_TEMPLATE(
    "kernels: a product is one chain of fused multiply-adds per element, then scale, bias, activation "
    "and residual, for any shape, stored type and number of threads",
    Scalar, float, double) {
  std::mt19937 engine(3);
  const auto randomRow = [&](Index size) {
    RowVector<Scalar> row(size);
    for (Scalar& number : row) number = static_cast<Scalar>(randomFloat(engine));
    return row;
  };
  for (const Index in : {1, 2, 20, 63})
    for (const Index out : {1, 15, 16, 17, 63, 64, 65, 80, 130, 200})
      for (const Index rows : {1, 2, 5, 6, 7, 12, 100})
        for (const StoredType stored :
             {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8, StoredType::int4}) {
          if (stored != StoredType::full && rows != 1 && rows != 5 && rows != 7) continue;
          INFO("in " << in << ", out " << out << ", rows " << rows << ", stored as " << nameOf(stored));
          PaddedRows<Scalar> x(rows, in);
          for (Index r = 0; r < rows; ++r) x.matrix().row(r) = randomRow(in);
          Matrix<Scalar> numbers(in, out);
          for (Index k = 0; k < in; ++k) numbers.row(k) = randomRow(out);
          const PackedMatrix<Scalar> matrix = packed(numbers, stored);
          const Matrix<Scalar> widened = unpacked(matrix);
          Workspace<Scalar> workspace(Threads(1 + static_cast<int>(engine() % 3)));

          // Rows that are not padded, as logits are, with something that must not be written after each of them; and
          // rows that are, to which a product can be added.
          const RowVector<Scalar> bias = randomRow(roundUpToLanes(out));
          Matrix<Scalar> before(rows, out + 3);
          for (Index r = 0; r < rows; ++r) before.row(r) = randomRow(out + 3);
          Matrix<Scalar> product = before;
          PaddedRows<Scalar> padded(rows, out);
          padded.matrix() = before.leftCols(out);
          Destination<Scalar> to{product.data(), out, out + 3};
          Destination<Scalar> to_padded = destinationOf(padded);
          const unsigned chosen = engine() % 8;
          if ((chosen & 1) != 0) to.bias = to_padded.bias = bias.data();
          if ((chosen & 2) != 0) to.activation = to_padded.activation = Activation::gelu_new;
          to_padded.adds = (chosen & 4) != 0;
          multiply(workspace.step(), x, matrix, to);
          multiply(workspace.step(), x, matrix, to_padded);

          Matrix<Scalar> expected = before, expected_padded(rows, out);
          for (Index r = 0; r < rows; ++r)
            for (Index c = 0; c < out; ++c) {
              Scalar sum = 0;
              for (Index k = 0; k < in; ++k) sum = fusedMultiplyAdd(x.row(r)[k], widened(k, c), sum);
              const Scalar addend = to.bias != nullptr ? bias[c] : Scalar(0);
              sum = matrix.scales() != nullptr ? fusedMultiplyAdd(sum, static_cast<Scalar>(matrix.scales()[c]), addend)
                                               : sum + addend;
              if (to.activation) sum = activated(Activation::gelu_new, sum);
              expected(r, c) = sum;
              expected_padded(r, c) = to_padded.adds ? before(r, c) + sum : sum;
            }
          CHECK(sameBits(product, expected));
          CHECK(sameBits(Matrix<Scalar>(padded.matrix()), expected_padded));
        }
}

#if defined(__SSE2__)
TEST_CASE("kernels: the fused multiply-add by software is std::fma, to the bit") {
  constexpr int kCount = 4;
  std::mt19937_64 engine(1);
  const auto anyBits = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(engine())); };
  // Near one, so that products and sums meet in the same bits; and with few bits, so that ties come up.
  const auto near = [&] {
    return std::bit_cast<float>((std::uint32_t{127} << 23) + static_cast<std::uint32_t>(engine() >> 41));
  };
  const auto short_one = [&] { return static_cast<float>(engine() >> 51) * 0x1p-12f; };
  const auto check = [](const float(&a)[kCount], const float(&b)[kCount], const float(&c)[kCount]) {
    float fused[kCount];
    _mm_storeu_ps(fused, fusedBySoftware<float>(_mm_loadu_ps(a), _mm_loadu_ps(b), _mm_loadu_ps(c)));
    for (int i = 0; i < kCount; ++i) {
      const float expected = std::fma(a[i], b[i], c[i]);
      const bool is_same = std::isnan(expected)
                               ? std::isnan(fused[i])
                               : std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(fused[i]);
      if (!is_same)
        FAIL_CHECK(a[i] << " * " << b[i] << " + " << c[i] << ": expected " << expected << ", got " << fused[i]);
    }
  };
  for (int repeat = 0; repeat < 200'000; ++repeat) {
    float a[kCount] = {anyBits(), near(), near(), short_one()}, b[kCount] = {anyBits(), near(), near(), short_one()};
    // The third cancels all but the last bits of its product; the second, scaled, is around half an ulp of it.
    float c[kCount] = {anyBits(), near() * 0x1p-24f, -a[2] * b[2], short_one()};
    if (repeat % 3 == 0)  // around the subnormals
      for (int i = 1; i < kCount; ++i) a[i] *= 0x1p-70f, b[i] *= 0x1p-70f, c[i] *= 0x1p-140f;
    check(a, b, c);
  }
  const float special[] = {0.0f,
                           -0.0f,
                           1.0f,
                           -1.0f,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::lowest(),
                           std::numeric_limits<float>::min(),
                           std::numeric_limits<float>::denorm_min(),
                           0x1.000002p0f};
  for (const float a : special)
    for (const float b : special)
      for (const float c : special) check({a, a, a, a}, {b, -b, b, -b}, {c, c, -c, -c});
}
#endif

TEST_CASE("kernels: of the many NaNs, a product gives one if it is asked to") {
  const auto canonical = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::quiet_NaN());
  Workspace<float> workspace(Threads(1));
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fc12345u, 0xff812345u}) {
    Matrix<float> numbers = Matrix<float>::Ones(3, 21);
    numbers(1, 4) = numbers(2, 20) = std::bit_cast<float>(bits);
    PaddedRows<float> x(2, 3);
    x.matrix().setOnes();
    Matrix<float> product(2, 21);
    PaddedRows<float> sum(2, 21);
    sum.matrix().setConstant(4);
    Destination<float> to_product{product.data(), 21, 21}, to_sum = destinationOf(sum);
    to_sum.adds = true;
    to_product.has_one_nan = to_sum.has_one_nan = true;
    multiply(workspace.step(), x, packed(numbers, StoredType::full), to_product);
    multiply(workspace.step(), x, packed(numbers, StoredType::full), to_sum);
    for (Index r = 0; r < 2; ++r)
      for (Index c = 0; c < 21; ++c) {
        if (c == 4 || c == 20) {
          CHECK(std::bit_cast<std::uint32_t>(product(r, c)) == canonical);
          CHECK(std::bit_cast<std::uint32_t>(sum.row(r)[c]) == canonical);
        } else {
          CHECK(product(r, c) == 3);
          CHECK(sum.row(r)[c] == 7);
        }
      }
  }
}

TEST_CASE("kernels: every activation, lane by lane, is near the exact function") {
  const auto exact = [](Activation activation, long double x) -> long double {
    switch (activation) {
      case Activation::gelu:
        return x / 2 * (1 + std::erf(x / std::sqrt(2.0L)));
      case Activation::gelu_new:
        return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<long double>) * (x + 0.044715L * x * x * x)));
      case Activation::relu:
        return x < 0 ? 0 : x;
      case Activation::silu:
        return x / (1 + std::exp(-x));
      case Activation::tanh:
        return std::tanh(x);
    }
    return 0;
  };
  for (const Activation activation :
       {Activation::gelu, Activation::gelu_new, Activation::relu, Activation::silu, Activation::tanh})
    for (double x = -12; x < 12; x += 0.0371) {
      const double tolerance = 1e-14 * (1 + std::abs(x));
      CHECK(std::abs(activated(activation, x) - static_cast<double>(exact(activation, x))) <= tolerance);
      const float narrow = static_cast<float>(x);
      CHECK(std::abs(activated(activation, narrow) - static_cast<float>(exact(activation, narrow))) <=
            static_cast<float>(1e-6 * (1 + std::abs(x))));
    }
}

TEST_CASE_TEMPLATE("kernels: widening sixteen stored numbers at a time is the exact conversion of each", Element,
                   Eigen::half, Eigen::bfloat16, std::int8_t) {
  using Bits = std::conditional_t<sizeof(Element) == 1, std::uint8_t, std::uint16_t>;
  constexpr int kPatterns = 1 << (8 * sizeof(Element));
  std::vector<Element> all;
  for (int bits = 0; bits < kPatterns; ++bits) all.push_back(std::bit_cast<Element>(static_cast<Bits>(bits)));
  bool same = true;
  // Every alignment is allowed: begin at each of the first sixteen.
  for (std::size_t first = 0; first + kLanes <= all.size(); first += first < 16 ? 1 : 13) {
    float widened[kLanes];
    double widened_further[kLanes];
    loadLanes<float>(&all[first]).store(widened);
    loadLanes<double>(&all[first]).store(widened_further);
    for (std::size_t i = 0; i < kLanes; ++i) {
      const float expected = static_cast<float>(all[first + i]);
      const bool is_nan = std::isnan(expected);
      same = same &&
             (is_nan ? std::isnan(widened[i])
                     : std::bit_cast<std::uint32_t>(widened[i]) == std::bit_cast<std::uint32_t>(expected)) &&
             (is_nan ? std::isnan(widened_further[i]) : widened_further[i] == static_cast<double>(expected));
    }
  }
  CHECK(same);
}

TEST_CASE_TEMPLATE("kernels: a panel of a 16-bit type holds the cast of each number, and says if one became infinite",
                   Pair, std::pair<float, Eigen::half>, std::pair<float, Eigen::bfloat16>,
                   std::pair<double, Eigen::half>, std::pair<double, Eigen::bfloat16>) {
  using Scalar = typename Pair::first_type;
  using Element = typename Pair::second_type;
  // All elements, and between each and the next: halfway, and the nearest numbers on both sides of that.
  std::vector<Scalar> numbers;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const auto elementOf = [](int pattern) { return std::bit_cast<Element>(static_cast<std::uint16_t>(pattern)); };
    const float element = static_cast<float>(elementOf(bits)), next = static_cast<float>(elementOf(bits ^ 1));
    const float halfway = static_cast<float>((static_cast<double>(element) + static_cast<double>(next)) / 2);
    const float beyond = element + (element - next) / 2;
    for (const float number : {element, halfway, std::nextafter(halfway, element), std::nextafter(halfway, next),
                               beyond, std::nextafter(beyond, element), std::nextafter(beyond, 2 * beyond - element)})
      numbers.push_back(static_cast<Scalar>(number));
  }
  for (int bits = 0; bits < 1 << 16; ++bits)
    numbers.push_back(static_cast<Scalar>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) * 0x10001u)));
  const Scalar least = std::numeric_limits<float>::denorm_min(), most = (std::numeric_limits<float>::max)();
  for (const Scalar number : {least, -least, most, -most}) numbers.push_back(number);
  numbers.resize((numbers.size() + kPanelWidth - 1) / kPanelWidth * kPanelWidth);

  bool same = true, says_so = true;
  std::vector<Element> stored(static_cast<std::size_t>(kPanelWidth));
  for (std::size_t first = 0; first < numbers.size(); first += kPanelWidth) {
    const bool fits = storeElements(&numbers[first], 1, kPanelWidth, stored.data(), nullptr);
    bool expected = true;
    for (std::size_t i = 0; i < kPanelWidth; ++i) {
      const Element cast = static_cast<Element>(numbers[first + i]);
      // A cast by an instruction keeps a NaN's payload, one by software does not.
      same = same && (std::isnan(static_cast<float>(cast))
                          ? std::isnan(static_cast<float>(stored[i]))
                          : std::bit_cast<std::uint16_t>(stored[i]) == std::bit_cast<std::uint16_t>(cast));
      if (std::isfinite(numbers[first + i]) && !std::isfinite(static_cast<float>(cast))) expected = false;
    }
    says_so = says_so && fits == expected;
  }
  CHECK(same);
  CHECK(says_so);
}

TEST_CASE_TEMPLATE("kernels: int8 columns are what the plainest code makes of them, at every magnitude", Scalar, float,
                   double) {
  std::mt19937 engine(8);
  constexpr Index kRows = 37;
  for (int exponent = -149; exponent <= 127; ++exponent) {
    std::vector<Scalar> numbers;
    for (Index i = 0; i < kRows * kPanelWidth; ++i) {
      const Scalar whole = static_cast<Scalar>(static_cast<int>(engine() % 509) - 254) / 2;  // also halves of a step
      numbers.push_back(
          std::ldexp(i % kPanelWidth % 2 == 0 ? whole : Scalar(randomFloat(engine)), (std::min)(exponent, 120)));
    }
    for (std::size_t i = 0; i < numbers.size(); i += kPanelWidth) numbers[i + 3] = Scalar(-0.0);
    std::vector<std::int8_t> stored(numbers.size());
    std::vector<float> scales(kPanelWidth);
    CHECK(storeElements(numbers.data(), kRows, kPanelWidth, stored.data(), scales.data()));
    bool same = true;
    for (std::size_t column = 0; column < kPanelWidth; ++column) {
      float largest = 0;
      for (std::size_t i = column; i < numbers.size(); i += kPanelWidth)
        largest = (std::max)(largest, std::abs(static_cast<float>(numbers[i])));
      const float scale = largest / 127;
      same = same && scales[column] == scale;
      for (std::size_t i = column; i < numbers.size(); i += kPanelWidth) {
        const float whole = scale > 0 ? std::nearbyint(static_cast<float>(numbers[i]) / scale) : 0.0f;
        same = same && stored[i] == static_cast<std::int8_t>(std::clamp(whole, -127.0f, 127.0f));
      }
    }
    CHECK_MESSAGE(same, "exponent ", exponent);
    for (const Scalar odd : {std::numeric_limits<Scalar>::infinity(), -std::numeric_limits<Scalar>::infinity(),
                             std::numeric_limits<Scalar>::quiet_NaN()}) {
      std::vector<Scalar> faulty = numbers;
      faulty[engine() % faulty.size()] = odd;
      CHECK_FALSE(storeElements(faulty.data(), kRows, kPanelWidth, stored.data(), scales.data()));
    }
  }
}

TEST_CASE("kernels: int8 is the nearest multiple of a column's largest magnitude over 127") {
  Matrix<float> numbers(3, 2);
  numbers << 1, 0, -254, 0, 127, 0;
  const PackedMatrix<float> matrix = packed(numbers, StoredType::int8);
  const Matrix<float> whole = unpacked(matrix);
  CHECK(matrix.scales()[0] == 2.0f);
  CHECK(whole(0, 0) == 0);  // half of a step, to even
  CHECK(whole(1, 0) == -127);
  CHECK(whole(2, 0) == 64);  // 63.5, to even
  CHECK(matrix.scales()[1] == 0.0f);
  CHECK(whole.col(1).isZero(0));
}

TEST_CASE_TEMPLATE("kernels: a row stored as int8 is the nearest multiple of its largest magnitude over 127", Scalar,
                   float, double) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  using Bytes = std::vector<std::int8_t>;
  // Stored `stride` apart, between bytes that must stay.
  const auto check = [&](const std::vector<float>& numbers, const Bytes& expected, float expected_scale) {
    const std::vector<Scalar> row(numbers.begin(), numbers.end());
    for (const Index stride : {Index{1}, kPanelWidth}) {
      Bytes stored(numbers.size() * static_cast<std::size_t>(stride), 99), all = stored;
      for (std::size_t i = 0; i < expected.size(); ++i) all[i * static_cast<std::size_t>(stride)] = expected[i];
      float scale = -1;
      kOwnKernels<Scalar>.store_row(row.data(), static_cast<Index>(row.size()), StoredType::int8,
                                    reinterpret_cast<std::byte*>(stored.data()), stride, &scale);
      CHECK(stored == all);
      CHECK((std::isnan(expected_scale) ? std::isnan(scale) : scale == expected_scale));
    }
  };
  check({1, -254, 127, -127, 3, 5}, {0, -127, 64, -64, 2, 2}, 2);  // ties to even
  check({0, -0.0f, 0}, {0, 0, 0}, 0);
  check({0.25f}, {127}, 0.25f / 127);
  check({kMax, -kMax, kMax / 4}, {127, -127, 32}, kMax / 127);
  check({kTiny, -kTiny, 0}, {0, 0, 0}, 0);                                   // the scale is too small for a float
  check({127 * kTiny, -200 * kTiny, kTiny}, {64, -100, 0}, 2 * kTiny);       // 63.5 and 0.5 to even
  check({254 * kTiny, 255 * kTiny, -2 * kTiny}, {127, 127, -1}, 2 * kTiny);  // 127.5 would be 128
  for (const float bad : {kInfinity, -kInfinity, kNaN, -kNaN}) {
    check({bad}, {0}, kNaN);
    check({1, 2, bad, 3}, {0, 0, 0, 0}, kNaN);
  }
  if constexpr (sizeof(Scalar) == 8) {
    const Scalar row[] = {1, 1e300};  // beyond a float
    std::int8_t stored[2];
    float scale = 0;
    kOwnKernels<Scalar>.store_row(row, 2, StoredType::int8, reinterpret_cast<std::byte*>(stored), 1, &scale);
    CHECK(std::isnan(scale));
  }
  std::vector<float> long_row(101, 0.25f);
  long_row.back() = -1;
  Bytes long_bytes(101, 32);
  long_bytes.back() = -127;
  check(long_row, long_bytes, 1.0f / 127);
}

TEST_CASE_TEMPLATE("kernels: a row times scales is one rounded product each", Scalar, float, double) {
  std::mt19937 engine(11);
  for (const Index count : {16, 48, 64}) {
    std::vector<Scalar> row(static_cast<std::size_t>(count) + 1, Scalar(7));
    std::vector<float> scales(static_cast<std::size_t>(count));
    std::vector<Scalar> expected = row;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      row[i] = static_cast<Scalar>(randomFloat(engine)) / 3;
      scales[i] = randomFloat(engine);
      expected[i] = row[i] * static_cast<Scalar>(scales[i]);
    }
    kOwnKernels<Scalar>.scale_row(row.data(), count, scales.data());
    CHECK(row == expected);
  }
}

TEST_CASE("kernels: a column of a packed matrix, added to a vector") {
  std::mt19937 engine(5);
  Matrix<float> numbers(21, 83);
  for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = randomFloat(engine);
  RowVector<float> addend(21), sums(21);
  for (float& number : addend) number = randomFloat(engine);
  for (const StoredType stored : {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8}) {
    const PackedMatrix<float> matrix = packed(numbers, stored);
    const Matrix<float> widened = elementsOf(matrix);
    for (const Index column : {0, 15, 63, 64, 79, 80, 82}) {
      matrix.addColumn(column, addend.data(), sums.data());
      for (Index i = 0; i < 21; ++i)
        CHECK(sums[i] == (stored == StoredType::int8
                              ? fusedMultiplyAdd(widened(i, column), matrix.scales()[column], addend[i])
                              : widened(i, column) + addend[i]));
    }
  }
}

TEST_CASE("threads: every index runs once, on a thread of the pool") {
  for (const int count : {1, 2, 4}) {
    const Threads threads(count);
    CHECK(threads.count() == count);
    for (const Index tasks : {0, 1, 2, 3, 100})
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
        std::atomic<bool> known_thread = true;
        threads.pool().parallelFor(tasks, [&](Index index, int thread) {
          ++runs[static_cast<std::size_t>(index)];
          if (thread < 0 || thread >= count) known_thread = false;
        });
        CHECK(known_thread);
        CHECK(std::ranges::all_of(runs, [](const std::atomic<int>& times) { return times == 1; }));
      }
  }
}

TEST_CASE("threads: a pool serves nested loops and several callers at once") {
  const Threads threads(3);
  std::atomic<int> runs = 0;
  const auto nested = [&] {
    threads.pool().parallelFor(7, [&](Index, int) { threads.pool().parallelFor(5, [&](Index, int) { ++runs; }); });
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) nested();
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(runs == 4 * 100 * 7 * 5);
}

TEST_CASE("threads: a count out of range is refused") {
  CHECK_THROWS_WITH_AS(Threads(0), "Threads: expected a count from 1 to 1024, got 0", ArgumentError);
  CHECK_THROWS_AS(Threads(-1), ArgumentError);
  CHECK_THROWS_AS(Threads(1025), ArgumentError);
}

}  // namespace driftless::kernels_test
