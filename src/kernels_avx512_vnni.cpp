#define DRIFTLESS_INTEGER_KERNELS kAvx512VnniKernels
#include "integer_kernels.ipp"
