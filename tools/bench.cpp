#include <algorithm>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "machine.hpp"
#include "models.hpp"
#include "runner.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

/// No repeat begins after so long.
constexpr double kEnoughSeconds = 60;

/// A speed that falls by a smaller share is not worth a word: so much comes and goes between two runs.
constexpr double kNotableFall = 0.03;

/// Everything that is measured over and over, in this order and in turns, so that a machine whose speed wavers does not
/// favour one figure over another.
struct Repeat {
  double fma_peak;        ///< operations per second
  Parts prefill;          ///< seconds for all sequences
  double read_bandwidth;  ///< bytes per second
  Parts decode;           ///< seconds for all steps
  double recompute;       ///< seconds for one token of each sequence, halfway through the decoding
};

/// The most memory that the process has held so far, if the system tells.
std::optional<Index> peakMemory() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (Index kibibytes = 0; word == "VmHWM:" && file >> kibibytes) return kibibytes * 1024;
  return std::nullopt;
}

/// The processor's name, if the system tells.
std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "";
}

/// Today in UTC, as 2026-12-31.
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::ostringstream text;
  text << std::put_time(std::gmtime(&now), "%F");
  return text.str();
}

struct Results {
  Workload workload;
  double load_seconds = 0;
  Index weight_bytes = 0;
  Index cache_bytes = 0;
  Index workspace_bytes = 0;
  double step_bytes = 0;
  double operations = 0;
  std::optional<Index> peak_memory;
  std::vector<Repeat> repeats;
  std::vector<CostAtPosition> curve;
};

/// What one repeat says.
struct Quantity {
  const char* key;
  const char* label;
  const char* unit;
  double value;
};

std::vector<Quantity> speedsOf(const Repeat& repeat, const Results& results) {
  const double B = static_cast<double>(results.workload.batch);
  const double prompt_tokens = B * static_cast<double>(results.workload.prompt_tokens);
  const double steps_per_s = static_cast<double>(results.workload.max_tokens) / repeat.decode.total;
  const double prefill_speed = results.operations / repeat.prefill.total;
  const double decode_bandwidth = results.step_bytes * steps_per_s;
  return {{"prefill_tokens_per_s", "prefill", "tokens/s", prompt_tokens / repeat.prefill.total},
          {"decode_tokens_per_s", "decode", "tokens/s", B * steps_per_s},
          {"recompute_tokens_per_s", "without a cache", "tokens/s", B / repeat.recompute},
          {"cached_over_recompute", "decode / without a cache", "", repeat.recompute * steps_per_s},
          {"prefill_gflops", "prefill", "GFLOP/s", 1e-9 * prefill_speed},
          {"fma_peak_gflops", "multiply-add peak", "GFLOP/s", 1e-9 * repeat.fma_peak},
          {"prefill_over_peak", "prefill / peak", "", prefill_speed / repeat.fma_peak},
          {"decode_gb_per_s", "decode", "GB/s", 1e-9 * decode_bandwidth},
          {"read_bandwidth_gb_per_s", "read bandwidth", "GB/s", 1e-9 * repeat.read_bandwidth},
          {"decode_over_bandwidth", "decode / bandwidth", "", decode_bandwidth / repeat.read_bandwidth}};
}

/// Seconds of a step, by its parts.
std::vector<Quantity> secondsOf(const Parts& parts, double steps) {
  return {{"linear", "linear layers", "ms", parts.linear / steps},
          {"attention", "attention", "ms", parts.attention / steps},
          {"unembedding", "unembedding", "ms", parts.unembedding / steps},
          {"rest", "the rest", "ms", parts.rest() / steps}};
}

std::vector<Quantity> prefillSeconds(const Repeat& repeat, const Results&) { return secondsOf(repeat.prefill, 1); }

std::vector<Quantity> decodeSeconds(const Repeat& repeat, const Results& results) {
  return secondsOf(repeat.decode, static_cast<double>(results.workload.max_tokens));
}

/// What all repeats say of a quantity, of which value is the median.
struct Figure : Quantity {
  double min;
  double max;
};

