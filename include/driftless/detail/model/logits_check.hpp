#pragma once

#include <span>
#include <string>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/weights.hpp"
#include "driftless/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

template <class Scalar>
bool isFinite(const AlignedBuffer<Scalar>& vector) {
  return Eigen::Map<const RowVector<Scalar>>(vector.data(), vector.size()).allFinite();
}

template <class Scalar>
bool isFinite(const PaddedRows<Scalar>& matrix) {
  return matrix.matrix().allFinite();
}

template <class Scalar>
bool isFinite(const PackedMatrix<Scalar>& matrix) {
  const RowVector<Scalar> zeros = RowVector<Scalar>::Zero(matrix.in());
  RowVector<Scalar> column(matrix.in());
  for (Index i = 0; i < matrix.out(); ++i) {
    matrix.addColumn(i, zeros.data(), column.data());
    if (!column.allFinite()) return false;
  }
  return true;
}

template <class Scalar>
bool isFinite(const Embedding<Scalar>& embedding) {
  return isFinite(embedding.columns);
}

/// Says what is wrong with logits. Looks through the weights, which takes time, once and only if something is.
template <class Scalar>
class LogitsCheck {
 public:
  explicit LogitsCheck(const Weights<Scalar>& weights) : weights_(weights) {}

  /// Why no token can be chosen by the logits at a position, or nothing.
  std::string faultAt(Index position, std::span<const Scalar> logits) {
    const std::string fault = faultOf(logits);
    if (fault.empty()) return {};
    if (cause_.empty()) cause_ = findCause();
    return message({"logits at position ", position, ": ", fault, "; ", cause_});
  }

 private:
  std::string findCause() const {
    std::string tensors;
    forEachTensor(weights_, [&](const std::string& name, const auto& tensor, Index, Index) {
      if (!isFinite(tensor)) tensors += (tensors.empty() ? "" : ", ") + name;
    });
    if (tensors.empty()) return "all weights are finite, but what is computed from them is not";
    return message({"not all numbers are finite in ", printable(tensors)});
  }

  const Weights<Scalar>& weights_;
  std::string cause_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
