#include <algorithm>
#include <cstddef>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "machine.hpp"
#include "model.hpp"
#include "options.hpp"
#include "random_tensors.hpp"
#include "runner.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

/// No repeat begins after so long.
constexpr double kEnoughSeconds = 60;

/// Everything that is measured over and over, in this order and in turns, so that a machine whose speed wavers does not
/// favour one figure over another.
struct Repeat {
  double fma_peak;        ///< operations per second
  Parts prefill;          ///< seconds for all sequences
  double read_bandwidth;  ///< bytes per second
  Parts decode;           ///< seconds for all steps
  double recompute;       ///< seconds for one token of each sequence, halfway through the decoding
};

/// The most memory that the process has held so far, where the system tells.
std::optional<Index> peakMemory() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (Index kibibytes = 0; word == "VmHWM:" && file >> kibibytes) return kibibytes * 1024;
  return std::nullopt;
}

/// The processor's name, where the system tells.
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

/// A figure and what it was in each repeat.
struct Figure {
  std::string key;
  std::string label;
  std::string unit;
  std::vector<double> values;

  double median() const {
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  }
  double min() const { return std::ranges::min(values); }
  double max() const { return std::ranges::max(values); }

  Json json() const { return {{"median", median()}, {"min", min()}, {"max", max()}}; }
};

struct Results {
  Workload workload;
  double load_seconds = 0;
  Model::Sizes sizes{};
  double step_bytes = 0;
  double operations = 0;
  std::optional<Index> peak_memory;
  std::vector<Repeat> repeats;
  std::vector<Sample> curve;

  template <class F>
  std::vector<double> each(F f) const {
    std::vector<double> values;
    for (const Repeat& repeat : repeats) values.push_back(f(repeat));
    return values;
  }

  std::vector<Figure> figures() const {
    const double B = static_cast<double>(workload.batch);
    const double prompt = B * static_cast<double>(workload.prompt_tokens);
    const double steps = static_cast<double>(workload.max_tokens);
    const auto decodeBandwidth = [=, this](const Repeat& r) { return step_bytes * steps / r.decode.total; };
    const auto prefillSpeed = [=, this](const Repeat& r) { return operations / r.prefill.total; };
    return {
        {"prefill_tokens_per_s", "prefill", "tokens/s", each([=](auto& r) { return prompt / r.prefill.total; })},
        {"decode_tokens_per_s", "decode", "tokens/s", each([=](auto& r) { return B * steps / r.decode.total; })},
        {"recompute_tokens_per_s", "without a cache", "tokens/s", each([=](auto& r) { return B / r.recompute; })},
        {"cached_over_recompute", "decode / without a cache", "",
         each([=](auto& r) { return r.recompute * steps / r.decode.total; })},
        {"prefill_gflops", "prefill", "GFLOP/s", each([=](auto& r) { return 1e-9 * prefillSpeed(r); })},
        {"fma_peak_gflops", "multiply-add peak", "GFLOP/s", each([](auto& r) { return 1e-9 * r.fma_peak; })},
        {"prefill_over_peak", "prefill / peak", "", each([=](auto& r) { return prefillSpeed(r) / r.fma_peak; })},
        {"decode_gb_per_s", "decode", "GB/s", each([=](auto& r) { return 1e-9 * decodeBandwidth(r); })},
        {"read_bandwidth_gb_per_s", "read bandwidth", "GB/s", each([](auto& r) { return 1e-9 * r.read_bandwidth; })},
        {"decode_over_bandwidth", "decode / bandwidth", "",
         each([=](auto& r) { return decodeBandwidth(r) / r.read_bandwidth; })},
    };
  }

  /// Seconds of a prefill, and of a decode step.
  std::vector<Figure> partsOf(Parts Repeat::*parts, double steps) const {
    return {{"linear", "linear layers", "ms", each([=](auto& r) { return (r.*parts).linear / steps; })},
            {"attention", "attention", "ms", each([=](auto& r) { return (r.*parts).attention / steps; })},
            {"unembedding", "unembedding", "ms", each([=](auto& r) { return (r.*parts).unembedding / steps; })},
            {"rest", "the rest", "ms", each([=](auto& r) { return (r.*parts).rest() / steps; })}};
  }
  std::vector<Figure> prefillParts() const { return partsOf(&Repeat::prefill, 1); }
  std::vector<Figure> decodeParts() const { return partsOf(&Repeat::decode, static_cast<double>(workload.max_tokens)); }
};

/// A line on standard error that says what is going on, and is gone in the end.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { std::cerr << "\r" << std::string(kWidth, ' ') << "\r" << std::flush; }

  void show(const std::string& state) {
    std::cerr << "\r" << std::left << std::setw(kWidth) << "driftless bench: " + state << std::flush;
  }

 private:
  static constexpr int kWidth = 50;
};

