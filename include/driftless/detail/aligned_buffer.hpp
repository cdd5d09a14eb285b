#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace driftless::detail {

/// Uninitialised, cache-line aligned memory for plain numbers. Pages that are never touched cost nothing.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(static_cast<void*>(data), kAlignment); }
  };

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::ptrdiff_t size)
      : data_(static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), kAlignment))), size_(size) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::ptrdiff_t size() const { return size_; }

 private:
  std::unique_ptr<T[], Free> data_;
  std::ptrdiff_t size_ = 0;
};

}  // namespace driftless::detail
