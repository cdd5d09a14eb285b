#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <vector>

/// A safetensors writer that shares no code with the library's reader, for tests.
namespace driftless::test {

/// A tensor to be written. Its bytes go into the file as they are, whatever dtype and shape say.
struct WrittenTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// The numbers as F32 data.
inline std::string f32Bytes(const std::vector<float>& numbers) {
  std::string bytes;
  for (const float number : numbers) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((bits >> shift) & 0xffu);
  }
  return bytes;
}

/// The file's first eight bytes.
inline std::string headerLength(std::uint64_t length) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>((length >> shift) & 0xffu);
  return bytes;
}

/// A file of this header and this data, sound or not.
inline std::string safetensorsFile(const std::string& header, const std::string& data) {
  return headerLength(header.size()) + header + data;
}

/// A sound file, if each tensor's dtype and shape fit its bytes.
inline std::string safetensorsFile(const std::vector<WrittenTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const WrittenTensor& tensor : tensors) {
    std::string shape;
    for (const std::int64_t dimension : tensor.shape) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(dimension);
    }
    header += ",\"" + tensor.name + R"(":{"dtype":")" + tensor.dtype + R"(","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(data.size()) + ",";
    data += tensor.bytes;
    header += std::to_string(data.size()) + "]}";
  }
  return safetensorsFile(header + "}", data);
}

inline void writeFile(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace driftless::test
