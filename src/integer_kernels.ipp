// Included by kernels_avx2_vnni.cpp and kernels_avx512_vnni.cpp: defines DRIFTLESS_INTEGER_KERNELS. What kernel_set.ipp
// says of its files holds for these.

#include "driftless/detail/kernels/multiply_quantized.hpp"
#include "kernel_sets.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

constexpr IntegerKernels DRIFTLESS_INTEGER_KERNELS = {DRIFTLESS_TEXT(DRIFTLESS_VECTORS), multiplyQuantized<float>,
                                                          multiplyQuantized<double>};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
