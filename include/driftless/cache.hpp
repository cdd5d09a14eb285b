#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "driftless/cache_policy.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/kernels/aligned_buffer.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/page.hpp"
#include "driftless/error.hpp"
#include "driftless/stored_type.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
struct CacheAccess;

/// Which positions a head keeps, in order.
struct KeptPositions {
  std::vector<Index> positions = {};
  std::vector<double> statistics = {};  ///< [positions, the policy's]
  AlignedBuffer<bool> chosen = {};      ///< [positions] which of them stay, if is_chosen
  bool is_chosen = false;               ///< whether positions are to be dropped before the next one is written
};

inline void checkNewLength(Index length, Index longest) {
  if (length < 0 || length > longest)
    raise<ArgumentError>({"truncate: expected a length from 0 to ", longest, ", got ", length});
}
}  // namespace detail

template <FloatingScalar Scalar>
class ModelCache;

/// The keys and values of one layer: a row [C] of each for every position so far, as c_attn computed them,
/// rounded to the stored type. As int8, each head's key and each head's value [D] has a scale of its own at every
/// position; if one of its numbers is infinite, NaN or beyond what a float can hold, all of them are NaN.
///
/// They lie in pages of 64 positions, which clones share until one of them writes into a page.
template <FloatingScalar Scalar>
class LayerCache {
 public:
  /// Room for `capacity` positions, none of them used: memory is only taken as they are. Throws ArgumentError for sizes
  /// that no model has, naming the one, and for a type that is for weights only.
  LayerCache(Index n_head, Index head_size, Index capacity, StoredType stored = StoredType::full);

  Index length() const { return length_; }       ///< positions so far, those included that have been dropped
  Index capacity() const { return capacity_; }   ///< positions that there is room for
  Index heads() const { return n_head_; }        ///< H
  Index headSize() const { return head_size_; }  ///< D
  StoredType stored() const { return stored_; }  ///< what keys and values are stored as

  /// What its pages take in memory: keys, values, their scales and padding; and what is noted of positions, if not all
  /// are kept. Pages that are shared with clones count in each of them.
  Index bytes() const;
  /// What so many positions would take.
  Index bytesFor(Index positions) const;

  /// The positions that a head keeps, in order: 0 to length - 1, unless some have been dropped. Throws ArgumentError if
  /// there is no such head.
  std::vector<Index> positions(Index head) const;

  /// Drops all positions of one head but these, which are in order and keep their numbers. Later tokens attend to no
  /// others. Pages that no head needs any more are given back. Throws ArgumentError if there is no such head, or for
  /// positions that it does not keep.
  void keep(Index head, std::span<const Index> wanted);

  /// [length, C]: the keys as they are stored, heads side by side, in the order of positions; zeros where a head has
  /// dropped a position.
  Matrix<Scalar> keys() const;
  /// [length, C]: the values, likewise.
  Matrix<Scalar> values() const;

  /// Forgets all positions from `length` on, and gives back the pages that only they are in. What has been dropped
  /// before does not come back, and what a policy has noted of others since stays. Throws ArgumentError if there are
  /// fewer.
  void truncate(Index length);

  /// An independent copy with room for as many positions. It shares all pages: none is copied before one of the two
  /// writes into it, which only the last one can happen to unless positions are dropped. The two may be used on
  /// different threads.
  LayerCache clone() const;

 private:
  friend struct detail::CacheAccess;
  friend class ModelCache<Scalar>;

  /// Before there are positions. `layer` is which of the model's it is.
  void setPolicy(std::shared_ptr<const CachePolicy> policy, Index layer);

  Index n_head_;
  Index head_size_;
  Index capacity_;
  StoredType stored_;
  Index length_ = 0;
  Index unchanged_ = 0;              ///< leading positions that are as the model's last whole step left them
  std::vector<detail::Page> pages_;  ///< laid out as detail/model/cache.hpp says
  std::vector<detail::KeptPositions> kept_ = {};    ///< by head; empty if all positions are kept
  std::shared_ptr<const CachePolicy> policy_ = {};  ///< that drops positions; may be null
  Index statistics_ = 0;                            ///< its, for a position
  Index layer_ = 0;                                 ///< which one it is told
};

