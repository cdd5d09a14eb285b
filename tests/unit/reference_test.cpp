#include "driftless/reference.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <span>
#include <vector>

#include "support/random_models.hpp"

using namespace driftless;
using namespace driftless::test;

TEST_CASE("reference: what stands at a later position does not reach an earlier row") {
  Parameters<float> parameters = livelyParameters(oddConfig());
  const std::vector<int> ids = {3, 50, 100, 150, 200};
  const Matrix<float> expected = fullForward<float>(std::span(ids).first(3), parameters);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    parameters.wte.row(150).setConstant(bad);
    const Matrix<float> logits = fullForward<float>(ids, parameters);
    // The logit of id 150 is a product with the bad row itself.
    CHECK(logits.topRows(3).leftCols(150) == expected.leftCols(150));
    CHECK(logits.row(3).hasNaN());
  }
}

TEST_CASE("reference: greedyDecode checks everything before it computes anything") {
  const Parameters<float> parameters = livelyParameters(oddConfig());
  const std::vector<int> ids = {1, 2, 3};
  constexpr Index kMost = std::numeric_limits<Index>::max();
  CHECK_THROWS_WITH_AS(greedyDecode<float>(ids, parameters, kMost),
                       "greedyDecode: expected at most 14 tokens after a prompt of 3 (n_positions is 16), got "
                       "9223372036854775807",
                       ContextFull);
  CHECK_THROWS_WITH_AS(greedyDecode<float>(ids, parameters, std::numeric_limits<Index>::min()),
                       "greedyDecode: expected n of 0 or more, got -9223372036854775808", ArgumentError);
  CHECK(greedyDecode<float>(ids, parameters, 14).size() == 17);
  CHECK(greedyDecode<float>(ids, parameters, 0) == ids);
  CHECK_THROWS_AS(greedyDecode<float>(std::vector<int>{259}, parameters, 0), ArgumentError);
  CHECK_THROWS_AS(greedyDecode<float>(someIds(17, 259), parameters, 0), ContextFull);
  CHECK_THROWS_AS(greedyDecode<float>(std::vector<std::vector<int>>{ids, {1, 2, 259}}, parameters, 1), ArgumentError);
}

TEST_CASE("reference: counts and layers that make no sense are refused") {
  const Parameters<float> parameters = livelyParameters(oddConfig());
  CHECK_THROWS_WITH_AS(buildCausalMask(-1), "buildCausalMask: expected T of 0 or more, got -1", ArgumentError);
  const Matrix<float> x = Matrix<float>::Ones(1, 20);
  CHECK_THROWS_WITH_AS(reference::block(x, parameters, 3), "block: expected a layer from 0 to 2, got 3", ArgumentError);
  CHECK_THROWS_AS(reference::block(x, parameters, -1), ArgumentError);
}
