#define DRIFTLESS_KERNEL_SET kAvx2KernelSet
#include "kernel_set.ipp"

static_assert(driftless::detail::kAvx2KernelSet.name == "avx2", "compiled with other flags than CMakeLists.txt says");
