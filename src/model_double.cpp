using Scalar = double;
#include "model.ipp"
