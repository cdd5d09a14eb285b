#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "driftless/capture.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/forward.hpp"
#include "driftless/observer.hpp"
#include "driftless/reference.hpp"
#include "support/fixtures.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

// What a step shows and what is written there: the numbers of other programs, no bit changed by looking, and the same
// bits by every route.

using namespace driftless;
using namespace driftless::test;

namespace {

std::vector<Point> allPoints() {
  std::vector<Point> points;
  for (int i = 0; i < kPoints; ++i) points.push_back(static_cast<Point>(i));
  return points;
}

// ---- values ----

/// The numbers that a golden has of a captured matrix [T, ...], row after row.
template <class Scalar>
RowVector<double> shownNumbers(const Matrix<Scalar>& values, const nlohmann::json& model, bool is_over_keys) {
  const Index step = is_over_keys ? 1 : model.at("column_step").get<Index>();
  std::vector<double> numbers;
  for (const Index row : model.at("rows"))
    for (Index col = 0; col < (is_over_keys ? row + 1 : values.cols()); col += step)
      numbers.push_back(static_cast<double>(values(row, col)));
  return Eigen::Map<const RowVector<double>>(numbers.data(), static_cast<Index>(numbers.size()));
}

RowVector<double> goldenNumbers(const nlohmann::json& rows) {
  nlohmann::json numbers = nlohmann::json::array();
  for (const nlohmann::json& row : rows) numbers.insert(numbers.end(), row.begin(), row.end());
  return toVector(numbers);
}

// ---- routes ----

struct Types {
  StoredType weights = StoredType::full;
  ComputeType compute = ComputeType::full;
  StoredType cache = StoredType::full;
};

/// What a text left behind.
template <class Scalar>
struct Outcome {
  Matrix<Scalar> logits;             ///< [T, V]
  std::vector<Matrix<Scalar>> rows;  ///< keys and values of every layer
};

template <class Scalar>
std::vector<Matrix<Scalar>> rowsOf(const ModelCache<Scalar>& cache) {
  std::vector<Matrix<Scalar>> rows;
  for (Index layer = 0; layer < cache.layers(); ++layer) {
    rows.push_back(cache.layer(layer).keys());
    rows.push_back(cache.layer(layer).values());
  }
  return rows;
}

/// A text in chunks of so many tokens; single ones by decodeStep.
template <class Scalar>
Outcome<Scalar> run(TokenIds ids, const Weights<Scalar>& weights, StoredType stored, std::size_t chunk,
                    Workspace<Scalar>& workspace, const Observer<Scalar>& observer) {
  ModelCache<Scalar> cache(weights, stored);
  Outcome<Scalar> outcome{Matrix<Scalar>(static_cast<Index>(ids.size()), weights.config.vocab_size), {}};
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::size_t size = std::min(chunk, ids.size() - begin);
    const auto first = static_cast<Index>(begin);
    if (size == 1)
      outcome.logits.row(first) = decodeStep(ids[begin], first, weights, cache, workspace, observer);
    else
      outcome.logits.middleRows(first, static_cast<Index>(size)) =
          prefillLogits(ids.subspan(begin, size), weights, cache, workspace, observer);
  }
  outcome.rows = rowsOf(cache);
  return outcome;
}

template <class Scalar>
bool areSameBits(const Matrix<Scalar>& left, const Matrix<Scalar>& right) {
  return left.rows() == right.rows() && left.cols() == right.cols() &&
         std::memcmp(left.data(), right.data(), static_cast<std::size_t>(left.size()) * sizeof(Scalar)) == 0;
}

template <class Scalar>
bool areSameBits(const std::vector<Matrix<Scalar>>& left, const std::vector<Matrix<Scalar>>& right) {
  return std::ranges::equal(left, right, [](const auto& a, const auto& b) { return areSameBits(a, b); });
}

template <class Scalar>
bool areSameBits(const Outcome<Scalar>& left, const Outcome<Scalar>& right) {
  return areSameBits(left.logits, right.logits) && areSameBits(left.rows, right.rows);
}

constexpr std::size_t kAll = 1000;  ///< tokens of a chunk: the whole text
constexpr std::size_t kChunks[] = {1, 3, 7, kAll};

/// Writes every number that it is shown onto itself, by way of a copy.
template <class Scalar>
Observer<Scalar> idleWriter(Points points) {
  return {.points = points, .visit = [](PointValues<Scalar>& at) {
            const Matrix<Scalar> copy = at.values;
            at.values = copy;
          }};
}

