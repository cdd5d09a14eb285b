#include "streams.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "driftless/error.hpp"

namespace driftless::cli {

namespace {

[[noreturn]] void failToRead(const std::string& name) {
  throw FileError(name + ": cannot be read: " + std::generic_category().message(errno));
}

/// Streams of the C library say what went wrong; those of C++ take an error for the end.
std::string readAll(std::FILE* file, const std::string& name) {
  std::string bytes;
  std::array<char, 65536> piece;
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), file)) bytes.append(piece.data(), count);
  if (std::ferror(file) != 0) failToRead(name);
  return bytes;
}

}  // namespace

std::string readInput() { return readAll(stdin, kInputName); }

std::string readFile(const std::string& path) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) failToRead(path);
  return readAll(file.get(), path);
}

std::string jsonLine(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string jsonString(const std::string& text) {
  return nlohmann::ordered_json(text).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void writeOutput(std::string_view bytes) {
  errno = 0;
  std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (std::cout) return;
  if (errno == EPIPE) throw OutputClosed();
  throw Error("standard output: cannot be written: " + std::generic_category().message(errno));
}

}  // namespace driftless::cli
