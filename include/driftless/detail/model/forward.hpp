#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/block.hpp"
#include "driftless/error.hpp"
#include "driftless/forward.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Rows that go through the model together. Longer prompts are run in pieces, which bounds the room they need.
inline constexpr Index kMaxStepRows = 512;

/// Rows of a text that is scored whose logits are in memory together: 13 MB of floats at GPT-2's vocabulary.
inline constexpr Index kScoredRows = 64;

/// Throws before a step writes anything if a chunk's ids can't go on from its cache.
template <class Scalar>
void checkChunk(const Chunk<Scalar>& chunk, const Weights<Scalar>& weights) {
  const Config& config = weights.config;
  const ModelCache<Scalar>& cache = *chunk.cache;
  checkCache(cache, config);
  checkIds(chunk.ids, config);
  const Index left = cache.capacity() - cache.length();
  if (static_cast<Index>(chunk.ids.size()) > left)
    raise<ContextFull>({"expected at most ", left, " more tokens (n_positions is ", config.n_positions,
                        ", the cache holds ", cache.length(), "), got ", chunk.ids.size()});
}

template <class Scalar>
void checkChunks(std::span<const Chunk<Scalar>> chunks, const Weights<Scalar>& weights) {
  if (chunks.empty()) raise<ArgumentError>({"expected at least one sequence, got none"});
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].cache == nullptr) raise<ArgumentError>({"expected a cache for sequence ", i, ", got none"});
    checkChunk(chunks[i], weights);
    for (std::size_t j = 0; j < i; ++j)
      if (chunks[i].cache == chunks[j].cache)
        raise<ArgumentError>(
            {"expected a cache of its own for every sequence, got the same one for sequences ", j, " and ", i});
  }
}

inline void checkPosition(Index position, Index length) {
  if (position != length)
    raise<ArgumentError>({"decodeStep: expected position ", length, ", the cache's length, got ", position});
}

/// logits [T, V], row after row, of final hidden states x [T, C].
template <class Scalar>
void unembed(Step<Scalar>& step, const PaddedRows<Scalar>& x, const Weights<Scalar>& weights, Scalar* logits) {
  const Index V = weights.config.vocab_size;
  Destination<Scalar> to{logits, V, V};
  to.has_one_nan = true;
  multiply(step, x, weights.unembedding(), to);
}

/// Shows an observer the logits of one sequence's rows, the first of which is at `position`.
template <class Scalar>
void visitLogits(const Step<Scalar>& step, Index sequence, Index position, Scalar* logits, Index rows, Index V) {
  if (rows > 0 && step.visits(Point::logits))
    visit(step, Point::logits, sequence, position, 0, {logits, rows, V, Eigen::OuterStride<>(V)});
}

/// A step of several chunks, which go through the model a piece at a time. All memory that it needs in their caches is
/// taken before any is written; they do not grow before commit(): if anything throws on the way, they are as they were.
template <class Scalar>
class ForwardPass {
 public:
  ForwardPass(std::span<const Chunk<Scalar>> chunks, const Weights<Scalar>& weights, Workspace<Scalar>& workspace,
              const Observer<Scalar>& observer)
      : ForwardPass(chunks, weights, workspace) {  // so that the destructor runs if anything throws here
    step_.observer = &observer;
    step_.growths.reserve(chunks_.size());
    for (const Chunk<Scalar>& chunk : chunks_) {
      CacheAccess::reserveIds(*chunk.cache, chunk.ids.size());
      step_.growths.emplace_back(CacheAccess::layers(*chunk.cache), static_cast<Index>(chunk.ids.size()));
    }
  }
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
  ~ForwardPass() {
    step_.observer = nullptr;
    step_.growths.clear();
  }

  /// Runs up to kMaxStepRows of the ids that are left, and leaves ln_f's output in step.normed, a row for each of
  /// step.segments' rows. False if no ids are left.
  bool runPiece() {
    const Index rows = cutPiece();
    if (rows == 0) return false;
    embed(rows);
    for (step_.layer = 0; step_.layer < weights_.config.n_layer; ++step_.layer) {
      for (Segment<Scalar>& segment : step_.segments) segment.cache = &layerCache(segment);
      blockStep(step_, weights_.h[static_cast<std::size_t>(step_.layer)]);
    }
    layerNorm(step_.x, weights_.ln_f, step_.pool, step_.normed);
    step_.tell(Part::norm);
    visit(step_, Point::ln_final, step_.normed);
    return true;
  }