/// Runs a text with writers of nothing at these sets of points, in all chunkings, on one thread and on three, and looks
/// for bits that differ from those of a run that nobody watches.
template <class Scalar>
void checkIdle(const Config& config, const Types& types, const std::vector<Points>& sets) {
  INFO("C = " << config.n_embd << ", weights " << nameOf(types.weights) << ", computed in " << nameOf(types.compute)
              << ", cache " << nameOf(types.cache));
  const Weights<Scalar> weights(livelyParameters<Scalar>(config, config.n_head % 2 == 0),
                                {.stored = types.weights, .compute = types.compute});
  const std::vector<int> ids = someIds(config.n_positions, config.vocab_size);
  Workspace<Scalar> one{Threads(1)}, three{Threads(3)};
  const Outcome<Scalar> expected = run<Scalar>(ids, weights, types.cache, kAll, one, {});
  CHECK(expected.logits.allFinite());
  for (const Points& points : sets)
    for (const std::size_t chunk : kChunks)
      for (Workspace<Scalar>* workspace : {&one, &three}) {
        const Outcome<Scalar> watched =
            run<Scalar>(ids, weights, types.cache, chunk, *workspace, idleWriter<Scalar>(points));
        INFO("chunks of " << chunk << ", threads: " << (workspace == &one ? 1 : 3));
        CHECK_MESSAGE(areSameBits(watched, expected), "points: ", [&] {
          std::string names;
          for (const Point point : allPoints())
            if (points.contains(point)) names += pointName(point) + " ";
          return names;
        }());
      }
}

std::vector<Points> eachAlone() {
  std::vector<Points> sets;
  for (const Point point : allPoints()) sets.push_back({point});
  return sets;
}

const std::vector<Config> kShapes = {oddConfig(), smallConfig(24, 4, 40, 61, 90), smallConfig(136, 2, 130, 300, 37)};

// ---- interventions ----

/// What happens to a row: what is added differs by column, since LayerNorm and softmax ignore what is added to all.
enum class Change { add, zero, scale };

template <class Row>
void apply(Change change, Row row) {
  using Scalar = typename Row::Scalar;
  for (Index col = 0; col < row.size(); ++col) {
    if (change == Change::add) row[col] += Scalar(0.75) * static_cast<Scalar>(col % 3);
    if (change == Change::zero) row[col] = 0;
    if (change == Change::scale) row[col] *= Scalar(1.5);
  }
}

/// Where: a point, in layer 1 and its head 1, if it has those, and the positions of one sequence.
struct Place {
  Point point;
  std::function<bool(Index position)> is_meant;

  bool covers(Point other, Index layer, Index head) const {
    return other == point && (!isInLayer(point) || layer == 1) && (!isOfHead(point) || head == 1);
  }
};

template <class Scalar>
Observer<Scalar> intervention(const Place& place, Change change, Index sequence = 0) {
  return {.points = {place.point}, .visit = [=](PointValues<Scalar>& at) {
            if (at.sequence != sequence || !place.covers(at.point, at.layer, at.head)) return;
            for (Index row = 0; row < at.values.rows(); ++row)
              if (place.is_meant(at.position + row)) apply(change, at.values.row(row));
          }};
}

