#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/cache.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/config.hpp"
#include "driftless/generate.hpp"
#include "driftless/tensor.hpp"
#include "driftless/tokenizer.hpp"
#include "driftless/weights.hpp"

namespace driftless::cli {

/// What the options say, for the library.
CheckpointOptions checkpointOptions(const ModelOptions& options);
LoadOptions loadOptions(const ModelOptions& options);

/// Opens a model's files, and says on standard error which of their tensors are ignored.
Checkpoint openModel(const ModelOptions& options);

/// For as many sequences together.
BatchOptions batchOptions(const ModelOptions& options, std::size_t sequences);

/// One for each of `count` sequences.
std::vector<ModelCache<float>> emptyCaches(const ModelOptions& options, const Weights<float>& weights,
                                           std::size_t count);

/// What a key and a value take.
Index bytesPerPosition(const LayerCache<float>& layer);

/// The tokenizer beside a model's weights. It is read when it is first asked for: what needs no text runs without its
/// files, and with some that are damaged or not supported.
class ModelTokenizer {
 public:
  /// No model has no tokenizer.
  explicit ModelTokenizer(std::optional<std::string> model) : model_(std::move(model)) {}

  /// Null if there is none that can be read, for the reason that `whyNot` says.
  const Tokenizer* find();
  const std::string& whyNot() const { return why_not_; }

  /// Throws ArgumentError if there is none: why, and what was expected in place of what needs it.
  const Tokenizer& require(const std::string& expected);

  /// Whether there are any files of one.
  bool hasFiles() const;

 private:
  std::optional<std::string> model_;
  bool is_read_ = false;
  std::optional<Tokenizer> tokenizer_;
  std::string why_not_;
};

/// What the ids stand for; nothing without a tokenizer, and if one of them has no text: a model can have more ids than
/// its tokenizer.
std::optional<std::string> textOf(const std::vector<int>& ids, const Tokenizer* tokenizer);

/// driftless::lastLogits, compiled where it runs fast.
RowVector<float> referenceLogits(const std::vector<int>& ids, const Parameters<float>& parameters);

/// The shape of a preset.
Config presetConfig(const std::string& name);

/// Random tensors of a model, one at a time: a model can be packed without all of its plain matrices being in memory.
class RandomTensors {
 public:
  explicit RandomTensors(const Config& config);

  /// The tensor of that name: LayerNorm's gains are one, other numbers are small. Valid until the next call.
  TensorView draw(const std::string& name);

 private:
  std::map<std::string, TensorView> shapes_;
  std::mt19937_64 engine_;
  std::vector<Eigen::half> numbers_;
};

}  // namespace driftless::cli
