// The compiled library: tokenizer.hpp, stop_strings.hpp.

#include "driftless/detail/text/stop_strings.hpp"
#include "driftless/detail/text/tokenizer.hpp"
