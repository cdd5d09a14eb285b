#pragma once

#include <memory>
#include <system_error>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/threads/processors.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/error.hpp"
#include "driftless/threads.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE Threads::Threads() : Threads(detail::usefulThreads()) {}

DRIFTLESS_INLINE Threads::Threads(int count) {
  if (count < 1 || count > detail::kMostThreads)
    detail::raise<ArgumentError>({"Threads: expected a count from 1 to ", detail::kMostThreads, ", got ", count});
#ifdef DRIFTLESS_NO_EXCEPTIONS
  pool_ = std::make_shared<detail::ThreadPool>(count);
#else
  try {
    pool_ = std::make_shared<detail::ThreadPool>(count);
  } catch (const std::system_error& error) {
    detail::raise<Error>({"Threads: expected ", count, " threads, got fewer: ", error.what()});
  }
#endif
}

DRIFTLESS_INLINE int Threads::count() const { return pool_->threads(); }

}}  // namespace driftless::DRIFTLESS_ABI
