#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "driftless/block.hpp"
#include "driftless/cache.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/observer.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// New tokens of one sequence, and the cache that they go on from, at the positions from cache->length() on.
template <class Scalar, class CacheStored = Scalar>
struct Chunk {
  std::span<const int> ids;                ///< at least one
  ModelCache<Scalar, CacheStored>* cache;  ///< of this sequence alone
};

namespace detail {

/// Rows that go through the model together. Longer prompts are run in pieces, which bounds the room they need.
inline constexpr Index kMaxStepRows = 512;

/// Throws before a step writes anything: whether a chunk's ids can go on from its cache.
template <class Scalar, class Stored, class CacheStored>
void checkChunk(const Chunk<Scalar, CacheStored>& chunk, const Weights<Scalar, Stored>& weights) {
  const Config& config = weights.config;
  const ModelCache<Scalar, CacheStored>& cache = *chunk.cache;
  const std::span<const int> ids = chunk.ids;
  if (cache.layers() != config.n_layer || cache.capacity() != config.n_positions ||
      cache.layer(0).heads() != config.n_head || cache.layer(0).headSize() != config.headSize())
    throw ArgumentError("the cache was made for a model of another shape than these weights");
  for (Index layer = 1; layer < cache.layers(); ++layer)
    if (cache.layer(layer).length() != cache.length())
      throw ArgumentError("the cache's layers are out of step: layer 0 holds " + std::to_string(cache.length()) +
                          " positions, layer " + std::to_string(layer) + " holds " +
                          std::to_string(cache.layer(layer).length()));
  if (ids.empty()) throw ArgumentError("expected at least one token id, got none");
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      throw ArgumentError("expected token ids from 0 to " + std::to_string(config.vocab_size - 1) + ", got " +
                          std::to_string(ids[i]) + " at index " + std::to_string(i));
  const Index left = config.n_positions - cache.length();
  if (static_cast<Index>(ids.size()) > left)
    throw ContextFull("expected at most " + std::to_string(left) + " more tokens (n_positions is " +
                      std::to_string(config.n_positions) + ", the cache holds " + std::to_string(cache.length()) +
                      "), got " + std::to_string(ids.size()));
}

template <class Scalar, class Stored, class CacheStored>
void checkChunks(std::span<const Chunk<Scalar, CacheStored>> chunks, const Weights<Scalar, Stored>& weights) {
  if (chunks.empty()) throw ArgumentError("expected at least one sequence, got none");
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].cache == nullptr)
      throw ArgumentError("expected a cache for sequence " + std::to_string(i) + ", got none");
    checkChunk(chunks[i], weights);
    for (std::size_t j = 0; j < i; ++j)
      if (chunks[i].cache == chunks[j].cache)
        throw ArgumentError("expected a cache of its own for every sequence, got the same one for sequences " +
                            std::to_string(j) + " and " + std::to_string(i));
  }
}

/// out [C] = wte[id] + wpe[position].
template <class Scalar, class Stored>
void embedToken(int id, Index position, const Weights<Scalar, Stored>& weights, Scalar* out) {
  const PackedMatrix<Stored>& wte = weights.wte.columns;
  for (Index c = 0; c < weights.config.n_embd; ++c) {
    const Scalar element = static_cast<Scalar>(wte.element(c, id));
    if constexpr (kIsQuantized<Stored>)
      out[c] = fusedMultiplyAdd(element, static_cast<Scalar>(wte.scale()[id]), weights.wpe(position, c));
    else
      out[c] = element + weights.wpe(position, c);
  }
}

/// logits [T, V], row after row, of final hidden states x [T, C].
template <class Scalar, class Stored>
void unembed(const Rows<Scalar>& x, const Weights<Scalar, Stored>& weights, ThreadPool& pool, Scalar* logits) {
  const Index V = weights.config.vocab_size;
  // Which of its many NaNs a processor returns depends on the instruction; one of them stands for all.
  const auto nan = Lanes<Scalar>::broadcast(std::numeric_limits<Scalar>::quiet_NaN());
  const auto zero = Lanes<Scalar>::broadcast(Scalar(0));
  multiply(x, weights.head(), pool, [&](Index row, Index column, const Lanes<Scalar>& sums) {
    Scalar values[kLanes];
    const Lanes<Scalar> scaled = addScaled(weights.head(), column, sums, zero);
    selectNaN(scaled, nan, scaled).store(values);
    std::copy_n(values, (std::min)(kLanes, V - column), logits + row * V + column);
  });
}

