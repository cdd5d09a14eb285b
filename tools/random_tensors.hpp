#pragma once

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/tensor.hpp"

namespace driftless::cli {

/// Random tensors of a model, one at a time: a model can be packed without all of its plain matrices being in memory.
class RandomTensors {
 public:
  explicit RandomTensors(const Config& config);

  /// The tensor of that name: LayerNorm's gains are one, other numbers are small. Valid until the next call.
  TensorView draw(const std::string& name);

 private:
  std::map<std::string, std::pair<Index, Index>> shapes_;
  std::mt19937_64 engine_;
  std::vector<Eigen::half> numbers_;
};

}  // namespace driftless::cli
