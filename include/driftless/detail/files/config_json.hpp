#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/detail/messages.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// An upper bound on the bytes of a model's weights, a cache, and what prefillLogits takes for the whole context: sizes
/// below it can be multiplied without a thought of overflow.
inline double mostBytes(const Config& config) {
  constexpr double kPadding = 64, kScalar = 8;
  const double V = static_cast<double>(config.vocab_size) + kPadding;
  const double N = static_cast<double>(config.n_positions) + kPadding;
  const double C = static_cast<double>(config.n_embd) + kPadding;
  const double inner = static_cast<double>(config.innerSize()) + kPadding;
  const double layer = 4 * C * C + 2 * C * inner + 2 * N * C + 12 * C + inner;
  return kScalar * (2 * V * C + N * C + static_cast<double>(config.n_layer) * layer + N * (V + 8 * C + inner));
}

}  // namespace detail

DRIFTLESS_INLINE void checkConfig(const Config& config) {
  const auto check = [](const char* key, Index size, Index most) {
    if (size < 1 || size > most) detail::raise<ConfigError>({key, ": expected 1 to ", most, ", got ", size});
  };
  check("vocab_size", config.vocab_size, detail::kMostVocabulary);
  check("n_positions", config.n_positions, detail::kMostPositions);
  check("n_embd", config.n_embd, detail::kMostWidth);
  check("n_layer", config.n_layer, detail::kMostLayers);
  check("n_head", config.n_head, config.n_embd);
  check("n_inner", config.innerSize(), 4 * detail::kMostWidth);
  if (config.n_embd % config.n_head != 0)
    detail::raise<ConfigError>({"n_head: expected a divisor of n_embd, ", config.n_embd, ", got ", config.n_head});
  if (detail::mostBytes(config) > static_cast<double>((std::numeric_limits<Index>::max)()))
    detail::raise<ConfigError>(
        {"expected a model that fits into the address space, got one of ", detail::mostBytes(config), " bytes"});
  if (!(config.layer_norm_epsilon > 0) || std::isinf(config.layer_norm_epsilon))
    detail::raise<ConfigError>(
        {"layer_norm_epsilon: expected a positive, finite number, got ", config.layer_norm_epsilon});
}

DRIFTLESS_INLINE void checkIds(TokenIds ids, const Config& config) {
  if (ids.empty()) detail::raise<ArgumentError>({"expected at least one token id, got none"});
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      detail::raise<ArgumentError>(
          {"expected token ids from 0 to ", config.vocab_size - 1, ", got ", ids[i], " at index ", i});
}

namespace detail {

/// Whether one insertion, deletion, replacement or swap of neighbours turns one word into the other.
inline bool isOneEditApart(std::string_view left, std::string_view right) {
  const auto prefix = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
  left.remove_prefix(static_cast<std::size_t>(prefix.first - left.begin()));
  right.remove_prefix(static_cast<std::size_t>(prefix.second - right.begin()));
  const auto suffix = std::mismatch(left.rbegin(), left.rend(), right.rbegin(), right.rend());
  left.remove_suffix(static_cast<std::size_t>(suffix.first - left.rbegin()));
  right.remove_suffix(static_cast<std::size_t>(suffix.second - right.rbegin()));
  const bool is_swap = left.size() == 2 && right.size() == 2 && left[0] == right[1] && left[1] == right[0];
  return is_swap || (std::max)(left.size(), right.size()) == 1;
}

/// The spellings of config.json's sizes: Hugging Face's own name first, then its aliases.
inline constexpr std::string_view kVocabSizeKeys[] = {"vocab_size"};
inline constexpr std::string_view kPositionsKeys[] = {"n_positions", "max_position_embeddings"};
inline constexpr std::string_view kEmbdKeys[] = {"n_embd", "hidden_size"};
inline constexpr std::string_view kLayerKeys[] = {"n_layer", "num_hidden_layers"};
inline constexpr std::string_view kHeadKeys[] = {"n_head", "num_attention_heads"};

/// All keys that must be spelt right.
inline constexpr std::string_view kMathematicalKeys[] = {"model_type",
                                                         "vocab_size",
                                                         "n_positions",
                                                         "n_ctx",
                                                         "n_embd",
                                                         "n_layer",
                                                         "n_head",
                                                         "n_inner",
                                                         "activation_function",
                                                         "layer_norm_epsilon",
                                                         "scale_attn_weights",
                                                         "scale_attn_by_inverse_layer_idx",
                                                         "reorder_and_upcast_attn",
                                                         "tie_word_embeddings",
                                                         "add_cross_attention",
                                                         "is_encoder_decoder",
                                                         "pruned_heads",
                                                         "quantization_config",
                                                         "auto_map",
                                                         "hidden_size",
                                                         "max_position_embeddings",
                                                         "num_attention_heads",
                                                         "num_hidden_layers"};

/// An activation's own name stands before its aliases.
inline constexpr std::pair<std::string_view, Activation> kActivationNames[] = {
    {"gelu", Activation::gelu},
    {"gelu_python", Activation::gelu},
    {"gelu_new", Activation::gelu_new},
    {"gelu_fast", Activation::gelu_new},
    {"gelu_accurate", Activation::gelu_new},
    {"gelu_pytorch_tanh", Activation::gelu_new},
    {"gelu_python_tanh", Activation::gelu_new},
    {"relu", Activation::relu},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"tanh", Activation::tanh},
};

