#pragma once

#include <limits>
#include <utility>

#include "driftless/capture.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/forward.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

inline Index widthAt(Point point, const Config& config) {
  if (point == Point::mlp_pre || point == Point::mlp_post) return config.innerSize();
  if (point == Point::logits) return config.vocab_size;
  return isOfHead(point) && point != Point::result ? config.headSize() : config.n_embd;
}

}  // namespace detail

template <class Scalar>
Captured<Scalar>::Captured(Points points, const Config& config, Index tokens)
    : points_(points), n_layer_(config.n_layer), n_head_(config.n_head) {
  values_.resize(static_cast<std::size_t>(kPoints * n_layer_ * n_head_));
  for (int number = 0; number < kPoints; ++number) {
    const Point point = static_cast<Point>(number);
    if (!points.contains(point)) continue;
    const Scalar absent = point == Point::attn_scores ? -std::numeric_limits<Scalar>::infinity() : Scalar(0);
    const Index width = isOverKeys(point) ? tokens : detail::widthAt(point, config);
    for (Index layer = 0; layer < (isInLayer(point) ? n_layer_ : 1); ++layer)
      for (Index head = 0; head < (isOfHead(point) ? n_head_ : 1); ++head)
        values_[place(point, layer, head)].setConstant(tokens, width, absent);
  }
}

template <class Scalar>
std::size_t Captured<Scalar>::place(Point point, Index layer, Index head) const {
  return static_cast<std::size_t>((static_cast<Index>(point) * n_layer_ + layer) * n_head_ + head);
}

template <class Scalar>
const Matrix<Scalar>& Captured<Scalar>::at(Point point, Index layer, Index head) const {
  if (!points_.contains(point))
    detail::raise<ArgumentError>({"expected a point that was captured, got ", pointName(point, layer)});
  const auto check = [&](const char* name, Index count, Index index) {
    if (index < 0 || index >= count)
      detail::raise<ArgumentError>(
          {"expected a ", name, " from 0 to ", count - 1, " at ", pointName(point, layer), ", got ", index});
  };
  check("layer", isInLayer(point) ? n_layer_ : 1, layer);
  check("head", isOfHead(point) ? n_head_ : 1, head);
  return values_[place(point, layer, head)];
}

template <class Scalar>
void Captured<Scalar>::put(const PointValues<Scalar>& values) {
  values_[place(values.point, values.layer, values.head)].block(values.position, 0, values.values.rows(),
                                                                values.values.cols()) = values.values;
}

template <FloatingScalar Scalar>
Captured<Scalar> capture(Points points, TokenIds ids, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                         Workspace<Scalar>& workspace, const std::type_identity_t<Observer<Scalar>>& changes) {
  cache.reset();
  detail::checkChunk(Chunk<Scalar>{ids, &cache}, weights);  // before room is made for what is captured
  Captured<Scalar> captured(points, weights.config, static_cast<Index>(ids.size()));
  Observer<Scalar> observer = changes;
  for (int number = 0; number < kPoints; ++number)
    if (points.contains(static_cast<Point>(number))) observer.points.insert(static_cast<Point>(number));
  observer.visit = [&](PointValues<Scalar>& values) {
    if (changes.visit && changes.points.contains(values.point)) changes.visit(values);
    if (points.contains(values.point)) captured.put(values);
  };
  if (observer.points.contains(Point::logits))
    prefillLogits(ids, weights, cache, workspace, observer);
  else
    prefill(ids, weights, cache, workspace, observer);
  return captured;
}

}}  // namespace driftless::DRIFTLESS_ABI
