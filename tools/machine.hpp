#pragma once

#include "driftless/config.hpp"
#include "driftless/detail/kernels/aligned_buffer.hpp"
#include "driftless/threads.hpp"

namespace driftless::cli {

/// What a machine can do at best with a number of threads: the limits that a model is measured against.
class Machine {
 public:
  /// A buffer of at least `bytes` to read from, in memory of its own.
  Machine(Index bytes, Threads threads);

  /// Bytes per second: sums up the buffer a few times, each thread its own part of it.
  double readBandwidth() const;

  /// Floating-point operations per second: fused multiply-adds between registers, on all threads.
  double fmaPeak() const;

 private:
  Threads threads_;
  Index part_;  ///< floats that a thread reads, in whole cache lines
  detail::AlignedBuffer<float> buffer_;
};

}  // namespace driftless::cli
