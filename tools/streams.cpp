#include "streams.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#ifndef _WIN32
#include <sys/file.h>
#endif

#include "driftless/error.hpp"

namespace driftless::cli {

namespace {

[[noreturn]] void failToRead(const std::string& name) {
  throw FileError(name + ": cannot be read: " + std::generic_category().message(errno));
}

[[noreturn]] void failToWrite(const std::string& name, std::error_code error) {
  if (error == std::errc::broken_pipe) throw OutputClosed();
  throw FileError(name + ": cannot be written: " + error.message());
}

[[noreturn]] void failToWrite(const std::string& name) {
  failToWrite(name, std::error_code(errno, std::generic_category()));
}

std::unique_ptr<std::FILE, CloseFile> openToRead(const std::string& path) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file) failToRead(path);
  return file;
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

std::string readFile(const std::string& path) { return readAll(openToRead(path).get(), path); }

LineReader::LineReader(const std::string& path)
    : name_(path == "-" ? kInputName : path),
      opened_(path == "-" ? nullptr : openToRead(path)),
      file_(opened_ ? opened_.get() : stdin) {}

std::optional<std::string> LineReader::next() {
  std::string line;
  for (int byte = 0; !line.ends_with('\n') && (byte = std::getc(file_)) != EOF;) line += static_cast<char>(byte);
  if (std::ferror(file_) != 0) failToRead(name_);
  return line.empty() ? std::nullopt : std::optional(std::move(line));
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path == "-") return;
  file_.reset(std::fopen(path.c_str(), "ab"));
  if (!file_) failToWrite(path_);
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // a line is in the file, or an error is known, when it is written
#ifndef _WIN32
  // Two that add to one file would mix their lines: a job must not be resumed while it is still running.
  if (!std::filesystem::is_regular_file(path)) return;
  // One that has just been killed can take a moment to end.
  for (int attempt = 0; flock(fileno(file_.get()), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++attempt) {
    if (attempt == 20) throw FileError(path_ + ": another job is writing it");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
#endif
}

std::uintmax_t OutputFile::size() const {
  if (!file_ || !std::filesystem::is_regular_file(path_)) return 0;
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path_, error);
  if (error) failToWrite(path_, error);
  return size;
}

void OutputFile::truncate(std::uintmax_t bytes) {
  std::error_code error;
  std::filesystem::resize_file(path_, bytes, error);
  if (error) failToWrite(path_, error);
}

void OutputFile::write(std::string_view line) {
  if (!file_) return writeOutput(line);
  errno = 0;
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size()) failToWrite(path_);
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
  failToWrite("standard output");
}

}  // namespace driftless::cli
