#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// The bytes of a whole file, mapped read-only or read into memory, for as long as the object lives. While it is
/// mapped, nobody may change or shorten the file. Throws FileError, naming the path, for a file that cannot be opened
/// or is not a regular one, and for one that ends while it is read.
class FileBytes {
 public:
  FileBytes(const std::filesystem::path& path, bool maps_file) { open(path, maps_file); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes() {
    if (read_ == nullptr && !bytes_.empty()) unmap();
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  [[noreturn]] static void fail(const std::filesystem::path& path, const std::string& reason) {
    raise<FileError>({pathText(path), ": cannot be read: ", reason});
  }

  void adopt(const void* data, std::size_t size) { bytes_ = {static_cast<const std::byte*>(data), size}; }

  /// readSome(to, size) reads up to so many bytes, and returns how many, or nothing on an error.
  template <class ReadSome>
  void read(const std::filesystem::path& path, std::size_t size, ReadSome readSome) {
    read_ = std::make_unique_for_overwrite<std::byte[]>(size);
    for (std::size_t done = 0; done < size;) {
      constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // some systems take no more
      const std::optional<std::size_t> count = readSome(read_.get() + done, (std::min)(size - done, kMostAtOnce));
      if (!count) fail(path, lastError());
      if (*count == 0) fail(path, message({"expected ", size, " bytes, found ", done, ": it was cut short meanwhile"}));
      done += *count;
    }
    adopt(read_.get(), size);
  }

#ifdef _WIN32
  struct Handle {
    HANDLE value;
    ~Handle() {
      if (value != nullptr && value != INVALID_HANDLE_VALUE) CloseHandle(value);
    }
  };

  static std::string lastError() { return std::system_category().message(static_cast<int>(GetLastError())); }

  void open(const std::filesystem::path& path, bool maps_file) {
    const Handle file{CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr, OPEN_EXISTING,
                                  FILE_ATTRIBUTE_NORMAL, nullptr)};
    if (file.value == INVALID_HANDLE_VALUE) fail(path, lastError());
    if (GetFileType(file.value) != FILE_TYPE_DISK) fail(path, "expected a regular file");
    LARGE_INTEGER size;
    if (!GetFileSizeEx(file.value, &size)) fail(path, lastError());
    if (!std::in_range<std::ptrdiff_t>(size.QuadPart)) fail(path, "it is larger than the address space");
    if (size.QuadPart == 0) return;
    if (!maps_file)
      return read(path, static_cast<std::size_t>(size.QuadPart), [&](std::byte* to, std::size_t most) {
        DWORD count = 0;
        const bool is_read = ReadFile(file.value, to, static_cast<DWORD>(most), &count, nullptr);
        return is_read ? std::optional<std::size_t>(count) : std::nullopt;
      });
    const Handle mapping{CreateFileMappingW(file.value, nullptr, PAGE_READONLY, 0, 0, nullptr)};
    if (mapping.value == nullptr) fail(path, lastError());
    const void* data = MapViewOfFile(mapping.value, FILE_MAP_READ, 0, 0, 0);
    if (data == nullptr) fail(path, lastError());
    adopt(data, static_cast<std::size_t>(size.QuadPart));
  }

  void unmap() { UnmapViewOfFile(bytes_.data()); }
#else
  struct Descriptor {
    int value;
    ~Descriptor() {
      if (value >= 0) ::close(value);
    }
  };

  static std::string lastError() { return std::generic_category().message(errno); }

  void open(const std::filesystem::path& path, bool maps_file) {
    // O_NONBLOCK: opening a named pipe must not wait for its writer.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.value < 0) fail(path, lastError());
    struct stat status {};
    if (::fstat(file.value, &status) != 0) fail(path, lastError());
    if (!S_ISREG(status.st_mode)) fail(path, "expected a regular file");
    if (!std::in_range<std::ptrdiff_t>(status.st_size)) fail(path, "it is larger than the address space");
    // mmap refuses a length of zero.
    if (status.st_size == 0) return;
    const auto size = static_cast<std::size_t>(status.st_size);
    if (!maps_file)
      return read(path, size, [&](std::byte* to, std::size_t most) {
        ::ssize_t count = 0;
        do {
          count = ::read(file.value, to, most);
        } while (count < 0 && errno == EINTR);
        return count < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(count));
      });
    const void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
    if (data == MAP_FAILED) fail(path, lastError());
    adopt(data, size);
  }

  void unmap() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }
#endif

  std::span<const std::byte> bytes_;
  std::unique_ptr<std::byte[]> read_;  ///< null if they are mapped
};

/// Whether anything has this name: what cannot be looked at counts, so that opening it reports the reason.
inline bool isThere(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

/// Where a model's files are: it is named by its directory, or by one of them.
inline std::filesystem::path modelDirectory(const std::filesystem::path& model) {
  std::error_code error;
  return std::filesystem::is_directory(model, error) ? model : model.parent_path();
}

/// Gives back the memory of mapped bytes that have been used; to look at them again reads the file again.
inline void releasePages([[maybe_unused]] std::span<const std::byte> bytes) {
#ifdef __linux__
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#endif
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
