#include "driftless/detail/model/observer.hpp"
