#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/aligned_buffer.hpp"
#include "driftless/detail/kernels/shapes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Memory for some positions of a cache, aligned to cache lines, that caches on several threads may own together: as
/// long as there are several owners, none writes into it. Each owner itself is used by one thread at a time.
class Page {
 public:
  /// Uninitialised, in memory cut from an arena: that of all layers for the same positions, which come and go together,
  /// is large enough for huge pages, without which attention is a tenth slower.
  Page(Index bytes, Arena& arena)
      : memory_(arena.cut<std::byte>(kCacheLine + bytes)), owners_(::new (memory_.get()) std::atomic<Index>(1)) {}
  Page(Page&& other) noexcept = default;
  Page& operator=(Page&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(owners_, other.owners_);
    return *this;
  }
  ~Page() {
    if (memory_ != nullptr) owners_->fetch_sub(1, std::memory_order_release);
  }

  /// What it takes up in the arena.
  static constexpr Index bytesFor(Index bytes) { return Arena::bytesFor<std::byte>(kCacheLine + bytes); }

  /// A further owner of the same memory.
  Page share() const {
    owners_->fetch_add(1, std::memory_order_relaxed);
    return Page(memory_, owners_);
  }

  /// A page of its own with the same contents.
  Page copy(Index bytes, Arena& arena) const {
    Page copy(bytes, arena);
    std::copy_n(data(), bytes, copy.data());
    return copy;
  }

  /// Whether there are other owners. If not, what they read before they let go has been read, which a shared_ptr's
  /// use_count would not promise.
  bool isShared() const { return owners_->load(std::memory_order_acquire) != 1; }

  std::byte* data() { return memory_.get() + kCacheLine; }
  const std::byte* data() const { return memory_.get() + kCacheLine; }

 private:
  Page(std::shared_ptr<std::byte[]> memory, std::atomic<Index>* owners) : memory_(std::move(memory)), owners_(owners) {}

  std::shared_ptr<std::byte[]> memory_;  ///< null if it has been moved from
  std::atomic<Index>* owners_;           ///< in a cache line of its own before the data
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
