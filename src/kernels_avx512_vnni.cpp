#define DRIFTLESS_INTEGER_KERNELS kAvx512VnniKernels
#include "integer_kernels.ipp"

static_assert(driftless::detail::kAvx512VnniKernels.name == "avx512_vnni",
              "compiled with other flags than CMakeLists.txt says");
