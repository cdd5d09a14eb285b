#define DRIFTLESS_KERNEL_SET kAvx512KernelSet
#include "kernel_set.ipp"
