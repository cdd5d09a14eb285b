// The compiled library: which kernels are in use.

#include <cstdlib>
#include <string>
#include <string_view>

#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/instruction_set.hpp"
#include "kernel_sets.hpp"

#ifdef DRIFTLESS_DISPATCH
#include <cpuid.h>
#endif

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
namespace {

struct Choice {
  KernelSet set;
  bool is_supported;
};

#ifdef DRIFTLESS_DISPATCH
KernelSet with(KernelSet set, const IntegerKernels& integers) {
  set.name = integers.name;
  set.for_float.multiply_quantized = integers.for_float;
  set.for_double.multiply_quantized = integers.for_double;
  return set;
}

// __builtin_cpu_supports does not know these two everywhere.

/// Conversions between float and half precision.
bool hasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/// Dot products of bytes without AVX-512.
bool hasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << 4) != 0;
}
#endif

/// The first that the processor supports or, if DRIFTLESS_KERNELS is set, the one of that name.
KernelSet choose() {
#ifdef DRIFTLESS_DISPATCH
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && hasF16c();
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  const Choice choices[] = {
#ifdef DRIFTLESS_DISPATCH
      {with(kAvx512KernelSet, kAvx512VnniKernels), has_avx512 && __builtin_cpu_supports("avx512vnni")},
      {kAvx512KernelSet, has_avx512},
      {with(kAvx2KernelSet, kAvx2VnniKernels), has_avx2 && hasAvxVnni()},
      {kAvx2KernelSet, has_avx2},
#endif
      {kOwnKernelSet, true}};
  const char* const variable = std::getenv("DRIFTLESS_KERNELS");
  const std::string_view wanted = variable == nullptr ? "" : variable;
  std::string names;
  for (const Choice& choice : choices) {
    if (!choice.is_supported) continue;
    if (wanted.empty() || wanted == choice.set.name) return choice.set;
    names += message({names.empty() ? "" : " or ", choice.set.name});
  }
  raise<ArgumentError>({"DRIFTLESS_KERNELS: expected ", names, " on this processor, got ", quotedName(wanted)});
}

const KernelSet& kernelSet() {
  static const KernelSet set = choose();
  return set;
}

}  // namespace

template <>
const Kernels<float>& kernels<float>() {
  return kernelSet().for_float;
}

template <>
const Kernels<double>& kernels<double>() {
  return kernelSet().for_double;
}

}  // namespace detail

std::string_view instructionSet() { return detail::kernelSet().name; }

}}  // namespace driftless::DRIFTLESS_ABI
