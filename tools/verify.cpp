#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/argmax.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/generate.hpp"
#include "models.hpp"
#include "prompts.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

constexpr double kAbsoluteTolerance = 1e-3;
constexpr double kRelativeTolerance = 1e-2;

/// How far cached logits are from others, over one step or several.
struct Drift {
  std::int64_t differing_bits = 0;  ///< from prefill from scratch
  double max_abs = 0;               ///< |a - b|, with the reference's b
  double max_rel = 0;               ///< |a - b| / max(|b|, 0.1): below 0.1 the absolute tolerance is the wider one
  bool is_within_tolerance = true;  ///< |a - b| <= atol + rtol * |b|
  bool is_finite = true;            ///< so are all logits: of others, nothing can be said

  void include(const Drift& other) {
    differing_bits += other.differing_bits;
    max_abs = std::max(max_abs, other.max_abs);
    max_rel = std::max(max_rel, other.max_rel);
    is_within_tolerance = is_within_tolerance && other.is_within_tolerance;
    is_finite = is_finite && other.is_finite;
  }
};

Drift compare(const RowVector<float>& cached, const RowVector<float>& scratch, const RowVector<float>& reference) {
  Drift drift;
  for (Index i = 0; i < cached.size(); ++i) {
    drift.differing_bits +=
        std::popcount(std::bit_cast<std::uint32_t>(cached[i]) ^ std::bit_cast<std::uint32_t>(scratch[i]));
    const double a = cached[i], b = reference[i];
    if (!std::isfinite(a) || !std::isfinite(b)) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      drift.include({0, kInfinity, kInfinity, false, false});
      continue;
    }
    const double difference = std::abs(a - b);
    const bool is_within = difference <= kAbsoluteTolerance + kRelativeTolerance * std::abs(b);
    const double scale = std::max(std::abs(b), kAbsoluteTolerance / kRelativeTolerance);
    drift.include({0, difference, difference / scale, is_within, true});
  }
  return drift;
}

struct Subject {
  Weights<float> weights;
  Parameters<float> parameters;
};

Subject load(const ModelOptions& model) {
  const LoadOptions options = loadOptions(model);
  if (!model.preset) {
    const Checkpoint checkpoint = openModel(model);
    return {loadWeights(checkpoint, options), loadParameters(checkpoint)};
  }
  Parameters<float> parameters = randomParameters(presetConfig(*model.preset), 0);
  Weights<float> weights(parameters, options);
  return {std::move(weights), std::move(parameters)};
}

std::vector<int> defaultPrompt(const Config& config) {
  const int last = static_cast<int>(config.vocab_size - 1);
  return {0, last / 2, last};
}

/// What weights or caches lose in rounding is no drift.
bool isOutOfTolerance(const Drift& drift, const ModelOptions& model) {
  return !drift.is_finite || (model.isExact() && !drift.is_within_tolerance);
}

void writeDifferences(std::ostream& line, const Drift& drift) {
  line << "reference: max abs " << std::scientific << std::setprecision(2) << drift.max_abs << ", max rel "
       << drift.max_rel;
}

void writeStep(Index step, int id, const Drift& drift, const ModelOptions& model) {
  std::ostringstream line;
  line << "step " << std::setw(4) << step << "  id " << std::setw(6) << id << "  differing bits "
       << drift.differing_bits << "  ";
  writeDifferences(line, drift);
  line << (isOutOfTolerance(drift, model) ? "  out of tolerance\n" : "\n");
  writeOutput(line.str());
}

void writeSummary(std::size_t steps, const Drift& drift, const ModelOptions& model) {
  std::ostringstream line;
  line << steps << " steps, " << drift.differing_bits << " differing bits; ";
  writeDifferences(line, drift);
  if (isOutOfTolerance(drift, model))
    line << ", out of tolerance";
  else if (model.isExact())
    line << ", within tolerance";
  line << "\n";
  writeOutput(line.str());
}

void writeJson(std::size_t steps, const Drift& drift) {
  const nlohmann::ordered_json object{{"steps", steps},
                                      {"differing_bits", drift.differing_bits},
                                      {"max_abs", drift.max_abs},
                                      {"max_rel", drift.max_rel}};
  writeOutput(jsonLine(object));
}

/// Generates greedily onto `ids`, and looks at every step's logits before it takes the next.
Drift generate(const VerifyCommand& command, const Subject& subject, std::vector<int>& ids) {
  std::vector<ModelCache<float>> caches = emptyCaches(command.model, subject.weights, 2);
  ModelCache<float>& cached = caches[0];
  ModelCache<float>& scratch = caches[1];
  Workspace<float> workspace(subject.weights.threads);
  Drift total;
  std::span<const int> next = ids;
  for (Index step = 1;; ++step) {
    const RowVector<float> logits = prefill(next, subject.weights, cached, workspace);
    scratch.reset();
    const Drift drift =
        compare(logits, prefill(ids, subject.weights, scratch, workspace), referenceLogits(ids, subject.parameters));
    total.include(drift);
    try {
      checkLogits(logits, cached.length() - 1, subject.weights);
    } catch (const ArgumentError& error) {  // a failure like others, and the end
      std::cerr << "driftless: " << error.what() << std::endl;
      return total;
    }
    const int id = argmax(logits);
    if (!command.is_json) writeStep(step, id, drift, command.model);
    ids.push_back(id);
    if (step == command.max_tokens || cached.length() == cached.capacity()) return total;
    next = std::span(ids).last(1);
  }
}

}  // namespace

bool VerifyCommand::run() const {
  const Subject subject = load(model);
  const bool has_prompt = prompt.text || prompt.ids;
  ModelTokenizer tokenizer(model.preset ? std::nullopt : std::optional(model.path));
  std::vector<int> ids = has_prompt ? encodePrompt(prompt, tokenizer) : defaultPrompt(subject.parameters.config);
  const std::size_t prompt_size = ids.size();
  const Drift drift = generate(*this, subject, ids);
  const std::size_t steps = ids.size() - prompt_size;
  is_json ? writeJson(steps, drift) : writeSummary(steps, drift, model);
  return drift.differing_bits == 0 && !isOutOfTolerance(drift, model);
}

}  // namespace driftless::cli
