#pragma once

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Positions in a page of a cache.
inline constexpr Index kPage = kPanelWidth;

/// What lies where in a layer's cache, and the operations that are for steps alone.
///
/// Positions are in pages, those of all layers in one allocation. A page holds for every head its keys as [D, kPage],
/// so that scores are computed for many positions side by side, then its values as [kPage, D padded to whole lanes], so
/// that they are summed for many dimensions side by side; then, if the type is quantized, the scales of keys [H, kPage]
/// and of values [H, kPage]. Keys and scales of positions that are not used may be any numbers, left by what was
/// truncated.
///
/// Pages after those in use, if there are any, are the cache's own.
struct CacheAccess {
  template <class Scalar>
  static Index paddedHeadSize(const LayerCache<Scalar>& cache) {
    return roundUpToLanes(cache.head_size_);
  }
  static constexpr Index pages(Index positions) { return (positions + kPage - 1) / kPage; }

  template <class Scalar>
  static Index elementBytes(const LayerCache<Scalar>& cache) {
    return elementSize<Scalar>(cache.stored_);
  }
  template <class Scalar>
  static Index scaleBytes(const LayerCache<Scalar>& cache) {
    return isQuantized(cache.stored_) ? Index{sizeof(float)} : Index{0};
  }
  /// Of all heads' keys and values in a page.
  template <class Scalar>
  static Index elementBytesOfPage(const LayerCache<Scalar>& cache) {
    return kPage * cache.n_head_ * (cache.head_size_ + paddedHeadSize(cache)) * elementBytes(cache);
  }
  template <class Scalar>
  static Index pageBytes(const LayerCache<Scalar>& cache) {
    return elementBytesOfPage(cache) + 2 * cache.n_head_ * kPage * scaleBytes(cache);
  }

  /// Offsets in bytes, within a position's page.
  template <class Scalar>
  static Index keyOffset(const LayerCache<Scalar>& cache, Index head, Index position) {
    return (head * kPage * cache.head_size_ + position % kPage) * elementBytes(cache);
  }
  template <class Scalar>
  static Index valueOffset(const LayerCache<Scalar>& cache, Index head, Index position) {
    return (kPage * (cache.n_head_ * cache.head_size_ + head * paddedHeadSize(cache)) +
            position % kPage * paddedHeadSize(cache)) *
           elementBytes(cache);
  }
  /// Of a key's scale; a value's is that of n_head heads later.
  template <class Scalar>
  static Index scaleOffset(const LayerCache<Scalar>& cache, Index head, Index position) {
    return elementBytesOfPage(cache) + (head * kPage + position % kPage) * scaleBytes(cache);
  }

  template <class Scalar>
  static const std::byte* page(const LayerCache<Scalar>& cache, Index position) {
    return cache.pages_[static_cast<std::size_t>(position / kPage)].data();
  }
  /// One head's keys from a position on, [D, kPage] with the rows kPage apart.
  template <class Scalar>
  static const std::byte* keys(const LayerCache<Scalar>& cache, Index head, Index position) {
    return page(cache, position) + keyOffset(cache, head, position);
  }
  /// One head's values from a position on, [positions, paddedHeadSize], up to the end of its page.
  template <class Scalar>
  static const std::byte* values(const LayerCache<Scalar>& cache, Index head, Index position) {
    return page(cache, position) + valueOffset(cache, head, position);
  }
  /// The scales of one head's keys from a position on, up to the end of its page. Only if the type is quantized.
  template <class Scalar>
  static const float* keyScales(const LayerCache<Scalar>& cache, Index head, Index position) {
    return reinterpret_cast<const float*>(page(cache, position) + scaleOffset(cache, head, position));
  }
  /// The same of its values.
  template <class Scalar>
  static const float* valueScales(const LayerCache<Scalar>& cache, Index head, Index position) {
    return keyScales(cache, cache.n_head_ + head, position);
  }