/// Tells an observer what stands between two blocks.
template <class Scalar, class CacheStored, class Observer>
void showHiddenStates(const Workspace<Scalar, CacheStored>& workspace, Observer& observer) {
  if constexpr (kObserves<HiddenStates<Scalar>, Observer>)
    for (const Segment<Scalar, CacheStored>& segment : workspace.segments)
      observer(HiddenStates<Scalar>{
          workspace.layer,
          {workspace.x.row(segment.first_row), segment.rows, workspace.x.cols(), {workspace.x.stride()}},
          segment.sequence,
          segment.position});
}

/// Where a step is in its chunks: the next id to run.
struct StepPosition {
  std::size_t chunk = 0;
  Index id = 0;
};

/// Runs the next ids of the chunks through the model, up to kMaxStepRows of them; see forward.
template <class Scalar, class Stored, class CacheStored, class Observer, class Take>
void forwardPiece(std::span<const Chunk<Scalar, CacheStored>> chunks, StepPosition& next,
                  const Weights<Scalar, Stored>& weights, ThreadPool& pool, Workspace<Scalar, CacheStored>& workspace,
                  Observer& observer, Take& take) {
  Index rows = 0;
  workspace.segments.clear();
  while (next.chunk < chunks.size() && rows < kMaxStepRows) {
    const Chunk<Scalar, CacheStored>& chunk = chunks[next.chunk];
    const Index ids = static_cast<Index>(chunk.ids.size());
    const Index count = (std::min)(kMaxStepRows - rows, ids - next.id);
    workspace.segments.push_back(
        {nullptr, rows, count, static_cast<Index>(next.chunk), chunk.cache->length(), chunk.ids.data() + next.id});
    rows += count;
    next = next.id + count == ids ? StepPosition{next.chunk + 1, 0} : StepPosition{next.chunk, next.id + count};
  }

  workspace.x.resize(rows, weights.config.n_embd);
  pool.parallelFor(static_cast<Index>(workspace.segments.size()), [&](Index index, int) {
    const Segment<Scalar, CacheStored>& segment = workspace.segments[static_cast<std::size_t>(index)];
    pool.parallelFor(segment.rows, [&](Index row, int) {  // by itself where there are several segments
      embedToken(segment.ids[row], segment.position + row, weights, workspace.x.row(segment.first_row + row));
    });
  });
  tell(observer, Part::embedding);
  for (workspace.layer = 0; workspace.layer < weights.config.n_layer; ++workspace.layer) {
    for (Segment<Scalar, CacheStored>& segment : workspace.segments)
      segment.cache = &chunks[static_cast<std::size_t>(segment.sequence)].cache->layer(workspace.layer);
    showHiddenStates(workspace, observer);
    blockStep(weights.h[static_cast<std::size_t>(workspace.layer)], pool, workspace, observer);
  }
  showHiddenStates(workspace, observer);
  layerNorm(workspace.x, weights.ln_f, pool, workspace.normed);
  tell(observer, Part::norm);
  for (const Segment<Scalar, CacheStored>& segment : workspace.segments) take(segment);
}

/// Runs the chunks through the model, up to kMaxStepRows rows at a time. After each such piece,
/// take(segment) may look at ln_f's output in workspace.normed, one segment's rows after the other.
template <class Scalar, class Stored, class CacheStored, class Observer, class Take>
void forward(std::span<const Chunk<Scalar, CacheStored>> chunks, const Weights<Scalar, Stored>& weights,
             ThreadPool& pool, Workspace<Scalar, CacheStored>& workspace, Observer&& observer, Take take) {
  StepPosition next;
  while (next.chunk < chunks.size()) forwardPiece(chunks, next, weights, pool, workspace, observer, take);
}

