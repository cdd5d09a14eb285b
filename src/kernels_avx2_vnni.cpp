#define DRIFTLESS_INTEGER_KERNELS kAvx2VnniKernels
#include "integer_kernels.ipp"

static_assert(driftless::detail::kAvx2VnniKernels.name == "avx2_vnni",
              "compiled with other flags than CMakeLists.txt says");
