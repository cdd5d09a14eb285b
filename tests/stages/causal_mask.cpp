#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "adapters.hpp"
#include "support/diagnosis.hpp"

using namespace driftless::test;
using driftless::Index;

TEST_SUITE("causal-mask") {
  TEST_CASE("a token sees itself and what came before it, at every length") {
    Diagnosis diagnosis;
    INFO(
        "hint: row i is the query and column j the key; 0 where j <= i (not j < i, and not the other triangle), minus "
        "infinity elsewhere. The mask is for the current length: build it anew at every call.");
    for (const Index T : {1, 2, 3, 5, 16, 17, 64, 4}) {
      CAPTURE(T);
      const driftless::Matrix<float> mask = adapters::buildCausalMask(T);
      REQUIRE(mask.rows() == T);
      REQUIRE(mask.cols() == T);
      auto diagnose = diagnosis.of("the mask of " + std::to_string(T) + " tokens", mask,
                                   [&](planted::Mistake mistake) { return planted::buildCausalMask(T, mistake); });
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
