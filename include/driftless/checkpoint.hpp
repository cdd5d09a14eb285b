#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/config_file.hpp"
#include "driftless/detail/file_mapping.hpp"
#include "driftless/detail/json_text.hpp"
#include "driftless/error.hpp"
#include "driftless/parameters.hpp"
#include "driftless/safetensors.hpp"
#include "driftless/tensor.hpp"
#include "driftless/threads.hpp"
#include "driftless/weights.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// Reads a Hugging Face config.json. Every key that changes the mathematics is honoured or refused by name.
/// `tie_word_embeddings` is not in it: what it means depends on the tensors (see Checkpoint).
/// Throws FileError for a file that cannot be read or is not JSON, ConfigError for a model that this is not for.
inline Config readConfig(const std::filesystem::path& path) { return detail::ConfigFile(path).config(); }

namespace detail {

/// Where a checkpoint's parts lie: config.json, and one safetensors file or the index of its shards.
struct CheckpointFiles {
  std::filesystem::path config;
  std::filesystem::path weights;
  bool is_index = false;
};

inline CheckpointFiles locateCheckpoint(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw FileError(path.string() + ": expected a model: " + error.message());
  }
  if (!std::filesystem::is_directory(status)) {
    if (path.extension() != ".safetensors") {
      throw FileError(path.string() + ": expected a directory or a .safetensors file beside its config.json");
    }
    return {path.parent_path() / "config.json", path, false};
  }
  // What is there but cannot be looked at counts, so that opening it reports the reason.
  const auto holds = [&](const char* name) {
    return std::filesystem::status(path / name, error).type() != std::filesystem::file_type::not_found;
  };
  const std::filesystem::path config = path / "config.json";
  if (holds("model.safetensors")) return {config, path / "model.safetensors", false};
  if (holds("model.safetensors.index.json")) return {config, path / "model.safetensors.index.json", true};
  const bool has_pickle = holds("pytorch_model.bin") || holds("pytorch_model.bin.index.json");
  throw FileError(path.string() + ": expected model.safetensors or model.safetensors.index.json, found " +
                  (has_pickle ? "only pytorch_model.bin: export the model as safetensors" : "neither"));
}

/// Whether an index may name this file: a plain name, so that nothing outside of its directory is reached.
inline bool isShardName(const nlohmann::json& file) {
  if (!file.is_string()) return false;
  const auto& name = file.get_ref<const std::string&>();
  const auto isPlain = [](unsigned char c) { return c >= ' ' && c != '/' && c != '\\' && c != ':'; };
  return name.ends_with(".safetensors") && std::all_of(name.begin(), name.end(), isPlain);
}

/// An index's `weight_map`: the file of each tensor, by the tensor's name.
inline std::map<std::string, std::string> readWeightMap(const std::filesystem::path& index) {
  const std::string where = index.string();
  const nlohmann::json json = parseJson(FileMapping(index).text(), where, 64);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw FileError(where + ": expected an object with the object weight_map");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!isShardName(file)) {
      throw FileError(where + ": weight_map: tensor " + quotedName(name) +
                      ": expected the name of a .safetensors file in the same directory, found " + shown(file));
    }
    files.emplace(name, file.get<std::string>());
  }
  return files;
}

/// Opens the shards that an index names. Index and shards must list the same tensors in the same files.
inline std::vector<Safetensors> openShards(const std::filesystem::path& index) {
  const std::map<std::string, std::string> weight_map = readWeightMap(index);
  std::map<std::string, Safetensors> shards;
  for (const auto& [name, file] : weight_map) {
    if (!shards.contains(file)) shards.emplace(file, Safetensors(index.parent_path() / file));
    if (!shards.at(file).tensors().contains(name)) {
      throw FileError(index.string() + ": expected tensor " + quotedName(name) + " in " + quotedName(file) +
                      ", which does not hold it");
    }
  }
  std::vector<Safetensors> opened;
  for (auto& [file, shard] : shards) {
    for (const auto& [name, tensor] : shard.tensors()) {
      const auto listed = weight_map.find(name);
      if (listed == weight_map.end() || listed->second != file) {
        throw FileError(shard.path().string() + ": holds tensor " + quotedName(name) + ", which " + index.string() +
                        " does not place there");
      }
    }
    opened.push_back(std::move(shard));
  }
  return opened;
}

inline std::vector<Safetensors> openTensorFiles(const CheckpointFiles& files) {
  if (files.is_index) return openShards(files.weights);
  std::vector<Safetensors> opened;
  opened.emplace_back(files.weights);
  return opened;
}

/// A tensor of a checkpoint as its file has it; `where` names file and tensor for error messages.
struct StoredTensor {
  std::string where;
  SafetensorsTensor tensor;
};

