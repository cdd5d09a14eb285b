#define DRIFTLESS_INTEGER_KERNELS kAvx2VnniKernels
#include "integer_kernels.ipp"
