#include "streams.hpp"

#include <cerrno>
#include <iostream>
#include <iterator>
#include <system_error>

#include "driftless/error.hpp"

namespace driftless::cli {

std::string readInput() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

void writeOutput(std::string_view bytes) {
  errno = 0;
  std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (std::cout) return;
  if (errno == EPIPE) throw OutputClosed();
  throw Error("standard output: cannot be written: " + std::generic_category().message(errno));
}

}  // namespace driftless::cli
