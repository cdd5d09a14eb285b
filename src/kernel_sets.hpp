#pragma once

#include <string_view>

#include "driftless/detail/kernels/kernels.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// All kernels as compiled for one instruction set.
struct KernelSet {
  std::string_view name;
  Kernels<float> for_float;
  Kernels<double> for_double;
};

/// Products of whole numbers by the instructions of VNNI, in place of those in the set that they are named after.
struct IntegerKernels {
  std::string_view name;
  decltype(Kernels<float>::multiply_quantized) for_float;
  decltype(Kernels<double>::multiply_quantized) for_double;
};

// One file of this folder defines each: kernels_own.cpp, compiled like the rest of the library, and others for
// processors that have more.
extern const KernelSet kOwnKernelSet;
#ifdef DRIFTLESS_DISPATCH
extern const KernelSet kAvx2KernelSet;
extern const KernelSet kAvx512KernelSet;
extern const IntegerKernels kAvx2VnniKernels;
extern const IntegerKernels kAvx512VnniKernels;
#endif

}}}  // namespace driftless::DRIFTLESS_ABI::detail