  /// Makes the pages of the next `rows` positions these layers' own, which are of the same length: those in use that
  /// are shared are copied, the others are new. If memory is short, what the layers hold is as it was.
  template <class Scalar>
  static void makeRoom(std::span<LayerCache<Scalar>> layers, Index rows) {
    const Index length = layers.front().length_;
    // Layers may be stored as different types.
    Index bytes = 0;
    for (const LayerCache<Scalar>& layer : layers) bytes += Page::bytesFor(pageBytes(layer));
    for (Index index = length / kPage; index < pages(length + rows); ++index) {
      const auto page = static_cast<std::size_t>(index);
      const auto isThere = [&](const LayerCache<Scalar>& layer) { return page < layer.pages_.size(); };
      const auto isOwn = [&](const LayerCache<Scalar>& layer) {
        return isThere(layer) && !layer.pages_[page].isShared();
      };
      if (std::all_of(layers.begin(), layers.end(), isOwn)) continue;
      Arena arena(bytes);
      for (LayerCache<Scalar>& layer : layers) {
        if (isOwn(layer)) continue;
        if (isThere(layer))
          layer.pages_[page] = layer.pages_[page].copy(pageBytes(layer), arena);
        else
          layer.pages_.emplace_back(pageBytes(layer), arena);
      }
    }
  }
  template <class Scalar>
  static void makeRoom(LayerCache<Scalar>& cache, Index rows) {
    makeRoom(std::span(&cache, 1), rows);
  }
  template <class Scalar>
  static void makeRoom(ModelCache<Scalar>& cache, Index rows) {
    makeRoom(std::span(cache.layers_), rows);
  }

  /// Gives back the pages after those in use.
  template <class Scalar>
  static void releaseRoom(LayerCache<Scalar>& cache) {
    cache.pages_.erase(cache.pages_.begin() + pages(cache.length_), cache.pages_.end());
  }

  /// Sets one head's key and value, each [D], at a position that is not used yet and that makeRoom() made room for.
  /// Every head is written before grow().
  template <class Scalar>
  static void write(LayerCache<Scalar>& cache, Index head, Index position, const Scalar* key, const Scalar* value) {
    const Index D = cache.head_size_;
    std::byte* const data = cache.pages_[static_cast<std::size_t>(position / kPage)].data();
    std::byte* const keys = data + keyOffset(cache, head, position);
    std::byte* const values = data + valueOffset(cache, head, position);
    std::byte* const key_scales = data + scaleOffset(cache, head, position);
    std::byte* const value_scales = data + scaleOffset(cache, cache.n_head_ + head, position);
    // Zero is the same bits in every type.
    if (position % kPage == 0) {
      std::fill_n(keys, D * kPage * elementBytes(cache), std::byte{0});
      std::fill_n(key_scales, kPage * scaleBytes(cache), std::byte{0});
      std::fill_n(value_scales, kPage * scaleBytes(cache), std::byte{0});
    }
    kernels<Scalar>().store_row(key, D, cache.stored_, keys, kPage, reinterpret_cast<float*>(key_scales));
    kernels<Scalar>().store_row(value, D, cache.stored_, values, 1, reinterpret_cast<float*>(value_scales));
    std::fill_n(values + D * elementBytes(cache), (paddedHeadSize(cache) - D) * elementBytes(cache), std::byte{0});
  }

  /// Makes the next `rows` positions, which have been written, part of the cache.
  template <class Scalar>
  static void grow(LayerCache<Scalar>& cache, Index rows) {
    cache.length_ += rows;
  }

  /// The same in all layers of a model, of a step's tokens.
  template <class Scalar>
  static void grow(ModelCache<Scalar>& cache, std::span<const int> ids) {
    cache.ids();
    cache.ids_.insert(cache.ids_.end(), ids.begin(), ids.end());
    for (LayerCache<Scalar>& layer : cache.layers_) {
      grow(layer, static_cast<Index>(ids.size()));
      layer.unchanged_ = layer.length_;
    }
  }

