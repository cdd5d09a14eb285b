#define DRIFTLESS_KERNEL_SET kOwnKernelSet
#include "kernel_set.ipp"
