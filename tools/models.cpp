#include "models.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string_view>
#include <system_error>

#include "driftless/detail/files/file_mapping.hpp"
#include "driftless/error.hpp"
#include "driftless/parameters.hpp"
#include "driftless/reference.hpp"
#include "named_policies.hpp"

namespace driftless::cli {
namespace {

/// `f32` on the command line is what the library computes in.
StoredType storedTypeNamed(const std::string& name) {
  const auto found = std::ranges::find(kStoredTypeNames, std::string_view(name == "f32" ? "full" : name));
  return static_cast<StoredType>(found - std::ranges::begin(kStoredTypeNames));
}

ComputeType computeTypeNamed(const std::string& name) { return name == "int8" ? ComputeType::int8 : ComputeType::full; }

/// None keeps everything.
std::shared_ptr<const CachePolicy> policyOf(const ModelOptions& options) {
  return options.policy ? makePolicy(*options.policy, options.cache_budget.value()) : nullptr;
}

struct Preset {
  const char* name;
  Index n_layer;
  Index n_embd;
  Index n_head;
};

constexpr std::array kPresets = {Preset{"distilgpt2", 6, 768, 12}, Preset{"gpt2", 12, 768, 12},
                                 Preset{"gpt2-medium", 24, 1024, 16}, Preset{"gpt2-large", 36, 1280, 20},
                                 Preset{"gpt2-xl", 48, 1600, 25}};

}  // namespace

std::string defaultModel() {
  std::error_code error;  // what knows no /proc finds the source tree only
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path installed = (program.parent_path() / DRIFTLESS_PROGRAM_TO_MODEL).lexically_normal();
  return detail::isThere(installed) ? installed.string() : DRIFTLESS_SOURCE_MODEL_DIR;
}

CheckpointOptions checkpointOptions(const ModelOptions& options) { return {options.maps_files, options.ignores_extra}; }

LoadOptions loadOptions(const ModelOptions& options) {
  if (options.compute == "int8" && options.weights != "int8" && options.weights != "int4")
    throw ArgumentError("--compute int8: expected --weights int8 or int4, got " + options.weights);
  return {storedTypeNamed(options.weights), computeTypeNamed(options.compute),
          options.threads ? Threads(*options.threads) : Threads(), checkpointOptions(options)};
}

Checkpoint openModel(const ModelOptions& options) {
  Checkpoint checkpoint(options.path, checkpointOptions(options));
  for (const std::string& tensor : checkpoint.ignored()) std::cerr << "ignored: " << tensor << std::endl;
  return checkpoint;
}

BatchOptions batchOptions(const ModelOptions& options, std::size_t sequences) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<Index>::max());
  return {.sequences = static_cast<Index>(std::min(sequences, kMost)),
          .cache = storedTypeNamed(options.cache),
          .policy = policyOf(options),
          .past_context = options.past_context};
}

std::vector<ModelCache<float>> emptyCaches(const ModelOptions& options, const Weights<float>& weights,
                                           std::size_t count) {
  std::vector<ModelCache<float>> caches;
  while (caches.size() < count)
    caches.emplace_back(weights, storedTypeNamed(options.cache), policyOf(options), options.past_context);
  return caches;
}

Index bytesPerPosition(const LayerCache<float>& layer) {
  return layer.bytesFor(detail::kPanelWidth) / detail::kPanelWidth;
}

const Tokenizer* ModelTokenizer::find() {
  if (!is_read_) {
    is_read_ = true;
    try {
      if (hasFiles())
        tokenizer_ = Tokenizer::load(detail::modelDirectory(*model_));
      else
        why_not_ = "the model has no tokenizer files";
    } catch (const Error& error) {
      why_not_ = error.what();
    }
  }
  return tokenizer_ ? &*tokenizer_ : nullptr;
}

const Tokenizer& ModelTokenizer::require(const std::string& expected) {
  if (const Tokenizer* const tokenizer = find()) return *tokenizer;
  throw ArgumentError(why_not_ + "; " + expected);
}

bool ModelTokenizer::hasFiles() const {
  constexpr std::array kFiles = {"tokenizer.json", "vocab.json", "merges.txt"};
  return model_ && std::ranges::any_of(kFiles, [&](const char* file) {
           return detail::isThere(detail::modelDirectory(*model_) / file);
         });
}

std::optional<std::string> textOf(const std::vector<int>& ids, const Tokenizer* tokenizer) {
  const bool is_text = tokenizer != nullptr && std::ranges::all_of(ids, [&](int id) { return tokenizer->has(id); });
  return is_text ? std::optional(tokenizer->decode(ids)) : std::nullopt;
}

std::vector<std::string> presetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

RowVector<float> referenceLogits(const std::vector<int>& ids, const Parameters<float>& parameters) {
  return lastLogits<float>(ids, parameters);
}

Config presetConfig(const std::string& name) {
  const Preset& preset = *std::ranges::find(kPresets, name, &Preset::name);
  Config config;
  config.n_layer = preset.n_layer;
  config.n_embd = preset.n_embd;
  config.n_head = preset.n_head;
  return config;
}

RandomTensors::RandomTensors(const Config& config) {
  for (const TensorShape& shape : modelTensors(config, false))
    shapes_[shape.name] = {DType::F16, shape.rows, shape.cols, nullptr};
}

TensorView RandomTensors::draw(const std::string& name) {
  TensorView tensor = shapes_.at(name);
  numbers_.resize(static_cast<std::size_t>(tensor.rows * tensor.cols));
  const bool is_gain = name.find("ln_") != std::string::npos && name.ends_with(".weight");
  const auto number = [&] { return is_gain ? 1.0f : static_cast<float>(engine_() >> 40) * 0x1p-28f - 0x1p-5f; };
  std::ranges::generate(numbers_, [&] { return static_cast<Eigen::half>(number()); });
  tensor.data = reinterpret_cast<const std::byte*>(numbers_.data());
  return tensor;
}

}  // namespace driftless::cli
