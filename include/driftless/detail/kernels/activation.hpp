#pragma once

#include <numbers>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> activate(Activation activation, const Lanes<Scalar>& x) {
  using L = Lanes<Scalar>;
  const L zero = L::broadcast(Scalar(0)), one = L::broadcast(Scalar(1)), two = L::broadcast(Scalar(2));
  switch (activation) {
    case Activation::gelu_new: {
      // 0.5 x (1 + tanh(u)) = x * sigmoid(2u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
      constexpr Scalar kTwiceSlope = Scalar(2) * std::numbers::sqrt2_v<Scalar> * std::numbers::inv_sqrtpi_v<Scalar>;
      const L cubic = fusedMultiplyAdd(product(x, x), L::broadcast(Scalar(0.044715)), one);
      return product(x, sigmoid(product(product(x, cubic), L::broadcast(kTwiceSlope))));
    }
    case Activation::gelu: {
      const L half = product(x, L::broadcast(Scalar(0.5)));
      return fusedMultiplyAdd(half, erfOverSqrt2(x), half);
    }
    case Activation::relu:
      return selectLess(x, zero, zero, x);
    case Activation::silu:
      return product(x, sigmoid(x));
    case Activation::tanh:
      return fusedMultiplyAdd(two, sigmoid(product(two, x)), zero - one);
  }
  return x;
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
