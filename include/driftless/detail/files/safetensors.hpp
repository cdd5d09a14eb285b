#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "driftless/detail/files/file_mapping.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/safetensors.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

struct DTypeFormat {
  std::string_view name;
  DType dtype;
  std::size_t bits;
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

/// What files of other formats begin with.
inline constexpr std::pair<std::string_view, std::string_view> kLookalikes[] = {
    {"PK\x03\x04", "a zip archive, such as PyTorch's .bin and .pt files"},
    {"\x80\x02", "a pickle, such as old PyTorch files"},
    {"GGUF", "a GGUF file, as llama.cpp's are"},
    {"\x1F\x8B", "a gzip archive: unpack it first"},
    {"\x89HDF", "an HDF5 file, such as TensorFlow's and Keras' .h5 files"},
    {"version https://git-lfs", "a Git LFS pointer: fetch the file with `git lfs pull`"},
};

/// What a file that is not safetensors may be instead, or nothing.
inline std::string lookalike(std::string_view file) {
  for (const auto& [beginning, format] : kLookalikes)
    if (file.starts_with(beginning)) return message({"; it looks like ", format});
  const std::string_view text = file.substr((std::min)(file.find_first_not_of(" \t\r\n"), file.size()));
  if (text.starts_with("<")) return "; it looks like an HTML page, such as a failed download";
  if (text.starts_with("{") || text.starts_with("[")) return "; it looks like JSON";
  const auto isText = [](unsigned char c) { return c >= ' ' || c == '\t' || c == '\r' || c == '\n'; };
  const std::string_view beginning = file.substr(0, 64);
  return std::all_of(beginning.begin(), beginning.end(), isText) ? "; it looks like text" : "";
}

/// The header of a safetensors file, which begins at its ninth byte.
inline std::string_view safetensorsHeader(std::string_view file, const std::string& where) {
  constexpr std::size_t kLengthBytes = 8;
  constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
  const auto refuse = [&](const std::string& reason) {
    raise<FileError>({where, ": not a safetensors file: ", reason, lookalike(file)});
  };
  if (file.empty()) raise<FileError>({where, ": not a safetensors file: it is empty"});
  if (file.size() < kLengthBytes) refuse(message({"expected at least 8 bytes, found ", file.size()}));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  const std::uint64_t most = (std::min<std::uint64_t>)(file.size() - kLengthBytes, kMostHeaderBytes);
  if (length > most) refuse(message({"expected a header of at most ", most, " bytes, found the length ", length}));
  const std::string_view header = file.substr(kLengthBytes, length);
  if (!header.starts_with('{')) refuse("expected a header that begins with {");
  return header;
}

/// The tensors of a safetensors file, one after the other. `where` names the file in error messages.
class TensorReader {
 public:
  TensorReader(const std::string& where, std::span<const std::byte> data) : where_(where), data_(data) {}

