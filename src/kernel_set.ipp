// Included by kernels_own.cpp and its likes, each of which CMake compiles for another instruction set: defines
// DRIFTLESS_KERNEL_SET. Nothing may be run to initialise it, and no function outside of the kernels' own namespace may be
// compiled here: the linker would take it for everybody's, also on processors without these instructions.

#include "driftless/detail/kernels/own_kernels.hpp"
#include "kernel_sets.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

constexpr KernelSet DRIFTLESS_KERNEL_SET = {DRIFTLESS_TEXT(DRIFTLESS_VECTORS), kOwnKernels<float>,
                                                  kOwnKernels<double>};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