/// Runs a step that may fail midway, as memory runs out or an observer throws; the caches are then as they were.
template <class Scalar, class CacheStored, class Step>
void allOrNothing(std::span<const Chunk<Scalar, CacheStored>> chunks, Workspace<Scalar, CacheStored>& workspace,
                  Step step) {
  workspace.lengths.clear();
  for (const Chunk<Scalar, CacheStored>& chunk : chunks) workspace.lengths.push_back(chunk.cache->length());
  try {
    step();
  } catch (...) {
    for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i].cache->truncate(workspace.lengths[i]);
    throw;
  }
}

/// Runs the chunks through the model and writes the logits [B, V] of each one's last id, row after row.
template <class Scalar, class Stored, class CacheStored, class Observer>
void lastLogits(std::span<const Chunk<Scalar, CacheStored>> chunks, const Weights<Scalar, Stored>& weights,
                Scalar* logits, Observer&& observer) {
  ThreadPool& pool = chunks.front().cache->threads().pool();
  Workspace<Scalar, CacheStored>& workspace = chunks.front().cache->memory().workspace;
  static_assert(kIsObserver<Observer, Scalar>, "an observer takes a Part, HiddenStates<Scalar>, or AttentionWeights");
  workspace.last.resize(static_cast<Index>(chunks.size()), weights.config.n_embd);
  allOrNothing(chunks, workspace, [&] {
    forward(chunks, weights, pool, workspace, observer, [&](const auto& segment) {
      std::copy_n(workspace.normed.row(segment.first_row + segment.rows - 1), weights.config.n_embd,
                  workspace.last.row(segment.sequence));
    });
    unembed(workspace.last, weights, pool, logits);
    tell(observer, Part::unembedding);
  });
}

}  // namespace detail

/// wte[id] + wpe[position], [C]: what enters the first block. Throws ArgumentError for an id or position that the model
/// does not have.
template <class Scalar, class Stored>
RowVector<Scalar> embedToken(int id, Index position, const Weights<Scalar, Stored>& weights) {
  if (id < 0 || id >= weights.config.vocab_size)
    throw ArgumentError("expected a token id from 0 to " + std::to_string(weights.config.vocab_size - 1) + ", got " +
                        std::to_string(id));
  if (position < 0 || position >= weights.config.n_positions)
    throw ArgumentError("expected a position from 0 to " + std::to_string(weights.config.n_positions - 1) + ", got " +
                        std::to_string(position));
  RowVector<Scalar> out(weights.config.n_embd);
  detail::embedToken(id, position, weights, out.data());
  return out;
}

/// Logits [T, V] of ln_f's output x [T, C]: x * wte^T, or x * lm_head^T where the head is untied.
template <class Scalar, class Stored>
Matrix<Scalar> unembed(const std::type_identity_t<Matrix<Scalar>>& x, const Weights<Scalar, Stored>& weights) {
  detail::checkWidth(x, weights.config.n_embd);
  Matrix<Scalar> logits(x.rows(), weights.config.vocab_size);
  detail::ThreadPool pool(1);
  detail::unembed(detail::rowsOf(x), weights, pool, logits.data());
  return logits;
}

/// Runs any number of tokens onto a cache of any length, at the positions from cache.length() on, and returns the
/// logits [V] of the last one: those of the next token. They stay in the cache until its next step; `auto` makes a
/// copy.
///
/// Throws ArgumentError for an id that the model does not have, no ids, or a cache of another shape, and ContextFull
/// where n_positions is exceeded; the cache is then as it was. An observer (observer.hpp) can look on.
template <class Scalar, class Stored, class CacheStored, class Observer = detail::NoObserver>
const RowVector<Scalar>& prefill(std::span<const int> promptIds, const Weights<Scalar, Stored>& weights,
                                 ModelCache<Scalar, CacheStored>& cache, Observer&& observer = {}) {
  const Chunk<Scalar, CacheStored> chunk{promptIds, &cache};
  detail::checkChunk(chunk, weights);
  RowVector<Scalar>& logits = cache.memory().logits;
  logits.resize(weights.config.vocab_size);
  detail::lastLogits(std::span(&chunk, 1), weights, logits.data(), observer);
  return logits;
}