  /// Fills a whole page with zeros, which are the same bits in every type.
  template <class Scalar>
  static void clearPage(LayerCache<Scalar>& cache, Index position) {
    std::fill_n(cache.pages_[static_cast<std::size_t>(position / kPage)].data(), pageBytes(cache), std::byte{0});
  }

  /// Calls visit(number, its bytes) for what is stored at a position: of each head its key, its value, and their scales
  /// if the type is quantized. `Cache` is a LayerCache, const if the numbers are not to be written.
  template <class Cache, class Visit>
  static void forEachNumber(Cache& cache, Index position, Visit visit) {
    auto* const data = cache.pages_[static_cast<std::size_t>(position / kPage)].data();
    const Index D = cache.head_size_, bytes = elementBytes(cache);
    for (Index head = 0; head < cache.n_head_; ++head) {
      auto* const key = data + keyOffset(cache, head, position);
      auto* const value = data + valueOffset(cache, head, position);
      for (Index d = 0; d < D; ++d) visit(key + d * kPage * bytes, static_cast<std::size_t>(bytes));
      for (Index d = 0; d < D; ++d) visit(value + d * bytes, static_cast<std::size_t>(bytes));
      if (!isQuantized(cache.stored_)) continue;
      for (const Index scales : {head, cache.n_head_ + head})
        visit(data + scaleOffset(cache, scales, position), sizeof(float));
    }
  }

  /// Shares the pages of all layers that begin at a position.
  template <class Scalar>
  static std::vector<Page> sharePages(const ModelCache<Scalar>& cache, Index position) {
    std::vector<Page> pages;
    for (const LayerCache<Scalar>& layer : cache.layers_)
      pages.push_back(layer.pages_[static_cast<std::size_t>(position / kPage)].share());
    return pages;
  }

  /// Appends what is at the beginning of such pages to a cache whose own pages are full: so many ids.
  template <class Scalar>
  static void addPages(ModelCache<Scalar>& cache, const std::vector<Page>& pages, std::span<const int> ids) {
    for (std::size_t layer = 0; layer < pages.size(); ++layer)
      cache.layers_[layer].pages_.push_back(pages[layer].share());
    grow(cache, ids);
  }

  /// [length, C]: elements(cache, head, position) is the first of D numbers, which lie `stride` apart.
  template <class Scalar>
  static Matrix<Scalar> gather(const LayerCache<Scalar>& cache, Index stride,
                               const std::byte* (*elements)(const LayerCache<Scalar>&, Index, Index),
                               const float* (*scales)(const LayerCache<Scalar>&, Index, Index)) {
    const Index D = cache.head_size_;
    Matrix<Scalar> rows(cache.length_, cache.n_head_ * D);
    withElement<Scalar>(cache.stored_, [&]<class Element>(std::type_identity<Element>) {
      for (Index position = 0; position < cache.length_; ++position)
        for (Index head = 0; head < cache.n_head_; ++head) {
          const Element* const row = reinterpret_cast<const Element*>(elements(cache, head, position));
          const Scalar scale = isQuantized(cache.stored_) ? Scalar(*scales(cache, head, position)) : Scalar(1);
          for (Index d = 0; d < D; ++d) rows(position, head * D + d) = static_cast<Scalar>(row[d * stride]) * scale;
        }
    });
    return rows;
  }
};

