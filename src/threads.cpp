#include "driftless/detail/threads/threads.hpp"
