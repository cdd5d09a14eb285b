#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "driftless/detail/linear.hpp"
#include "driftless/threads.hpp"

using namespace driftless;
using namespace driftless::detail;

namespace {

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

float randomFloat(std::mt19937& engine) { return static_cast<float>(engine() >> 8) * 0x1p-24f - 0.5f; }

}  // namespace

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

TEST_CASE("kernels: a packed product is one chain of fused multiply-adds an element, for any shape and thread count") {
  std::mt19937 engine(3);
  for (const Index in : {1, 2, 20, 63})
    for (const Index out : {1, 15, 16, 17, 63, 64, 65, 80, 130, 200})
      for (const Index rows : {1, 2, 5, 6, 7, 12, 100}) {
        Rows<float> x;
        x.resize(rows, in);
        Arena arena(PackedMatrix<float>::bytesFor(in, out));
        PackedMatrix<float> matrix(in, out, arena);
        for (Index r = 0; r < rows; ++r)
          for (Index k = 0; k < in; ++k) x.row(r)[k] = randomFloat(engine);
        Matrix<float> numbers(in, out);
        for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = randomFloat(engine);
        ThreadPool pool(1 + static_cast<int>(engine() % 3));
        packPanels<float>(matrix, pool, [&](Index column, Index width, float* block) {
          for (Index k = 0; k < in; ++k)
            for (Index c = 0; c < width; ++c) block[k * width + c] = column + c < out ? numbers(k, column + c) : 0;
        });
        Rows<float> product;
        product.resize(rows, out);
        multiply(x, matrix, pool,
                 [&](Index row, Index column, const Lanes<float>& sums) { sums.store(product.row(row) + column); });
        bool same = true;
        for (Index r = 0; r < rows; ++r)
          for (Index c = 0; c < out; ++c) {
            float sum = 0;
            for (Index k = 0; k < in; ++k) sum = fusedMultiplyAdd(x.row(r)[k], numbers(k, c), sum);
            same = same && std::bit_cast<unsigned>(sum) == std::bit_cast<unsigned>(product.row(r)[c]);
          }
        CHECK_MESSAGE(same, "in ", in, ", out ", out, ", rows ", rows);
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
