#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace driftless::cli {

/// Nobody reads standard output any more: there is nothing left to do, and nobody to complain to.
struct OutputClosed {};

/// What standard input is called in messages.
inline constexpr const char* kInputName = "standard input";

/// All of standard input, byte for byte. Throws FileError.
std::string readInput();

/// All of a file, which need not be a regular one. Throws FileError.
std::string readFile(const std::string& path);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// Reads a file, or standard input if its path is -, line by line: only one line at a time is in memory, and it is
/// there as soon as its end is.
class LineReader {
 public:
  /// Throws FileError.
  explicit LineReader(const std::string& path);

  /// The next line with its end, which the last need not have; nothing after that. Throws FileError.
  std::optional<std::string> next();

 private:
  std::string name_;
  std::unique_ptr<std::FILE, CloseFile> opened_;
  std::FILE* file_;
};

/// A file to which lines are added, or standard output if its path is -. It is for one process at a time.
class OutputFile {
 public:
  /// Opens it or creates it, and leaves what is in it. Throws FileError, also if another OutputFile has it open.
  explicit OutputFile(const std::string& path);

  /// Bytes of a regular file; of others, nothing could be lost or kept. Throws FileError.
  std::uintmax_t size() const;
  /// Cuts it off after so many bytes. Throws FileError.
  void truncate(std::uintmax_t bytes);
  /// Writes at once. Throws OutputClosed, or Error.
  void write(std::string_view line);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;  ///< null for standard output
};

/// The object and a line's end. Bytes that are not UTF-8, which JSON cannot hold, become U+FFFD.
std::string jsonLine(const nlohmann::ordered_json& object);

/// A text as JSON, in quotes; bytes likewise.
std::string jsonString(const std::string& text);

/// Writes to standard output, at once. Throws OutputClosed, or Error if writing fails for another reason.
void writeOutput(std::string_view bytes);

}  // namespace driftless::cli