/// As prefill, for several sequences at once, each with a cache of its own: logits [B, V], row b of chunks[b]'s last
/// id. They stay in the first chunk's cache until its next step. Each row's bits are those of a sequence run alone.
///
/// An observer (observer.hpp) can look on.
template <class Scalar, class Stored, class CacheStored, class Observer = detail::NoObserver>
const Matrix<Scalar>& prefill(const std::vector<Chunk<Scalar, CacheStored>>& chunks,
                              const Weights<Scalar, Stored>& weights, Observer&& observer = {}) {
  detail::checkChunks(std::span(chunks), weights);
  Matrix<Scalar>& logits = chunks.front().cache->memory().batch_logits;
  logits.resize(static_cast<Index>(chunks.size()), weights.config.vocab_size);
  detail::lastLogits(std::span(chunks), weights, logits.data(), observer);
  return logits;
}

/// As prefill, but returns the logits of every token: [T, V], row t for what follows promptIds[t].
template <class Scalar, class Stored, class CacheStored>
Matrix<Scalar> prefillLogits(std::span<const int> promptIds, const Weights<Scalar, Stored>& weights,
                             ModelCache<Scalar, CacheStored>& cache) {
  const Chunk<Scalar, CacheStored> chunk{promptIds, &cache};
  detail::checkChunk(chunk, weights);
  Matrix<Scalar> logits(static_cast<Index>(promptIds.size()), weights.config.vocab_size);
  detail::ThreadPool& pool = cache.threads().pool();
  auto& workspace = cache.memory().workspace;
  const std::span chunks(&chunk, 1);
  detail::allOrNothing(chunks, workspace, [&] {
    detail::forward(chunks, weights, pool, workspace, detail::NoObserver(), [&](const auto& segment) {
      const Index first = segment.position - workspace.lengths.front();
      detail::unembed(workspace.normed, weights, pool, logits.row(first).data());
    });
  });
  return logits;
}

namespace detail {

inline void checkPosition(Index position, Index length) {
  if (position != length)
    throw ArgumentError("decodeStep: expected position " + std::to_string(length) + ", the cache's length, got " +
                        std::to_string(position));
}

}  // namespace detail

/// Advances a sequence by one token at `position`, which must be the cache's length: positions are absolute and go on
/// counting from the prompt. Returns the logits [V] of the next token, as prefill does. Errors as for prefill, and
/// ArgumentError for any other position. Allocates nothing after the first step.
template <class Scalar, class Stored, class CacheStored, class Observer = detail::NoObserver>
const RowVector<Scalar>& decodeStep(int id, Index position, const Weights<Scalar, Stored>& weights,
                                    ModelCache<Scalar, CacheStored>& cache, Observer&& observer = {}) {
  detail::checkPosition(position, cache.length());
  return prefill(std::span(&id, 1), weights, cache, observer);
}

/// Advances several sequences by one token each: ids[b] at positions[b] in caches[b]. Returns logits [B, V]; row b's
/// bits are those of sequence b run alone. Errors as above, before any cache is written.
template <class Scalar, class Stored, class CacheStored>
const Matrix<Scalar>& decodeStep(std::span<const int> ids, std::span<const Index> positions,
                                 const Weights<Scalar, Stored>& weights,
                                 const std::vector<ModelCache<Scalar, CacheStored>*>& caches) {
  if (ids.size() != caches.size() || positions.size() != caches.size())
    throw ArgumentError("decodeStep: expected an id and a position for each of " + std::to_string(caches.size()) +
                        " caches, got " + std::to_string(ids.size()) + " ids and " + std::to_string(positions.size()) +
                        " positions");
  std::vector<Chunk<Scalar, CacheStored>> chunks;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    if (caches[i] != nullptr) detail::checkPosition(positions[i], caches[i]->length());
    chunks.push_back({ids.subspan(i, 1), caches[i]});
  }
  return prefill(chunks, weights);
}

}  // namespace driftless::inline DRIFTLESS_ABI
