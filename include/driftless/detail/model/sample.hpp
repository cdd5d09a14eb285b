#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE void checkSampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    detail::raise<ArgumentError>({"expected a temperature of 0 or more, got ", sampling.temperature});
  if (sampling.top_k < 0) detail::raise<ArgumentError>({"expected a top_k of 0 or more, got ", sampling.top_k});
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    detail::raise<ArgumentError>({"expected a top_p above 0 and up to 1, got ", sampling.top_p});
}

namespace detail {

/// The largest number; minus infinity where there is none. In lanes, for it is on every token's way.
template <class Scalar>
Scalar largestOf(std::span<const Scalar> numbers) {
  const auto take = [](const Lanes<Scalar>& largest, const Lanes<Scalar>& some) {
    return selectLess(largest, some, some, largest);
  };
  const Scalar* at = numbers.data();
  const Scalar* const end = at + numbers.size();
  Lanes<Scalar> largest = Lanes<Scalar>::broadcast(-std::numeric_limits<Scalar>::infinity());
  for (; end - at >= kLanes; at += kLanes) largest = take(largest, Lanes<Scalar>::load(at));
  for (; at != end; ++at) largest = take(largest, Lanes<Scalar>::broadcast(*at));
  return maxOfLanes(largest);
}

template <class Scalar>
std::string faultOf(std::span<const Scalar> logits) {
  constexpr Scalar kInfinity = std::numeric_limits<Scalar>::infinity();
  const Scalar largest = largestOf(logits);
  if (largest == kInfinity) {
    const auto first = std::find(logits.begin(), logits.end(), kInfinity);
    return message({"expected a largest logit that is finite, got infinity for token id ", first - logits.begin()});
  }
  if (largest > -kInfinity) return {};
  const auto nans = std::count_if(logits.begin(), logits.end(), [](Scalar logit) { return std::isnan(logit); });
  return message({"expected a largest logit that is finite, got ", nans, " times NaN and ",
                  static_cast<std::ptrdiff_t>(logits.size()) - nans, " times minus infinity"});
}

/// A token that may be drawn.
struct Candidate {
  double weight;  ///< first the distance from the largest logit, then e to its power
  int id;
};

/// The order of likelihood; the lower id goes first on ties.
inline bool isLikelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

/// From distances to e to their power, by the library's own series: the standard's differs between platforms.
inline void toPowers(std::vector<Candidate>& candidates) {
  double numbers[kLanes];
  for (std::size_t begin = 0; begin < candidates.size(); begin += kLanes) {
    const std::size_t count = (std::min)(candidates.size() - begin, static_cast<std::size_t>(kLanes));
    for (std::size_t i = 0; i < kLanes; ++i) numbers[i] = i < count ? candidates[begin + i].weight : 0;
    kernels<double>().exponentiate(numbers, kLanes);
    for (std::size_t i = 0; i < count; ++i) candidates[begin + i].weight = numbers[i];
  }
}

inline double totalWeight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

/// The likeliest in order: at most k, and no more than are needed for a weight that is enough. They are mostly few of
/// many, hence a heap.
inline std::vector<Candidate> takeLikeliest(std::vector<Candidate> candidates, std::size_t k, double enough) {
  const auto isLess = [](const Candidate& a, const Candidate& b) { return isLikelier(b, a); };
  std::make_heap(candidates.begin(), candidates.end(), isLess);
  std::vector<Candidate> taken;
  double weight = 0;
  while (!candidates.empty() && taken.size() < k && weight < enough) {
    std::pop_heap(candidates.begin(), candidates.end(), isLess);
    taken.push_back(candidates.back());
    weight += candidates.back().weight;
    candidates.pop_back();
  }
  return taken;
}

/// A number in [0, 1) from one draw, the same from every standard library.
inline double uniform(std::mt19937_64& engine) { return static_cast<double>(engine() >> 11) * 0x1p-53; }

template <class Scalar>
int draw(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine) {
  const int most_likely = argmax(Eigen::Map<const RowVector<Scalar>>(logits.data(), static_cast<Index>(logits.size())));
  if (sampling.temperature == 0) return most_likely;

  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  const double largest = static_cast<double>(logits[static_cast<std::size_t>(most_likely)]);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double distance = (static_cast<double>(logits[id]) - largest) / sampling.temperature;
    if (!std::isnan(distance)) candidates.push_back({distance, static_cast<int>(id)});
  }
  if (sampling.top_k > 0)
    candidates = takeLikeliest(std::move(candidates), static_cast<std::size_t>(sampling.top_k),
                               std::numeric_limits<double>::infinity());
  toPowers(candidates);
  if (sampling.top_p < 1) {
    const double enough = sampling.top_p * totalWeight(candidates);
    candidates = takeLikeliest(std::move(candidates), logits.size(), enough);
  }

  const double target = uniform(engine) * totalWeight(candidates);
  double reached = 0;
  for (const Candidate& candidate : candidates) {
    reached += candidate.weight;
    if (target < reached) return candidate.id;
  }
  return most_likely;
}

template <class Scalar>
int sample(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine) {
  checkSampling(sampling);
  if (const std::string fault = faultOf(logits); !fault.empty()) raise<ArgumentError>({fault});
  return draw(logits, sampling, engine);
}

}  // namespace detail

}}  // namespace driftless::DRIFTLESS_ABI
