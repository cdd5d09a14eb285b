#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/workspace.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// How the next token is drawn. The defaults are greedy.
struct Sampling {
  double temperature = 0;  ///< logits are divided by it; 0 takes the largest
  int top_k = 0;           ///< only the k largest logits are in the draw; 0: all
  double top_p = 1;        ///< and of these only the most likely ones, up to a total probability of p (Holtzman 2020)
  double min_p = 0;        ///< and of these only those at least min_p times as likely as the likeliest
  double typical_p = 1;    ///< and of these only the most typical ones, up to a total probability of typical_p: those
                           ///< whose surprise -log p differs least from the mean, the entropy (Meister 2023)
  std::uint64_t seed = 0;  ///< of the engine that the draws come from
};

/// Throws ArgumentError for a value out of range, naming it.
void checkSampling(const Sampling& sampling);

namespace detail {
/// Why no token can be chosen by these logits, or nothing.
template <class Scalar>
std::string faultOf(std::span<const Scalar> logits);

struct Candidates;

/// As sample, for logits without fault and settings that have been checked.
template <class Scalar>
int draw(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine, Candidates& candidates);

template <class Scalar>
int sample(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine);
template <class Scalar>
int sample(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine,
           Workspace<Scalar>& workspace);
}  // namespace detail

/// Draws a token id by temperature, then top_k, top_p, min_p and typical_p, with one number from the engine; at
/// temperature 0 it is argmax and draws none. At the border of top_k and top_p, the lower of equally likely ids goes
/// first; min_p and typical_p keep both or neither. The same logits and engine give the same id on every platform. A
/// logit that is NaN or minus infinity is never drawn. Throws ArgumentError for bad settings, and if the largest logit
/// is not a finite number.
template <class Logits>
requires(Logits::IsVectorAtCompileTime == 1) int sample(const Eigen::MatrixBase<Logits>& logits,
                                                        const Sampling& sampling, std::mt19937_64& engine) {
  using Scalar = typename Logits::Scalar;
  const Eigen::Ref<const RowVector<Scalar>> row = logits;  // copied only if it does not lie in one piece
  return detail::sample(std::span<const Scalar>(row.data(), static_cast<std::size_t>(row.size())), sampling, engine);
}

/// The same in a workspace's room, in which a draw allocates nothing if one before it had as many logits.
template <class Logits>
requires(Logits::IsVectorAtCompileTime == 1) int sample(const Eigen::MatrixBase<Logits>& logits,
                                                        const Sampling& sampling, std::mt19937_64& engine,
                                                        Workspace<typename Logits::Scalar>& workspace) {
  using Scalar = typename Logits::Scalar;
  const Eigen::Ref<const RowVector<Scalar>> row = logits;  // copied only if it does not lie in one piece
  return detail::sample(std::span<const Scalar>(row.data(), static_cast<std::size_t>(row.size())), sampling, engine,
                        workspace);
}

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/sample.hpp"
#endif