/// A Hugging Face config.json for GPT-2. Every key that changes the mathematics is honoured, or refused with a
/// ConfigError that names file, key, expected and actual value. Other keys do nothing, as in transformers, except that
/// one which differs from a mathematical key by a single edit is refused as a typing error.
class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& path) : path_(pathText(path)), file_(path), json_(file_.root()) {
    json_.object();
  }

  Config config() const {
    checkModelType();
    checkSpelling();
    for (const char* key : {"add_cross_attention", "is_encoder_decoder"})
      if (flag(key).value_or(false)) refuse(key, "false");
    for (const char* key : {"pruned_heads", "quantization_config", "auto_map"})
      if (!json_[key].isEmpty()) refuse(key, "nothing");
    // The arithmetic is float throughout, which is all that this key asks for.
    flag("reorder_and_upcast_attn");
    tieWordEmbeddings();

    Config config;
    config.vocab_size = vocabSize();
    config.n_positions = positions();
    config.n_embd = size(kEmbdKeys, kMostWidth);
    config.n_layer = size(kLayerKeys, kMostLayers);
    config.n_head = size(kHeadKeys, config.n_embd);
    if (config.n_embd % config.n_head != 0) refuse("n_head", message({"a divisor of n_embd, ", config.n_embd}));
    if (!json_["n_inner"].is(JsonKind::null)) config.n_inner = wholeNumber("n_inner", 4 * kMostWidth);
    if (json_["activation_function"].isThere()) config.activation_function = activation();
    if (json_["layer_norm_epsilon"].isThere()) config.layer_norm_epsilon = epsilon();
    config.scale_attn_weights = flag("scale_attn_weights").value_or(config.scale_attn_weights);
    config.scale_attn_by_inverse_layer_idx =
        flag("scale_attn_by_inverse_layer_idx").value_or(config.scale_attn_by_inverse_layer_idx);
    return config;
  }

  Index vocabSize() const { return size(kVocabSizeKeys, kMostVocabulary); }

  /// `tie_word_embeddings`, or nothing if the file does not say.
  std::optional<bool> tieWordEmbeddings() const { return flag("tie_word_embeddings"); }

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const {
    raise<ConfigError>({path_, ": ", key, ": expected ", expected, ", found ", json_[key].shown()});
  }

  void checkModelType() const {
    if (json_["model_type"].isThere() && !json_["model_type"].isString("gpt2")) refuse("model_type", "\"gpt2\"");
    const JsonValue architectures = json_["architectures"];
    bool are_gpt2 = architectures.is(JsonKind::array) || architectures.is(JsonKind::null);
    for (const JsonValue name : architectures)
      are_gpt2 = are_gpt2 && name.is(JsonKind::string) && name.string().starts_with("GPT2");
    if (!are_gpt2) refuse("architectures", "an array of names that begin with GPT2");
  }

  void checkSpelling() const {
    for (const JsonValue member : json_) {
      const std::string& key = member.key();
      for (const std::string_view known : kMathematicalKeys)
        if (isOneEditApart(key, known))
          raise<ConfigError>({path_, ": unknown key ", quotedName(key), ": expected ", known});
    }
  }

  std::optional<bool> flag(const char* key) const {
    const JsonValue value = json_[key];
    if (!value.isThere()) return std::nullopt;
    if (!value.is(JsonKind::boolean)) refuse(key, "true or false");
    return value.isTrue();
  }

  Index wholeNumber(std::string_view key, Index most) const {
    const std::uint64_t number = json_[key].wholeNumber().value_or(0);
    if (number < 1 || number > static_cast<std::uint64_t>(most))
      refuse(key, message({"a whole number from 1 to ", most}));
    return static_cast<Index>(number);
  }

  /// A size that may stand under several keys, which must then agree.
  Index size(std::span<const std::string_view> keys, Index most) const {
    std::string_view first;
    for (const std::string_view key : keys) {
      if (!json_[key].isThere()) continue;
      if (first.empty()) first = key;
      const Index expected = wholeNumber(first, most);
      if (wholeNumber(key, most) != expected) refuse(key, message({expected, " as in ", first}));
    }
    return wholeNumber(first.empty() ? keys.front() : first, most);
  }

  /// n_ctx is an old name, at which transformers does not look if there is another.
  Index positions() const {
    const auto isThere = [&](std::string_view key) { return json_[key].isThere(); };
    const bool is_old = std::none_of(std::begin(kPositionsKeys), std::end(kPositionsKeys), isThere) && isThere("n_ctx");
    return is_old ? wholeNumber("n_ctx", kMostPositions) : size(kPositionsKeys, kMostPositions);
  }

  Activation activation() const {
    std::string names;
    for (const auto& [name, activation] : kActivationNames) {
      if (json_["activation_function"].isString(name)) return activation;
      names += message({names.empty() ? "" : ", ", name});
    }
    refuse("activation_function", message({"one of ", names}));
  }

  /// In a float's range, so that it is neither zero nor infinite in the arithmetic.
  double epsilon() const {
    using Limits = std::numeric_limits<float>;
    const double epsilon = json_["layer_norm_epsilon"].number().value_or(0);
    if (epsilon < double{(Limits::min)()} || epsilon > double{(Limits::max)()})
      refuse("layer_norm_epsilon", "a positive, finite number");
    return epsilon;
  }

  std::string path_;
  JsonFile file_;
  JsonValue json_;
};

