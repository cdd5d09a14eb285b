#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>

#include "driftless/argmax.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/candidates.hpp"
#include "driftless/detail/model/largest.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/error.hpp"
#include "driftless/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE void checkSampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    detail::raise<ArgumentError>({"expected a temperature of 0 or more, got ", sampling.temperature});
  if (sampling.top_k < 0) detail::raise<ArgumentError>({"expected a top_k of 0 or more, got ", sampling.top_k});
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    detail::raise<ArgumentError>({"expected a top_p above 0 and up to 1, got ", sampling.top_p});
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    detail::raise<ArgumentError>({"expected a min_p from 0 to 1, got ", sampling.min_p});
  if (!(sampling.typical_p > 0 && sampling.typical_p <= 1))
    detail::raise<ArgumentError>({"expected a typical_p above 0 and up to 1, got ", sampling.typical_p});
}

namespace detail {

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

/// The order of likelihood; the lower id goes first on ties.
inline bool isLikelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

/// How far below the largest logit another is, in units of the temperature. What is NaN has as little chance as minus
/// infinity.
template <class Scalar>
double distanceOf(Scalar logit, double largest, double temperature) {
  const double distance = (static_cast<double>(logit) - largest) / temperature;
  return std::isnan(distance) ? -std::numeric_limits<double>::infinity() : distance;
}

/// All tokens, by their distances from the largest logit.
template <class Scalar>
void takeAll(std::span<const Scalar> logits, double largest, double temperature, Candidates& candidates) {
  candidates.count = static_cast<Index>(logits.size());
  candidates.makeRoom(candidates.count);
  double* const distances = candidates.weights.data();
  for (std::size_t i = 0; i < logits.size(); ++i) distances[i] = distanceOf(logits[i], largest, temperature);
  std::iota(candidates.ids.data(), candidates.ids.data() + candidates.count, 0);
}

/// Leaves the top_k likeliest of all tokens, in order. They are gathered in one pass: whenever too many have come
/// together, all but that many of them go, and from then on whatever is no likelier than the last of those is passed
/// over. Minus infinity is passed over from the beginning.
inline void keepMostLikely(Index top_k, Candidates& candidates) {
  const Index k = (std::min)(top_k, candidates.count);
  const Index most = (std::max)(2 * k, Index{512});
  Candidate* const gathered = candidates.sorted.data();
  Index count = 0;
  double bound = -std::numeric_limits<double>::infinity();
  for (Index i = 0; i < candidates.count; ++i) {
    const double distance = candidates.weights.data()[i];
    if (!(distance > bound)) continue;
    gathered[count++] = {distance, candidates.ids.data()[i]};
    if (count < most) continue;
    std::nth_element(gathered, gathered + k - 1, gathered + count, isLikelier);
    bound = gathered[k - 1].weight;
    count = k;
  }
  std::sort(gathered, gathered + count, isLikelier);
  candidates.takeSorted((std::min)(count, k));
}

/// From distances to e to their power, by the library's own series: the standard's differs between platforms.
inline void toPowers(Candidates& candidates) {
  double* const numbers = candidates.weights.data();
  const Index padded = roundUpToLanes(candidates.count);
  std::fill(numbers + candidates.count, numbers + padded, 0.0);
  kernels<double>().exponentiate(numbers, padded);
}

inline double totalWeight(const Candidates& candidates) {
  return std::accumulate(candidates.weights.data(), candidates.weights.data() + candidates.count, 0.0);
}

inline constexpr std::uint64_t kBuckets = 4096;

/// Which bucket a weight from 0 to 1 goes to, the likelier the lower: there are 64 down to a half, 64 more down to a
/// quarter, and so on, for the bits of a positive number grow with it, by as much from each power of two to the next.
inline std::size_t bucketOf(double weight) {
  constexpr int kBitsPerBucket = std::numeric_limits<double>::digits - 1 - 6;
  const std::uint64_t below_one = std::bit_cast<std::uint64_t>(1.0) - std::bit_cast<std::uint64_t>(weight);
  return static_cast<std::size_t>((std::min)(below_one >> kBitsPerBucket, kBuckets - 1));
}

/// Leaves those of at least some weight.
inline void dropLighter(double weight, Candidates& candidates) {
  double* const weights = candidates.weights.data();
  int* const ids = candidates.ids.data();
  Index count = 0;
  for (Index i = 0; i < candidates.count; ++i) {
    weights[count] = weights[i];
    ids[count] = ids[i];
    if (weights[i] >= weight) ++count;
  }
  candidates.count = count;
}

/// Leaves the likeliest, in order: the fewest whose weight reaches p times that of all. They are mostly few of many:
/// hence buckets, of which only the first ones are sorted.
inline void keepNucleus(double p, Candidates& candidates) {
  const double total = totalWeight(candidates);
  // Too light to matter even together: they weigh less than 1 - p of all, by more than the sums here are rounded.
  dropLighter((1 - p - 1e-9) * total / static_cast<double>(candidates.count), candidates);

  const double* const weights = candidates.weights.data();
  Candidate* const sorted = candidates.sorted.data();
  int ends[kBuckets] = {};
  for (Index i = 0; i < candidates.count; ++i) ++ends[bucketOf(weights[i])];
  std::exclusive_scan(std::begin(ends), std::end(ends), ends, 0);
  for (Index i = 0; i < candidates.count; ++i)
    sorted[ends[bucketOf(weights[i])]++] = {weights[i], candidates.ids.data()[i]};

  const double enough = p * total;
  double reached = 0;
  Index count = 0;
  for (const int end : ends) {
    if (!std::is_sorted(sorted + count, sorted + end, isLikelier)) std::sort(sorted + count, sorted + end, isLikelier);
    for (; count < end && reached < enough; ++count) reached += sorted[count].weight;
    if (!(reached < enough)) break;
  }
  candidates.takeSorted(count);
}

/// Leaves the most typical, in the order in which they were: the fewest whose weight reaches p times that of all, and
/// whatever is as typical as the last of them. The surprise of a token is the logarithm of the total weight less its
/// distance, and their mean is that logarithm less the mean distance: what the two differ by needs no logarithm.
template <class Scalar>
void keepTypical(std::span<const Scalar> logits, double largest, double temperature, double p, Candidates& candidates) {
  double* const weights = candidates.weights.data();
  int* const ids = candidates.ids.data();
  const auto distance = [&](Index i) {
    return distanceOf(logits[static_cast<std::size_t>(ids[i])], largest, temperature);
  };
  const double total = totalWeight(candidates);
  double sum = 0;
  for (Index i = 0; i < candidates.count; ++i)
    if (weights[i] > 0) sum = std::fma(weights[i], distance(i), sum);  // a product that no compiler fuses otherwise
  const double mean = sum / total;

  struct Less {  // the more typical, then the earlier: an order without ties, so that sums are the same everywhere
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.weight != b.weight ? a.weight < b.weight : a.id < b.id;
    }
  };
  Candidate* const sorted = candidates.sorted.data();  // by how untypical they are, with their places
  for (Index i = 0; i < candidates.count; ++i) sorted[i] = {std::abs(distance(i) - mean), static_cast<int>(i)};
  const double enough = p * total;
  double reached = 0;
  double bound = 0;
  // They are mostly few of many: hence only as many are sorted as turn out to be needed.
  for (Index begin = 0, end = 0; begin < candidates.count && reached < enough; begin = end) {
    end = (std::min)(candidates.count, 4 * begin + 256);
    std::nth_element(sorted + begin, sorted + end - 1, sorted + candidates.count, Less());
    std::sort(sorted + begin, sorted + end, Less());
    for (Index i = begin; i < end && reached < enough; ++i) {
      reached += weights[sorted[i].id];
      bound = sorted[i].weight;
    }
  }

