// The compiled library: tokenizer.hpp.

#include "driftless/detail/text/tokenizer.hpp"