/// Throws FileError unless the tensor has a float type and the shape that the model needs.
inline void checkTensor(const StoredTensor& stored, const std::string& name, const std::vector<std::uint64_t>& shape) {
  const SafetensorsTensor& tensor = stored.tensor;
  if (tensor.shape != shape) {
    // GPT-2's linear layers are [in, out] in checkpoints; exports through nn.Linear turn them round.
    const bool is_transposed =
        name.starts_with("h.") && shape.size() == 2 && tensor.shape == std::vector{shape[1], shape[0]};
    throw FileError(stored.where + ": expected shape " + shapeText(shape) + ", found " + shapeText(tensor.shape) +
                    (is_transposed ? ": it looks like a transposed nn.Linear export" : ""));
  }
  if (tensor.view.dtype == DType::other) {
    throw FileError(stored.where + ": expected dtype F64, F32, F16 or BF16, found " + quotedName(tensor.dtype_name));
  }
}

/// Parameters with the tensors that the config asks for, all still empty.
template <class Scalar>
Parameters<Scalar> emptyParameters(const Config& config, bool has_head) {
  Parameters<Scalar> parameters;
  parameters.config = config;
  parameters.h.resize(static_cast<std::size_t>(config.n_layer));
  if (has_head) parameters.lm_head.emplace();
  return parameters;
}

inline bool haveSameBytes(const SafetensorsTensor& left, const SafetensorsTensor& right) {
  return left.dtype_name == right.dtype_name && left.shape == right.shape &&
         std::equal(left.view.data, left.view.data + left.bytes, right.view.data, right.view.data + right.bytes);
}

}  // namespace detail

/// A tensor that the model computes with.
struct CheckpointTensor {
  std::string name;          ///< without `transformer.`
  SafetensorsTensor tensor;  ///< as the file has it
};

/// A GPT-2 on disk in Hugging Face's layout, checked as a whole. Every tensor of `forEachTensor` is there, with a float
/// type and the shape that the config asks for, and nothing else is, except the buffers `h.*.attn.bias` and
/// `h.*.attn.masked_bias`, which are ignored. Names may all carry the prefix `transformer.`, or none;
/// `lm_head.weight` never does.
///
/// The head is `lm_head.weight` where the file has it, otherwise it is tied to wte. Where `tie_word_embeddings` is
/// given, it must agree: true refuses an lm_head.weight that differs from wte, false asks for one.
class Checkpoint {
 public:
  /// Opens a directory with config.json and either model.safetensors or model.safetensors.index.json with its shards,
  /// or a .safetensors file with config.json beside it. Tensor data is mapped, not read.
  /// Throws FileError or ConfigError, naming file and tensor or key, expected and actual values.
  explicit Checkpoint(const std::filesystem::path& path) {
    const detail::CheckpointFiles located = detail::locateCheckpoint(path);
    const detail::ConfigFile config_file(located.config);
    config_ = config_file.config();
    weights_path_ = located.weights.string();
    files_ = detail::openTensorFiles(located);
    StoredTensors stored = takeStock();
    settleHead(config_file.tieWordEmbeddings(), stored);
    claimTensors(std::move(stored));
    checkPrefixes();
  }
  /// The file mappings move along: views stay valid.
  Checkpoint(Checkpoint&&) = default;
  /// Likewise.
  Checkpoint& operator=(Checkpoint&&) = default;

  /// What config.json says.
  const Config& config() const { return config_; }

  /// Whether the model has output weights of its own; otherwise they are wte's.
  bool hasHead() const { return has_head_; }

  /// The model's tensors in the order of `forEachTensor`.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }

  /// One of the model's tensors, by name. The name is without `transformer.`, and the dtype is not `other`.
  /// The view is valid for as long as the checkpoint lives. Throws ArgumentError for a name that is not the model's.
  TensorView tensor(const std::string& name) const { return find(name).view; }

  /// Gives back the memory that reading a tensor took; it can be read again. Throws as `tensor` does.
  void release(const std::string& name) const {
    const SafetensorsTensor& tensor = find(name);
    detail::releasePages({tensor.view.data, tensor.bytes});
  }

 private:
  /// By name without prefix.
  using StoredTensors = std::map<std::string, detail::StoredTensor>;

  static constexpr const char* kHead = "lm_head.weight";
  static constexpr std::string_view kPrefix = "transformer.";

  /// The head never carries the prefix: a name that has both is some other tensor's.
  static bool isPrefixed(const std::string& name) {
    return name.starts_with(kPrefix) && std::string_view(name).substr(kPrefix.size()) != kHead;
  }

  const SafetensorsTensor& find(const std::string& name) const {
    const auto found = positions_.find(name);
    if (found == positions_.end()) {
      throw ArgumentError(weights_path_ + ": the model has no tensor " + detail::quotedName(name));
    }
    return tensors_[found->second].tensor;
  }

