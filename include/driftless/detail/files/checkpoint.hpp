#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/config_json.hpp"
#include "driftless/detail/files/file_mapping.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/stored/range.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Where a checkpoint's parts lie: config.json, and one safetensors file or the index of its shards.
struct CheckpointFiles {
  std::filesystem::path config;
  std::filesystem::path weights;
  bool is_index = false;
};

/// What of another program's a file is, by its contents, or nothing. scripts/convert.py turns all of these into a
/// directory with safetensors.
inline std::string_view foreignKind(const std::filesystem::path& path) {
  // Opening a named pipe would wait for its writer.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  const auto bytesAt = [&](std::ios::off_type offset, std::ios::seekdir from) {
    std::array<char, 16> bytes{};
    file.clear();
    file.seekg(offset, from);
    file.read(bytes.data(), bytes.size());
    return std::string(bytes.data(), static_cast<std::size_t>(file.gcount()));
  };
  using namespace std::string_view_literals;
  const std::string first = bytesAt(0, std::ios::beg), last = bytesAt(-8, std::ios::end);
  if (first.starts_with("GGUF"sv)) return "a GGUF file";
  // An archive, or the number that began a file before PyTorch 1.6.
  if (first.starts_with("PK\3\4"sv) || first.starts_with("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9"sv))
    return "a PyTorch file";
  if (first.starts_with("\xc6\xd7\x34\x01"sv)) return "an llm.c checkpoint";
  if (last == "\x57\xfb\x80\x8b\x24\x75\x47\xdb"sv) return "the index of a TensorFlow checkpoint";
  return {};
}

/// The first file of another program's in a directory, by the names that scripts/convert.py looks for in one.
inline std::filesystem::path foreignFile(const std::filesystem::path& directory) {
  std::filesystem::path first;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path name = entry->path().filename();
    const bool is_known = name == "pytorch_model.bin" || name == "pytorch_model.bin.index.json" || name == "ckpt.pt" ||
                          name == "model.pt" || name == "model.ckpt.index" || name.extension() == ".gguf";
    if (is_known && (first.empty() || name < first)) first = name;
  }
  return first;
}

/// How `source`, a path that the user has named, becomes a model that can be read.
inline std::string conversionOf(const std::filesystem::path& source) {
  return message({"; convert it first: scripts/convert.py ", pathText(source), " DIR"});
}

inline CheckpointFiles locateCheckpoint(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    // TensorFlow names a checkpoint by what its files' names begin with.
    std::filesystem::path index = path;
    index += ".index";
    const std::string_view kind = foreignKind(index);
    raise<FileError>({pathText(path), ": expected a model",
                      kind.empty() ? ": " + error.message()
                                   : message({", found ", pathText(index), ", ", kind}) + conversionOf(path)});
  }
  if (!std::filesystem::is_directory(status)) {
    if (path.extension() == ".safetensors") return {path.parent_path() / "config.json", path, false};
    const std::string_view kind = foreignKind(path);
    raise<FileError>({pathText(path), ": expected a directory or a .safetensors file beside its config.json",
                      kind.empty() ? "" : message({", found ", kind}) + conversionOf(path)});
  }
  const std::filesystem::path config = path / "config.json", file = path / "model.safetensors";
  const std::filesystem::path index = path / "model.safetensors.index.json";
  if (isThere(file)) return {config, file, false};
  if (isThere(index)) return {config, index, true};
  const std::filesystem::path foreign = foreignFile(path);
  raise<FileError>(
      {pathText(path), ": expected model.safetensors or model.safetensors.index.json, found ",
       foreign.empty() ? "neither" : message({"only ", printable(pathText(foreign)), conversionOf(path)})});
}

/// Whether an index may name this file: a plain name, so that nothing outside of its directory is reached.
inline bool isShardName(const std::string& name) {
  const auto isPlain = [](unsigned char c) { return c >= ' ' && c != '/' && c != '\\' && c != ':'; };
  return name.ends_with(".safetensors") && std::all_of(name.begin(), name.end(), isPlain);
}

/// What an index places where: for each tensor `file/name`, in order.
inline std::set<std::string> readShardIndex(const std::filesystem::path& index) {
  const std::string where = pathText(index);
  const JsonFile json(index);
  const JsonValue weight_map = json.root()["weight_map"];
  if (!weight_map.is(JsonKind::object)) raise<FileError>({where, ": expected an object with the object weight_map"});
  std::set<std::string> places;
  for (const JsonValue file : weight_map) {
    if (!file.is(JsonKind::string) || !isShardName(file.string()))
      raise<FileError>({where, ": weight_map: tensor ", quotedName(file.key()),
                        ": expected the name of a .safetensors file in the same directory, found ", file.shown()});
    places.insert(message({file.string(), "/", file.key()}));
  }
  return places;
}

