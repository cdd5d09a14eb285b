#pragma once

#include <string>
#include <vector>

#include "driftless/parameters.hpp"

namespace driftless::test {

inline Config smallConfig(Index C, Index H, Index n_inner, Index V, Index N, Index L = 3) {
  Config config;
  config.n_embd = C;
  config.n_head = H;
  config.n_inner = n_inner;
  config.vocab_size = V;
  config.n_positions = N;
  config.n_layer = L;
  return config;
}

/// Nothing in it is a multiple of anything: the shape to try first.
inline Config oddConfig() { return smallConfig(20, 5, 12, 259, 16); }

/// Random weights, large enough that scores and activations leave the flat middle of exp and GELU.
template <class Scalar = float>
Parameters<Scalar> livelyParameters(const Config& config, bool has_lm_head = false) {
  Parameters<Scalar> parameters = randomParameters<Scalar>(config, 7, has_lm_head);
  forEachTensor(parameters, [](const std::string& name, auto& tensor, Index, Index) {
    if (name.find("ln_") == std::string::npos) tensor *= Scalar(16);
  });
  return parameters;
}

/// Some ids of a vocabulary, without a short period.
inline std::vector<int> someIds(Index count, Index vocab_size) {
  std::vector<int> ids;
  for (Index i = 0; i < count; ++i) ids.push_back(static_cast<int>((i * i * 31 + i * 7 + 3) % vocab_size));
  return ids;
}

}  // namespace driftless::test
