#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ios>
#include <random>
#include <span>
#include <string>
#include <system_error>

#include "driftless/detail/files/file_mapping.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A file that takes the place of another of its name, or of none, once it is complete and on the disk. Until then it
/// is beside it under a name that nobody else has; if it never gets that far, it is removed, and the other is as it
/// was. A symbolic link stays, and what it names is replaced; a device or a pipe is written to as it is. Throws
/// FileError, naming the path, for what cannot be written.
class FileReplacement {
 public:
  explicit FileReplacement(const std::filesystem::path& path) : path_(path), temporary_(placeOf(path)) {
    std::error_code unknown;
    const std::filesystem::file_status status = std::filesystem::status(temporary_, unknown);
    if ((std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) || isLink(temporary_)) {
      open();
      return;
    }
    place_ = temporary_;
    std::random_device entropy;
    temporary_ += message({".", entropy(), ".", entropy(), ".tmp"});
    open();
    is_there_ = true;
  }
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;
  ~FileReplacement() {
    file_.close();
    std::error_code ignored;
    if (is_there_) std::filesystem::remove(temporary_, ignored);
  }

  void write(std::span<const std::byte> bytes) {
    errno = 0;
    file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    check(file_.good());
  }

  void commit() {
    errno = 0;
    file_.close();
    check(file_.good());
    if (!is_there_) return;
    check(isOnDisk(temporary_));
    std::error_code error;
    std::filesystem::rename(temporary_, place_, error);
    if (error) fail(error.message());
    is_there_ = false;
  }

 private:
  static bool isLink(const std::filesystem::path& path) {
    std::error_code unknown;
    return std::filesystem::is_symlink(std::filesystem::symlink_status(path, unknown));
  }
  /// Where a path leads if it is a symbolic link, be there something or not. What leads nowhere stays a link, which
  /// cannot be opened.
  static std::filesystem::path placeOf(std::filesystem::path path) {
    constexpr int kMostLinks = 40;  // as Linux has it
    std::error_code error;
    for (int link = 0; link < kMostLinks && isLink(path); ++link)
      path = path.parent_path() / std::filesystem::read_symlink(path, error);
    return path;
  }
  void open() {
    errno = 0;
    file_.open(temporary_, std::ios::binary | std::ios::out | std::ios::trunc);
    check(file_.is_open());
  }
  [[noreturn]] void fail(const std::string& reason) const {
    raise<FileError>({pathText(path_), ": cannot be written: ", reason});
  }
  void check(bool is_done) const {
    if (!is_done) fail(errno != 0 ? std::generic_category().message(errno) : "the system gives no reason");
  }

  /// Has the system write what it holds of a file. False, and errno says why, if it cannot.
  static bool isOnDisk(const std::filesystem::path& path) {
#ifdef _WIN32
    const HANDLE file =
        CreateFileW(path.c_str(), GENERIC_WRITE, 0, nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) return false;
    const bool is_done = FlushFileBuffers(file);
    CloseHandle(file);
    return is_done;
#else
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool is_done = ::fsync(file) == 0;
    ::close(file);
    return is_done;
#endif
  }

  std::filesystem::path path_;        ///< as its user calls it
  std::filesystem::path place_ = {};  ///< of what is replaced
  std::filesystem::path temporary_;   ///< or, if nothing is replaced, where the bytes go
  std::ofstream file_;
  bool is_there_ = false;  ///< whether there is a file to be removed or to take the other's place
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
