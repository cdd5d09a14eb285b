#pragma once

#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>

namespace driftless::test {

/// An empty directory of its own for one test, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::random_device entropy;
    for (int attempt = 0; attempt < 100; ++attempt) {
      path_ = std::filesystem::temp_directory_path() / ("driftless-test-" + std::to_string(entropy()));
      if (std::filesystem::create_directory(path_)) return;
    }
    throw std::runtime_error("no temporary directory could be created");
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace driftless::test