std::vector<Figure> figures(const Results& results,
                            std::vector<Quantity> (*quantitiesOf)(const Repeat&, const Results&)) {
  std::vector<std::vector<Quantity>> repeats;
  for (const Repeat& repeat : results.repeats) repeats.push_back(quantitiesOf(repeat, results));
  std::vector<Figure> figures;
  for (std::size_t i = 0; i < repeats.front().size(); ++i) {
    std::vector<double> values;
    for (const std::vector<Quantity>& repeat : repeats) values.push_back(repeat[i].value);
    std::sort(values.begin(), values.end());
    figures.push_back({repeats.front()[i], values.front(), values.back()});
    figures.back().value = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  }
  return figures;
}

/// A line on standard error that says what is going on, and is gone in the end.
class StatusLine {
 public:
  StatusLine() = default;
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { std::cerr << "\r" << std::string(kWidth, ' ') << "\r" << std::flush; }

  void show(const std::string& state) {
    std::cerr << "\r" << std::left << std::setw(kWidth) << "driftless bench: " + state << std::flush;
  }

 private:
  static constexpr int kWidth = 50;
};

/// The time without that of drawing random numbers goes to `seconds`.
Weights<float> load(const ModelOptions& model, double& seconds) {
  const LoadOptions options = loadOptions(model);
  const Stopwatch watch;
  if (!model.preset) {
    Weights<float> weights = loadWeights(openModel(model), options);
    seconds = watch.seconds();
    return weights;
  }
  double drawing = 0;
  RandomTensors tensors(presetConfig(*model.preset));
  const auto draw = [&](const std::string& name) {
    const Stopwatch drawn;
    const TensorView tensor = tensors.draw(name);
    drawing += drawn.seconds();
    return tensor;
  };
  Weights<float> weights(presetConfig(*model.preset), false, draw, options);
  seconds = watch.seconds() - drawing;
  return weights;
}

Workload workloadFor(const BenchCommand& command, const Config& config) {
  const Index prompt = command.prompt_tokens.value_or(std::clamp(config.n_positions / 2, Index{1}, Index{512}));
  if (prompt > config.n_positions || command.max_tokens > config.n_positions - prompt)
    throw ArgumentError("--prompt-tokens and --max-tokens: expected at most n_positions, " +
                        std::to_string(config.n_positions) + ", together, got " + std::to_string(prompt) + " and " +
                        std::to_string(command.max_tokens));
  return {prompt, command.max_tokens, command.batch};
}

Results measure(const BenchCommand& command, const Workload& workload) {
  Results results;
  results.workload = workload;
  StatusLine progress;
  progress.show("loading");
  const Weights<float> weights = load(command.model, results.load_seconds);
  progress.show("warming up");
  Runner runner(weights, emptyCaches(command.model, weights, workload.batch), workload);
  runner.prefill();
  runner.decode();
  results.weight_bytes = weights.bytes();
  results.cache_bytes = runner.cacheBytes();
  results.workspace_bytes = runner.workspaceBytes();
  results.step_bytes = runner.stepBytes();
  results.operations = prefillOperations(weights.config, workload);
  results.peak_memory = peakMemory();
  const Machine machine(runner.stepWeightBytes(), weights.threads);
  const Stopwatch watch;
  while (results.repeats.size() < command.repeats && (results.repeats.empty() || watch.seconds() < kEnoughSeconds)) {
    progress.show("repeat " + std::to_string(results.repeats.size() + 1) + " of " + std::to_string(command.repeats));
    results.repeats.push_back({machine.fmaPeak(), runner.prefill(), machine.readBandwidth(), runner.decode(),
                               runner.recompute(workload.prompt_tokens + workload.max_tokens / 2)});
  }
  if (!command.draws_curve) return results;
  progress.show("cost over positions");
  results.curve = runner.curve();
  return results;
}

using Json = nlohmann::ordered_json;

/// What the speeds depend on, beside the program and the machine.
Json settingsOf(const BenchCommand& command, const Workload& workload) {
  return {{"model", command.model.name()},
          {"weights", command.model.weights},
          {"compute", command.model.compute},
          {"cache", command.model.cache},
          {"threads", loadOptions(command.model).threads.count()},
          {"batch", workload.batch},
          {"prompt_tokens", workload.prompt_tokens},
          {"max_tokens", workload.max_tokens}};
}