/// Opens the shards that an index names. Index and shards must list the same tensors in the same files.
inline std::vector<Safetensors> openShards(const std::filesystem::path& index, bool maps_files) {
  const std::set<std::string> places = readShardIndex(index);
  std::vector<Safetensors> shards;
  for (auto place = places.begin(); place != places.end();) {
    const std::string file = place->substr(0, place->find('/'));
    const Safetensors& shard =
        shards.emplace_back(index.parent_path() / std::u8string(file.begin(), file.end()), maps_files);
    // The places of a shard stand together, in the order of the tensors' names, as its own tensors do.
    auto tensor = shard.tensors().begin();
    for (; place != places.end() && place->starts_with(file + "/"); ++place) {
      const std::string name = place->substr(file.size() + 1);
      if (tensor == shard.tensors().end() || tensor->first > name)
        raise<FileError>({pathText(index), ": expected tensor ", quotedName(name), " in ", quotedName(file),
                          ", which does not hold it"});
      if (tensor->first != name) break;
      ++tensor;
    }
    if (tensor != shard.tensors().end())
      raise<FileError>({pathText(shard.path()), ": holds tensor ", quotedName(tensor->first), ", which ",
                        pathText(index), " does not place there"});
  }
  return shards;
}

inline std::vector<Safetensors> openTensorFiles(const CheckpointFiles& files, bool maps_files) {
  if (files.is_index) return openShards(files.weights, maps_files);
  std::vector<Safetensors> opened;
  opened.emplace_back(files.weights, maps_files);
  return opened;
}

inline bool haveSameBytes(const SafetensorsTensor& left, const SafetensorsTensor& right) {
  return left.dtype_name == right.dtype_name && left.shape == right.shape &&
         std::equal(left.view.data, left.view.data + left.bytes, right.view.data, right.view.data + right.bytes);
}

/// The tensors of some files under the model's names, until the model has taken those that it needs.
class TensorInventory {
 public:
  using Tensors = std::map<std::string, const SafetensorsTensor*>;

  /// `where` names the checkpoint in error messages. Both must outlive the inventory, and the files the views too.
  TensorInventory(const std::vector<Safetensors>& files, const std::string& where) : files_(files), where_(where) {
    const std::string prefix = modelPrefix();
    const std::string lm_head =
        (prefix.ends_with(kBase) ? prefix.substr(0, prefix.size() - kBase.size()) : prefix) + kLmHead;
    for (const Safetensors& file : files)
      for (const auto& [name, tensor] : file.tensors()) {
        const bool is_prefixed = name.starts_with(prefix) && name.substr(prefix.size()) != kLmHead;
        if (name == lm_head)
          tensors_.emplace(kLmHead, &tensor);
        else if (is_prefixed)
          tensors_.emplace(name.substr(prefix.size()), &tensor);
        else
          extra_.emplace(name, &tensor);
      }
  }

  /// Whether the model has an lm_head of its own. A copy of wte that is not needed is taken out; one that stands for
  /// both, as safetensors.torch.save_model leaves it, becomes wte.
  bool settleLmHead(std::optional<bool> is_tied) {
    const auto lm_head = tensors_.find(kLmHead);
    if (lm_head == tensors_.end() && is_tied == false)
      raise<FileError>(
          {where_, ": expected tensor ", kLmHead, ", for config.json says tie_word_embeddings = false, found none"});
    if (lm_head == tensors_.end()) return false;
    const auto wte = tensors_.find("wte.weight");
    if (wte == tensors_.end() && is_tied != false)
      tensors_.emplace("wte.weight", lm_head->second);
    else if (is_tied != true)
      return true;
    else if (wte != tensors_.end() && !haveSameBytes(*lm_head->second, *wte->second))
      raise<FileError>({lm_head->second->view.place,
                        ": expected a copy of wte.weight, for config.json says "
                        "tie_word_embeddings = true, found another tensor"});
    tensors_.erase(lm_head);
    return false;
  }

  /// Moves the tensor that the model needs into `taken`. Throws FileError unless it is there, with a float type and the
  /// right shape.
  void take(const TensorShape& needed, Tensors& taken) {
    const std::vector<Index> shape =
        needed.is_vector ? std::vector{needed.cols} : std::vector{needed.rows, needed.cols};
    const auto found = tensors_.find(needed.name);
    if (found == tensors_.end())
      raise<FileError>({where_, ": expected tensor ", needed.name, " of shape ", shapeText(shape),
                        ", found none of that name", neighbour(needed.name)});
    const SafetensorsTensor& tensor = *found->second;
    // GPT-2's linear layers are [in, out] in checkpoints; exports through nn.Linear turn them round.
    const bool is_transposed = needed.name.starts_with("h.") && tensor.shape == std::vector{needed.cols, needed.rows};
    if (tensor.shape != shape)
      raise<FileError>({tensor.view.place, ": expected shape ", shapeText(shape), ", found ", shapeText(tensor.shape),
                        is_transposed ? ": it looks like a transposed nn.Linear export" : ""});
    if (tensor.view.dtype == DType::other)
      raise<FileError>(
          {tensor.view.place, ": expected dtype F64, F32, F16 or BF16, found ", quotedName(tensor.dtype_name)});
    taken.insert(tensors_.extract(found));
  }