  StoredTensors takeStock() const {
    StoredTensors stored;
    for (const Safetensors& file : files_) {
      for (const auto& [name, tensor] : file.tensors()) {
        stored.emplace(isPrefixed(name) ? name.substr(kPrefix.size()) : name,
                       detail::StoredTensor{file.path().string() + ": tensor " + detail::quotedName(name), tensor});
      }
    }
    return stored;
  }

  /// Decides whether the head is tied, and removes from `stored` a copy of wte that is not needed then.
  void settleHead(std::optional<bool> is_tied, StoredTensors& stored) {
    const auto head = stored.find(kHead);
    if (head == stored.end()) {
      if (is_tied == false) {
        throw FileError(weights_path_ + ": expected tensor " + kHead +
                        ", for config.json says tie_word_embeddings = false, found none");
      }
      return;
    }
    has_head_ = is_tied != true;
    if (has_head_) return;
    const auto wte = stored.find("wte.weight");
    if (wte != stored.end() && !detail::haveSameBytes(head->second.tensor, wte->second.tensor)) {
      throw FileError(head->second.where +
                      ": expected a copy of wte.weight, for config.json says tie_word_embeddings = true, found "
                      "another tensor");
    }
    stored.erase(head);
  }

  /// Takes what the model needs out of `stored`, in order, and refuses what is left over.
  void claimTensors(StoredTensors stored) {
    const auto skeleton = detail::emptyParameters<float>(config_, has_head_);
    forEachTensor(skeleton, [&](const std::string& name, const auto& target, Index rows, Index cols) {
      std::vector<std::uint64_t> shape{static_cast<std::uint64_t>(cols)};
      if (!std::decay_t<decltype(target)>::IsVectorAtCompileTime) {
        shape.insert(shape.begin(), static_cast<std::uint64_t>(rows));
      }
      const auto found = stored.find(name);
      if (found == stored.end()) {
        throw FileError(weights_path_ + ": expected tensor " + name + " of shape " + detail::shapeText(shape) +
                        ", found none of that name");
      }
      detail::checkTensor(found->second, name, shape);
      positions_.emplace(name, tensors_.size());
      tensors_.push_back({name, std::move(found->second.tensor)});
      stored.erase(found);
    });
    for (Index layer = 0; layer < config_.n_layer; ++layer) {
      stored.erase("h." + std::to_string(layer) + ".attn.bias");
      stored.erase("h." + std::to_string(layer) + ".attn.masked_bias");
    }
    if (!stored.empty()) {
      throw FileError(stored.begin()->second.where +
                      " is not one of a GPT-2 with n_layer = " + std::to_string(config_.n_layer));
    }
  }

  void checkPrefixes() const {
    std::string prefixed;
    std::string bare;
    for (const Safetensors& file : files_) {
      for (const auto& [name, tensor] : file.tensors()) {
        if (name != kHead) (isPrefixed(name) ? prefixed : bare) = name;
      }
    }
    if (!prefixed.empty() && !bare.empty()) {
      throw FileError(weights_path_ + ": expected all names with the prefix transformer. or none, found " +
                      detail::quotedName(prefixed) + " and " + detail::quotedName(bare));
    }
  }

  Config config_;
  bool has_head_ = false;
  std::string weights_path_;
  std::vector<Safetensors> files_;
  std::vector<CheckpointTensor> tensors_;
  std::map<std::string, std::size_t> positions_;
};

/// Reads a model into plain Eigen matrices; `path` and errors as in Checkpoint.
template <class Scalar = float>
Parameters<Scalar> loadParameters(const std::filesystem::path& path) {
  const Checkpoint checkpoint(path);
  auto parameters = detail::emptyParameters<Scalar>(checkpoint.config(), checkpoint.hasHead());
  forEachTensor(parameters, [&](const std::string& name, auto& target, Index rows, Index cols) {
    const TensorView tensor = checkpoint.tensor(name);
    target.resize(rows, cols);
    for (Index row = 0; row < rows; ++row) readElements(tensor, row, 0, cols, target.data() + row * cols);
  });
  return parameters;
}

/// Reads a model and packs it for multiplication, straight from the mapped file and without a second copy of more than
/// one tensor; `path` and errors as in Checkpoint.
template <class Scalar = float, class Stored = Scalar>
Weights<Scalar, Stored> loadWeights(const std::filesystem::path& path, Threads threads = Threads()) {
  const Checkpoint checkpoint(path);
  std::string packed;  // the tensor before, done with when the next is asked for
  const auto source = [&](const std::string& name) {
    if (!packed.empty()) checkpoint.release(packed);
    packed = name;
    return checkpoint.tensor(name);
  };
  return Weights<Scalar, Stored>(checkpoint.config(), checkpoint.hasHead(), source, std::move(threads));
}

}  // namespace driftless::inline DRIFTLESS_ABI