/// `eos_token_id` of a file, one id or a list; nothing if it does not say.
inline std::vector<int> eosIdsOf(const std::filesystem::path& path, Index vocab_size) {
  const JsonFile file(path);
  const JsonValue eos = file.root().object()["eos_token_id"];
  std::vector<int> ids;
  const auto add = [&](const JsonValue& id) {
    const std::optional<std::uint64_t> number = id.wholeNumber();
    if (!number || *number >= static_cast<std::uint64_t>(vocab_size))
      raise<ConfigError>(
          {pathText(path), ": eos_token_id: expected token ids from 0 to ", vocab_size - 1, ", found ", eos.shown()});
    ids.push_back(static_cast<int>(*number));
  };
  if (eos.is(JsonKind::array)) {
    for (const JsonValue id : eos) add(id);
  } else if (!eos.is(JsonKind::null)) {
    add(eos);
  }
  return ids;
}

}  // namespace detail

DRIFTLESS_INLINE std::string_view nameOf(Activation activation) {
  for (const auto& [name, known] : detail::kActivationNames)
    if (known == activation) return name;
  return {};
}

DRIFTLESS_INLINE Config readConfig(const std::filesystem::path& path) { return detail::ConfigFile(path).config(); }

DRIFTLESS_INLINE std::vector<int> readEosIds(const std::filesystem::path& model) {
  const std::filesystem::path directory = detail::modelDirectory(model);
  const std::filesystem::path config = directory / "config.json", generation = directory / "generation_config.json";
  const Index vocab_size = detail::ConfigFile(config).vocabSize();
  std::vector<int> ids;
  if (detail::isThere(generation)) ids = detail::eosIdsOf(generation, vocab_size);
  return ids.empty() ? detail::eosIdsOf(config, vocab_size) : ids;
}

}}  // namespace driftless::DRIFTLESS_ABI
