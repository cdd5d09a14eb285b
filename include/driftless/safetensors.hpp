#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/file_mapping.hpp"
#include "driftless/detail/json_text.hpp"
#include "driftless/error.hpp"
#include "driftless/tensor.hpp"

namespace driftless::inline DRIFTLESS_ABI {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian, and read in place");
static_assert(sizeof(Index) == 8, "model files are mapped whole, which takes 64-bit addresses");

/// One tensor of a safetensors file.
struct SafetensorsTensor {
  /// The elements in the mapped file. Two dimensions are rows and columns; any other number of them is one row.
  TensorView view;
  std::string dtype_name;            ///< as in the file; need not be one that the format knows
  std::vector<std::uint64_t> shape;  ///< as in the file; empty for a single number
  std::size_t bytes = 0;             ///< size in the file
};

namespace detail {

inline std::string shapeText(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dimension);
  }
  return shortened(text + "]");
}

/// The number of elements of a tensor. Throws FileError where it, or a dimension, is beyond Index.
inline std::uint64_t elementCount(const std::vector<std::uint64_t>& shape, const std::string& where) {
  constexpr auto kMost = static_cast<std::uint64_t>((std::numeric_limits<Index>::max)());
  std::uint64_t count = 1;
  for (const std::uint64_t dimension : shape) {
    if (dimension > kMost || (dimension != 0 && count > kMost / dimension)) {
      throw FileError(where + ": the shape " + shapeText(shape) + " overflows");
    }
    count *= dimension;
  }
  return count;
}

struct DTypeFormat {
  std::string_view name;
  DType dtype;
  std::uint64_t bits;
};

inline constexpr DTypeFormat kDTypeFormats[] = {
    {"F64", DType::F64, 64},      {"F32", DType::F32, 32},      {"F16", DType::F16, 16},
    {"BF16", DType::BF16, 16},    {"BOOL", DType::other, 8},    {"U8", DType::other, 8},
    {"I8", DType::other, 8},      {"U16", DType::other, 16},    {"I16", DType::other, 16},
    {"U32", DType::other, 32},    {"I32", DType::other, 32},    {"U64", DType::other, 64},
    {"I64", DType::other, 64},    {"C64", DType::other, 64},    {"F8_E5M2", DType::other, 8},
    {"F8_E4M3", DType::other, 8}, {"F8_E8M0", DType::other, 8}, {"F6_E2M3", DType::other, 6},
    {"F6_E3M2", DType::other, 6}, {"F4", DType::other, 4},
};

/// What a file that is not safetensors may be instead, or nothing.
inline std::string_view lookalike(std::string_view file) {
  const std::string_view text = file.substr((std::min)(file.find_first_not_of(" \t\r\n"), file.size()));
  if (file.starts_with("PK\x03\x04")) return "; it looks like a zip archive, such as PyTorch's .bin and .pt files";
  if (file.starts_with("version https://git-lfs"))
    return "; it is a Git LFS pointer: fetch the file with `git lfs pull`";
  if (text.starts_with("<")) return "; it looks like an HTML page, such as a failed download";
  return "";
}

inline std::vector<std::uint64_t> readWholeNumbers(const nlohmann::json& value, const std::string& where) {
  const auto isWhole = [](const nlohmann::json& number) { return number.is_number_unsigned(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), isWhole)) {
    throw FileError(where + ": expected an array of whole numbers, found " + shown(value));
  }
  return value.get<std::vector<std::uint64_t>>();
}

/// `data_offsets`: where a tensor's bytes lie in the buffer.
inline std::span<const std::byte> readExtent(const nlohmann::json& value, std::span<const std::byte> buffer,
                                             const std::string& where) {
  const std::vector<std::uint64_t> offsets = readWholeNumbers(value, where);
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > buffer.size()) {
    throw FileError(where + ": expected [begin, end] with begin <= end <= " + std::to_string(buffer.size()) +
                    ", the size of the data, found " + shown(value));
  }
  return buffer.subspan(offsets[0], offsets[1] - offsets[0]);
}

/// Element type and size of a tensor whose `view.data`, `shape`, `dtype_name` and `bytes` are known.
inline void describeElements(SafetensorsTensor& tensor, const std::string& where) {
  const std::uint64_t count = elementCount(tensor.shape, where);
  const bool is_matrix = tensor.shape.size() == 2;
  tensor.view.rows = static_cast<Index>(is_matrix ? tensor.shape[0] : 1);
  tensor.view.cols = static_cast<Index>(is_matrix ? tensor.shape[1] : count);
  const auto* format = std::find_if(std::begin(kDTypeFormats), std::end(kDTypeFormats),
                                    [&](const DTypeFormat& known) { return known.name == tensor.dtype_name; });
  if (format == std::end(kDTypeFormats)) return;
  tensor.view.dtype = format->dtype;
  const bool overflows = count > (std::numeric_limits<std::uint64_t>::max)() / format->bits;
  const std::uint64_t bits = count * format->bits;
  if (overflows || bits % 8 != 0 || bits / 8 != tensor.bytes) {
    throw FileError(where + ": expected " + shapeText(tensor.shape) + " elements of " + std::to_string(format->bits) +
                    " bits (" + tensor.dtype_name + "), found " + std::to_string(tensor.bytes) + " bytes of data");
  }
}

