#pragma once

#include <string>

#include "driftless/cache.hpp"
#include "driftless/weights.hpp"

/// Bytes in memory, padding included.
namespace driftless::cli {

template <class Stored>
Index bytesOf(const detail::PackedMatrix<Stored>& matrix) {
  return matrix.bytes();
}

template <class Stored>
Index bytesOf(const Embedding<Stored>& embedding) {
  return embedding.columns.bytes();
}

template <class Derived>
Index bytesOf(const Eigen::PlainObjectBase<Derived>& tensor) {
  return tensor.size() * static_cast<Index>(sizeof(typename Derived::Scalar));
}

template <class Scalar, class Stored>
Index bytesOf(const Weights<Scalar, Stored>& weights) {
  Index bytes = 0;
  forEachTensor(weights, [&](const std::string&, const auto& tensor, Index, Index) { bytes += bytesOf(tensor); });
  return bytes;
}

template <class Scalar, class Stored>
Index bytesOf(const ModelCache<Scalar, Stored>& cache) {
  Index bytes = 0;
  for (Index layer = 0; layer < cache.layers(); ++layer) bytes += cache.layer(layer).bytes();
  return bytes;
}

/// Keys and values of one position in all layers, cached as Stored.
template <class Stored>
Index cacheBytesPerToken(const Config& config) {
  constexpr Index kBlock = LayerCache<float, Stored>::kBlock;
  return config.n_layer * LayerCache<float, Stored>(config.n_head, config.headSize(), kBlock).bytes() / kBlock;
}

}  // namespace driftless::cli