/// The model in plain Eigen, with the same change at the same place: logits [T, V].
Matrix<double> plainForward(TokenIds ids, const Parameters<double>& parameters, const Place& place, Change change) {
  const Config& config = parameters.config;
  const Index T = static_cast<Index>(ids.size()), C = config.n_embd, D = config.headSize();
  // Changes a matrix, whose first row is at this position.
  const auto at = [&](Point point, Index layer, Index head, auto&& values, Index position = 0) {
    if (!place.covers(point, layer, head)) return;
    for (Index row = 0; row < values.rows(); ++row)
      if (place.is_meant(position + row)) apply(change, values.row(row));
  };
  Matrix<double> embed(T, C), pos_embed = parameters.wpe.topRows(T);
  for (Index t = 0; t < T; ++t) embed.row(t) = parameters.wte.row(ids[static_cast<std::size_t>(t)]);
  at(Point::embed, 0, 0, embed);
  at(Point::pos_embed, 0, 0, pos_embed);
  Matrix<double> x = embed + pos_embed;
  for (Index layer = 0; layer < config.n_layer; ++layer) {
    const BlockParameters<double>& block = parameters.h[static_cast<std::size_t>(layer)];
    at(Point::resid_pre, layer, 0, x);
    Matrix<double> normed = reference::layerNorm(x, block.ln_1, config.layer_norm_epsilon);
    at(Point::ln1, layer, 0, normed);
    Matrix<double> qkv = reference::linear(normed, block.attn.c_attn);
    Matrix<double> attn_out = block.attn.c_proj.bias.replicate(T, 1);
    for (Index head = 0; head < config.n_head; ++head) {
      Matrix<double> q = qkv.middleCols(head * D, D), k = qkv.middleCols(C + head * D, D),
                     v = qkv.middleCols(2 * C + head * D, D), z = Matrix<double>::Zero(T, D);
      at(Point::q, layer, head, q);
      at(Point::k, layer, head, k);
      at(Point::v, layer, head, v);
      for (Index t = 0; t < T; ++t) {
        RowVector<double> scores = q.row(t) * k.topRows(t + 1).transpose() * config.scoreScale(layer);
        at(Point::attn_scores, layer, head, scores, t);
        RowVector<double> pattern = reference::softmax(scores);
        at(Point::pattern, layer, head, pattern, t);
        z.row(t) = pattern * v.topRows(t + 1);
      }
      at(Point::z, layer, head, z);
      Matrix<double> result = z * block.attn.c_proj.weight.middleRows(head * D, D);
      at(Point::result, layer, head, result);
      attn_out += result;
    }
    at(Point::attn_out, layer, 0, attn_out);
    x += attn_out;
    at(Point::resid_mid, layer, 0, x);
    normed = reference::layerNorm(x, block.ln_2, config.layer_norm_epsilon);
    at(Point::ln2, layer, 0, normed);
    Matrix<double> inner = reference::linear(normed, block.mlp.c_fc);
    at(Point::mlp_pre, layer, 0, inner);
    inner = inner.unaryExpr([&](double h) { return reference::activate(config.activation_function, h); }).eval();
    at(Point::mlp_post, layer, 0, inner);
    Matrix<double> mlp_out = reference::linear(inner, block.mlp.c_proj);
    at(Point::mlp_out, layer, 0, mlp_out);
    x += mlp_out;
    at(Point::resid_post, layer, 0, x);
  }
  Matrix<double> normed = reference::layerNorm(x, parameters.ln_f, config.layer_norm_epsilon);
  at(Point::ln_final, 0, 0, normed);
  Matrix<double> logits = reference::unembed(normed, parameters);
  at(Point::logits, 0, 0, logits);
  return logits;
}

}  // namespace

TEST_CASE_TEMPLATE("points: the values of NumPy, and of transformers", Scalar, float, double) {
  for (const nlohmann::json& model : fixtureJson("points.json").at("models")) {
    const Weights<Scalar> weights = loadWeights<Scalar>(fixturePath(model.at("model")));
    const std::vector<int> ids = model.at("ids");
    const Captured<Scalar> captured = capture(Points::all(), ids, weights);
    std::size_t found = 0;
    for (const nlohmann::json& golden : model.at("points"))
      for (const Point point : allPoints()) {
        const Index layer = golden.at("layer"), head = golden.at("head");
        const std::string name = golden.at("name");
        if (pointName(point, layer) != name) continue;
        ++found;
        const RowVector<double> expected = goldenNumbers(golden.at("values"));
        const RowVector<double> actual = shownNumbers(captured.at(point, layer, head), model, isOverKeys(point));
        INFO(model.at("model") << ", " << name << ", head " << head);
        checkClose(actual, expected, "values");
        if (sizeof(Scalar) == 8)
          CHECK((actual - expected).cwiseAbs().maxCoeff() <= 1e-9 * expected.cwiseAbs().maxCoeff());
      }
    CHECK(found == model.at("points").size());
    CHECK(found >= static_cast<std::size_t>(kPoints));
  }
}

TEST_CASE("points: writing what is there, at each point alone, changes no bit") {
  for (const Config& config : kShapes) checkIdle<float>(config, {}, eachAlone());
  using enum StoredType;
  checkIdle<float>(oddConfig(), {int8, ComputeType::int8, int8}, eachAlone());
  checkIdle<double>(oddConfig(), {}, eachAlone());
}