  /// The places of all that is left, except the attention masks' buffers.
  std::vector<std::string> rest(Index n_layer) {
    for (Index layer = 0; layer < n_layer; ++layer) {
      tensors_.erase(message({"h.", layer, ".attn.bias"}));
      tensors_.erase(message({"h.", layer, ".attn.masked_bias"}));
    }
    std::vector<std::string> places;
    for (const Tensors* const left : {&tensors_, &extra_})
      for (const auto& [name, tensor] : *left) places.push_back(tensor->view.place);
    return places;
  }

 private:
  static constexpr std::string_view kBase = "transformer.";
  static constexpr const char* kLmHead = "lm_head.weight";

  /// What stands before the names of the model's tensors: nothing, `transformer.`, or what a wrapper such as
  /// torch.compile has put before either.
  std::string modelPrefix() const {
    for (const std::string_view known : {"wpe.weight", "ln_f.weight"}) {
      std::optional<std::string> shortest;
      for (const Safetensors& file : files_)
        for (const auto& [name, tensor] : file.tensors()) {
          if (!name.ends_with(known)) continue;
          const std::string prefix = name.substr(0, name.size() - known.size());
          const bool is_whole = prefix.empty() || prefix.back() == '.';
          if (is_whole && (!shortest || prefix.size() < shortest->size())) shortest = prefix;
        }
      if (shortest) return *shortest;
    }
    return "";
  }

  /// Another tensor's name that may help to see why one is missing.
  std::string neighbour(const std::string& missing) const {
    std::string first;
    for (const Safetensors& file : files_)
      for (const auto& [name, tensor] : file.tensors()) {
        if (name == missing || name.ends_with("." + missing)) return message({" but ", quotedName(name)});
        if (first.empty()) first = name;
      }
    return first.empty() ? " nor of any other" : message({"; the first name is ", quotedName(first)});
  }

  const std::vector<Safetensors>& files_;
  const std::string& where_;
  Tensors tensors_;  ///< by their names in the model
  Tensors extra_;    ///< the others, by their names in the files
};

}  // namespace detail

DRIFTLESS_INLINE Checkpoint::Checkpoint(const std::filesystem::path& path, const CheckpointOptions& options)
    : maps_files_(options.maps_files) {
  const detail::CheckpointFiles located = detail::locateCheckpoint(path);
  const detail::ConfigFile config_file(located.config);
  config_ = config_file.config();
  weights_path_ = detail::pathText(located.weights);
  files_ = detail::openTensorFiles(located, options.maps_files);
  detail::TensorInventory inventory(files_, weights_path_);
  has_lm_head_ = inventory.settleLmHead(config_file.tieWordEmbeddings());
  for (const TensorShape& needed : modelTensors(config_, has_lm_head_)) {
    inventory.take(needed, by_name_);
    tensors_.push_back({needed.name, find(needed.name)});
  }
  ignored_ = inventory.rest(config_.n_layer);
  if (!ignored_.empty() && !options.ignores_extra)
    detail::raise<FileError>({ignored_.front(), " is not one of a GPT-2 with n_layer = ", config_.n_layer});
}

DRIFTLESS_INLINE const SafetensorsTensor& Checkpoint::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    detail::raise<ArgumentError>({weights_path_, ": the model has no tensor ", detail::quotedName(name)});
  return *found->second;
}

DRIFTLESS_INLINE void Checkpoint::release(const std::string& name) const {
  const SafetensorsTensor& tensor = find(name);
  if (maps_files_) detail::releasePages({tensor.view.data, tensor.bytes});
}

template <FloatingScalar Scalar>
Parameters<Scalar> loadParameters(const Checkpoint& checkpoint) {
  auto parameters = emptyParameters<Scalar>(checkpoint.config(), checkpoint.hasLmHead());
  forEachTensor(parameters, [&](const std::string& name, auto& target, Index rows, Index cols) {
    const TensorView tensor = checkpoint.tensor(name);
    target.resize(rows, cols);
    bool fits = true;
    for (Index row = 0; row < rows; ++row)
      fits = readElements(tensor, row, 0, cols, target.data() + row * cols) && fits;
    if (!fits) detail::raiseBeyondType<Scalar>(tensor, StoredType::full);
  });
  return parameters;
}

template <FloatingScalar Scalar>
Weights<Scalar> loadWeights(const Checkpoint& checkpoint, LoadOptions options) {
  std::string packed;  // the tensor before, done with when the next is asked for
  const auto source = [&](const std::string& name) {
    if (!packed.empty()) checkpoint.release(packed);
    packed = name;
    return checkpoint.tensor(name);
  };
  return Weights<Scalar>(checkpoint.config(), checkpoint.hasLmHead(), source, std::move(options));
}

}}  // namespace driftless::DRIFTLESS_ABI
