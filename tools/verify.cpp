#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/reference.hpp"
#include "model.hpp"
#include "options.hpp"
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

  void include(const Drift& other) {
    differing_bits += other.differing_bits;
    max_abs = std::max(max_abs, other.max_abs);
    max_rel = std::max(max_rel, other.max_rel);
    is_within_tolerance = is_within_tolerance && other.is_within_tolerance;
  }
};

Drift compare(const RowVector<float>& cached, const RowVector<float>& scratch, const RowVector<float>& reference) {
  Drift drift;
  for (Index i = 0; i < cached.size(); ++i) {
    drift.differing_bits +=
        std::popcount(std::bit_cast<std::uint32_t>(cached[i]) ^ std::bit_cast<std::uint32_t>(scratch[i]));
    const double a = cached[i], b = reference[i];
    double difference = a == b ? 0 : std::abs(a - b);
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    const bool is_within = difference <= kAbsoluteTolerance + kRelativeTolerance * std::abs(b);
    const double scale = std::max(std::abs(b), kAbsoluteTolerance / kRelativeTolerance);
    drift.include({0, difference, difference / scale, is_within});
  }
  return drift;
}

struct Subject {
  std::unique_ptr<Model> model;
  Parameters<float> parameters;
  std::optional<Tokenizer> tokenizer;
};

struct VerifyCommand {
  std::string model = DRIFTLESS_DEFAULT_MODEL_DIR;
  std::string preset;
  StoredTypes types;
  std::optional<int> threads;
  Prompt prompt;
  Index max_tokens = 100;
  bool is_json = false;

  /// Whether nothing drifts.
  bool run() const {
    const Subject subject = load();
    const bool has_prompt = prompt.hasText() || prompt.hasIds();
    std::vector<int> ids =
        has_prompt ? encodePrompt(prompt, subject.tokenizer) : defaultPrompt(subject.parameters.config);
    const std::size_t prompt_size = ids.size();
    const Drift drift = generate(ids, subject);
    writeSummary(ids.size() - prompt_size, drift);
    return drift.differing_bits == 0 && !isOutOfTolerance(drift);
  }

 private:
  Subject load() const {
    const Threads pool = makeThreads(threads);
    if (preset.empty()) return {loadModel(model, types, pool), loadParameters(model), loadTokenizerOf(model)};
    Parameters<float> parameters = randomParameters(presetConfig(preset), 0);
    std::unique_ptr<Model> packed = packModel(parameters, types, pool);
    return {std::move(packed), std::move(parameters), std::nullopt};
  }

  /// What weights or caches lose in rounding is no drift.
  bool isOutOfTolerance(const Drift& drift) const { return types.areExact() && !drift.is_within_tolerance; }

  static std::vector<int> defaultPrompt(const Config& config) {
    const int last = static_cast<int>(config.vocab_size - 1);
    return {0, last / 2, last};
  }

  /// Generates greedily onto `ids`, and looks at every step's logits before it takes the next.
  Drift generate(std::vector<int>& ids, const Subject& subject) const {
    constexpr std::size_t kCached = 0, kScratch = 1;
    Model& model = *subject.model;
    model.setSequences(2);
    Drift total;
    std::span<const int> next = ids;
    for (Index step = 1;; ++step) {
      const RowVector<float> logits = model.step({{kCached, next}});
      model.truncate(kScratch, 0);
      const Drift drift = compare(logits, model.step({{kScratch, ids}}), lastLogits<float>(ids, subject.parameters));
      total.include(drift);
      const int id = argmax(logits);
      if (!is_json) writeStep(step, id, drift);
      ids.push_back(id);
      if (step == max_tokens || model.length(kCached) == model.config().n_positions) return total;
      next = std::span(ids).last(1);
    }
  }

  static void writeDifferences(std::ostream& line, const Drift& drift) {
    line << "reference: max abs " << std::scientific << std::setprecision(2) << drift.max_abs << ", max rel "
         << drift.max_rel;
  }

  void writeStep(Index step, int id, const Drift& drift) const {
    std::ostringstream line;
    line << "step " << std::setw(4) << step << "  id " << std::setw(6) << id << "  differing bits "
         << drift.differing_bits << "  ";
    writeDifferences(line, drift);
    line << (isOutOfTolerance(drift) ? "  out of tolerance\n" : "\n");
    writeOutput(line.str());
  }

  void writeSummary(std::size_t steps, const Drift& drift) const {
    if (is_json) {
      const nlohmann::ordered_json object{{"steps", steps},
                                          {"differing_bits", drift.differing_bits},
                                          {"max_abs", drift.max_abs},
                                          {"max_rel", drift.max_rel}};
      return writeOutput(object.dump() + "\n");
    }
    std::ostringstream line;
    line << steps << " steps, " << drift.differing_bits << " differing bits; ";
    writeDifferences(line, drift);
    if (types.areExact()) line << (drift.is_within_tolerance ? ", within tolerance" : ", out of tolerance");
    line << "\n";
    writeOutput(line.str());
  }
};

}  // namespace

void addVerify(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("verify", "Prove over a greedy generation that the cache does not drift");
  command->footer(
      "At every step the cached logits are compared with those of a prefill from scratch, bit for bit, and with the "
      "uncached reference: |a - b| <= 1e-3 + 1e-2 |b|, where max abs is the largest |a - b| and max rel the largest "
      "|a - b| / max(|b|, 0.1). JSON has null for a difference that is not finite. Exit status: 1 if one bit differs "
      "or, with weights and cache in f32, the tolerance is exceeded; 2 for any error. Other types are compared with "
      "themselves bit for bit; what they lose in rounding shows as a difference from the reference, and is no failure. "
      "Without a prompt, three token ids are continued.");
  auto options = std::make_shared<VerifyCommand>();
  addPrompt(*command, options->prompt);
  CLI::Option* model = addModel(*command, options->model);
  addPreset(*command, options->preset, model);
  command->add_option("-n,--max-tokens", options->max_tokens, "Steps at most")
      ->type_name("N")
      ->capture_default_str()
      ->transform(wholeNumber<int>(1));
  addStoredTypes(*command, options->types);
  addThreads(*command, options->threads);
  command->add_flag("--json", options->is_json, "One object with steps, differing_bits, max_abs and max_rel");
  command->callback([options, &status] { status = options->run() ? 0 : 1; });
}

}  // namespace driftless::cli
