#include "driftless/npy.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "driftless/error.hpp"
#include "support/temporary_directory.hpp"
#include "support/whole_file.hpp"

using namespace driftless;
using namespace driftless::test;
using doctest::Contains;

namespace {

/// A file as NumPy's format says it is to be (numpy.lib.format, version 1.0).
template <class Scalar>
std::string expectedFile(const std::string& shape, const std::vector<Scalar>& values) {
  const std::string order = std::endian::native == std::endian::little ? "<" : ">";
  std::string text = "{'descr': '" + order + "f" + std::to_string(sizeof(Scalar)) +
                     "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += static_cast<char>(text.size() % 256);
  file += static_cast<char>(text.size() / 256);
  file += text;
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Scalar));
  return file;
}

}  // namespace

TEST_CASE("npy: the bytes that the format says, for any number of dimensions") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "numbers.npy";
  const std::vector<float> six = {1, -2, 0.5f, 1e-40f, std::numeric_limits<float>::infinity(), 6};
  writeNpy(path, six, {1, 6});
  CHECK(readWholeFile(path) == expectedFile("(1, 6)", six));
  CHECK(readWholeFile(path).size() == 128 + 24);
  writeNpy(path, six, {2, 1, 3});
  CHECK(readWholeFile(path) == expectedFile("(2, 1, 3)", six));
  writeNpy(path, six, {6});
  CHECK(readWholeFile(path) == expectedFile("(6,)", six));
  const std::vector<double> one = {1.0 / 3};
  writeNpy(path, one, {1});
  CHECK(readWholeFile(path) == expectedFile("(1,)", one));
  writeNpy(path, std::vector<double>(), {0, 7, std::numeric_limits<Index>::max()});
  CHECK(readWholeFile(path) ==
        expectedFile("(0, 7, " + std::to_string(std::numeric_limits<Index>::max()) + ")", std::vector<double>()));
  Matrix<double> matrix(2, 3);
  matrix << 1, 2, 3, 4, 5, 6;
  writeNpy(path, matrix);
  CHECK(readWholeFile(path) == expectedFile("(2, 3)", std::vector<double>{1, 2, 3, 4, 5, 6}));
  // Every length of a header: the values always begin at a multiple of 64 bytes.
  for (std::size_t dimensions = 1; dimensions <= 32; ++dimensions) {
    writeNpy(path, one, std::vector<Index>(dimensions, 1));
    CHECK((readWholeFile(path).size() - sizeof(double)) % 64 == 0);
  }
}

TEST_CASE("npy: without dimensions there is one number") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "number.npy";
  const std::vector<float> one = {3};
  writeNpy(path, one, {});
  CHECK(readWholeFile(path) == expectedFile("()", one));
}

TEST_CASE("npy: what does not fit is refused, and the older file stays") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "numbers.npy";
  const std::vector<float> six(6);
  writeNpy(path, six, {6});
  const std::string before = readWholeFile(path);
  CHECK_THROWS_WITH_AS(writeNpy(path, six, {2, 4}), "writeNpy: expected as many values as the shape [2, 4] has, got 6",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(writeNpy(path, six, {-2, -3}), "writeNpy: expected a shape of sizes of 0 or more, got [-2, -3]",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(writeNpy(path, six, std::vector<Index>(33, 1)),
                       "writeNpy: expected a shape of at most 32 dimensions, got 33", ArgumentError);
  // 2^64 elements, of which a plain product would leave none.
  CHECK_THROWS_AS(writeNpy(path, std::vector<float>(), {Index{1} << 62, 4}), ArgumentError);
  CHECK_THROWS_WITH_AS(writeNpy(directory.path() / "none" / "numbers.npy", six, {6}),
                       Contains("numbers.npy: cannot be written: No such file or directory"), FileError);
  CHECK(readWholeFile(path) == before);
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);  // nothing half written
}
