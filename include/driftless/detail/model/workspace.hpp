#pragma once

#include <utility>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/model/candidates.hpp"
#include "driftless/detail/model/growth.hpp"
#include "driftless/detail/model/quantized_rows.hpp"
#include "driftless/detail/model/rules_room.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/observer.hpp"
#include "driftless/workspace.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Consecutive new rows of one sequence among the rows of a step, and the layer's cache that they go on from.
template <class Scalar>
struct Segment {
  LayerCache<Scalar>* cache;
  Index first_row;
  Index rows;
  Index sequence;  ///< which of the step's chunks
  Index position;  ///< of the first row
  const int* ids;  ///< of the rows, if a step begins with tokens
};

/// A step under way: the threads, the rows and the room for its intermediate results.
template <class Scalar>
struct Step {
  ThreadPool& pool;
  const Observer<Scalar>* observer = nullptr;
  std::vector<Segment<Scalar>> segments = {};
  std::vector<Growth<Scalar>> growths = {};  ///< of the caches of its chunks
  Index layer = 0;                           ///< which one the step is in
  PaddedRows<Scalar> x = {};                 ///< [T, C] residual stream
  PaddedRows<Scalar> normed = {};            ///< [T, C] LayerNorm's output
  PaddedRows<Scalar> qkv = {};               ///< [T, 3C]
  PaddedRows<Scalar> mixed = {};             ///< [T, C] values mixed by attention, heads side by side
  PaddedRows<Scalar> hidden = {};            ///< [T, n_inner] the MLP's hidden layer
  PaddedRows<Scalar> scores = {};   ///< [threads * kTileRows, positions + D padded] attention of one tile per thread
  PaddedRows<Scalar> widened = {};  ///< [threads, in * kPanelWidth] a panel in Scalar for each thread
  QuantizedRows<Scalar> quantized = {};     ///< [T, in] what enters a product in 8 bits
  PaddedRows<Scalar> last = {};             ///< [B, C] normed of each sequence's last row
  WorkspaceVector<Scalar> logits = {};      ///< [V] of one sequence
  AlignedBuffer<Scalar> batch_logits = {};  ///< [B, V] of several, row after row
  std::vector<Chunk<Scalar>> chunks = {};   ///< of a decode step of several
  std::vector<Index> wanted = {};           ///< of how many of its ids each chunk's logits are wanted
  AlignedBuffer<Scalar> allowed = {};       ///< [V] logits after rules
  Candidates candidates = {};               ///< of a draw from its logits
  RulesRoom rules = {};                     ///< of what changes its logits before

  bool visits(Point point) const { return observer != nullptr && observer->points.contains(point) && observer->visit; }
  void tell(Part part) const {
    if (observer != nullptr && observer->part) observer->part(part);
  }
};

}  // namespace detail

template <FloatingScalar Scalar>
Workspace<Scalar>::Workspace(Threads threads)
    : threads_(std::move(threads)), step_(new detail::Step<Scalar>{threads_.pool()}) {}
template <FloatingScalar Scalar>
Index Workspace<Scalar>::bytes() const {
  Index bytes =
      (step_->logits.size() + step_->batch_logits.size() + step_->allowed.size()) * static_cast<Index>(sizeof(Scalar)) +
      step_->candidates.bytes() + step_->rules.bytes();
  for (const auto* rows : {&step_->x, &step_->normed, &step_->qkv, &step_->mixed, &step_->hidden, &step_->scores,
                           &step_->widened, &step_->last})
    bytes += rows->bytes();
  return bytes + step_->quantized.bytes();
}

}}  // namespace driftless::DRIFTLESS_ABI