/// What an earlier run with --json printed, of the same settings.
class EarlierRun {
 public:
  EarlierRun(const std::string& path, const Json& settings) : document_(readFile(path), path, kJsonDepth) {
    const detail::JsonValue object = detail::JsonValue(document_).object();
    for (const auto& [key, value] : settings.items()) {
      const detail::JsonValue earlier = object[key];
      // Runs from before there was a choice.
      if (key == "compute" && !earlier.isThere() && value == "f32") continue;
      if (!earlier.isThere() || document_.root.at(key) != detail::Json(value))
        throw ArgumentError(
            detail::message({"--against: ", earlier.name(), ": expected ",
                             detail::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)),
                             " as in this run, got ", earlier.shown()}));
    }
  }

  /// When and where it ran, as far as it says.
  std::string origin() const {
    const detail::JsonValue object(document_);
    std::string text = detail::printable(document_.where);
    for (const char* key : {"date", "machine"})
      if (object[key].is(detail::JsonKind::string)) text += ", " + detail::printable(object[key].string());
    return text;
  }

  /// The median that it found, if it has one that a ratio can be taken over.
  std::optional<double> median(const char* key) const {
    const std::optional<double> number = detail::JsonValue(document_)[key]["median"].number();
    return number && *number > 0 ? number : std::nullopt;
  }

 private:
  static constexpr std::size_t kJsonDepth = 8;

  detail::JsonDocument document_;
};

struct Comparison {
  Figure now;
  double earlier;

  double ratio() const { return now.value / earlier; }
};

/// Of all speeds that both runs have.
std::vector<Comparison> compare(const Results& results, const EarlierRun& earlier) {
  std::vector<Comparison> comparisons;
  for (const Figure& figure : figures(results, speedsOf))
    if (const auto median = earlier.median(figure.key)) comparisons.push_back({figure, *median});
  return comparisons;
}

std::vector<Comparison> fallen(std::vector<Comparison> comparisons) {
  std::erase_if(comparisons, [](const Comparison& comparison) { return comparison.ratio() >= 1 - kNotableFall; });
  return comparisons;
}

void addFigures(Json& object, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures)
    object[figure.key] = {{"median", figure.value}, {"min", figure.min}, {"max", figure.max}};
}

Json comparisonJson(const Results& results, const EarlierRun& earlier) {
  Json ratios = Json::object(), fell = Json::array();
  const std::vector<Comparison> comparisons = compare(results, earlier);
  for (const Comparison& comparison : comparisons) ratios[comparison.now.key] = comparison.ratio();
  for (const Comparison& comparison : fallen(comparisons)) fell.push_back(comparison.now.key);
  return {{"earlier", earlier.origin()}, {"now_over_earlier", ratios}, {"fell", fell}};
}

std::string json(const Json& settings, const Results& results, const std::optional<EarlierRun>& earlier) {
  Json prefill, decode;
  addFigures(prefill, figures(results, prefillSeconds));
  addFigures(decode, figures(results, decodeSeconds));
  Json object = settings;
  object["repeats"] = results.repeats.size();
  object["machine"] = processorName();
  object["date"] = today();
  object["load_seconds"] = results.load_seconds;
  addFigures(object, figures(results, speedsOf));
  object["seconds_per_part"] = {{"prefill", prefill}, {"decode", decode}};
  object["weight_bytes"] = results.weight_bytes;
  object["cache_bytes"] = results.cache_bytes;
  object["workspace_bytes"] = results.workspace_bytes;
  object["bytes_per_decode_step"] = results.step_bytes;
  object["peak_memory_bytes"] = results.peak_memory ? Json(*results.peak_memory) : Json();
  for (const CostAtPosition& point : results.curve)
    object["positions"].push_back({{"position", point.position},
                                   {"cached_seconds", point.cached_seconds},
                                   {"recomputed_seconds", point.recomputed_seconds}});
  if (earlier) object["against"] = comparisonJson(results, *earlier);
  return jsonLine(object);
}

constexpr int kLabelWidth = 26;

double megabytes(Index bytes) { return 1e-6 * static_cast<double>(bytes); }