inline SafetensorsTensor readTensor(const nlohmann::json& entry, std::span<const std::byte> buffer,
                                    const std::string& where) {
  const bool is_complete = entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
                           entry.contains("shape") && entry.contains("data_offsets") && entry["dtype"].is_string();
  if (!is_complete) {
    throw FileError(where + ": expected an object of dtype (a string), shape and data_offsets, found " + shown(entry));
  }
  const std::span<const std::byte> data = readExtent(entry["data_offsets"], buffer, where + ": data_offsets");
  SafetensorsTensor tensor;
  tensor.view.data = data.data();
  tensor.dtype_name = entry["dtype"].get<std::string>();
  tensor.shape = readWholeNumbers(entry["shape"], where + ": shape");
  tensor.bytes = data.size();
  describeElements(tensor, where);
  return tensor;
}

inline void checkMetadata(const nlohmann::json& metadata, const std::string& where) {
  const auto isString = [](const nlohmann::json& value) { return value.is_string(); };
  if (!metadata.is_object() || !std::all_of(metadata.begin(), metadata.end(), isString)) {
    throw FileError(where + ": __metadata__: expected an object of strings, found " + shown(metadata));
  }
}

}  // namespace detail

/// A safetensors file, mapped into memory and checked as a whole: every tensor lies within the data and has the size
/// of its shape, and the tensors fill the data without overlap or hole. Tensor values are not looked at.
/// Views into it are valid for as long as the object lives, also after it was moved.
class Safetensors {
 public:
  /// Throws FileError, naming the file and tensor, for anything that breaks the format.
  explicit Safetensors(std::filesystem::path path) : path_(std::move(path)), file_(path_) {
    const std::string_view header = readHeader();
    const std::span<const std::byte> buffer = file_.bytes().subspan(kLengthBytes + header.size());
    // The header, a tensor, its shape: three levels.
    const nlohmann::json entries = detail::parseJson(header, path_.string() + ": header", 3);
    for (const auto& [name, entry] : entries.items()) {
      if (name == "__metadata__") {
        detail::checkMetadata(entry, path_.string());
      } else {
        tensors_.emplace(name, detail::readTensor(entry, buffer, where(name)));
      }
    }
    checkCoverage(buffer);
  }

  /// The file.
  const std::filesystem::path& path() const { return path_; }

  /// The tensors by name, `__metadata__` left out.
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }

 private:
  static constexpr std::size_t kLengthBytes = 8;
  static constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

  std::string where(const std::string& name) const { return path_.string() + ": tensor " + detail::quotedName(name); }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw FileError(path_.string() + ": not a safetensors file: " + reason +
                    std::string(detail::lookalike(file_.text())));
  }

  std::string_view readHeader() const {
    const std::string_view file = file_.text();
    if (file.empty()) refuse("it is empty");
    if (file.size() < kLengthBytes) refuse("expected at least 8 bytes, found " + std::to_string(file.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), kLengthBytes);
    const std::uint64_t most = (std::min<std::uint64_t>)(file.size() - kLengthBytes, kMostHeaderBytes);
    if (length > most) {
      refuse("expected a header of at most " + std::to_string(most) + " bytes, found the length " +
             std::to_string(length));
    }
    const std::string_view header = file.substr(kLengthBytes, length);
    if (!header.starts_with('{')) refuse("expected a header that begins with {");
    return header;
  }

  void checkCoverage(std::span<const std::byte> buffer) const {
    using Entry = const std::pair<const std::string, SafetensorsTensor>*;
    std::vector<Entry> in_order;
    for (const auto& entry : tensors_) in_order.push_back(&entry);
    const auto begin = [&](Entry entry) { return static_cast<std::size_t>(entry->second.view.data - buffer.data()); };
    std::sort(in_order.begin(), in_order.end(), [&](Entry left, Entry right) {
      return std::pair(begin(left), left->second.bytes) < std::pair(begin(right), right->second.bytes);
    });
    std::size_t covered = 0;
    for (const Entry entry : in_order) {
      if (begin(entry) != covered) {
        throw FileError(where(entry->first) + ": expected its data at offset " + std::to_string(covered) +
                        ", where the tensor before it ends, found " + std::to_string(begin(entry)));
      }
      covered += entry->second.bytes;
    }
    if (covered != buffer.size()) {
      throw FileError(path_.string() + ": expected " + std::to_string(covered) + " bytes of data, found " +
                      std::to_string(buffer.size()));
    }
  }

  std::filesystem::path path_;
  detail::FileMapping file_;
  std::map<std::string, SafetensorsTensor> tensors_;
};

}  // namespace driftless::inline DRIFTLESS_ABI