  /// Makes all positions that were run part of the caches.
  void commit() {
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      CacheAccess::addIds(*chunks_[i].cache, chunks_[i].ids);
      step_.growths[i].commit();
    }
  }

 private:
  ForwardPass(std::span<const Chunk<Scalar>> chunks, const Weights<Scalar>& weights, Workspace<Scalar>& workspace)
      : chunks_(chunks), weights_(weights), step_(workspace.step()) {}

  /// Sets the next piece's segments and returns the number of its rows.
  Index cutPiece() {
    Index rows = 0;
    step_.segments.clear();
    while (chunk_ < chunks_.size() && rows < kMaxStepRows) {
      const Chunk<Scalar>& chunk = chunks_[chunk_];
      const Index ids = static_cast<Index>(chunk.ids.size());
      const Index count = (std::min)(kMaxStepRows - rows, ids - id_);
      step_.segments.push_back(
          {nullptr, rows, count, static_cast<Index>(chunk_), chunk.cache->length() + id_, chunk.ids.data() + id_});
      rows += count;
      id_ += count;
      if (id_ == ids) ++chunk_, id_ = 0;
    }
    return rows;
  }

  void embed(Index rows) {
    step_.x.resize(rows, weights_.config.n_embd);
    step_.pool.parallelFor(static_cast<Index>(step_.segments.size()), [&](Index index, int) {
      const Segment<Scalar>& segment = step_.segments[static_cast<std::size_t>(index)];
      step_.pool.parallelFor(segment.rows, [&](Index row, int) {  // alone, if there are several segments
        weights_.wte.columns.addColumn(segment.ids[row], positionRow(segment, row),
                                       step_.x.row(segment.first_row + row));
      });
    });
    step_.tell(Part::embedding);
    if (step_.visits(Point::embed) || step_.visits(Point::pos_embed)) visitEmbeddings();
  }

  /// The two vectors whose sum step.x is. Where an observer changes one of them, the sum is made anew.
  void visitEmbeddings() {
    PaddedRows<Scalar> tokens(step_.x.rows(), step_.x.cols()), positions(step_.x.rows(), step_.x.cols());
    const std::vector<Scalar> zero(static_cast<std::size_t>(step_.x.cols()));
    for (const Segment<Scalar>& segment : step_.segments)
      for (Index row = 0; row < segment.rows; ++row) {
        weights_.wte.columns.addColumn(segment.ids[row], zero.data(), tokens.row(segment.first_row + row));
        std::copy_n(positionRow(segment, row), step_.x.cols(), positions.row(segment.first_row + row));
      }
    const auto add = [&](Index row, Index column, Scalar) {
      step_.x.row(row)[column] = tokens.row(row)[column] + positions.row(row)[column];
    };
    visitCopy(step_, Point::embed, 0, tokens, add);
    visitCopy(step_, Point::pos_embed, 0, positions, add);
  }

  /// wpe's row of a segment's row.
  const Scalar* positionRow(const Segment<Scalar>& segment, Index row) const {
    const ModelCache<Scalar>& cache = *chunks_[static_cast<std::size_t>(segment.sequence)].cache;
    return weights_.wpe.row(CacheAccess::embeddedPosition(cache, segment.position + row));
  }

  LayerCache<Scalar>& layerCache(const Segment<Scalar>& segment) const {
    return chunks_[static_cast<std::size_t>(segment.sequence)].cache->layer(step_.layer);
  }

  std::span<const Chunk<Scalar>> chunks_;
  const Weights<Scalar>& weights_;
  Step<Scalar>& step_;
  std::size_t chunk_ = 0;  ///< the first that is not run to its end
  Index id_ = 0;           ///< how many of its ids are
};

/// Runs the chunks through the model and writes logits, row after row: of the last wanted[i] ids of chunks[i], in their
/// order. Other ids cost no unembedding.
template <class Scalar>
void lastLogits(std::span<const Chunk<Scalar>> chunks, std::span<const Index> wanted, const Weights<Scalar>& weights,
                Workspace<Scalar>& workspace, const Observer<Scalar>& observer, Scalar* logits) {
  Step<Scalar>& step = workspace.step();
  step.last.resize(std::accumulate(wanted.begin(), wanted.end(), Index{0}), weights.config.n_embd);
  ForwardPass<Scalar> pass(chunks, weights, workspace, observer);
  Index next = 0;
  while (pass.runPiece())
    for (const Segment<Scalar>& segment : step.segments) {
      const Chunk<Scalar>& chunk = chunks[static_cast<std::size_t>(segment.sequence)];
      const Index row = segment.position - chunk.cache->length();  // of the segment's first id in its chunk
      const Index first_wanted =
          static_cast<Index>(chunk.ids.size()) - wanted[static_cast<std::size_t>(segment.sequence)];
      for (Index r = (std::max)(Index{0}, first_wanted - row); r < segment.rows; ++r)
        std::copy_n(step.normed.row(segment.first_row + r), weights.config.n_embd, step.last.row(next++));
    }
  if (next > 0) unembed(step, step.last, weights, logits);
  step.tell(Part::unembedding);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Index end = chunks[i].cache->length() + static_cast<Index>(chunks[i].ids.size());
    visitLogits(step, static_cast<Index>(i), end - wanted[i], logits, wanted[i], weights.config.vocab_size);
    logits += wanted[i] * weights.config.vocab_size;
  }
  pass.commit();
}