/// What one sequence needs besides the weights: the keys and values of every layer, and their number. Owned by its
/// caller and used by one thread at a time.
template <FloatingScalar Scalar = float>
class ModelCache {
 public:
  /// An empty cache for as many positions as the model has. A policy says which of them are kept; without one, all are.
  ///
  /// With `past_context`, which needs a policy that keeps fewer than n_positions, there is no end to the positions.
  /// From n_positions on, tokens are embedded as if positions began anew at 0: the model was not trained for that.
  ///
  /// Throws ArgumentError for a type that is for weights only, and for past_context without a policy.
  explicit ModelCache(const Weights<Scalar>& weights, StoredType stored = StoredType::full,
                      std::shared_ptr<const CachePolicy> policy = {}, bool past_context = false)
      : past_context_(past_context) {
    const Config& config = weights.config;
    checkConfig(config);  // the member is public
    if (past_context && policy == nullptr)
      detail::raise<ArgumentError>({"past_context: expected a policy that drops positions, got none"});
    for (Index layer = 0; layer < config.n_layer; ++layer) {
      layers_.emplace_back(config.n_head, config.headSize(), config.n_positions, stored);
      layers_.back().setPolicy(policy, layer);
    }
    ids_.reserve(static_cast<std::size_t>(config.n_positions));
  }

  /// Positions so far; the next token's position.
  Index length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  /// Positions that there is room for: n_positions, or without end.
  Index capacity() const {
    if (past_context_) return (std::numeric_limits<Index>::max)();
    return layers_.empty() ? 0 : layers_.front().capacity();
  }
  /// How many layers, L.
  Index layers() const { return static_cast<Index>(layers_.size()); }
  /// What its layers take in memory: see LayerCache::bytes().
  Index bytes() const {
    Index bytes = 0;
    for (const LayerCache<Scalar>& layer : layers_) bytes += layer.bytes();
    return bytes;
  }

  /// The id of every position's token, [length]; -1 at those that layers were given by themselves (attnStep, blockStep)
  /// instead of by a step of the whole model. Valid until the cache changes.
  const std::vector<int>& ids() const {
    // Layers can be cut and written without this object's knowledge.
    Index known = length();
    for (const LayerCache<Scalar>& layer : layers_) known = (std::min)(known, layer.unchanged_);
    if (known < static_cast<Index>(ids_.size())) ids_.resize(static_cast<std::size_t>(known));
    if (length() > static_cast<Index>(ids_.size())) ids_.resize(static_cast<std::size_t>(length()), -1);
    return ids_;
  }

  /// Valid for as long as the cache lives, or what it is moved to. Another cache of the same shape and length can be
  /// assigned to it, stored as any type that is for caches. Throws ArgumentError if there is no such layer.
  LayerCache<Scalar>& layer(Index index) { return layers_[checkedLayer(index)]; }
  /// Likewise.
  const LayerCache<Scalar>& layer(Index index) const { return layers_[checkedLayer(index)]; }

  /// Drops all positions of one head in one layer but these: see LayerCache::keep. Throws ArgumentError if there is no
  /// such layer.
  void keep(Index layer_index, Index head, std::span<const Index> positions) {
    layer(layer_index).keep(head, positions);
  }

  /// Forgets everything.
  void reset() { truncate(0); }

  /// Forgets all positions from `length` on, and gives back the pages that only they are in. Throws ArgumentError if
  /// there are fewer.
  void truncate(Index length) {
    for (const LayerCache<Scalar>& layer : layers_) detail::checkNewLength(length, layer.length());
    for (LayerCache<Scalar>& layer : layers_) layer.truncate(length);
  }

  /// An independent copy that goes on from here. It shares all pages: see LayerCache::clone(). The two may be used on
  /// different threads.
  ModelCache clone() const {
    ModelCache copy;
    copy.past_context_ = past_context_;
    for (const LayerCache<Scalar>& layer : layers_) copy.layers_.push_back(layer.clone());
    copy.ids_.reserve(ids_.capacity());
    copy.ids_ = ids();
    return copy;
  }

 private:
  friend struct detail::CacheAccess;

  ModelCache() = default;

  std::size_t checkedLayer(Index index) const {
    if (index < 0 || index >= layers())
      detail::raise<ArgumentError>({"expected a layer from 0 to ", layers() - 1, ", got ", index});
    return static_cast<std::size_t>(index);
  }

  std::vector<LayerCache<Scalar>> layers_;
  mutable std::vector<int> ids_;  ///< as ids() last brought them up to date; with room for the next step's
  bool past_context_ = false;     ///< whether positions go on from n_positions
};

/// New tokens of one sequence, and the cache that they go on from, at the positions from cache->length() on. Neither is
/// owned; both must live until the step ends.
template <FloatingScalar Scalar>
struct Chunk {
  std::span<const int> ids;   ///< at least one
  ModelCache<Scalar>* cache;  ///< of this sequence alone
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/cache.hpp"
#endif
