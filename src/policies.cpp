#include "driftless/detail/model/policies.hpp"