/// The same into the workspace.
template <class Scalar>
MatrixView<Scalar> lastLogits(std::span<const Chunk<Scalar>> chunks, std::span<const Index> wanted,
                              const Weights<Scalar>& weights, Workspace<Scalar>& workspace,
                              const Observer<Scalar>& observer) {
  AlignedBuffer<Scalar>& logits = workspace.step().batch_logits;
  const Index rows = std::accumulate(wanted.begin(), wanted.end(), Index{0});
  const Index V = weights.config.vocab_size;
  logits.makeRoom(rows * V);
  lastLogits(chunks, wanted, weights, workspace, observer, logits.data());
  return {logits.data(), rows, V};
}

}  // namespace detail

template <FloatingScalar Scalar>
const WorkspaceVector<Scalar>& prefill(TokenIds promptIds, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                                       Workspace<Scalar>& workspace,
                                       const std::type_identity_t<Observer<Scalar>>& observer) {
  const Chunk<Scalar> chunk{promptIds, &cache};
  detail::checkChunk(chunk, weights);
  WorkspaceVector<Scalar>& logits = workspace.step().logits;
  logits.resize(weights.config.vocab_size);
  const Index wanted = 1;
  detail::lastLogits(std::span(&chunk, 1), std::span(&wanted, 1), weights, workspace, observer, logits.data());
  return logits;
}

template <FloatingScalar Scalar>
const WorkspaceVector<Scalar>& decodeStep(int id, Index position, const Weights<Scalar>& weights,
                                          ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                                          const std::type_identity_t<Observer<Scalar>>& observer) {
  detail::checkPosition(position, cache.length());
  return prefill(std::span(&id, 1), weights, cache, workspace, observer);
}

template <FloatingScalar Scalar>
Matrix<Scalar> prefillLogits(TokenIds promptIds, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                             Workspace<Scalar>& workspace, const std::type_identity_t<Observer<Scalar>>& observer) {
  const Chunk<Scalar> chunk{promptIds, &cache};
  detail::checkChunk(chunk, weights);
  detail::Step<Scalar>& step = workspace.step();
  Matrix<Scalar> logits(static_cast<Index>(promptIds.size()), weights.config.vocab_size);
  detail::ForwardPass<Scalar> pass(std::span(&chunk, 1), weights, workspace, observer);
  while (pass.runPiece()) {
    const Index position = step.segments.front().position;
    Scalar* const rows = logits.row(position - cache.length()).data();
    detail::unembed(step, step.normed, weights, rows);
    step.tell(Part::unembedding);
    detail::visitLogits(step, 0, position, rows, step.normed.rows(), logits.cols());
  }
  pass.commit();
  return logits;
}

template <FloatingScalar Scalar>
MatrixView<Scalar> prefill(const std::vector<Chunk<Scalar>>& chunks, const Weights<Scalar>& weights,
                           Workspace<Scalar>& workspace, const std::type_identity_t<Observer<Scalar>>& observer) {
  detail::checkChunks(std::span(chunks), weights);
  std::vector<Index>& wanted = workspace.step().wanted;
  wanted.assign(chunks.size(), 1);
  return detail::lastLogits(std::span(chunks), std::span(std::as_const(wanted)), weights, workspace, observer);
}

template <FloatingScalar Scalar>
MatrixView<Scalar> decodeStep(TokenIds ids, std::span<const Index> positions, const Weights<Scalar>& weights,
                              const std::vector<ModelCache<Scalar>*>& caches, Workspace<Scalar>& workspace,
                              const std::type_identity_t<Observer<Scalar>>& observer) {
  if (ids.size() != caches.size() || positions.size() != caches.size())
    detail::raise<ArgumentError>({"decodeStep: expected an id and a position for each of ", caches.size(),
                                  " caches, got ", ids.size(), " ids and ", positions.size(), " positions"});
  std::vector<Chunk<Scalar>>& chunks = workspace.step().chunks;
  chunks.clear();
  for (std::size_t i = 0; i < caches.size(); ++i) {
    if (caches[i] != nullptr) detail::checkPosition(positions[i], caches[i]->length());
    chunks.push_back({ids.subspan(i, 1), caches[i]});
  }
  return prefill(chunks, weights, workspace, observer);
}

template <FloatingScalar Scalar>
RowVector<Scalar> embedToken(int id, Index position, const Weights<Scalar>& weights) {
  checkIds(std::span(&id, 1), weights.config);
  if (position < 0 || position >= weights.config.n_positions)
    detail::raise<ArgumentError>(
        {"expected a position from 0 to ", weights.config.n_positions - 1, ", got ", position});
  RowVector<Scalar> out(weights.config.n_embd);
  weights.wte.columns.addColumn(id, weights.wpe.row(position), out.data());
  return out;
}

template <FloatingScalar Scalar>
Matrix<Scalar> unembed(const std::type_identity_t<Matrix<Scalar>>& x, const Weights<Scalar>& weights) {
  detail::checkWidth(x, weights.config.n_embd);
  Matrix<Scalar> logits(x.rows(), weights.config.vocab_size);
  Workspace<Scalar> workspace(Threads(1));
  detail::unembed(workspace.step(), detail::PaddedRows<Scalar>(x), weights, logits.data());
  return logits;
}

}}  // namespace driftless::DRIFTLESS_ABI
