#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/shapes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Memory for some positions of a cache, aligned to cache lines, that caches on several threads may own together: as
/// long as there are several owners, none writes into it. Each owner itself is used by one thread at a time.
class Page {
 public:
  /// Uninitialised.
  explicit Page(Index bytes)
      : header_(::new (::operator new(static_cast<std::size_t>(kCacheLine + bytes), kAlignment)) Header) {}
  Page(Page&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
  Page& operator=(Page&& other) noexcept {
    std::swap(header_, other.header_);
    return *this;
  }
  ~Page() {
    // Before the memory is used for something else, all that the other owners did with it is done.
    if (header_ == nullptr || header_->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    ::operator delete(static_cast<void*>(header_), kAlignment);
  }

  /// A further owner of the same memory.
  Page share() const {
    header_->owners.fetch_add(1, std::memory_order_relaxed);
    return Page(header_);
  }

  /// A page of its own with the same contents.
  Page copy(Index bytes) const {
    Page copy(bytes);
    std::copy_n(data(), bytes, copy.data());
    return copy;
  }

  /// Whether there are other owners. If not, what they read before they let go has been read.
  bool isShared() const { return header_->owners.load(std::memory_order_acquire) != 1; }

  std::byte* data() { return reinterpret_cast<std::byte*>(header_) + kCacheLine; }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(header_) + kCacheLine; }

 private:
  /// In a cache line of its own before the data.
  struct Header {
    std::atomic<Index> owners{1};
  };
  static_assert(sizeof(Header) <= kCacheLine);
  static constexpr std::align_val_t kAlignment{kCacheLine};

  explicit Page(Header* header) : header_(header) {}

  Header* header_;  ///< null if it has been moved from
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
