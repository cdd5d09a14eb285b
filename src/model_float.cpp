using Scalar = float;
#include "model.ipp"