/// Throws ArgumentError if a cache is not of the shape of a model, or if its layers are out of step. Each of them may
/// have been assigned by itself.
template <class Scalar>
void checkCache(const ModelCache<Scalar>& cache, const Config& config) {
  if (cache.layers() != config.n_layer)
    raise<ArgumentError>(
        {"expected a cache made for these weights, of n_layer ", config.n_layer, ", got ", cache.layers()});
  for (Index layer = 0; layer < cache.layers(); ++layer) {
    const auto checkSize = [&](const char* size, Index expected, Index actual) {
      if (actual != expected)
        raise<ArgumentError>({"expected a cache made for these weights, of ", size, " ", expected, ", got ", actual,
                              " in layer ", layer});
    };
    checkSize("n_positions", config.n_positions, cache.layer(layer).capacity());
    checkSize("n_head", config.n_head, cache.layer(layer).heads());
    checkSize("head size", config.headSize(), cache.layer(layer).headSize());
    if (cache.layer(layer).length() != cache.length())
      raise<ArgumentError>({"the cache's layers are out of step: layer 0 holds ", cache.length(), " positions, layer ",
                            layer, " holds ", cache.layer(layer).length()});
  }
}

}  // namespace detail

template <FloatingScalar Scalar>
LayerCache<Scalar>::LayerCache(Index n_head, Index head_size, Index capacity, StoredType stored)
    : n_head_(n_head), head_size_(head_size), capacity_(capacity), stored_(stored) {
  const auto check = [](const char* name, Index size, Index most) {
    if (size < 1 || size > most)
      detail::raise<ArgumentError>({"LayerCache: expected ", name, " from 1 to ", most, ", got ", size});
  };
  check("head_size", head_size, detail::kMostWidth);
  check("n_head", n_head, detail::kMostWidth / head_size);
  check("capacity", capacity, detail::kMostPositions);
  if (stored == StoredType::int4)
    detail::raise<ArgumentError>({"LayerCache: expected full, f16, bf16 or int8 for keys and values, got int4"});
  // Every stored type, with its scales, takes less than this.
  const double most_bytes = 2.0 * static_cast<double>(n_head) * static_cast<double>(head_size + detail::kLanes) *
                            static_cast<double>(capacity + detail::kPage) * sizeof(Scalar);
  if (most_bytes > static_cast<double>((std::numeric_limits<Index>::max)()))
    detail::raise<ArgumentError>(
        {"LayerCache: expected a size that fits into the address space, got up to ", most_bytes, " bytes"});
  pages_.reserve(static_cast<std::size_t>(detail::CacheAccess::pages(capacity)));
}

template <FloatingScalar Scalar>
Index LayerCache<Scalar>::bytes() const {
  return std::ssize(pages_) * detail::CacheAccess::pageBytes(*this);
}

template <FloatingScalar Scalar>
Index LayerCache<Scalar>::bytesFor(Index positions) const {
  return detail::CacheAccess::pages(positions) * detail::CacheAccess::pageBytes(*this);
}

template <FloatingScalar Scalar>
void LayerCache<Scalar>::truncate(Index length) {
  detail::checkNewLength(length, length_);
  length_ = length;
  unchanged_ = (std::min)(unchanged_, length);
  detail::CacheAccess::releaseRoom(*this);
}

template <FloatingScalar Scalar>
Matrix<Scalar> LayerCache<Scalar>::keys() const {
  using Access = detail::CacheAccess;
  return Access::gather<Scalar>(*this, detail::kPage, Access::keys, Access::keyScales);
}

template <FloatingScalar Scalar>
Matrix<Scalar> LayerCache<Scalar>::values() const {
  using Access = detail::CacheAccess;
  return Access::gather<Scalar>(*this, 1, Access::values, Access::valueScales);
}

template <FloatingScalar Scalar>
LayerCache<Scalar> LayerCache<Scalar>::clone() const {
  LayerCache copy(n_head_, head_size_, capacity_, stored_);
  for (Index page = 0; page < detail::CacheAccess::pages(length_); ++page)
    copy.pages_.push_back(pages_[static_cast<std::size_t>(page)].share());
  copy.length_ = length_;
  copy.unchanged_ = unchanged_;
  return copy;
}

}}  // namespace driftless::DRIFTLESS_ABI
