#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "driftless/parameters.hpp"

/// What is given: the model's weights and those of its parts that a cache does not change. Shapes are written with the
/// letters of driftless/config.hpp: T rows, N positions, C = n_embd, H heads, D = C / H, V vocabulary, L layers.
///
/// Every function computes row by row, because a matrix library may add the same numbers in another order when there
/// are more rows, and stage per-step-identity compares bits.
namespace learner {

using driftless::Config, driftless::Index;
using Matrix = driftless::Matrix<float>;  ///< Eigen, row by row in memory
using Row = driftless::RowVector<float>;
using Ids = std::vector<int>;

/// The weights under their checkpoint names: model.config, model.wte [V, C], model.wpe [N, C], model.h[layer] with
/// ln_1, attn.c_attn [C, 3C], attn.c_proj [C, C], ln_2 and mlp, model.ln_f.
using Parameters = driftless::Parameters<float>;
using AttentionParameters = driftless::AttentionParameters<float>;

/// Stands in for what is to be written, and says what that is: stages show its text.
[[noreturn]] inline void todo(const std::string& what) { throw std::logic_error("to do: " + what); }

/// The embeddings of ids, the first of which stands at first_position, counted from 0: [T, C]. Throws where the context
/// ends.
Matrix embed(const Ids& ids, Index first_position, const Parameters& model);

/// LayerNorm of every row: [T, C].
Matrix layerNorm(const Matrix& x, const driftless::LayerNormParameters<float>& norm, const Config& config);

/// x [T, in] * weight [in, out] + bias: [T, out].
Matrix linear(const Matrix& x, const driftless::LinearParameters<float>& layer);

/// The feed-forward sublayer of ln_2's output x [T, C]: [T, C], before the residual is added.
Matrix mlp(const Matrix& x, const driftless::MlpParameters<float>& mlp, const Config& config);

/// What q . k is multiplied by in a layer, counted from 0: 1 / sqrt(D) unless the config asks for something else.
float scoreScale(const Config& config, Index layer);

/// Softmax of one row of scores, which must not be empty. The standard's exp makes 0 of minus infinity; Eigen's does
/// not quite.
Row softmax(Row scores);

/// Logits [T, V] of ln_f's output x [T, C].
Matrix unembed(const Matrix& x, const Parameters& model);

/// The id to choose by logits [V]. This one is yours, in recompute.cpp; it is declared here because cached.cpp needs it
/// too.
int argmax(const Row& logits);

}  // namespace learner
