#pragma once

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// As many multiply-adds between registers as a processor can do: the limit that `driftless bench` measures prefill
/// against. The result must be made use of for them to be done.
template <class Scalar>
Scalar multiplyAddChains(Scalar factor) {
  using L = Lanes<Scalar>;
  // Chains that hide each other's latency, as many as registers hold beside two operands.
  constexpr int kChains = 12 / L::kPackets > 0 ? 12 / L::kPackets : 1;
  constexpr Index kLength = kChainedMultiplyAdds / (kChains * kLanes);
  const L x = L::broadcast(factor), y = L::broadcast(1 - factor);
  L chain[std::size_t{kChains}];
  for (int c = 0; c < kChains; ++c) chain[c] = L::broadcast(static_cast<Scalar>(c));
  for (Index i = 0; i < kLength; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = fusedMultiplyAdd(chain[c], x, y);
  for (int c = 1; c < kChains; ++c) chain[0] = chain[0] + chain[c];
  return sumOfLanes(chain[0]);
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
