#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/packed_matrix.hpp"
#include "driftless/detail/workspace.hpp"
#include "driftless/error.hpp"
#include "driftless/weights.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// The keys and values of one layer: a row [C] of each for every position so far, as c_attn computed them.
///
/// In memory, positions are in blocks of kPanelWidth. A block holds for every head its keys as [D, positions], so that
/// scores are computed for many positions side by side, then its values as [positions, D padded to lanes], so that they
/// are summed for many dimensions side by side.
template <class Scalar, class Stored = Scalar>
class LayerCache {
  static_assert(!detail::kIsQuantized<Stored>, "keys and values are stored as floating-point numbers");

 public:
  /// Room for `capacity` positions, none of them used.
  LayerCache(Index n_head, Index head_size, Index capacity)
      : n_head_(n_head),
        head_size_(head_size),
        capacity_(capacity),
        data_((capacity + kBlock - 1) / kBlock * blockSize()) {}

  Index length() const { return length_; }       ///< positions so far
  Index capacity() const { return capacity_; }   ///< positions that there is room for
  Index heads() const { return n_head_; }        ///< H
  Index headSize() const { return head_size_; }  ///< D
  /// What keys, values and their padding take in memory.
  Index bytes() const { return data_.size() * static_cast<Index>(sizeof(Stored)); }

  /// [length, C]: the keys, heads side by side, in the order of positions.
  Matrix<Scalar> keys() const {
    return gather([&](Index head, Index position, Index d) {
      return keyBlock(head, position / kBlock)[d * kBlock + position % kBlock];
    });
  }

  /// [length, C]: the values, likewise.
  Matrix<Scalar> values() const {
    return gather([&](Index head, Index position, Index d) {
      return valueBlock(head, position / kBlock)[position % kBlock * paddedHeadSize() + d];
    });
  }

  /// Forgets all positions from `length` on. Throws ArgumentError where there are fewer.
  void truncate(Index length) {
    if (length < 0 || length > length_)
      throw ArgumentError("truncate: expected a length from 0 to " + std::to_string(length_) + ", got " +
                          std::to_string(length));
    length_ = length;
  }

  /// An independent copy with room for as many positions.
  LayerCache clone() const {
    LayerCache copy(n_head_, head_size_, capacity_);
    std::copy_n(data_.data(), (length_ + kBlock - 1) / kBlock * blockSize(), copy.data_.data());
    copy.length_ = length_;
    return copy;
  }

  /// Positions in a block.
  static constexpr Index kBlock = detail::kPanelWidth;
  /// D, rounded up to whole lanes.
  Index paddedHeadSize() const { return detail::roundUpToLanes(head_size_); }

  /// One head's keys of a block, [D, kBlock]. Those of positions that are not used may be any numbers, left by what was
  /// truncated.
  const Stored* keyBlock(Index head, Index block) const { return data_.data() + keyOffset(head, block); }
  /// One head's values of a block, [kBlock, paddedHeadSize()].
  const Stored* valueBlock(Index head, Index block) const { return data_.data() + valueOffset(head, block); }

  /// Sets one head's key and value, each [D], at a position that is not used yet. Every head is written before grow().
  void write(Index head, Index position, const Scalar* key, const Scalar* value) {
    Stored* keys = data_.data() + keyOffset(head, position / kBlock);
    Stored* values = data_.data() + valueOffset(head, position / kBlock) + position % kBlock * paddedHeadSize();
    if (position % kBlock == 0) std::fill_n(keys, head_size_ * kBlock, Stored(0));
    for (Index d = 0; d < head_size_; ++d) keys[d * kBlock + position % kBlock] = static_cast<Stored>(key[d]);
    for (Index d = 0; d < head_size_; ++d) values[d] = static_cast<Stored>(value[d]);
    std::fill_n(values + head_size_, paddedHeadSize() - head_size_, Stored(0));
  }

  /// Makes the next `rows` positions, which have been written, part of the cache.
  void grow(Index rows) { length_ += rows; }

 private:
  Index blockSize() const { return n_head_ * kBlock * (head_size_ + paddedHeadSize()); }
  Index keyOffset(Index head, Index block) const { return block * blockSize() + head * kBlock * head_size_; }
  Index valueOffset(Index head, Index block) const {
    return block * blockSize() + kBlock * (n_head_ * head_size_ + head * paddedHeadSize());
  }

