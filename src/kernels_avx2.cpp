#define DRIFTLESS_KERNEL_SET kAvx2KernelSet
#include "kernel_set.ipp"
