#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "commands.hpp"
#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/tensor.hpp"
#include "driftless/tokenizer.hpp"
#include "driftless/weights.hpp"

namespace driftless::cli {

/// What the options say, for the library.
LoadOptions loadOptions(const ModelOptions& options);

/// One for each of `count` sequences.
std::vector<ModelCache<float>> emptyCaches(const ModelOptions& options, const Weights<float>& weights,
                                           std::size_t count);

/// What a key and a value take.
Index bytesPerPosition(const LayerCache<float>& layer);

/// The tokenizer beside a model's weights, if there are any files of one.
std::optional<Tokenizer> loadTokenizerOf(const std::string& model);

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