TEST_CASE_TEMPLATE("points: writing what is there at all points changes no bit of any type", Scalar, float, double) {
  using enum StoredType;
  for (const Types& types : {Types{}, Types{full, ComputeType::full, f16}, Types{full, ComputeType::full, bf16},
                             Types{full, ComputeType::full, int8}, Types{int8}, Types{int8, ComputeType::int8, int8}})
    for (const Config& config : kShapes) checkIdle<Scalar>(config, types, {Points::all()});
}

TEST_CASE("points: several sequences at once, watched, have the bits of each alone") {
  const Config config = smallConfig(24, 4, 40, 61, 90);
  const Weights<float> weights(livelyParameters(config));
  const std::vector<int> ids = someIds(90, 61);
  const std::span<const int> text = ids;
  const std::vector<std::span<const int>> texts = {text.first(70), text.subspan(3, 1), text.subspan(20, 40)};
  for (const int threads : {1, 3}) {
    Workspace<float> workspace{Threads(threads)};
    const Observer<float> idle = idleWriter<float>(Points::all());
    std::vector<ModelCache<float>> alone, together;
    std::vector<Chunk<float>> chunks;
    Matrix<float> expected(3, 61);
    for (std::size_t i = 0; i < 3; ++i) {
      alone.emplace_back(weights);
      together.emplace_back(weights);
      expected.row(static_cast<Index>(i)) = prefill(texts[i], weights, alone[i]);
    }
    for (std::size_t i = 0; i < 3; ++i) chunks.push_back({texts[i], &together[i]});
    CHECK(areSameBits(Matrix<float>(prefill(chunks, weights, workspace, idle)), expected));
    const std::vector<int> next = {7, 8, 9};
    const std::vector<Index> positions = {70, 1, 40};
    for (std::size_t i = 0; i < 3; ++i)
      expected.row(static_cast<Index>(i)) = decodeStep(next[i], positions[i], weights, alone[i]);
    CHECK(areSameBits(Matrix<float>(decodeStep(next, positions, weights, {&together[0], &together[1], &together[2]},
                                               workspace, idle)),
                      expected));
    for (std::size_t i = 0; i < 3; ++i) CHECK(areSameBits(rowsOf(together[i]), rowsOf(alone[i])));
  }
}

TEST_CASE_TEMPLATE("points: what is written by position has the same bits by every route and in company", Scalar, float,
                   double) {
  const Config config = smallConfig(24, 4, 40, 61, 40);
  const std::vector<int> ids = someIds(30, 61);
  for (const Types& types :
       {Types{}, Types{StoredType::int8, ComputeType::int8, StoredType::int8}, Types{.cache = StoredType::f16}}) {
    const Weights<Scalar> weights(livelyParameters<Scalar>(config),
                                  {.stored = types.weights, .compute = types.compute});
    Workspace<Scalar> one{Threads(1)}, three{Threads(3)};
    for (const Point point : allPoints())
      for (const Change change : {Change::add, Change::zero, Change::scale}) {
        INFO(pointName(point, 1) << ", change " << static_cast<int>(change) << ", weights " << nameOf(types.weights));
        const Place place{point, [](Index position) { return position % 3 == 1 || position > 20; }};
        const Observer<Scalar> writer = intervention<Scalar>(place, change);
        const Outcome<Scalar> expected = run(ids, weights, types.cache, kAll, one, writer);
        for (const std::size_t chunk : kChunks)
          CHECK(areSameBits(run(ids, weights, types.cache, chunk, three, writer), expected));

        // As the second of two, of which the first is left alone.
        ModelCache<Scalar> first(weights, types.cache), second(weights, types.cache), quiet(weights, types.cache);
        const std::span<const int> text = ids;
        const Observer<Scalar> second_only = intervention<Scalar>(place, change, 1);
        prefill(std::vector<Chunk<Scalar>>{{text.subspan(5, 11), &first}, {text.first(9), &second}}, weights, three,
                second_only);
        const Matrix<Scalar> last =
            prefill(std::vector<Chunk<Scalar>>{{text.subspan(2, 4), &first}, {text.subspan(9), &second}}, weights,
                    three, second_only);
        prefill(text.subspan(5, 11), weights, quiet);
        const Matrix<Scalar> quiet_last = prefill(text.subspan(2, 4), weights, quiet);
        CHECK(areSameBits(Matrix<Scalar>(last.row(1)), Matrix<Scalar>(expected.logits.bottomRows(1))));
        CHECK(areSameBits(rowsOf(second), expected.rows));
        CHECK(areSameBits(Matrix<Scalar>(last.row(0)), quiet_last));
        CHECK(areSameBits(rowsOf(first), rowsOf(quiet)));
      }
  }
}