  Index count = 0;
  for (Index i = 0; i < candidates.count; ++i) {
    if (std::abs(distance(i) - mean) > bound) continue;
    weights[count] = weights[i];
    ids[count++] = ids[i];
  }
  candidates.count = count;
}

/// A number in [0, 1) from one draw, the same from every standard library.
inline double uniform(std::mt19937_64& engine) { return static_cast<double>(engine() >> 11) * 0x1p-53; }

template <class Scalar>
int draw(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine, Candidates& candidates) {
  const int most_likely = argmax(Eigen::Map<const RowVector<Scalar>>(logits.data(), static_cast<Index>(logits.size())));
  if (sampling.temperature == 0) return most_likely;

  const double largest = static_cast<double>(logits[static_cast<std::size_t>(most_likely)]);
  takeAll(logits, largest, sampling.temperature, candidates);
  if (sampling.top_k > 0) keepMostLikely(sampling.top_k, candidates);
  toPowers(candidates);
  if (sampling.top_p < 1) keepNucleus(sampling.top_p, candidates);
  if (sampling.min_p > 0) dropLighter(sampling.min_p, candidates);  // the likeliest weighs 1
  if (sampling.typical_p < 1) keepTypical(logits, largest, sampling.temperature, sampling.typical_p, candidates);

  const double target = uniform(engine) * totalWeight(candidates);
  double reached = 0;
  for (Index i = 0; i < candidates.count; ++i) {
    reached += candidates.weights.data()[i];
    if (target < reached) return candidates.ids.data()[i];
  }
  return most_likely;
}

template <class Scalar>
int sample(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine, Candidates& candidates) {
  checkSampling(sampling);
  if (const std::string fault = faultOf(logits); !fault.empty()) raise<ArgumentError>({fault});
  return draw(logits, sampling, engine, candidates);
}

template <class Scalar>
int sample(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine) {
  Candidates candidates;
  return sample(logits, sampling, engine, candidates);
}

template <class Scalar>
int sample(std::span<const Scalar> logits, const Sampling& sampling, std::mt19937_64& engine,
           Workspace<Scalar>& workspace) {
  return sample(logits, sampling, engine, workspace.step().candidates);
}

}  // namespace detail

}}  // namespace driftless::DRIFTLESS_ABI
