#pragma once

#include <algorithm>
#include <cstring>
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
/// The positions that a head keeps fill slots, in their order: slot i holds position i, unless some have been dropped.
/// Slots are in pages, those of all layers in one allocation. A page holds for every head its keys as [D, kPage],
/// so that scores are computed for many of them side by side, then its values as [kPage, D padded to whole lanes], so
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

  /// What is noted of one head's position, if not all are kept.
  template <class Scalar>
  static Index noteBytes(const LayerCache<Scalar>& cache) {
    return Index{sizeof(Index)} + cache.statistics_ * Index{sizeof(double)};
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

  template <class Scalar>
  static bool keepsAll(const LayerCache<Scalar>& cache) {
    return cache.kept_.empty();
  }
  template <class Scalar>
  static bool keepsAll(const ModelCache<Scalar>& cache) {
    return std::all_of(cache.layers_.begin(), cache.layers_.end(), [](const auto& layer) { return keepsAll(layer); });
  }
  template <class Scalar>
  static bool hasPolicy(const LayerCache<Scalar>& cache) {
    return cache.policy_ != nullptr;
  }
  /// How many of a head's slots are in use, once `positions` are there.
  template <class Scalar>
  static Index slots(const LayerCache<Scalar>& cache, Index head, Index positions) {
    return keepsAll(cache) ? positions : std::ssize(cache.kept_[static_cast<std::size_t>(head)].positions);
  }
  /// The most that a head has in use.
  template <class Scalar>
  static Index mostSlots(const LayerCache<Scalar>& cache) {
    Index most = keepsAll(cache) ? cache.length_ : 0;
    for (const KeptPositions& kept : cache.kept_) most = (std::max)(most, Index{std::ssize(kept.positions)});
    return most;
  }
  /// Whether there is no room for one more position, wherever it is.
  template <class Scalar>
  static bool isFull(const ModelCache<Scalar>& cache) {
    return std::any_of(cache.layers_.begin(), cache.layers_.end(),
                       [](const auto& layer) { return mostSlots(layer) == layer.capacity_; });
  }
  template <class Scalar>
  static Index positionAt(const LayerCache<Scalar>& cache, Index head, Index slot) {
    return keepsAll(cache) ? slot
                           : cache.kept_[static_cast<std::size_t>(head)].positions[static_cast<std::size_t>(slot)];
  }
  /// The row of wpe that a position's token is embedded with.
  template <class Scalar>
  static Index embeddedPosition(const ModelCache<Scalar>& cache, Index position) {
    return cache.past_context_ ? position % cache.layers_.front().capacity_ : position;
  }
  template <class Scalar>
  static std::span<LayerCache<Scalar>> layers(ModelCache<Scalar>& cache) {
    return cache.layers_;
  }

  /// Makes pages these layers' own in which the next `rows` positions are written, and, if some are dropped, all in
  /// which slots can move: those in use that are shared are copied, the others are new. If memory is short, what the
  /// layers hold is as it was.
  template <class Scalar>
  static void makeRoom(std::span<LayerCache<Scalar>> layers, Index rows, bool drops = false) {
    // Layers may be stored as different types.
    Index bytes = 0, end = 0;
    for (const LayerCache<Scalar>& layer : layers) {
      bytes += Page::bytesFor(pageBytes(layer));
      end = (std::max)(end, endOfRoom(layer, rows));
    }
    const auto first = [drops](const LayerCache<Scalar>& layer) {
      return keepsAll(layer) && !drops ? layer.length_ / kPage : 0;
    };
    Index begin = end;
    for (const LayerCache<Scalar>& layer : layers) begin = (std::min)(begin, first(layer));
    for (Index index = begin; index < end; ++index) {
      const auto page = static_cast<std::size_t>(index);
      const auto isThere = [&](const LayerCache<Scalar>& layer) { return page < layer.pages_.size(); };
      const auto isDone = [&](const LayerCache<Scalar>& layer) {
        return index < first(layer) || index >= endOfRoom(layer, rows) ||
               (isThere(layer) && !layer.pages_[page].isShared());
      };
      if (std::all_of(layers.begin(), layers.end(), isDone)) continue;
      Arena arena(bytes);
      for (LayerCache<Scalar>& layer : layers) {
        if (isDone(layer)) continue;
        if (isThere(layer))
          layer.pages_[page] = layer.pages_[page].copy(pageBytes(layer), arena);
        else
          layer.pages_.emplace_back(pageBytes(layer), arena);
      }
    }
  }
  /// How many pages a layer has with room for `rows` more positions.
  template <class Scalar>
  static Index endOfRoom(const LayerCache<Scalar>& layer, Index rows) {
    return pages((std::min)(mostSlots(layer) + rows, layer.capacity_));
  }

  /// Gives back the pages after those in use. With a policy, the next position's stays: it would be needed again and
  /// again where a page's end is as far as positions are kept.
  template <class Scalar>
  static void releaseRoom(LayerCache<Scalar>& cache) {
    const Index used = hasPolicy(cache) ? endOfRoom(cache, 1) : pages(mostSlots(cache));
    cache.pages_.erase(cache.pages_.begin() + (std::min)(used, Index{std::ssize(cache.pages_)}), cache.pages_.end());
  }

  /// A list of each head's positions: of all that there are, if none have been dropped.
  template <class Scalar>
  static std::vector<KeptPositions> listPositions(const LayerCache<Scalar>& cache) {
    std::vector<KeptPositions> lists(static_cast<std::size_t>(cache.n_head_));
    for (Index head = 0; head < cache.n_head_; ++head) {
      KeptPositions& list = lists[static_cast<std::size_t>(head)];
      for (Index slot = 0; slot < slots(cache, head, cache.length_); ++slot)
        list.positions.push_back(positionAt(cache, head, slot));
      if (!keepsAll(cache)) list.statistics = cache.kept_[static_cast<std::size_t>(head)].statistics;
    }
    return lists;
  }

  /// The next slot of one head, for a position.
  template <class Scalar>
  static Index takeSlot(LayerCache<Scalar>& cache, Index head, Index position) {
    const Index slot = slots(cache, head, position);
    if (slot == cache.capacity_)
      raise<ContextFull>({"expected a policy that keeps fewer than ", slot, " positions (n_positions), got ", slot,
                          " in head ", head, " at position ", position});
    if (keepsAll(cache)) return slot;
    KeptPositions& kept = cache.kept_[static_cast<std::size_t>(head)];
    kept.positions.push_back(position);
    kept.statistics.resize(kept.positions.size() * static_cast<std::size_t>(cache.statistics_));
    return slot;
  }

  /// Lets the policy choose what a head keeps of its positions, when the last of them has attended to all.
  template <class Scalar>
  static void choose(LayerCache<Scalar>& cache, Index head, const std::vector<double>& attention) {
    KeptPositions& kept = cache.kept_[static_cast<std::size_t>(head)];
    const std::size_t count = kept.positions.size();
    const Index n = static_cast<Index>(count);
    kept.chosen.makeRoom(n);
    std::fill_n(kept.chosen.data(), n, true);
    CachedHead view{cache.layer_,
                    head,
                    kept.positions,
                    attention,
                    {kept.statistics, cache.statistics_},
                    [&] { return headRows(cache, head, kPage, keys, keyScales); },
                    [&] { return headRows(cache, head, 1, values, valueScales); }};
    cache.policy_->choose(view, {kept.chosen.data(), count});
    kept.is_chosen = true;
  }

  /// Drops what was not chosen: the slots after it move up.
  template <class Scalar>
  static void drop(LayerCache<Scalar>& cache, Index head) {
    if (keepsAll(cache)) return;
    KeptPositions& kept = cache.kept_[static_cast<std::size_t>(head)];
    if (!std::exchange(kept.is_chosen, false)) return;
    const bool* const chosen = kept.chosen.data();
    const bool* const end = chosen + kept.positions.size();
    Index to = std::find(chosen, end, false) - chosen;
    for (const bool* from = chosen + to; (from = std::find(from, end, true)) != end;) {
      const bool* const stop = std::find(from, end, false);
      const Index first = from - chosen, count = stop - from, width = cache.statistics_;
      moveSlots(cache, head, first, to, count);
      std::copy_n(kept.positions.begin() + first, count, kept.positions.begin() + to);
      std::copy_n(kept.statistics.begin() + first * width, count * width, kept.statistics.begin() + to * width);
      to += count;
      from = stop;
    }
    shorten(cache, kept, to);
  }
  /// Forgets a head's positions from a slot on.
  template <class Scalar>
  static void shorten(const LayerCache<Scalar>& cache, KeptPositions& kept, Index slots) {
    kept.positions.resize(static_cast<std::size_t>(slots));
    kept.statistics.resize(static_cast<std::size_t>(slots * cache.statistics_));
  }

  /// Moves a head's keys and values, and their scales, to earlier slots.
  template <class Scalar>
  static void moveSlots(LayerCache<Scalar>& cache, Index head, Index from, Index to, Index count) {
    const auto move = [](std::byte* target, const std::byte* source, Index bytes) {
      std::memmove(target, source, static_cast<std::size_t>(bytes));
    };
    while (count > 0) {
      const Index some = (std::min)({count, kPage - from % kPage, kPage - to % kPage});
      std::byte* const target = cache.pages_[static_cast<std::size_t>(to / kPage)].data();
      const std::byte* const source = page(cache, from);
      const Index bytes = elementBytes(cache), row = kPage * bytes;
      for (Index d = 0; d < cache.head_size_; ++d)
        move(target + keyOffset(cache, head, to) + d * row, source + keyOffset(cache, head, from) + d * row,
             some * bytes);
      move(target + valueOffset(cache, head, to), source + valueOffset(cache, head, from),
           some * paddedHeadSize(cache) * bytes);
      for (const Index scales : {head, cache.n_head_ + head})
        move(target + scaleOffset(cache, scales, to), source + scaleOffset(cache, scales, from),
             some * scaleBytes(cache));
      from += some, to += some, count -= some;
    }
  }

  /// Sets one head's key and value, each [D], at a position that is not used yet and that makeRoom() made room for.
  /// Every head is written before grow().
  template <class Scalar>
  static void write(LayerCache<Scalar>& cache, Index head, Index position, const Scalar* key, const Scalar* value) {
    const Index D = cache.head_size_;
    drop(cache, head);
    const Index slot = takeSlot(cache, head, position);
    std::byte* const data = cache.pages_[static_cast<std::size_t>(slot / kPage)].data();
    std::byte* const keys = data + keyOffset(cache, head, slot);
    std::byte* const values = data + valueOffset(cache, head, slot);
    std::byte* const key_scales = data + scaleOffset(cache, head, slot);
    std::byte* const value_scales = data + scaleOffset(cache, cache.n_head_ + head, slot);
    // Zero is the same bits in every type.
    if (slot % kPage == 0) {
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
    for (Index head = 0; head < cache.n_head_; ++head) drop(cache, head);
  }

  /// Makes room for the ids of so many more positions.
  template <class Scalar>
  static void reserveIds(ModelCache<Scalar>& cache, std::size_t count) {
    const std::size_t needed = cache.ids().size() + count;
    if (needed > cache.ids_.capacity()) cache.ids_.reserve((std::max)(needed, 2 * cache.ids_.capacity()));
  }
  /// Notes the ids of positions by which all layers are about to grow.
  template <class Scalar>
  static void addIds(ModelCache<Scalar>& cache, std::span<const int> ids) {
    cache.ids();
    cache.ids_.insert(cache.ids_.end(), ids.begin(), ids.end());
    for (LayerCache<Scalar>& layer : cache.layers_) layer.unchanged_ = std::ssize(cache.ids_);
  }

  /// Makes a step's tokens part of the cache.
  template <class Scalar>
  static void grow(ModelCache<Scalar>& cache, std::span<const int> ids) {
    addIds(cache, ids);
    for (LayerCache<Scalar>& layer : cache.layers_) grow(layer, std::ssize(ids));
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

  /// Calls take(slot, d, number) for a head's keys or values: elements(cache, head, slot) is the first of D numbers,
  /// which lie `stride` apart.
  template <class Scalar, class Take>
  static void forEachElement(const LayerCache<Scalar>& cache, Index head, Index stride,
                             const std::byte* (*elements)(const LayerCache<Scalar>&, Index, Index),
                             const float* (*scales)(const LayerCache<Scalar>&, Index, Index), Take take) {
    withElement<Scalar>(cache.stored_, [&]<class Element>(std::type_identity<Element>) {
      for (Index slot = 0; slot < slots(cache, head, cache.length_); ++slot) {
        const Element* const row = reinterpret_cast<const Element*>(elements(cache, head, slot));
        const Scalar scale = isQuantized(cache.stored_) ? Scalar(*scales(cache, head, slot)) : Scalar(1);
        for (Index d = 0; d < cache.head_size_; ++d) take(slot, d, static_cast<Scalar>(row[d * stride]) * scale);
      }
    });
  }
  /// [n, D] of one head's slots.
  template <class Scalar>
  static Matrix<double> headRows(const LayerCache<Scalar>& cache, Index head, Index stride,
                                 const std::byte* (*elements)(const LayerCache<Scalar>&, Index, Index),
                                 const float* (*scales)(const LayerCache<Scalar>&, Index, Index)) {
    Matrix<double> rows(slots(cache, head, cache.length_), cache.head_size_);
    forEachElement(cache, head, stride, elements, scales,
                   [&](Index slot, Index d, Scalar number) { rows(slot, d) = static_cast<double>(number); });
    return rows;
  }
  /// [length, C] of all heads.
  template <class Scalar>
  static Matrix<Scalar> gather(const LayerCache<Scalar>& cache, Index stride,
                               const std::byte* (*elements)(const LayerCache<Scalar>&, Index, Index),
                               const float* (*scales)(const LayerCache<Scalar>&, Index, Index)) {
    Matrix<Scalar> rows(cache.length_, cache.n_head_ * cache.head_size_);
    rows.setZero();
    for (Index head = 0; head < cache.n_head_; ++head)
      forEachElement(cache, head, stride, elements, scales, [&](Index slot, Index d, Scalar number) {
        rows(positionAt(cache, head, slot), head * cache.head_size_ + d) = number;
      });
    return rows;
  }
};

inline void checkHead(Index head, Index heads) {
  if (head < 0 || head >= heads) raise<ArgumentError>({"expected a head from 0 to ", heads - 1, ", got ", head});
}

/// Throws ArgumentError if a cache has a policy, or positions have been dropped from it.
template <class Scalar>
void checkKeepsAll(const char* user, const ModelCache<Scalar>& cache) {
  if (!CacheAccess::keepsAll(cache))
    raise<ArgumentError>({user, ": expected a cache that keeps all positions, got one with a policy or after keep()"});
}

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
  Index bytes = std::ssize(pages_) * detail::CacheAccess::pageBytes(*this);
  for (const detail::KeptPositions& kept : kept_)
    bytes += std::ssize(kept.positions) * detail::CacheAccess::noteBytes(*this);
  return bytes;
}

template <FloatingScalar Scalar>
Index LayerCache<Scalar>::bytesFor(Index positions) const {
  const Index notes = policy_ == nullptr ? 0 : n_head_ * detail::CacheAccess::noteBytes(*this);
  return detail::CacheAccess::pages(positions) * detail::CacheAccess::pageBytes(*this) + positions * notes;
}

template <FloatingScalar Scalar>
void LayerCache<Scalar>::truncate(Index length) {
  detail::checkNewLength(length, length_);
  length_ = length;
  unchanged_ = (std::min)(unchanged_, length);
  for (detail::KeptPositions& kept : kept_)
    detail::CacheAccess::shorten(
        *this, kept, std::lower_bound(kept.positions.begin(), kept.positions.end(), length) - kept.positions.begin());
  if (length == 0 && policy_ == nullptr) kept_.clear();
  detail::CacheAccess::releaseRoom(*this);
}

template <FloatingScalar Scalar>
void LayerCache<Scalar>::setPolicy(std::shared_ptr<const CachePolicy> policy, Index layer) {
  if (policy == nullptr) return;
  statistics_ = policy->statistics();
  if (statistics_ < 0) detail::raise<ArgumentError>({"policy: expected statistics() of 0 or more, got ", statistics_});
  layer_ = layer;
  kept_ = detail::CacheAccess::listPositions(*this);
  policy_ = std::move(policy);
}

template <FloatingScalar Scalar>
std::vector<Index> LayerCache<Scalar>::positions(Index head) const {
  detail::checkHead(head, n_head_);
  std::vector<Index> positions;
  for (Index slot = 0; slot < detail::CacheAccess::slots(*this, head, length_); ++slot)
    positions.push_back(detail::CacheAccess::positionAt(*this, head, slot));
  return positions;
}

template <FloatingScalar Scalar>
void LayerCache<Scalar>::keep(Index head, std::span<const Index> wanted) {
  const std::vector<Index> held = positions(head);
  std::vector<bool> chosen(held.size());
  auto slot = held.begin();
  for (const Index position : wanted) {
    slot = std::find(slot, held.end(), position);
    if (slot == held.end())
      detail::raise<ArgumentError>({"keep: expected positions in order, each once, that head ", head, " keeps, got ",
                                    position, ", which is not one of them or out of order"});
    chosen[static_cast<std::size_t>(slot++ - held.begin())] = true;
  }
  if (wanted.size() == held.size()) return;
  std::vector<detail::KeptPositions> lists = detail::CacheAccess::listPositions(*this);
  detail::KeptPositions& list = lists[static_cast<std::size_t>(head)];
  list.chosen.makeRoom(std::ssize(held));
  std::copy(chosen.begin(), chosen.end(), list.chosen.data());
  list.is_chosen = true;
  detail::CacheAccess::makeRoom(std::span<LayerCache>(this, 1), 0, true);
  kept_ = std::move(lists);  // from here on nothing can fail
  detail::CacheAccess::drop(*this, head);
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
  for (Index page = 0; page < detail::CacheAccess::pages(detail::CacheAccess::mostSlots(*this)); ++page)
    copy.pages_.push_back(pages_[static_cast<std::size_t>(page)].share());
  if (!detail::CacheAccess::keepsAll(*this)) copy.kept_ = detail::CacheAccess::listPositions(*this);
  copy.policy_ = policy_;
  copy.statistics_ = statistics_;
  copy.layer_ = layer_;
  copy.length_ = length_;
  copy.unchanged_ = unchanged_;
  return copy;
}

}}  // namespace driftless::DRIFTLESS_ABI