TEST_CASE("points: what is written at a position changes its logits and later ones, no earlier ones") {
  const Config config = smallConfig(24, 4, 40, 61, 40);
  const Weights<float> weights(livelyParameters(config));
  const std::vector<int> ids = someIds(20, 61);
  Workspace<float> workspace;
  const Matrix<float> plain = run<float>(ids, weights, StoredType::full, kAll, workspace, {}).logits;
  for (const Point point : allPoints()) {
    INFO(pointName(point, 1));
    const Place place{point, [](Index position) { return position == 7; }};
    const Matrix<float> logits =
        run(ids, weights, StoredType::full, kAll, workspace, intervention<float>(place, Change::add)).logits;
    CHECK(areSameBits(Matrix<float>(logits.topRows(7)), Matrix<float>(plain.topRows(7))));
    CHECK(logits.row(7) != plain.row(7));
    // Later positions see what the layers above make of it; there are none above the last LayerNorm.
    const bool is_seen_later = isInLayer(point) || point == Point::embed || point == Point::pos_embed;
    for (Index row = 8; row < 20; ++row) {
      CHECK((logits.row(row) != plain.row(row)) == is_seen_later);
    }
  }
}

TEST_CASE("points: what is written has the effect that it has in plain Eigen") {
  for (const bool by_layer : {false, true}) {
    Config config = smallConfig(24, 4, 40, 61, 40);
    config.scale_attn_by_inverse_layer_idx = by_layer;
    config.activation_function = by_layer ? Activation::gelu : Activation::gelu_new;
    const Parameters<double> parameters = livelyParameters<double>(config, by_layer);
    const Weights<double> weights(parameters);
    const std::vector<int> ids = someIds(20, 61);
    Workspace<double> workspace;
    const Matrix<double> plain = fullForward<double>(ids, parameters);
    for (const Point point : allPoints())
      for (const Change change : {Change::add, Change::zero, Change::scale}) {
        INFO(pointName(point, 1) << ", change " << static_cast<int>(change));
        const Place place{point, [](Index position) { return position % 2 == 1; }};
        const Matrix<double> expected = plainForward(ids, parameters, place, change);
        const Matrix<double> actual =
            run(ids, weights, StoredType::full, kAll, workspace, intervention<double>(place, change)).logits;
        const double largest = expected.cwiseAbs().maxCoeff();
        CHECK((actual - expected).cwiseAbs().maxCoeff() <= 1e-11 * largest);
        CHECK((expected - plain).cwiseAbs().maxCoeff() > 1e-4 * largest);  // far above the tolerance
      }
  }
}

TEST_CASE("points: a head that is knocked out is knocked out by any of its points") {
  const Parameters<double> parameters = livelyParameters<double>(smallConfig(24, 4, 40, 61, 40));
  const Weights<double> weights(parameters);
  const std::vector<int> ids = someIds(20, 61);
  Workspace<double> workspace;
  const auto without = [&](Point point) {
    const Place everywhere{point, [](Index) { return true; }};
    return run(ids, weights, StoredType::full, kAll, workspace, intervention<double>(everywhere, Change::zero)).logits;
  };
  const Matrix<double> expected = without(Point::z);
  for (const Point point : {Point::pattern, Point::v, Point::result})
    CHECK((without(point) - expected).cwiseAbs().maxCoeff() <= 1e-11 * expected.cwiseAbs().maxCoeff());
}

TEST_CASE("points: a capture shows what is written, and what follows from it") {
  const Parameters<double> parameters = livelyParameters<double>(smallConfig(24, 4, 40, 61, 40));
  const Weights<double> weights(parameters);
  const std::vector<int> ids = someIds(20, 61);
  const Place place{Point::mlp_post, [](Index position) { return position >= 5; }};
  const Observer<double> changes = intervention<double>(place, Change::zero);
  const Captured<double> captured = capture(Points::all(), ids, weights, changes);
  CHECK(captured.at(Point::mlp_post, 1).bottomRows(15).isZero(0));
  CHECK_FALSE(captured.at(Point::mlp_post, 1).topRows(5).isZero(0));
  Workspace<double> workspace;
  CHECK(areSameBits(captured.at(Point::logits), run(ids, weights, StoredType::full, kAll, workspace, changes).logits));
}
