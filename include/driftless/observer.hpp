#pragma once

#include <bitset>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// The parts of a step, in the order in which they are done.
enum class Part {
  embedding,    ///< rows of wte and wpe looked up and added
  norm,         ///< a LayerNorm
  linear,       ///< products with c_attn, attn.c_proj, or the whole MLP
  attention,    ///< keys and values stored, scores, softmax, weighted sum of the values
  unembedding,  ///< logits
};

/// What a step computes, in the order in which it does: the names of TransformerLens without "hook_", and ln1, ln2 and
/// ln_final for the outputs of the LayerNorms, weight and bias included. T rows, C = n_embd, D = C / n_head.
enum class Point {
  embed,        ///< [T, C] rows of wte
  pos_embed,    ///< [T, C] rows of wpe
  resid_pre,    ///< [T, C] the residual stream before a block
  ln1,          ///< [T, C] ln_1's output
  q,            ///< [T, D] of each head
  k,            ///< [T, D] of each head, before it is stored
  v,            ///< [T, D] of each head, before it is stored
  attn_scores,  ///< [1, position + 1] of each head and row: q . k over the keys, scaled, before the softmax
  pattern,      ///< [1, position + 1] of each head and row: the weights over the keys, whose sum is 1 if nobody writes
  z,            ///< [T, D] of each head: its values, mixed by pattern
  /// [T, C] of each head: what it adds to the residual stream, z times its rows of c_proj. Computed for the observer
  /// alone; attn_out changes by as much as is written.
  result,
  attn_out,    ///< [T, C] what attention adds to it: the sum of the heads' results, and c_proj's bias
  resid_mid,   ///< [T, C] the residual stream between the two sublayers
  ln2,         ///< [T, C] ln_2's output
  mlp_pre,     ///< [T, n_inner] before the activation
  mlp_post,    ///< [T, n_inner] after it
  mlp_out,     ///< [T, C] what the MLP adds to the residual stream
  resid_post,  ///< [T, C] the residual stream after a block
  ln_final,    ///< [T, C] ln_f's output
  logits,      ///< [rows, V] of the rows whose logits are computed: the last, or all by prefillLogits
};

/// How many there are.
inline constexpr int kPoints = static_cast<int>(Point::logits) + 1;

/// Whether a point is in every layer, or once in the model.
constexpr bool isInLayer(Point point) { return point >= Point::resid_pre && point <= Point::resid_post; }
/// Whether each head has its own values there.
constexpr bool isOfHead(Point point) { return point >= Point::q && point <= Point::result; }
/// Whether a row there has a number for each key that it may attend to.
constexpr bool isOverKeys(Point point) { return point == Point::attn_scores || point == Point::pattern; }

/// TransformerLens's name, such as blocks.3.attn.hook_q, or hook_embed for a point that is not in a layer; `layer` is
/// then of no account. "logits", which has none there.
std::string pointName(Point point, Index layer = 0);

/// A set of points.
class Points {
 public:
  Points() = default;  ///< none
  /// These.
  Points(std::initializer_list<Point> points) {
    for (const Point point : points) insert(point);
  }

  /// Every one.
  static Points all();

  /// Adds one, if it is not there.
  void insert(Point point) { set_.set(static_cast<std::size_t>(point)); }
  /// Whether it is there.
  bool contains(Point point) const { return set_.test(static_cast<std::size_t>(point)); }

 private:
  std::bitset<kPoints> set_;
};

/// The values at a point. What is written to them takes their place in the step; numbers that are left alone keep their
/// bits, and so does everything that follows from them.
template <class Scalar>
struct PointValues {
  Point point;     ///< which one
  Index layer;     ///< counted from 0; 0 for points that are not in a layer
  Index head;      ///< counted from 0; 0 for points that heads have no values of their own at
  Index sequence;  ///< which of the chunks, 0 for a single one
  Index position;  ///< of the token of the first row
  /// Of consecutive tokens, of the shape that is said at Point; valid for this call only. Where keys have been dropped
  /// (cache_policy.hpp), their scores are minus infinity and their weights 0, and what is written there is lost.
  Eigen::Map<Matrix<Scalar>, 0, Eigen::OuterStride<>> values;
};

/// What a step is to show, and to let others change. Only functions that are set are called; nothing is computed,
/// copied or allocated for others, or for points that are not asked for. All calls come from the thread that runs the
/// step, one after the other, in the order of layers and points; at the points of heads, sequence by sequence and head
/// by head. attn_scores and pattern take turns: head by head, both of a few rows at a time. If a visit throws, the
/// caches are as before the step.
///
/// A visit that writes nothing changes no bit. One that writes what depends on positions alone, not on where a step
/// begins or ends, has the same bits by prefill as by decoding.
///
/// A step of more than 512 rows, of one sequence or of several, is computed in pieces of 512: an observer sees every
/// layer for the rows of the first piece, then every layer for those of the next.
template <FloatingScalar Scalar = float>
struct Observer {
  std::function<void(Part)> part = {};                   ///< after each part of a step
  Points points = {};                                    ///< those to visit
  std::function<void(PointValues<Scalar>&)> visit = {};  ///< reads values, or writes them
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/observer.hpp"
#endif
