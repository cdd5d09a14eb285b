#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "driftless/detail/model/cache.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Layers of the same length, which are about to grow: takes all memory that the next `rows` positions need in their
/// pages. If it ends without commit(), the layers are as they were.
template <class Scalar>
class Growth {
 public:
  Growth(std::span<LayerCache<Scalar>> layers, Index rows) : Growth(layers) {
    rows_ = rows;
    // Of several rows, each but the first can write over what was there. A single one cannot before it is committed: a
    // copy may share its pages.
    if (rows > 1) remember();
    CacheAccess::makeRoom(layers, rows);
    if (rows == 1) remember();
  }
  Growth(Growth&& other) noexcept
      : layers_(std::exchange(other.layers_, {})), before_(std::move(other.before_)), rows_(other.rows_) {}
  Growth& operator=(Growth&&) = delete;
  ~Growth() {
    for (std::size_t i = 0; i < before_.size(); ++i) layers_[i] = std::move(before_[i]);
    for (LayerCache<Scalar>& layer : layers_) CacheAccess::releaseRoom(layer);
  }

  /// Makes the positions part of the layers.
  void commit() {
    before_.clear();
    for (LayerCache<Scalar>& layer : layers_) CacheAccess::grow(layer, rows_);
  }

 private:
  explicit Growth(std::span<LayerCache<Scalar>> layers) : layers_(layers) {}

  void remember() {
    if (std::all_of(layers_.begin(), layers_.end(), [](const auto& layer) { return CacheAccess::keepsAll(layer); }))
      return;
    for (const LayerCache<Scalar>& layer : layers_) before_.push_back(layer.clone());
  }

  std::span<LayerCache<Scalar>> layers_;
  std::vector<LayerCache<Scalar>> before_ = {};  ///< of layers that do not keep all positions, as they were
  Index rows_ = 0;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
