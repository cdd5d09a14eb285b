#pragma once

#include <cstdint>
#include <span>

#include "driftless/cache_policy.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

/// Cache policies that others have published, each by its rule alone: every layer and head chooses for itself, after
/// every token. `budget`, at least 1, is how many positions of a head are left then; the next token attends to these
/// and to itself. Constructors throw ArgumentError for numbers that make no sense, naming them.
///
/// Where a rule says nothing else, the token's own position can be dropped like any other, and of positions with equal
/// scores the later one stays.
namespace driftless { inline namespace DRIFTLESS_ABI {

/// Drops nothing: the same bits as without a policy.
class KeepAll final : public CachePolicy {
 public:
  void choose(CachedHead& head, std::span<bool> keep) const override;
};

/// The last `budget` positions (window attention, Beltagy et al. 2020, "Longformer").
class SlidingWindow final : public CachePolicy {
 public:
  explicit SlidingWindow(Index budget);  ///< so many positions
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
};

/// The first `sinks` positions of the text and the last `budget - sinks` (Xiao et al. 2023, "Efficient Streaming
/// Language Models with Attention Sinks"). Keys keep the positions that they were computed with, where the paper
/// numbers them anew. `sinks` is from 0 to budget - 1.
class AttentionSinks final : public CachePolicy {
 public:
  explicit AttentionSinks(Index budget, Index sinks = 4);  ///< so many positions, so many of them from the beginning
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
  Index sinks_;
};

/// The last `recent` positions, and of the others those with the largest sum of the weights that all tokens so far have
/// given them, their own included (H2O: Zhang et al. 2023, "Heavy-Hitter Oracle"). `recent` is from 0 to budget. Notes
/// one number of each position.
class HeavyHitters final : public CachePolicy {
 public:
  explicit HeavyHitters(Index budget);       ///< with recent = budget / 2, as in the paper
  HeavyHitters(Index budget, Index recent);  ///< so many positions, so many of them from the end
  Index statistics() const override { return 1; }
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
  Index recent_;
};

/// Those with the largest weights of the last token (TOVA: Oren et al. 2024, "Transformers are Multi-State RNNs"). The
/// paper takes the mean of a layer's heads; here each head goes by its own.
class Tova final : public CachePolicy {
 public:
  explicit Tova(Index budget);  ///< so many positions
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
};

/// The last `window` positions, and of the others those with the largest sum of the weights of the last `window`
/// tokens, each averaged with its neighbours among those others: `pooling` of them, itself in the middle, zeros beyond
/// the ends (Li et al. 2024, "SnapKV", which chooses once, after the prompt; here it is done after every token).
/// `window` is from 1 to budget, `pooling` odd. Notes `window` numbers of each position.
class SnapKv final : public CachePolicy {
 public:
  explicit SnapKv(Index budget, Index window = 16, Index pooling = 5);  ///< so many positions, so many from the end
  Index statistics() const override { return window_; }
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
  Index window_;
  Index pooling_;
};

/// Those with the smallest L2 norm of the key (Devoto et al. 2024, "A Simple and Effective L2 Norm-Based Strategy for
/// KV Cache Compression", which leaves the first two layers alone).
class KeyNorm final : public CachePolicy {
 public:
  explicit KeyNorm(Index budget);  ///< so many positions
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
};

/// Those whose keys are least like the others: with the smallest cosine between the key and the mean of all that are
/// there, each scaled to length 1 (Park et al. 2025, "KeyDiff").
class KeyDiff final : public CachePolicy {
 public:
  explicit KeyDiff(Index budget);  ///< so many positions
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
};

/// Any positions: those with the largest random numbers, which depend on seed, layer, head and position alone, so that
/// all sets of `budget` positions are equally likely. What others are to be compared with.
class RandomPositions final : public CachePolicy {
 public:
  explicit RandomPositions(Index budget, std::uint64_t seed = 0);  ///< so many positions
  void choose(CachedHead& head, std::span<bool> keep) const override;

 private:
  Index budget_;
  std::uint64_t seed_;
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/policies.hpp"
#endif
