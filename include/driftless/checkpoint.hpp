#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/parameters.hpp"
#include "driftless/safetensors.hpp"
#include "driftless/tensor.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// A tensor that the model computes with.
struct CheckpointTensor {
  std::string name;          ///< without `transformer.`
  SafetensorsTensor tensor;  ///< as the file has it
};

/// A GPT-2 on disk in Hugging Face's layout, checked as a whole. Every tensor of `modelTensors` is there, with a float
/// type and the shape that the config asks for, and nothing else is, except the buffers `h.*.attn.bias` and
/// `h.*.attn.masked_bias`, which are ignored, and what `ignores_extra` allows. Names may all carry the prefix
/// `transformer.`, or none; `lm_head.weight` never does. Before that, all may carry a wrapper's prefix, such as
/// `_orig_mod.` or `module.`.
///
/// The output weights are `lm_head.weight` if the files have it; otherwise they are tied to wte. If config.json has
/// `tie_word_embeddings`, it must agree: true refuses an lm_head.weight that differs from wte, false asks for one.
/// Unless it is false, lm_head.weight also stands for a wte.weight that is missing, as in files written by
/// safetensors.torch.save_model.
///
/// References and views that it hands out are valid for as long as it lives, or what it is moved to.
class Checkpoint {
 public:
  /// Opens a directory with config.json and either model.safetensors or model.safetensors.index.json with its shards,
  /// or a .safetensors file with config.json beside it.
  /// Throws FileError or ConfigError, naming file and tensor or key, expected and actual values.
  explicit Checkpoint(const std::filesystem::path& path, const CheckpointOptions& options = {});
  /// The file mappings move along: views stay valid.
  Checkpoint(Checkpoint&&) = default;
  /// Likewise.
  Checkpoint& operator=(Checkpoint&&) = default;

  /// What config.json says.
  const Config& config() const { return config_; }

  /// Whether the model has output weights of its own; otherwise they are wte's.
  bool hasLmHead() const { return has_lm_head_; }

  /// The model's tensors in the order of `modelTensors`.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }

  /// One of the model's tensors, by name. The name is without `transformer.`, and the dtype is not `other`.
  /// Throws ArgumentError for a name that is not the model's.
  TensorView tensor(const std::string& name) const { return find(name).view; }

  /// The tensors that `ignores_extra` left out, each with its file.
  const std::vector<std::string>& ignored() const { return ignored_; }

  /// Gives back the memory that reading a tensor took if the file is mapped; it can be read again. Throws as `tensor`
  /// does.
  void release(const std::string& name) const;

 private:
  const SafetensorsTensor& find(const std::string& name) const;

  Config config_;
  bool has_lm_head_ = false;
  bool maps_files_;
  std::string weights_path_;
  std::vector<Safetensors> files_;
  std::vector<CheckpointTensor> tensors_;
  std::map<std::string, const SafetensorsTensor*> by_name_;
  std::vector<std::string> ignored_;
};

/// Reads a model into plain Eigen matrices. Throws ArgumentError for a number in the files that Scalar can't hold.
template <FloatingScalar Scalar = float>
Parameters<Scalar> loadParameters(const Checkpoint& checkpoint);

/// The same; `path` and further errors as in Checkpoint.
template <FloatingScalar Scalar = float>
Parameters<Scalar> loadParameters(const std::filesystem::path& path, const CheckpointOptions& options = {}) {
  return loadParameters<Scalar>(Checkpoint(path, options));
}

/// Reads a model and packs it for multiplication, straight from the file and, if it is mapped, without a second copy of
/// more than one tensor. Errors as in Weights.
template <FloatingScalar Scalar = float>
Weights<Scalar> loadWeights(const Checkpoint& checkpoint, LoadOptions options = {});

/// The same; `path` and further errors as in Checkpoint.
template <FloatingScalar Scalar = float>
Weights<Scalar> loadWeights(const std::filesystem::path& path, LoadOptions options = {}) {
  const Checkpoint checkpoint(path, options.checkpoint);
  return loadWeights<Scalar>(checkpoint, std::move(options));
}

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/files/checkpoint.hpp"
#endif
