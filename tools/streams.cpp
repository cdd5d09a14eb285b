#include "streams.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "driftless/error.hpp"

namespace driftless::cli {

std::string readInput() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

std::string readFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::array<char, 65536> piece;
  do {
    file.read(piece.data(), piece.size());
    bytes.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (!file.eof()) throw FileError(path + ": cannot be read: " + std::generic_category().message(errno));
  return bytes;
}

std::string jsonLine(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void writeOutput(std::string_view bytes) {
  errno = 0;
  std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (std::cout) return;
  if (errno == EPIPE) throw OutputClosed();
  throw Error("standard output: cannot be written: " + std::generic_category().message(errno));
}

}  // namespace driftless::cli
