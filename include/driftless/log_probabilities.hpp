#pragma once

#include <span>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// A token and the natural logarithm of its probability.
struct TokenLogProbability {
  int id;                  ///< of the vocabulary
  double log_probability;  ///< 0 or less; minus infinity for a token that cannot come
};

namespace detail {

/// The log-probabilities of one row of logits [V] without fault, which must outlive this object. What is common to all
/// ids is computed once, when it is made.
template <class Scalar>
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const Scalar> logits);
  /// Throws ArgumentError if the largest logit is not a finite number.
  static LogSoftmax checked(std::span<const Scalar> logits);

  /// log p(id). Throws ArgumentError for an id that there is no logit of.
  double operator()(int id) const;

  /// The n likeliest, as topLogProbabilities has them.
  std::vector<TokenLogProbability> top(Index n) const;

 private:
  std::span<const Scalar> logits_;
  double largest_;
  double log_sum_;  ///< of e^(logit - largest) over all
};

}  // namespace detail

/// log p(id) by logits [V]: (logit - largest) - ln(sum over all of e^(logit - largest)), computed in double and the
/// same to the bit on every platform. A logit that is NaN or minus infinity has a probability of zero, the logarithm of
/// which is minus infinity. Throws ArgumentError for an id that there is no logit of, and if the largest logit is not a
/// finite number.
template <class Logits>
requires(Logits::IsVectorAtCompileTime == 1) double logProbability(const Eigen::MatrixBase<Logits>& logits, int id) {
  using Scalar = typename Logits::Scalar;
  const Eigen::Ref<const RowVector<Scalar>> row = logits;  // copied only if it does not lie in one piece
  return detail::LogSoftmax<Scalar>::checked({row.data(), static_cast<std::size_t>(row.size())})(id);
}

/// The ids of the n largest logits and their log-probabilities, the likeliest first and of equal logits the lower id;
/// all V if n is larger. Throws ArgumentError for an n below 0, and if the largest logit is not a finite number.
template <class Logits>
requires(Logits::IsVectorAtCompileTime ==
         1) std::vector<TokenLogProbability> topLogProbabilities(const Eigen::MatrixBase<Logits>& logits, Index n) {
  using Scalar = typename Logits::Scalar;
  const Eigen::Ref<const RowVector<Scalar>> row = logits;  // copied only if it does not lie in one piece
  return detail::LogSoftmax<Scalar>::checked({row.data(), static_cast<std::size_t>(row.size())}).top(n);
}

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/log_probabilities.hpp"
#endif