  SafetensorsTensor read(const std::string& name, const JsonValue& entry) {
    const bool is_complete = entry.size() == 3 && entry["dtype"].is(JsonKind::string) && entry["shape"].isThere() &&
                             entry["data_offsets"].isThere();
    if (!is_complete)
      refuse(name,
             message({": expected an object of dtype (a string), shape and data_offsets, found ", entry.shown()}));
    const std::vector<Index> offsets = wholeNumbers(name, entry["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || static_cast<std::size_t>(offsets[1]) > data_.size())
      refuse(name, message({": data_offsets: expected [begin, end] with begin <= end <= ", data_.size(),
                            ", the size of the data, found ", entry["data_offsets"].shown()}));

    SafetensorsTensor tensor;
    tensor.dtype_name = entry["dtype"].string();
    tensor.shape = wholeNumbers(name, entry["shape"]);
    tensor.bytes = static_cast<std::size_t>(offsets[1] - offsets[0]);
    tensor.view.data = data_.data() + offsets[0];
    tensor.view.place = place(name);
    tensor.view.byte_order = std::endian::little;
    describeElements(name, tensor);
    return tensor;
  }

  /// Throws FileError unless the tensors lie side by side and fill the data.
  void checkCoverage(const std::map<std::string, SafetensorsTensor>& tensors) const {
    using Entry = const std::pair<const std::string, SafetensorsTensor>*;
    std::vector<Entry> in_order;
    in_order.reserve(tensors.size());
    for (const auto& entry : tensors) in_order.push_back(&entry);
    std::sort(in_order.begin(), in_order.end(), [](Entry left, Entry right) {
      return std::pair(left->second.view.data, left->second.bytes) <
             std::pair(right->second.view.data, right->second.bytes);
    });
    std::size_t covered = 0;
    for (const Entry entry : in_order) {
      const auto begin = static_cast<std::size_t>(entry->second.view.data - data_.data());
      if (begin != covered)
        refuse(entry->first, message({": expected its data at offset ", covered,
                                      ", where the tensor before it ends, found ", begin}));
      covered += entry->second.bytes;
    }
    if (covered != data_.size())
      raise<FileError>({where_, ": expected ", covered, " bytes of data, found ", data_.size()});
  }

 private:
  std::string place(const std::string& name) const { return message({where_, ": tensor ", quotedName(name)}); }

  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const {
    raise<FileError>({place(name), reason});
  }

  std::vector<Index> wholeNumbers(const std::string& name, const JsonValue& array) const {
    constexpr auto kMost = static_cast<std::uint64_t>((std::numeric_limits<Index>::max)());
    std::vector<Index> numbers;
    bool are_whole = array.is(JsonKind::array);
    for (const JsonValue element : array) {
      const std::uint64_t number = element.wholeNumber().value_or(kMost + 1);
      are_whole = are_whole && number <= kMost;
      numbers.push_back(static_cast<Index>(number));
    }
    if (!are_whole)
      refuse(name, message({": ", array.key(), ": expected an array of whole numbers up to ", kMost, ", found ",
                            array.shown()}));
    return numbers;
  }

  /// Sets element type and size of a tensor, and checks that they fit its bytes.
  void describeElements(const std::string& name, SafetensorsTensor& tensor) const {
    constexpr Index kMost = (std::numeric_limits<Index>::max)();
    Index count = 1;
    for (const Index dimension : tensor.shape) {
      if (dimension != 0 && count > kMost / dimension)
        refuse(name, message({": the shape ", shapeText(tensor.shape), " overflows"}));
      count *= dimension;
    }
    const bool is_matrix = tensor.shape.size() == 2;
    tensor.view.rows = is_matrix ? tensor.shape[0] : 1;
    tensor.view.cols = is_matrix ? tensor.shape[1] : count;

    const auto* format = std::find_if(std::begin(kDTypeFormats), std::end(kDTypeFormats),
                                      [&](const DTypeFormat& known) { return known.name == tensor.dtype_name; });
    if (format == std::end(kDTypeFormats)) return;
    tensor.view.dtype = format->dtype;
    // A count whose bits overflow is far larger than any file.
    const bool fits = static_cast<std::size_t>(count) <= SIZE_MAX / format->bits &&
                      static_cast<std::size_t>(count) * format->bits % 8 == 0 &&
                      static_cast<std::size_t>(count) * format->bits / 8 == tensor.bytes;
    if (!fits)
      refuse(name, message({": expected ", shapeText(tensor.shape), " elements of ", format->bits, " bits (",
                            tensor.dtype_name, "), found ", tensor.bytes, " bytes of data"}));
  }

  const std::string& where_;
  std::span<const std::byte> data_;
};

inline void checkMetadata(const JsonValue& metadata, const std::string& where) {
  bool are_strings = metadata.is(JsonKind::object) || metadata.is(JsonKind::null);
  for (const JsonValue value : metadata) are_strings = are_strings && value.is(JsonKind::string);
  if (!are_strings)
    raise<FileError>({where, ": __metadata__: expected an object of strings, found ", metadata.shown()});
}

}  // namespace detail

DRIFTLESS_INLINE Safetensors::Safetensors(std::filesystem::path path, bool maps_file)
    : path_(std::move(path)), file_(std::make_shared<const detail::FileBytes>(path_, maps_file)) {
  const std::string where = detail::pathText(path_);
  const std::string_view header = detail::safetensorsHeader(file_->text(), where);
  const auto header_end = static_cast<std::size_t>(header.data() + header.size() - file_->text().data());
  detail::TensorReader reader(where, file_->bytes().subspan(header_end));
  // The header, a tensor, its shape: three levels.
  const detail::JsonDocument document(header, where + ": header", 3);
  for (const detail::JsonValue entry : detail::JsonValue(document)) {
    const std::string& name = entry.key();
    if (name == "__metadata__")
      detail::checkMetadata(entry, where);
    else
      tensors_.emplace(name, reader.read(name, entry));
  }
  reader.checkCoverage(tensors_);
}

}}  // namespace driftless::DRIFTLESS_ABI
