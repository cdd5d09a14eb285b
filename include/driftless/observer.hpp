#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless::inline DRIFTLESS_ABI {

// What prefill and decodeStep can show of a step. An observer is anything that can be called with one or more of these,
// such as a lambda that takes AttentionWeights; what it does not take is not computed. It can look but not touch:
// logits and caches are the same bits with it and without. Where it throws, the caches are as before the step.
//
// A step of more than 512 rows, of one sequence or of several, is computed in pieces of 512: an observer sees every
// layer for the rows of the first piece, then every layer for those of the next.

/// Told after each part of a step that it is done.
enum class Part {
  embedding,    ///< rows of wte and wpe looked up and added
  norm,         ///< a LayerNorm
  linear,       ///< products with c_attn, attn.c_proj, or the whole MLP
  attention,    ///< keys and values stored, scores, softmax, weighted sum of the values
  unembedding,  ///< logits
};

/// The residual stream between blocks: hidden_states of Hugging Face's models, but for the last, to which they apply
/// ln_f.
template <class Scalar>
struct HiddenStates {
  Index layer;  ///< of the block that x is about to enter; n_layer behind the last
  Eigen::Map<const Matrix<Scalar>, 0, Eigen::OuterStride<>> x;  ///< [T, C], the rows of one sequence
  Index sequence;  ///< which of the chunks they belong to, 0 for a single one
  Index position;  ///< of the first row
};

/// How one token attends in one head. The pool's threads call an observer with it in any order, several at once.
template <class Scalar>
struct AttentionWeights {
  Index layer;                      ///< counted from 0
  Index sequence;                   ///< which of the chunks, 0 for a single one
  Index head;                       ///< counted from 0
  Index position;                   ///< of the token
  std::span<const Scalar> weights;  ///< [position + 1], over positions 0 to its own; their sum is 1
};

namespace detail {

struct NoObserver {};

template <class Event, class Observer>
inline constexpr bool kObserves = std::invocable<Observer&, const Event&>;

template <class Observer, class Scalar>
inline constexpr bool kIsObserver =
    std::is_same_v<std::remove_cvref_t<Observer>, NoObserver> || kObserves<Part, Observer> ||
    kObserves<HiddenStates<Scalar>, Observer> || kObserves<AttentionWeights<Scalar>, Observer>;

template <class Event, class Observer>
void tell(Observer& observer, const Event& event) {
  if constexpr (kObserves<Event, Observer>) observer(event);
}

}  // namespace detail

}  // namespace driftless::inline DRIFTLESS_ABI
