#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "adapters.hpp"
#include "support/diagnosis.hpp"

using namespace driftless::test;
using driftless::Index, driftless::Matrix;

TEST_SUITE("causal-mask") {
  TEST_CASE("a token sees itself and what came before it, at every length") {
    Diagnosis diagnosis;
    INFO(
        "hint: row i is the query and column j the key; 0 where j <= i (not j < i, and not the other triangle), minus "
        "infinity elsewhere. The mask is for the current length: build it anew at every call.");
    for (const Index T : {1, 2, 3, 5, 16, 17, 64, 4}) {
      CAPTURE(T);
      const std::string what = "the mask of " + std::to_string(T) + " tokens";
      // One large negative number is as good as another to tell that it is not minus infinity.
      const auto compared = [](const Matrix<float>& mask) -> Matrix<float> {
        return (mask.array() < -1000 && mask.array().isFinite()).select(planted::kFiniteMask, mask);
      };
      const Matrix<float> mask = graded(what, [&] { return adapters::buildCausalMask(T); });
      const Matrix<float> telling = compared(mask);
      const auto call = [&] { return compared(adapters::buildCausalMask(T)); };
      auto diagnose = diagnosis.of(what, telling, call,
                                   [=](planted::Mistakes mistakes) { return planted::buildCausalMask(T, mistakes); });
      if (mask.rows() != T || mask.cols() != T) diagnose();
      REQUIRE(mask.rows() == T);
      REQUIRE(mask.cols() == T);
      for (Index i = 0; i < T; ++i)
        for (Index j = 0; j < T; ++j) {
          CAPTURE(i);
          CAPTURE(j);
          const float expected = j <= i ? 0.0f : -std::numeric_limits<float>::infinity();
          if (mask(i, j) != expected) diagnose();
          CHECK(mask(i, j) == expected);
        }
    }
  }
}
