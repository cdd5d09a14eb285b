#pragma once

#include <random>

#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/parameters.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template <FloatingScalar Scalar>
Parameters<Scalar> emptyParameters(const Config& config, bool has_lm_head) {
  checkConfig(config);
  Parameters<Scalar> parameters;
  parameters.config = config;
  parameters.h.resize(static_cast<std::size_t>(config.n_layer));
  if (has_lm_head) parameters.lm_head.emplace();
  return parameters;
}

template <FloatingScalar Scalar>
Parameters<Scalar> randomParameters(const Config& config, std::uint64_t seed, bool has_lm_head) {
  auto parameters = emptyParameters<Scalar>(config, has_lm_head);
  std::mt19937_64 engine(seed);
  forEachTensor(parameters, [&](const std::string& name, auto& tensor, Index rows, Index cols) {
    const Scalar mean = name.find("ln_") != std::string::npos && name.ends_with(".weight") ? Scalar(1) : Scalar(0);
    tensor.resize(rows, cols);
    for (Index i = 0; i < rows * cols; ++i) {
      // Both products are by powers of two and exact, so that it does not matter whether they are fused with the sums.
      const Scalar unit = static_cast<Scalar>(engine() >> 40) * Scalar(0x1p-24) - Scalar(0.5);
      tensor.data()[i] = mean + unit * Scalar(0x1p-4);
    }
  });
  return parameters;
}

template <FloatingScalar Scalar>
void checkParameters(const Parameters<Scalar>& parameters) {
  checkConfig(parameters.config);
  if (static_cast<Index>(parameters.h.size()) != parameters.config.n_layer)
    detail::raise<ArgumentError>(
        {"Parameters: expected ", parameters.config.n_layer, " blocks in h, got ", parameters.h.size()});
  forEachTensor(parameters, [](const std::string& name, const auto& tensor, Index rows, Index cols) {
    if (tensor.rows() != rows || tensor.cols() != cols)
      detail::raise<ArgumentError>({"Parameters: expected ", name, " of shape ", detail::shapeText({rows, cols}),
                                    ", got ", detail::shapeText({tensor.rows(), tensor.cols()})});
  });
}

DRIFTLESS_INLINE std::vector<TensorShape> modelTensors(const Config& config, bool has_lm_head) {
  std::vector<TensorShape> tensors;
  const auto skeleton = emptyParameters<float>(config, has_lm_head);
  forEachTensor(skeleton, [&](const std::string& name, const auto& tensor, Index rows, Index cols) {
    tensors.push_back({name, rows, cols, tensor.IsVectorAtCompileTime == 1});
  });
  return tensors;
}

}}  // namespace driftless::DRIFTLESS_ABI
