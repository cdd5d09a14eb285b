#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "driftless/detail/kernels/shapes.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// One allocation that buffers are cut from, each of which keeps all of it alive. Pages that are never touched cost
/// nothing. A large one asks for huge pages, without which streaming through weights is a third slower: so the matrices
/// of a model, many of them smaller than such a page, are cut from one arena.
class Arena {
 public:
  static constexpr std::ptrdiff_t kHugePage = std::ptrdiff_t{2} << 20;

  explicit Arena(std::ptrdiff_t bytes) {
    const bool large = bytes >= 2 * kHugePage;
    const std::align_val_t alignment{static_cast<std::size_t>(large ? kHugePage : kCacheLine)};
    memory_ = {static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment)),
               [alignment](std::byte* memory) { ::operator delete(memory, alignment); }};
#ifdef __linux__
    if (large) ::madvise(memory_.get(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
  }

  /// What `size` numbers take up.
  template <class T>
  static constexpr std::ptrdiff_t bytesFor(std::ptrdiff_t size) {
    const std::ptrdiff_t bytes = size * static_cast<std::ptrdiff_t>(sizeof(T));
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }

  /// The next `size` numbers.
  template <class T>
  std::shared_ptr<T[]> cut(std::ptrdiff_t size) {
    std::byte* const begin = memory_.get() + std::exchange(used_, used_ + bytesFor<T>(size));
    return {memory_, reinterpret_cast<T*>(begin)};
  }

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::ptrdiff_t used_ = 0;
};

/// Uninitialised memory for plain numbers, aligned to cache lines.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  AlignedBuffer(std::ptrdiff_t size, Arena& arena) : data_(arena.cut<T>(size)), size_(size) {}
  explicit AlignedBuffer(std::ptrdiff_t size) : AlignedBuffer(size, Arena(Arena::bytesFor<T>(size))) {}

  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  /// Room for at least `size` numbers: allocates, and forgets what it held, if it has less.
  void makeRoom(std::ptrdiff_t size) {
    if (size > size_) *this = AlignedBuffer(size);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::ptrdiff_t size() const { return size_; }

 private:
  AlignedBuffer(std::ptrdiff_t size, Arena&& own) : AlignedBuffer(size, own) {}

  std::shared_ptr<T[]> data_;
  std::ptrdiff_t size_ = 0;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
