#include "random_tensors.hpp"

#include <algorithm>
#include <cstddef>

#include "driftless/parameters.hpp"

namespace driftless::cli {

RandomTensors::RandomTensors(const Config& config) {
  Parameters<float> skeleton;
  skeleton.config = config;
  skeleton.h.resize(static_cast<std::size_t>(config.n_layer));
  forEachTensor(skeleton, [&](const std::string& name, const auto&, Index rows, Index cols) {
    shapes_[name] = {rows, cols};
  });
}

TensorView RandomTensors::draw(const std::string& name) {
  const auto [rows, cols] = shapes_.at(name);
  numbers_.resize(static_cast<std::size_t>(rows * cols));
  const bool is_gain = name.find("ln_") != std::string::npos && name.ends_with(".weight");
  const auto number = [&] { return is_gain ? 1.0f : static_cast<float>(engine_() >> 40) * 0x1p-28f - 0x1p-5f; };
  std::ranges::generate(numbers_, [&] { return static_cast<Eigen::half>(number()); });
  return {DType::F16, rows, cols, reinterpret_cast<const std::byte*>(numbers_.data())};
}

}  // namespace driftless::cli
