#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace driftless::detail {

/// Uninitialised memory for plain numbers, aligned to cache lines. Pages that are never touched cost nothing. Large
/// buffers ask for huge pages: streaming through weights misses the TLB less often.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  struct Free {
    std::align_val_t alignment{};
    void operator()(T* data) const { ::operator delete(static_cast<void*>(data), alignment); }
  };

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::ptrdiff_t size) : size_(size) {
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    const bool large = bytes >= 2 * kHugePage;
    const std::align_val_t alignment{large ? kHugePage : std::size_t{64}};
    data_ = {static_cast<T*>(::operator new(bytes, alignment)), Free{alignment}};
#ifdef __linux__
    if (large) ::madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::ptrdiff_t size() const { return size_; }

 private:
  std::unique_ptr<T[], Free> data_;
  std::ptrdiff_t size_ = 0;
};

}  // namespace driftless::detail
