#include "driftless/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/checkpoint_writer.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temporary_directory.hpp"

using doctest::Contains;
using driftless::DType;
using driftless::FileError;
using driftless::Safetensors;
using driftless::SafetensorsTensor;
using namespace driftless::test;

namespace {

/// Opens files of given bytes, each under a name of its own: a mapped file must not change.
class Opener {
 public:
  Safetensors open(const std::string& bytes) {
    const std::filesystem::path path = directory_.path() / (std::to_string(++count_) + ".safetensors");
    writeFile(path, bytes);
    return Safetensors(path);
  }
  Safetensors open(const std::string& header, const std::string& data) { return open(safetensorsFile(header, data)); }
  const std::filesystem::path& directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  int count_ = 0;
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kTwelveBytes = "abcdefghijkl";

}  // namespace

static_assert(!std::is_copy_constructible_v<Safetensors> && std::is_move_constructible_v<Safetensors>);

TEST_CASE("safetensors: tensors are found with type and shape and data") {
  Opener opener;
  const Safetensors file = opener.open(safetensorsFile(std::vector<WrittenTensor>{
      {"matrix", "F32", {2, 3}, f32Bytes({1.0f, -2.0f, 3.5f, 4.0f, 5.0f, 6.0f})},
      {"vector", "I16", {3}, "abcdef"},
      {"number", "U8", {}, "x"},
      {"buffer", "BOOL", {1, 1, 2, 2}, std::string("\1\0\1\1", 4)},
      {"nothing", "F16", {0, 7}, ""},
  }));
  REQUIRE(file.tensors().size() == 5);

  const SafetensorsTensor& matrix = file.tensors().at("matrix");
  CHECK(matrix.view.dtype == DType::F32);
  CHECK(matrix.dtype_name == "F32");
  CHECK(matrix.view.rows == 2);
  CHECK(matrix.view.cols == 3);
  CHECK(matrix.bytes == 24);
  float row[3] = {};
  readElements(matrix.view, 0, 0, matrix.view.cols, row);
  CHECK(row[1] == -2.0f);
  CHECK(row[2] == 3.5f);

  CHECK(file.tensors().at("vector").view.dtype == DType::other);
  CHECK(file.tensors().at("vector").view.rows == 1);
  CHECK(file.tensors().at("vector").view.cols == 3);
  CHECK(file.tensors().at("number").shape.empty());
  CHECK(file.tensors().at("number").view.cols == 1);
  CHECK(file.tensors().at("buffer").shape == std::vector<driftless::Index>{1, 1, 2, 2});
  CHECK(file.tensors().at("nothing").view.rows == 0);
}

TEST_CASE("safetensors: views stay valid when the file object is moved") {
  Opener opener;
  Safetensors first = opener.open(safetensorsFile(std::vector<WrittenTensor>{{"a", "F32", {1}, f32Bytes({42.0f})}}));
  const driftless::TensorView view = first.tensors().at("a").view;
  Safetensors second = std::move(first);
  Safetensors third = opener.open("{}", "");
  third = std::move(second);
  float value = 0;
  readElements(view, 0, 0, 1, &value);
  CHECK(value == 42.0f);
}

TEST_CASE("safetensors: headers padded with spaces and tensors out of order and empty files of tensors are sound") {
  Opener opener;
  CHECK(opener.open("{}", "").tensors().empty());
  CHECK(opener.open("{}   \n", "").tensors().empty());
  CHECK(opener.open(R"({"__metadata__":{}})", "").tensors().empty());
  CHECK(opener.open(R"({"__metadata__":null})", "").tensors().empty());
  const std::string reversed =
      R"({"a":)" + entry("F32", "[2]", "[4,12]") + R"(,"b":)" + entry("I8", "[4]", "[0,4]") + "}";
  CHECK(opener.open(reversed, kTwelveBytes).tensors().size() == 2);
}

TEST_CASE("safetensors: an unknown dtype is kept by its name") {
  Opener opener;
  const Safetensors file = opener.open(R"({"a":)" + entry("Q4_K", "[3,5]", "[0,12]") + "}", kTwelveBytes);
  CHECK(file.tensors().at("a").view.dtype == DType::other);
  CHECK(file.tensors().at("a").dtype_name == "Q4_K");
  CHECK(opener.open(R"({"a":)" + entry("F4", "[24]", "[0,12]") + "}", kTwelveBytes).tensors().size() == 1);
}

TEST_CASE("safetensors: a file truncated at any byte is refused") {
  Opener opener;
  const std::string whole = safetensorsFile(
      std::vector<WrittenTensor>{{"a", "F32", {2}, f32Bytes({1.0f, 2.0f})}, {"b", "BF16", {2, 1}, "abcd"}});
  CHECK_NOTHROW(opener.open(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(opener.open(whole.substr(0, length)), FileError);
  }
  CHECK_THROWS_AS(opener.open(whole + "x"), FileError);
}

TEST_CASE("safetensors: a file with any one byte changed is read or refused but never crashes") {
  Opener opener;
  const std::string whole = safetensorsFile(std::vector<WrittenTensor>{{"a", "F32", {2}, f32Bytes({1.0f, 2.0f})}});
  for (std::size_t position = 0; position + 8 < whole.size(); ++position) {
    for (const char byte : {'\0', '"', '9', '[', '}', '\x80', '\xff'}) {
      CAPTURE(position);
      std::string changed = whole;
      changed[position] = byte;
      try {
        opener.open(changed);
      } catch (const FileError& error) {
        CHECK(std::string(error.what()).find(".safetensors: ") != std::string::npos);
      }
    }
  }
}

TEST_CASE("safetensors: a lying header length is refused") {
  Opener opener;
  const std::string header = R"({"a":)" + entry("U8", "[12]", "[0,12]") + "}";
  const auto open = [&](std::uint64_t length) { return opener.open(headerLength(length) + header + kTwelveBytes); };
  CHECK_NOTHROW(open(header.size()));
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, header.size() - 1, header.size() + 1,
                                     header.size() + 12, header.size() + 13, std::uint64_t{100'000'001},
                                     ~std::uint64_t{0} - 7, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    CAPTURE(length);
    CHECK_THROWS_AS(open(length), FileError);
  }
  CHECK_THROWS_WITH_AS(open(header.size() + 13), Contains("found the length "), FileError);
}

TEST_CASE("safetensors: a header beyond 100 MB is refused though the file holds it") {
  Opener opener;
  const std::filesystem::path path = opener.directory() / "huge.safetensors";
  writeFile(path, headerLength(100'000'001) + "{}");
  std::filesystem::resize_file(path, 100'000'020);
  CHECK_THROWS_WITH_AS(Safetensors{path}, Contains("at most 100000000 bytes"), FileError);
}

TEST_CASE("safetensors: offsets that overlap or leave a hole or run backwards or outside are refused") {
  Opener opener;
  const auto open = [&](const std::string& first, const std::string& second) {
    return opener.open(R"({"a":)" + entry("any", "[1]", first) + R"(,"b":)" + entry("any", "[1]", second) + "}",
                       kTwelveBytes);
  };
  CHECK_NOTHROW(open("[0,4]", "[4,12]"));
  CHECK_NOTHROW(open("[0,0]", "[0,12]"));
  CHECK_NOTHROW(open("[12,12]", "[0,12]"));
  const std::pair<std::string, std::string> bad[] = {
      {"[0,6]", "[4,12]"},
      {"[0,12]", "[0,12]"},
      {"[0,12]", "[4,4]"},
      {"[0,4]", "[5,12]"},
      {"[1,4]", "[4,12]"},
      {"[0,4]", "[4,11]"},
      {"[4,0]", "[4,12]"},
      {"[0,4]", "[12,4]"},
      {"[0,4]", "[4,13]"},
      {"[0]", "[4,12]"},
      {"[0,4,4]", "[4,12]"},
      {"[]", "[0,12]"},
      {"0", "[0,12]"},
      {"[-1,4]", "[4,12]"},
      {"[0,4.0]", "[4,12]"},
      {"[0,4e0]", "[4,12]"},
      {"[0,\"4\"]", "[4,12]"},
      {"[0,null]", "[4,12]"},
      {"[0,4]", "[4,18446744073709551615]"},
      {"[0,4]", "[18446744073709551615,4]"},
      {"[0,4]", "[18446744073709551612,18446744073709551620]"},
      {"[0,4]", "[4,1e400]"},
  };
  for (const auto& each : bad) {
    const auto& first = each.first;
    const auto& second = each.second;
    CAPTURE(first);
    CAPTURE(second);
    CHECK_THROWS_AS(open(first, second), FileError);
  }
  CHECK_THROWS_WITH_AS(open("[0,4]", "[5,12]"), Contains("tensor \"b\": expected its data at offset 4"), FileError);
  CHECK_THROWS_WITH_AS(open("[0,4]", "[4,13]"), Contains("end <= 12, the size of the data, found [4,13]"), FileError);
}

TEST_CASE("safetensors: shapes that do not fit the data or overflow are refused") {
  Opener opener;
  const auto open = [&](const std::string& dtype, const std::string& shape) {
    return opener.open(R"({"a":)" + entry(dtype, shape, "[0,12]") + "}", kTwelveBytes);
  };
  CHECK_NOTHROW(open("F32", "[3]"));
  CHECK_NOTHROW(open("F16", "[3,2]"));
  CHECK_NOTHROW(open("F6_E2M3", "[16]"));
  const std::pair<std::string, std::string> bad[] = {
      {"F32", "[2]"},
      {"F32", "[4]"},
      {"F64", "[1]"},
      {"F32", "[]"},
      {"F4", "[23]"},
      {"F32", "[3,0]"},
      {"F32", "[-3]"},
      {"F32", "[3.0]"},
      {"F32", "[-0]"},
      {"F32", "3"},
      {"F32", "null"},
      {"F32", "[true]"},
      {"F32", "[[3]]"},
      {"F32", "{\"0\":3}"},
      // Modulo 2^64 each of these has 12 bytes or none.
      {"F32", "[4611686018427387907]"},
      {"F32", "[2147483648,2147483648,3]"},
      {"F32", "[9223372036854775808,2,3]"},
      {"U8", "[18446744073709551628]"},
      {"U8", "[3,4611686018427387905,4]"},
      {"F32", "[18446744073709551615]"},
      {"other", "[9223372036854775808]"},
      {"other", "[4294967296,4294967296]"},
      {"F32", "[1e30]"},
      {"F32", "[1e999]"},
  };
  for (const auto& each : bad) {
    const auto& dtype = each.first;
    const auto& shape = each.second;
    CAPTURE(dtype);
    CAPTURE(shape);
    CHECK_THROWS_AS(open(dtype, shape), FileError);
  }
  CHECK_THROWS_WITH_AS(open("F32", "[2]"), Contains("expected [2] elements of 32 bits (F32), found 12 bytes"),
                       FileError);
  CHECK_THROWS_WITH_AS(open("F32", "[4611686018427387907]"), Contains("tensor \"a\""), FileError);
}

TEST_CASE("safetensors: headers that are not an object of tensors are refused") {
  Opener opener;
  const std::string a = entry("U8", "[12]", "[0,12]");
  for (const std::string& header :
       std::vector<std::string>{"",
                                " ",
                                "[]",
                                "null",
                                "12",
                                "\"a\"",
                                " {}",
                                "\xef\xbb\xbf{}",
                                "{",
                                "{\"a\"",
                                "{\"a\":",
                                "{\"a\":" + a,
                                "{\"a\":" + a + ",}",
                                "{\"a\":" + a + "}}",
                                "{\"a\":" + a + "} x",
                                "{'a':" + a + "}",
                                "{\"a\":1}",
                                "{\"a\":null}",
                                "{\"a\":[]}",
                                "{\"a\":{}}",
                                "{\"\xff\":" + a + "}",
                                "{\"a\":" + a + ",\"b\":{}}",
                                R"({"a":{"shape":[12],"data_offsets":[0,12]}})",
                                R"({"a":{"dtype":"U8","data_offsets":[0,12]}})",
                                R"({"a":{"dtype":"U8","shape":[12]}})",
                                R"({"a":{"dtype":8,"shape":[12],"data_offsets":[0,12]}})",
                                R"({"a":{"dtype":"U8","shape":[12],"data_offsets":[0,12],"strides":[1]}})",
                                std::string("{\"a\":") + a + "}" + std::string("\0", 1),
                                R"({"__metadata__":[],"a":)" + a + "}",
                                R"({"__metadata__":{"x":1},"a":)" + a + "}",
                                R"({"__metadata__":{"x":{}},"a":)" + a + "}"}) {
    CAPTURE(header);
    CHECK_THROWS_AS(opener.open(header, header.find('a') == std::string::npos ? "" : kTwelveBytes), FileError);
  }
  CHECK_NOTHROW(opener.open("{\"a\":" + a + "}", kTwelveBytes));
}

TEST_CASE("safetensors: what follows a zero byte in the header is not overlooked") {
  Opener opener;
  const std::string header = "{}" + std::string("\0 anything", 10);
  CHECK_THROWS_WITH_AS(opener.open(header, ""), Contains("header: line 1: expected text in UTF-8, found the byte 0"),
                       FileError);
}

TEST_CASE("safetensors: a key that stands twice is refused by name") {
  Opener opener;
  const std::string a = entry("U8", "[12]", "[0,12]");
  CHECK_THROWS_WITH_AS(opener.open(R"({"a":)" + a + R"(,"a":)" + a + "}", kTwelveBytes),
                       Contains("the key \"a\" stands twice"), FileError);
  CHECK_THROWS_WITH_AS(opener.open(R"({"a":)" + a + R"(,"\u0061":)" + a + "}", kTwelveBytes),
                       Contains("the key \"a\" stands twice"), FileError);
  CHECK_THROWS_WITH_AS(
      opener.open(R"({"a":{"dtype":"U8","shape":[1],"shape":[12],"data_offsets":[0,12]}})", kTwelveBytes),
      Contains("\"shape\" stands twice"), FileError);
  CHECK_THROWS_AS(opener.open(R"({"__metadata__":{},"__metadata__":{}})", ""), FileError);
}

TEST_CASE("safetensors: deep nesting is refused at once") {
  Opener opener;
  const std::string brackets(10'000'000, '[');
  CHECK_THROWS_WITH_AS(opener.open("{\"a\":" + brackets, ""), Contains("levels of nesting"), FileError);
  std::string objects = "{";
  for (int level = 0; level < 100'000; ++level) objects += "\"a\":{";
  CHECK_THROWS_WITH_AS(opener.open(objects, ""), Contains("levels of nesting"), FileError);
}

TEST_CASE("safetensors: a header of very many tensors is read in linear time") {
  Opener opener;
  std::string header = "{";
  for (int number = 0; number < 100'000; ++number) {
    header += '"' + std::to_string(number) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  }
  header.back() = '}';
  // Quadratic time would be minutes.
  CHECK(opener.open(header, "").tensors().size() == 100'000);
}

TEST_CASE("safetensors: error messages stay on one short line whatever the file holds") {
  Opener opener;
  const std::string name(100'000, 'n');
  try {
    opener.open(R"({"\u001b[2J\n)" + name + "\":" + entry("U8", "[13]", "[0,12]") + "}", kTwelveBytes);
    FAIL("expected an error");
  } catch (const FileError& error) {
    const std::string text = error.what();
    CHECK(text.size() < 2'000);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("safetensors: what stands in place of a safetensors file is recognised") {
  Opener opener;
  CHECK_THROWS_WITH_AS(opener.open(""), Contains("it is empty"), FileError);
  CHECK_THROWS_WITH_AS(opener.open(std::string("PK\x03\x04\0\0\x08\x08\0\0\0\0archive/data.pkl", 28)),
                       Contains("zip archive, such as PyTorch's"), FileError);
  CHECK_THROWS_WITH_AS(opener.open("version https://git-lfs.github.com/spec/v1\n"
                                   "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                                   "size 12345\n"),
                       Contains("Git LFS pointer"), FileError);
  CHECK_THROWS_WITH_AS(opener.open("\n<!DOCTYPE html><html><body>Not found</body></html>"), Contains("HTML page"),
                       FileError);
  using std::string_literals::operator""s;
  const std::pair<std::string, std::string> others[] = {
      {"Entry not found", "it looks like text"},
      {R"({"model_type": "gpt2", "vocab_size": 50257})", "it looks like JSON"},
      {"GGUF\3\0\0\0\1\0\0\0\0\0\0\0"s, "a GGUF file"},
      {"\x1F\x8B\x08\0\0\0\0\0\0\3\xCB\x48"s, "a gzip archive"},
      {"\x89HDF\r\n\x1A\n\0\0\0\0\0\x08\x08\0"s, "an HDF5 file"},
      {"\x80\2}q\0X\5\0\0\0model"s, "a pickle"}};
  for (const auto& other : others) {
    CAPTURE(other.second);
    CHECK_THROWS_WITH_AS(opener.open(other.first), Contains(other.second.c_str()), FileError);
  }
}

TEST_CASE("safetensors: a file that is read instead of mapped may be shortened afterwards") {
  Opener opener;
  const std::filesystem::path path = opener.directory() / "shortened.safetensors";
  writeFile(path, safetensorsFile({f32Tensor("a", {64, 64}, 1)}));
  const Safetensors file(path, false);
  std::filesystem::resize_file(path, 100);
  const auto& tensor = file.tensors().at("a");
  CHECK(std::string(reinterpret_cast<const char*>(tensor.view.data), tensor.bytes) ==
        f32Tensor("a", {64, 64}, 1).bytes);
}

TEST_CASE("safetensors: a file that ends before its size is an error when it is read") {
  // A file of the kernel's, which says that it has a page and has less.
  const std::filesystem::path path = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (!std::filesystem::exists(path)) {
    MESSAGE("[skipped] there is no ", path.string());
    return;
  }
  CHECK_THROWS_WITH_AS(Safetensors(path, false), Contains("it was cut short meanwhile"), FileError);
}

TEST_CASE("safetensors: a path that is missing or a directory is refused by name") {
  Opener opener;
  const std::filesystem::path missing = opener.directory() / "none.safetensors";
  CHECK_THROWS_WITH_AS(Safetensors{missing}, Contains("none.safetensors: cannot be read"), FileError);
  CHECK_THROWS_WITH_AS(Safetensors{opener.directory()}, Contains("expected a regular file"), FileError);
}
