#include "learner/precompiled.hpp"

DRIFTLESS_EIGEN_PRODUCTS()