  template <class Element>
  Matrix<Scalar> gather(Element element) const {
    Matrix<Scalar> rows(length_, n_head_ * head_size_);
    for (Index position = 0; position < length_; ++position)
      for (Index head = 0; head < n_head_; ++head)
        for (Index d = 0; d < head_size_; ++d)
          rows(position, head * head_size_ + d) = static_cast<Scalar>(element(head, position, d));
    return rows;
  }

  Index n_head_;
  Index head_size_;
  Index capacity_;
  Index length_ = 0;
  detail::AlignedBuffer<Stored> data_;
};

namespace detail {

/// Runs a step that may run out of memory midway; the cache is then as it was.
template <class Cache, class Step>
auto allOrNothing(Cache& cache, Step step) {
  const Index length = cache.length();
  try {
    return step();
  } catch (...) {
    cache.truncate(length);
    throw;
  }
}

}  // namespace detail

/// What one sequence needs besides the weights: a LayerCache a layer, and room to compute in. Owned by its caller and
/// used by one thread at a time.
template <class Scalar = float, class Stored = Scalar>
class ModelCache {
 public:
  /// An empty cache for as many positions as the model has.
  template <class WeightStored>
  explicit ModelCache(const Weights<Scalar, WeightStored>& weights) : ModelCache(weights, weights.threads) {}
  /// The same, whose steps are shared out among these threads.
  template <class WeightStored>
  ModelCache(const Weights<Scalar, WeightStored>& weights, Threads threads) : threads_(std::move(threads)) {
    const Config& config = weights.config;
    for (Index layer = 0; layer < config.n_layer; ++layer)
      layers_.emplace_back(config.n_head, config.headSize(), config.n_positions);
  }

  /// Positions so far; the next token's position.
  Index length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  /// Positions that there is room for, n_positions.
  Index capacity() const { return layers_.empty() ? 0 : layers_.front().capacity(); }
  /// How many layers, L.
  Index layers() const { return static_cast<Index>(layers_.size()); }

  /// Throws ArgumentError for a layer that there is not.
  LayerCache<Scalar, Stored>& layer(Index index) { return layers_[checkedLayer(index)]; }
  /// Likewise.
  const LayerCache<Scalar, Stored>& layer(Index index) const { return layers_[checkedLayer(index)]; }

  /// What its steps are shared out among.
  const Threads& threads() const { return threads_; }

  /// Forgets everything.
  void reset() { truncate(0); }

  /// Forgets all positions from `length` on. Throws ArgumentError where there are fewer.
  void truncate(Index length) {
    for (LayerCache<Scalar, Stored>& layer : layers_) layer.truncate(length);
  }

  /// An independent copy that goes on from here.
  ModelCache clone() const {
    ModelCache copy(threads_);
    for (const LayerCache<Scalar, Stored>& layer : layers_) copy.layers_.push_back(layer.clone());
    return copy;
  }

  /// What its steps compute in. The logits that prefill and decodeStep return live here.
  struct StepMemory {
    detail::Workspace<Scalar, Stored> workspace;  ///< intermediate results
    RowVector<Scalar> logits;                     ///< [V] of one sequence
    Matrix<Scalar> batch_logits;                  ///< [B, V] of several
  };
  /// For prefill and decodeStep.
  StepMemory& memory() { return memory_; }

 private:
  explicit ModelCache(Threads threads) : threads_(std::move(threads)) {}

  std::size_t checkedLayer(Index index) const {
    if (index < 0 || index >= layers())
      throw ArgumentError("expected a layer from 0 to " + std::to_string(layers() - 1) + ", got " +
                          std::to_string(index));
    return static_cast<std::size_t>(index);
  }

  Threads threads_;
  std::vector<LayerCache<Scalar, Stored>> layers_;
  StepMemory memory_;
};

/// Keys and values are stored in the type of arithmetic unless another one is asked for.
template <class Scalar, class WeightStored>
ModelCache(const Weights<Scalar, WeightStored>&) -> ModelCache<Scalar>;
/// Likewise.
template <class Scalar, class WeightStored>
ModelCache(const Weights<Scalar, WeightStored>&, Threads) -> ModelCache<Scalar>;

}  // namespace driftless::inline DRIFTLESS_ABI
