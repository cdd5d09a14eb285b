#include "driftless/capture.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "driftless/forward.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

struct CaptureSubject {
  Weights<float> weights{livelyParameters(smallConfig(24, 4, 40, 61, 90)), {.threads = Threads(2)}};
  std::vector<int> ids = someIds(13, 61);
};

}  // namespace

TEST_CASE("capture: every point has its shape") {
  const CaptureSubject subject;
  const Captured<float> captured = capture(Points::all(), subject.ids, subject.weights);
  for (int number = 0; number < kPoints; ++number) {
    const Point point = static_cast<Point>(number);
    INFO(pointName(point));
    const Matrix<float>& values = captured.at(point, isInLayer(point) ? 2 : 0, isOfHead(point) ? 3 : 0);
    CHECK(values.rows() == 13);
    Index width = 24;
    if (point == Point::q || point == Point::k || point == Point::v || point == Point::z) width = 6;
    if (isOverKeys(point)) width = 13;
    if (point == Point::mlp_pre || point == Point::mlp_post) width = 40;
    if (point == Point::logits) width = 61;
    CHECK(values.cols() == width);
  }
  CHECK(captured.at(Point::pattern, 1, 2)(4, 5) == 0);
  CHECK(captured.at(Point::attn_scores, 1, 2)(4, 5) == -std::numeric_limits<float>::infinity());
  CHECK(captured.at(Point::attn_scores, 1, 2)(4, 4) > -std::numeric_limits<float>::infinity());
  CHECK(captured.at(Point::pattern, 1, 2).row(12).sum() == doctest::Approx(1));
}

TEST_CASE("capture: what the model computes by another way is there, to the bit") {
  const CaptureSubject subject;
  const Captured<float> captured = capture(Points::all(), subject.ids, subject.weights);
  ModelCache<float> cache(subject.weights);
  CHECK(captured.at(Point::logits) == prefillLogits(subject.ids, subject.weights, cache));
  for (Index head = 0; head < 4; ++head) {
    CHECK(captured.at(Point::k, 1, head) == cache.layer(1).keys().middleCols(head * 6, 6));
    CHECK(captured.at(Point::v, 1, head) == cache.layer(1).values().middleCols(head * 6, 6));
  }
  CHECK(captured.at(Point::resid_post, 0) == captured.at(Point::resid_pre, 1));
  CHECK(captured.at(Point::resid_mid, 1) == captured.at(Point::resid_pre, 1) + captured.at(Point::attn_out, 1));
  CHECK(captured.at(Point::resid_post, 1) == captured.at(Point::resid_mid, 1) + captured.at(Point::mlp_out, 1));
  CHECK(captured.at(Point::resid_pre, 0) == captured.at(Point::embed) + captured.at(Point::pos_embed));
}

TEST_CASE("capture: points alone are what they are together, also the last row's logits alone") {
  const CaptureSubject subject;
  const Captured<float> all = capture(Points::all(), subject.ids, subject.weights);
  for (int number = 0; number < kPoints; ++number) {
    const Point point = static_cast<Point>(number);
    INFO(pointName(point));
    const Index layer = isInLayer(point) ? 2 : 0, head = isOfHead(point) ? 1 : 0;
    CHECK(capture({point}, subject.ids, subject.weights).at(point, layer, head) == all.at(point, layer, head));
  }
}

TEST_CASE("capture: an observer writes first") {
  const CaptureSubject subject;
  Observer<float> silence{.points = {Point::z}};
  silence.visit = [](PointValues<float>& values) {
    if (values.layer == 1) values.values.setZero();
  };
  const Captured<float> captured = capture({Point::z, Point::attn_out}, subject.ids, subject.weights, silence);
  CHECK((captured.at(Point::z, 1, 2).array() == 0).all());
  CHECK(!(captured.at(Point::z, 2, 2).array() == 0).all());
  for (Index row = 1; row < 13; ++row)  // nothing is left but the bias
    CHECK(captured.at(Point::attn_out, 1).row(row) == captured.at(Point::attn_out, 1).row(0));
}

TEST_CASE("capture: a pattern that is written is the one that mixes the values, also where there was none") {
  const CaptureSubject subject;
  for (const bool had_none : {false, true}) {
    Observer<float> first{.points = {Point::pattern, Point::attn_scores}};
    first.visit = [&](PointValues<float>& row) {
      if (row.point == Point::attn_scores) {
        if (had_none) row.values.setConstant(std::numeric_limits<float>::quiet_NaN());
      } else {
        row.values.setZero();
        row.values(0, 0) = 1;
      }
    };
    const Captured<float> captured = capture({Point::v, Point::z}, subject.ids, subject.weights, first);
    for (Index layer = 0; layer < 3; ++layer)
      for (Index row = 0; row < 13; ++row)
        CHECK(captured.at(Point::z, layer, 1).row(row) == captured.at(Point::v, layer, 1).row(0));
  }
}

TEST_CASE("capture: with a cache, the values are those of its stored type, and it holds the text") {
  const CaptureSubject subject;
  ModelCache<float> cache(subject.weights, StoredType::int8);
  Workspace<float> workspace;
  prefill(std::vector<int>{1, 2, 3}, subject.weights, cache);
  const Captured<float> captured = capture({Point::logits}, subject.ids, subject.weights, cache, workspace);
  CHECK(cache.ids() == subject.ids);
  ModelCache<float> other(subject.weights, StoredType::int8);
  CHECK(captured.at(Point::logits) == prefillLogits(subject.ids, subject.weights, other));
}

TEST_CASE("capture: what is not there is an error that names it") {
  const CaptureSubject subject;
  const Captured<float> captured = capture({Point::q, Point::embed}, subject.ids, subject.weights);
  CHECK_THROWS_WITH_AS(captured.at(Point::k, 2), "expected a point that was captured, got blocks.2.attn.hook_k",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(captured.at(Point::q, 3), "expected a layer from 0 to 2 at blocks.3.attn.hook_q, got 3",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(captured.at(Point::q, 0, -1), "expected a head from 0 to 3 at blocks.0.attn.hook_q, got -1",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(captured.at(Point::embed, 1), "expected a layer from 0 to 0 at hook_embed, got 1",
                       ArgumentError);
  CHECK_THROWS_AS(capture({Point::q}, std::vector<int>{61}, subject.weights), ArgumentError);
  CHECK_THROWS_AS(capture({Point::q}, someIds(91, 61), subject.weights), ContextFull);
}

TEST_CASE("capture: points have the names of TransformerLens") {
  CHECK(pointName(Point::embed) == "hook_embed");
  CHECK(pointName(Point::pos_embed, 3) == "hook_pos_embed");
  CHECK(pointName(Point::resid_pre, 3) == "blocks.3.hook_resid_pre");
  CHECK(pointName(Point::ln1, 11) == "blocks.11.ln1.hook_normalized");
  CHECK(pointName(Point::attn_scores, 0) == "blocks.0.attn.hook_attn_scores");
  CHECK(pointName(Point::result, 0) == "blocks.0.attn.hook_result");
  CHECK(pointName(Point::mlp_post, 2) == "blocks.2.mlp.hook_post");
  CHECK(pointName(Point::resid_post, 2) == "blocks.2.hook_resid_post");
  CHECK(pointName(Point::ln_final, 2) == "ln_final.hook_normalized");
  CHECK(pointName(Point::logits) == "logits");
}