void writeNumber(std::ostream& out, double number) {
  const int digits = number < 1 ? 4 : number < 100 ? 2 : 1;
  out << std::right << std::setw(12) << std::setprecision(digits) << number;
}

void writeHeading(std::ostream& out, const char* label, const std::vector<const char*>& columns = {}) {
  out << std::left << std::setw(columns.empty() ? 0 : kLabelWidth + 2) << label << std::right;
  for (const char* column : columns) out << std::setw(12) << column;
  out << "\n";
}

void writeRow(std::ostream& out, std::string_view label, const std::vector<double>& numbers, std::string_view unit) {
  out << "  " << std::left << std::setw(kLabelWidth) << label;
  for (const double number : numbers) writeNumber(out, number);
  out << (unit.empty() ? "" : "  ") << unit << "\n";
}

void writeFigures(std::ostream& out, const std::vector<Figure>& figures, double scale) {
  for (const Figure& figure : figures)
    writeRow(out, figure.label, {scale * figure.value, scale * figure.min, scale * figure.max}, figure.unit);
}

void writeComparison(std::ostream& out, const Results& results, const EarlierRun& earlier) {
  writeHeading(out, ("against " + earlier.origin()).c_str());
  writeHeading(out, "", {"now", "earlier", "ratio"});
  const std::vector<Comparison> comparisons = compare(results, earlier);
  for (const Comparison& comparison : comparisons)
    writeRow(out, comparison.now.label, {comparison.now.value, comparison.earlier, comparison.ratio()},
             comparison.now.unit);
  const std::vector<Comparison> fell = fallen(comparisons);
  out << (fell.empty() ? "none fell" : "fell") << " by more than " << std::setprecision(0) << 100 * kNotableFall
      << " %";
  for (const Comparison& comparison : fell) out << (&comparison == fell.data() ? ": " : ", ") << comparison.now.key;
  out << "\n";
}

std::string table(const BenchCommand& command, const Json& settings, const Results& results,
                  const std::optional<EarlierRun>& earlier) {
  std::ostringstream out;
  out << std::fixed << command.model.name() << ", weights " << command.model.weights << ", computed in "
      << command.model.compute << ", cache " << command.model.cache << ", threads " << settings["threads"]
      << "; sequences " << command.batch << ", prompt " << results.workload.prompt_tokens << ", generated "
      << command.max_tokens << "; repeats " << results.repeats.size() << "\n";
  writeHeading(out, "", {"median", "min", "max"});
  writeFigures(out, figures(results, speedsOf), 1);
  writeHeading(out, "a prefill");
  writeFigures(out, figures(results, prefillSeconds), 1e3);
  writeHeading(out, "a decode step");
  writeFigures(out, figures(results, decodeSeconds), 1e3);
  writeHeading(out, "once");
  writeRow(out, "load", {results.load_seconds}, "s");
  writeRow(out, "weights", {megabytes(results.weight_bytes)}, "MB");
  writeRow(out, "caches", {megabytes(results.cache_bytes)}, "MB");
  writeRow(out, "workspace", {megabytes(results.workspace_bytes)}, "MB");
  writeRow(out, "read in a decode step", {1e-6 * results.step_bytes}, "MB");
  if (results.peak_memory) writeRow(out, "peak memory", {megabytes(*results.peak_memory)}, "MB");
  if (command.draws_curve) writeHeading(out, "position", {"cached", "recomputed"});
  for (const CostAtPosition& point : results.curve)
    writeRow(out, std::to_string(point.position), {1e3 * point.cached_seconds, 1e3 * point.recomputed_seconds}, "ms");
  if (earlier) writeComparison(out, results, *earlier);
  return out.str();
}

}  // namespace

void BenchCommand::run() const {
  const Config config =
      model.preset ? presetConfig(*model.preset) : Checkpoint(model.path, checkpointOptions(model)).config();
  const Workload workload = workloadFor(*this, config);
  const Json settings = settingsOf(*this, workload);
  std::optional<EarlierRun> earlier;
  if (against) earlier.emplace(*against, settings);
  const Results results = measure(*this, workload);
  writeOutput(is_json ? json(settings, results, earlier) : table(*this, settings, results, earlier));
}

}  // namespace driftless::cli
