#pragma once

#include "driftless/config.hpp"
#include "driftless/detail/kernels/aligned_buffer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A token that may be drawn.
struct Candidate {
  double weight;
  int id;
};

/// The tokens that may be drawn, and room to sort them in: kept, it lets a draw allocate nothing if one before it had
/// as many logits.
struct Candidates {
  Index count = 0;
  AlignedBuffer<double> weights = {};  ///< first the distances from the largest logit, then e to their power
  AlignedBuffer<int> ids = {};         ///< whose weights they are
  AlignedBuffer<Candidate> sorted = {};

  void makeRoom(Index size) {
    weights.makeRoom(roundUpToLanes(size));
    ids.makeRoom(size);
    sorted.makeRoom(size);
  }

  /// The first `size` of `sorted` are all that is left.
  void takeSorted(Index size) {
    count = size;
    for (Index i = 0; i < size; ++i) {
      weights.data()[i] = sorted.data()[i].weight;
      ids.data()[i] = sorted.data()[i].id;
    }
  }

  Index bytes() const {
    return weights.size() * Index{sizeof(double)} + ids.size() * Index{sizeof(int)} +
           sorted.size() * Index{sizeof(Candidate)};
  }
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
