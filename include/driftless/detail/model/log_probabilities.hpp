#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/kernels/logarithm.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/largest.hpp"
#include "driftless/error.hpp"
#include "driftless/log_probabilities.hpp"
#include "driftless/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// What has a probability of zero either way.
template <class Scalar>
Scalar minusInfinityIfNaN(Scalar logit) {
  return std::isnan(logit) ? -std::numeric_limits<Scalar>::infinity() : logit;
}

/// The sum over all logits of e^(logit - largest), in sixteen lanes: the order depends on nothing but their number.
template <class Scalar>
double sumOfPowers(std::span<const Scalar> logits, double largest) {
  constexpr Index kPiece = 512;  // on the stack
  std::array<double, std::size_t{kPiece}> powers;
  Lanes<double> sum = Lanes<double>::broadcast(0);
  while (!logits.empty()) {
    const std::size_t count = (std::min)(logits.size(), powers.size());
    powers.fill(-std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < count; ++i) powers[i] = static_cast<double>(minusInfinityIfNaN(logits[i])) - largest;
    kernels<double>().exponentiate(powers.data(), kPiece);
    for (Index i = 0; i < kPiece; i += kLanes) sum = sum + Lanes<double>::load(powers.data() + i);
    logits = logits.subspan(count);
  }
  return sumOfLanes(sum);
}

template <class Scalar>
LogSoftmax<Scalar>::LogSoftmax(std::span<const Scalar> logits) : logits_(logits) {
  largest_ = static_cast<double>(largestOf(logits));
  log_sum_ = naturalLogarithm(sumOfPowers(logits, largest_));
}

template <class Scalar>
LogSoftmax<Scalar> LogSoftmax<Scalar>::checked(std::span<const Scalar> logits) {
  if (const std::string fault = faultOf(logits); !fault.empty()) raise<ArgumentError>({fault});
  return LogSoftmax(logits);
}

template <class Scalar>
double LogSoftmax<Scalar>::operator()(int id) const {
  const auto V = static_cast<Index>(logits_.size());
  if (id < 0 || id >= V) raise<ArgumentError>({"expected a token id from 0 to ", V - 1, ", got ", id});
  return static_cast<double>(minusInfinityIfNaN(logits_[static_cast<std::size_t>(id)])) - largest_ - log_sum_;
}

template <class Scalar>
std::vector<TokenLogProbability> LogSoftmax<Scalar>::top(Index n) const {
  if (n < 0) raise<ArgumentError>({"expected a number of likeliest tokens of 0 or more, got ", n});
  std::vector<int> ids(logits_.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int id) { return minusInfinityIfNaN(logits_[static_cast<std::size_t>(id)]); };
  const auto isLikelier = [&](int a, int b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; };
  const auto end = ids.begin() + (std::min)(n, static_cast<Index>(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), isLikelier);
  std::vector<TokenLogProbability> tokens;
  std::transform(ids.begin(), end, std::back_inserter(tokens), [&](int id) {
    return TokenLogProbability{id, (*this)(id)};
  });
  return tokens;
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