struct BenchCommand {
  std::string model = DRIFTLESS_DEFAULT_MODEL_DIR;
  std::string preset = "gpt2";
  StoredTypes types;
  std::optional<int> threads;
  std::optional<Index> prompt_tokens;
  Index max_tokens = 64;
  std::size_t batch = 1;
  std::size_t repeats = 5;
  bool draws_curve = false;
  bool is_json = false;
  CLI::Option* model_option = nullptr;

  void run() const {
    const Config config = hasModel() ? Checkpoint(model).config() : presetConfig(preset);
    const Threads pool = makeThreads(threads);
    const Results results = measure(workloadFor(config), pool);
    writeOutput(is_json ? json(results, pool) : table(results, pool));
  }

 private:
  bool hasModel() const { return model_option->count() > 0; }
  const std::string& name() const { return hasModel() ? model : preset; }

  std::unique_ptr<Model> load(const Threads& pool, double& seconds) const {
    const Stopwatch watch;
    double drawing = 0;
    RandomTensors tensors(presetConfig(preset));
    const auto source = [&](const std::string& tensor) {
      const Stopwatch drawn;
      const TensorView view = tensors.draw(tensor);
      drawing += drawn.seconds();
      return view;
    };
    std::unique_ptr<Model> loaded =
        hasModel() ? loadModel(model, types, pool) : packModel(presetConfig(preset), source, types, pool);
    seconds = watch.seconds() - drawing;
    return loaded;
  }

  Workload workloadFor(const Config& config) const {
    const Index prompt = prompt_tokens.value_or(std::clamp(config.n_positions / 2, Index{1}, Index{512}));
    if (prompt > config.n_positions || max_tokens > config.n_positions - prompt)
      throw ArgumentError("--prompt-tokens and --max-tokens: expected at most n_positions, " +
                          std::to_string(config.n_positions) + ", together, got " + std::to_string(prompt) + " and " +
                          std::to_string(max_tokens));
    return {prompt, max_tokens, batch};
  }

  Results measure(const Workload& workload, const Threads& pool) const {
    Results results;
    results.workload = workload;
    Progress progress;
    progress.show("loading");
    const std::unique_ptr<Model> loaded = load(pool, results.load_seconds);
    progress.show("warming up");
    Runner runner(*loaded, workload);
    runner.prefill();
    runner.decode();
    results.sizes = loaded->sizes();
    results.step_bytes = bytesPerDecodeStep(results.sizes, workload);
    results.operations = prefillOperations(loaded->config(), workload);
    results.peak_memory = peakMemory();
    const Machine machine(results.sizes.step_weights, pool);
    const Stopwatch watch;
    while (results.repeats.size() < repeats && (results.repeats.empty() || watch.seconds() < kEnoughSeconds)) {
      progress.show("repeat " + std::to_string(results.repeats.size() + 1) + " of " + std::to_string(repeats));
      results.repeats.push_back({machine.fmaPeak(), runner.prefill(), machine.readBandwidth(), runner.decode(),
                                 runner.recompute(workload.prompt_tokens + workload.max_tokens / 2)});
    }
    if (!draws_curve) return results;
    progress.show("cost over positions");
    results.curve = runner.curve();
    return results;
  }

  static Json jsonOf(const std::vector<Figure>& figures) {
    Json object = Json::object();
    for (const Figure& figure : figures) object[figure.key] = figure.json();
    return object;
  }

  std::string json(const Results& results, const Threads& pool) const {
    Json object{{"model", name()},
                {"weights", types.weights},
                {"cache", types.cache},
                {"threads", pool.count()},
                {"batch", batch},
                {"prompt_tokens", results.workload.prompt_tokens},
                {"max_tokens", max_tokens},
                {"repeats", results.repeats.size()},
                {"machine", processorName()},
                {"date", today()},
                {"load_seconds", results.load_seconds}};
    object.update(jsonOf(results.figures()));
    object["seconds_per_part"] = {{"prefill", jsonOf(results.prefillParts())},
                                  {"decode", jsonOf(results.decodeParts())}};
    object["weight_bytes"] = results.sizes.weights;
    object["cache_bytes"] = results.sizes.caches;
    object["bytes_per_decode_step"] = results.step_bytes;
    object["peak_memory_bytes"] = results.peak_memory ? Json(*results.peak_memory) : Json();
    if (draws_curve) object["positions"] = Json::array();
    for (const Sample& sample : results.curve)
      object["positions"].push_back({{"position", sample.position},
                                     {"cached_seconds", sample.cached_seconds},
                                     {"recomputed_seconds", sample.recomputed_seconds}});
    return object.dump() + "\n";
  }

