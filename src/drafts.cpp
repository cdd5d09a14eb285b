#include "driftless/detail/model/prompt_lookup.hpp"
