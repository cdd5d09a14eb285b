#pragma once

#include <algorithm>
#include <limits>

#include "driftless/cache.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Positions in a page of a cache.
inline constexpr Index kPage = kPanelWidth;

/// What lies where in a layer's cache, and the two operations that are for steps alone.
///
/// Positions are in pages. A page holds for every head its keys as [D, kPage], so that scores are computed for many
/// positions side by side, then its values as [kPage, D padded to whole lanes], so that they are summed for many
/// dimensions side by side. Keys of positions that are not used may be any numbers, left by what was truncated.
struct CacheAccess {
  template <class Scalar>
  static Index paddedHeadSize(const LayerCache<Scalar>& cache) {
    return roundUpToLanes(cache.head_size_);
  }
  static constexpr Index pages(Index positions) { return (positions + kPage - 1) / kPage; }
  static constexpr Index pageElements(Index n_head, Index head_size) {
    return n_head * kPage * (head_size + roundUpToLanes(head_size));
  }

  /// Offsets in elements.
  template <class Scalar>
  static Index keyOffset(const LayerCache<Scalar>& cache, Index head, Index position) {
    return position / kPage * pageElements(cache.n_head_, cache.head_size_) + head * kPage * cache.head_size_ +
           position % kPage;
  }
  template <class Scalar>
  static Index valueOffset(const LayerCache<Scalar>& cache, Index head, Index position) {
    return position / kPage * pageElements(cache.n_head_, cache.head_size_) +
           kPage * (cache.n_head_ * cache.head_size_ + head * paddedHeadSize(cache)) +
           position % kPage * paddedHeadSize(cache);
  }

  /// One head's keys from a position on, [D, kPage] with the rows kPage apart.
  template <class Scalar>
  static const std::byte* keys(const LayerCache<Scalar>& cache, Index head, Index position) {
    return cache.data_.data() + keyOffset(cache, head, position) * elementSize<Scalar>(cache.stored_);
  }
  /// One head's values from a position on, [positions, paddedHeadSize], up to the end of its page.
  template <class Scalar>
  static const std::byte* values(const LayerCache<Scalar>& cache, Index head, Index position) {
    return cache.data_.data() + valueOffset(cache, head, position) * elementSize<Scalar>(cache.stored_);
  }

  /// Sets one head's key and value, each [D], at a position that is not used yet. Every head is written before grow().
  template <class Scalar>
  static void write(LayerCache<Scalar>& cache, Index head, Index position, const Scalar* key, const Scalar* value) {
    const Index D = cache.head_size_;
    const Index size = elementSize<Scalar>(cache.stored_);
    std::byte* const keys = cache.data_.data() + keyOffset(cache, head, position) * size;
    std::byte* const values = cache.data_.data() + valueOffset(cache, head, position) * size;
    // Zero is the same bits in every type.
    if (position % kPage == 0) std::fill_n(keys, D * kPage * size, std::byte{0});
    kernels<Scalar>().store_row(key, D, cache.stored_, keys, kPage);
    kernels<Scalar>().store_row(value, D, cache.stored_, values, 1);
    std::fill_n(values + D * size, (paddedHeadSize(cache) - D) * size, std::byte{0});
  }

  /// Makes the next `rows` positions, which have been written, part of the cache.
  template <class Scalar>
  static void grow(LayerCache<Scalar>& cache, Index rows) {
    cache.length_ += rows;
  }

  /// [length, C]: offset(head, position) is that of the first of D numbers, which lie `stride` apart.
  template <class Scalar, class Offset>
  static Matrix<Scalar> gather(const LayerCache<Scalar>& cache, Index stride, Offset offset) {
    const Index D = cache.head_size_;
    Matrix<Scalar> rows(cache.length_, cache.n_head_ * D);
    withElement<Scalar>(cache.stored_, [&]<class Element>(std::type_identity<Element>) {
      const Element* const data = reinterpret_cast<const Element*>(cache.data_.data());
      for (Index position = 0; position < cache.length_; ++position)
        for (Index head = 0; head < cache.n_head_; ++head)
          for (Index d = 0; d < D; ++d)
            rows(position, head * D + d) = static_cast<Scalar>(data[offset(head, position) + d * stride]);
    });
    return rows;
  }
};

}  // namespace detail

template <FloatingScalar Scalar>
LayerCache<Scalar>::LayerCache(Index n_head, Index head_size, Index capacity, StoredType stored)
    : n_head_(n_head), head_size_(head_size), capacity_(capacity), stored_(stored) {
  using Access = detail::CacheAccess;
  const auto check = [](const char* name, Index size, Index most) {
    if (size < 1 || size > most)
      detail::raise<ArgumentError>({"LayerCache: expected ", name, " from 1 to ", most, ", got ", size});
  };
  check("head_size", head_size, detail::kMostWidth);
  check("n_head", n_head, detail::kMostWidth / head_size);
  check("capacity", capacity, detail::kMostPositions);
  const double most_bytes = 2.0 * static_cast<double>(n_head) * static_cast<double>(head_size + detail::kLanes) *
                            static_cast<double>(capacity + detail::kPage) * sizeof(Scalar);
  if (most_bytes > static_cast<double>((std::numeric_limits<Index>::max)()))
    detail::raise<ArgumentError>(
        {"LayerCache: expected a size that fits into the address space, got up to ", most_bytes, " bytes"});
  if (detail::isQuantized(stored))
    detail::raise<ArgumentError>(
        {"expected a type of floating-point numbers for keys and values, got ", nameOf(stored)});
  data_ = detail::AlignedBuffer<std::byte>::growing(Access::pages(capacity) * Access::pageElements(n_head, head_size) *
                                                    detail::elementSize<Scalar>(stored));
}

template <FloatingScalar Scalar>
Matrix<Scalar> LayerCache<Scalar>::keys() const {
  return detail::CacheAccess::gather(*this, detail::kPage, [this](Index head, Index position) {
    return detail::CacheAccess::keyOffset(*this, head, position);
  });
}

template <FloatingScalar Scalar>
Matrix<Scalar> LayerCache<Scalar>::values() const {
  return detail::CacheAccess::gather(
      *this, 1, [this](Index head, Index position) { return detail::CacheAccess::valueOffset(*this, head, position); });
}

template <FloatingScalar Scalar>
LayerCache<Scalar> LayerCache<Scalar>::clone() const {
  LayerCache copy(n_head_, head_size_, capacity_, stored_);
  const Index pages = detail::CacheAccess::pages(length_);
  std::copy_n(data_.data(),
              pages * detail::CacheAccess::pageElements(n_head_, head_size_) * detail::elementSize<Scalar>(stored_),
              copy.data_.data());
  copy.length_ = length_;
  return copy;
}

}}  // namespace driftless::DRIFTLESS_ABI