  std::string table(const Results& results, const Threads& pool) const {
    std::ostringstream out;
    out << std::fixed << name() << ", weights " << types.weights << ", cache " << types.cache << ", threads "
        << pool.count() << "; sequences " << batch << ", prompt " << results.workload.prompt_tokens << ", generated "
        << max_tokens << "; repeats " << results.repeats.size() << "\n";
    writeHeading(out, "", "median", "min", "max");
    for (const Figure& figure : results.figures()) writeFigure(out, figure, 1);
    writeHeading(out, "a prefill");
    for (const Figure& figure : results.prefillParts()) writeFigure(out, figure, 1e3);
    writeHeading(out, "a decode step");
    for (const Figure& figure : results.decodeParts()) writeFigure(out, figure, 1e3);
    writeHeading(out, "once");
    writeOnce(out, "load", results.load_seconds, "s");
    writeOnce(out, "weights", megabytes(results.sizes.weights), "MB");
    writeOnce(out, "caches", megabytes(results.sizes.caches), "MB");
    writeOnce(out, "read in a decode step", 1e-6 * results.step_bytes, "MB");
    if (results.peak_memory) writeOnce(out, "peak memory", megabytes(*results.peak_memory), "MB");
    if (draws_curve) writeHeading(out, "position", "cached", "recomputed");
    for (const Sample& sample : results.curve) {
      out << "  " << std::left << std::setw(kLabelWidth) << sample.position;
      writeNumber(out, 1e3 * sample.cached_seconds);
      writeNumber(out, 1e3 * sample.recomputed_seconds);
      out << "  ms\n";
    }
    return out.str();
  }

  static constexpr int kLabelWidth = 26;

  static double megabytes(Index bytes) { return 1e-6 * static_cast<double>(bytes); }

  static void writeNumber(std::ostream& out, double number) {
    const int digits = number < 1 ? 4 : number < 100 ? 2 : 1;
    out << std::right << std::setw(12) << std::setprecision(digits) << number;
  }

  template <class... Columns>
  static void writeHeading(std::ostream& out, const char* label, const Columns&... columns) {
    out << std::left << std::setw(sizeof...(columns) > 0 ? kLabelWidth + 2 : 0) << label << std::right;
    ((out << std::setw(12) << columns), ...);
    out << "\n";
  }

  static void writeFigure(std::ostream& out, const Figure& figure, double scale) {
    out << "  " << std::left << std::setw(kLabelWidth) << figure.label;
    for (const double number : {figure.median(), figure.min(), figure.max()}) writeNumber(out, scale * number);
    out << (figure.unit.empty() ? "" : "  ") << figure.unit << "\n";
  }

  static void writeOnce(std::ostream& out, const char* label, double number, const char* unit) {
    out << "  " << std::left << std::setw(kLabelWidth) << label;
    writeNumber(out, number);
    out << "  " << unit << "\n";
  }
};

}  // namespace

void addBench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure a model's speed against the machine's limits");
  command->footer(
      "Every repeat measures the model and, on the same threads, the machine: how fast it reads a buffer of the "
      "weights' size, and how many multiply-adds it does between registers. decode_over_bandwidth: the bytes that a "
      "step must read (weights once, keys and values of every sequence) per second over the first; prefill_over_peak: "
      "floating-point operations per second over the second. load_seconds of random weights is for packing alone, and "
      "their peak memory includes the largest tensor in f16. Repeats end after a minute.");
  auto options = std::make_shared<BenchCommand>();
  options->model_option = addModel(*command, options->model);
  addPreset(*command, options->preset, options->model_option)->capture_default_str();
  addStoredTypes(*command, options->types);
  addThreads(*command, options->threads);
  const auto count = [&](const char* name, auto& value, const char* description) {
    return command->add_option(name, value, description)->type_name("N");
  };
  count("--prompt-tokens", options->prompt_tokens, "Tokens of each prompt (default: half of the context, 512 at most)")
      ->transform(wholeNumber<Index>(1));
  count("-n,--max-tokens", options->max_tokens, "Tokens to generate behind each")
      ->capture_default_str()
      ->transform(wholeNumber<Index>(1));
  count("--batch", options->batch, "Sequences together")
      ->capture_default_str()
      ->transform(wholeNumber<std::size_t>(1, 4096));
  count("--repeats", options->repeats, "How often everything is measured")
      ->capture_default_str()
      ->transform(wholeNumber<std::size_t>(1));
  command->add_flag("--curve", options->draws_curve,
                    "Also measure a token's cost at positions over the whole context, cached and recomputed");
  command->add_flag("--json", options->is_json, "One object; a figure of every repeat has median, min and max");
  command->callback([options] { options->run(); });
}

}  // namespace driftless::cli
