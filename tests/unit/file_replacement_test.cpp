#ifndef _WIN32

#include "driftless/detail/files/file_replacement.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "driftless/error.hpp"
#include "support/temporary_directory.hpp"
#include "support/whole_file.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

void replaceFile(const std::filesystem::path& path, std::string_view text) {
  detail::FileReplacement file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::ptrdiff_t filesIn(const std::filesystem::path& directory) {
  return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("file replacement: a symbolic link stays one, and what it names is replaced") {
  const TemporaryDirectory directory;
  const auto link = directory.path() / "link", target = directory.path() / "target";
  std::filesystem::create_symlink("target", link);
  replaceFile(link, "first");  // there was nothing at its end
  CHECK(readWholeFile(target) == "first");
  replaceFile(link, "second");
  CHECK(readWholeFile(target) == "second");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(filesIn(directory.path()) == 2);
  // Through another link, in another directory, by a path that is absolute.
  std::filesystem::create_directory(directory.path() / "other");
  std::filesystem::create_symlink(link, directory.path() / "other" / "link");
  replaceFile(directory.path() / "other" / "link", "third");
  CHECK(readWholeFile(target) == "third");
  CHECK(filesIn(directory.path() / "other") == 1);
  std::filesystem::create_symlink("round", directory.path() / "round");
  CHECK_THROWS_AS(replaceFile(directory.path() / "round", "text"), FileError);
  CHECK(std::filesystem::is_symlink(directory.path() / "round"));
}

TEST_CASE("file replacement: a pipe is written to, as a device is, and stays what it is") {
  const TemporaryDirectory directory;
  const auto pipe = directory.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] { read = readWholeFile(pipe); });
  replaceFile(pipe, "through the pipe");
  reader.join();
  CHECK(read == "through the pipe");
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(filesIn(directory.path()) == 1);
}

TEST_CASE("file replacement: a directory is refused by name, and stays") {
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH_AS(replaceFile(directory.path(), "text"),
                       (directory.path().string() + ": cannot be written: Is a directory").c_str(), FileError);
  CHECK(std::filesystem::is_directory(directory.path()));
}

TEST_CASE("file replacement: what is not committed leaves no trace") {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  replaceFile(path, "old");
  {
    detail::FileReplacement file(path);
    file.write(std::as_bytes(std::span(std::string_view("new"))));
  }
  CHECK(readWholeFile(path) == "old");
  CHECK(filesIn(directory.path()) == 1);
}

#endif
