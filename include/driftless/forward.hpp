#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "driftless/block.hpp"
#include "driftless/cache.hpp"

namespace driftless {

namespace detail {

/// Rows that go through the model together. A longer prompt is run in pieces, which bounds the room it needs.
inline constexpr Index kMaxStepRows = 512;

/// Throws before a step writes anything: whether `ids` can go on from the cache.
template <class Scalar, class Stored, class CacheStored>
void checkStep(std::span<const int> ids, const Weights<Scalar, Stored>& weights,
               const ModelCache<Scalar, CacheStored>& cache) {
  const Config& config = weights.config;
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

/// out [C] = wte[id] + wpe[position].
template <class Scalar, class Stored>
void embedToken(int id, Index position, const Weights<Scalar, Stored>& weights, Scalar* out) {
  for (Index c = 0; c < weights.config.n_embd; ++c)
    out[c] = static_cast<Scalar>(weights.wte.columns.element(c, id)) + weights.wpe(position, c);
}

/// One piece of a step: takes `ids` from their embedding through all blocks, leaving ln_f's output [T, C] in
/// workspace.normed.
template <class Scalar, class Stored, class CacheStored>
void forward(std::span<const int> ids, const Weights<Scalar, Stored>& weights, ModelCache<Scalar, CacheStored>& cache) {
  ThreadPool& pool = cache.threads().pool();
  Workspace<Scalar>& workspace = cache.workspace();
  const Index rows = static_cast<Index>(ids.size());
  const Index past = cache.length();
  workspace.x.resize(rows, weights.config.n_embd);
  for (Index row = 0; row < rows; ++row)
    embedToken(ids[static_cast<std::size_t>(row)], past + row, weights, workspace.x.row(row));
  for (Index layer = 0; layer < cache.layers(); ++layer) {
    const Segment<Scalar, CacheStored> segment{&cache.layer(layer), 0, rows};
    blockStep(weights.h[static_cast<std::size_t>(layer)], std::span(&segment, 1), pool, workspace);
  }
  layerNorm(workspace.x, weights.ln_f, pool, workspace.normed);
}

/// logits [T, V] of final hidden states x [T, C].
template <class Scalar, class Stored>
void unembed(const Rows<Scalar>& x, const Weights<Scalar, Stored>& weights, ThreadPool& pool, Scalar* logits) {
  const Index V = weights.config.vocab_size;
  // Which of its many NaNs a processor returns depends on the instruction; one of them stands for all.
  const auto nan = Lanes<Scalar>::broadcast(std::numeric_limits<Scalar>::quiet_NaN());
  multiply(x, weights.head(), pool, [&](Index row, Index column, const Lanes<Scalar>& sums) {
    Scalar values[kLanes];
    replaceNaN(sums, nan).store(values);
    std::copy_n(values, std::min(kLanes, V - column), logits + row * V + column);
  });
}

/// Runs ids through the model in pieces; after each, take(first) may look at workspace.normed.
template <class Scalar, class Stored, class CacheStored, class Take>
void forwardInPieces(std::span<const int> ids, const Weights<Scalar, Stored>& weights,
                     ModelCache<Scalar, CacheStored>& cache, Take take) {
  checkStep(ids, weights, cache);
  for (std::size_t first = 0; first < ids.size(); first += kMaxStepRows) {
    const std::span<const int> piece = ids.subspan(first, std::min<std::size_t>(kMaxStepRows, ids.size() - first));
    forward(piece, weights, cache);
    take(static_cast<Index>(first));
  }
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
Matrix<Scalar> unembed(const Matrix<Scalar>& x, const Weights<Scalar, Stored>& weights) {
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
/// where n_positions is exceeded; the cache is then as it was.
template <class Scalar, class Stored, class CacheStored>
const RowVector<Scalar>& prefill(std::span<const int> promptIds, const Weights<Scalar, Stored>& weights,
                                 ModelCache<Scalar, CacheStored>& cache) {
  detail::forwardInPieces(promptIds, weights, cache, [](Index) {});
  detail::Workspace<Scalar>& workspace = cache.workspace();
  workspace.last.resize(1, weights.config.n_embd);
  workspace.last.matrix() = workspace.normed.matrix().bottomRows(1);
  workspace.logits.resize(weights.config.vocab_size);
  detail::unembed(workspace.last, weights, cache.threads().pool(), workspace.logits.data());
  return workspace.logits;
}

/// As prefill, but returns the logits of every token: [T, V], row t for what follows promptIds[t].
template <class Scalar, class Stored, class CacheStored>
Matrix<Scalar> prefillLogits(std::span<const int> promptIds, const Weights<Scalar, Stored>& weights,
                             ModelCache<Scalar, CacheStored>& cache) {
  Matrix<Scalar> logits(static_cast<Index>(promptIds.size()), weights.config.vocab_size);
  detail::forwardInPieces(promptIds, weights, cache, [&](Index first) {
    detail::unembed(cache.workspace().normed, weights, cache.threads().pool(), logits.row(first).data());
  });
  return logits;
}

/// Advances a sequence by one token at `position`, which must be the cache's length: positions are absolute and go on
/// counting from the prompt. Returns the logits [V] of the next token, as prefill does. Errors as for prefill, and
/// ArgumentError for any other position.
template <class Scalar, class Stored, class CacheStored>
const RowVector<Scalar>& decodeStep(int id, Index position, const Weights<Scalar, Stored>& weights,
                                    ModelCache<Scalar, CacheStored>& cache) {
  if (position != cache.length())
    throw ArgumentError("decodeStep: expected position " + std::to_string(cache.length()) +
                        ", the cache's length, got " + std::to_string(position));
  return prefill(std::span(&id, 1), weights, cache);
}

}  // namespace driftless
