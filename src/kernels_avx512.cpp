#define DRIFTLESS_KERNEL_SET kAvx512KernelSet
#include "kernel_set.ipp"

static_assert(driftless::detail::kAvx512KernelSet.name == "avx512",
              "compiled with other flags than CMakeLists.txt says");
