#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/tensor.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
class FileBytes;
}

/// One tensor of a safetensors file.
struct SafetensorsTensor {
  /// The elements in the mapped file. Two dimensions are rows and columns; any other number of them is one row.
  TensorView view;
  std::string dtype_name;    ///< as in the file; need not be one that the format knows
  std::vector<Index> shape;  ///< as in the file; empty for a single number
  std::size_t bytes = 0;     ///< size in the file
};

/// A safetensors file, mapped or read into memory and checked as a whole: every tensor lies within the data and has the
/// size of its shape, and the tensors fill the data without overlap or hole. Tensor values are not looked at. Views
/// into it are valid for as long as the object lives, even after it is moved.
class Safetensors {
 public:
  /// Throws FileError, naming the file and tensor, for anything that breaks the format. A mapped file must not be
  /// shortened before the object's end: the operating system would end the program (SIGBUS).
  explicit Safetensors(std::filesystem::path path, bool maps_file = true);
  /// The file mapping moves along: views stay valid.
  Safetensors(Safetensors&&) = default;
  /// Likewise.
  Safetensors& operator=(Safetensors&&) = default;

  /// The file.
  const std::filesystem::path& path() const { return path_; }

  /// The tensors by name, `__metadata__` left out.
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const detail::FileBytes> file_;
  std::map<std::string, SafetensorsTensor> tensors_;
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/files/safetensors.hpp"
#endif
