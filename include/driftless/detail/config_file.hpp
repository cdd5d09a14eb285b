#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/file_mapping.hpp"
#include "driftless/detail/json_text.hpp"
#include "driftless/error.hpp"

namespace driftless::inline DRIFTLESS_ABI::detail {

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

/// Bounds on a model's sizes: generous, and such that neither its weights nor its cache (2 L N C scalars) have more
/// bytes than a 64-bit Index can count.
inline constexpr Index kMostVocabulary = Index{1} << 24;
inline constexpr Index kMostPositions = Index{1} << 20;
inline constexpr Index kMostWidth = Index{1} << 20;
inline constexpr Index kMostLayers = Index{1} << 12;

/// The spellings of config.json's sizes: Hugging Face's own name first, then its aliases.
inline constexpr std::string_view kVocabSizeKeys[] = {"vocab_size"};
inline constexpr std::string_view kPositionsKeys[] = {"n_positions", "n_ctx", "max_position_embeddings"};
inline constexpr std::string_view kEmbdKeys[] = {"n_embd", "hidden_size"};
inline constexpr std::string_view kLayerKeys[] = {"n_layer", "num_hidden_layers"};
inline constexpr std::string_view kHeadKeys[] = {"n_head", "num_attention_heads"};

inline constexpr std::string_view kMathematicalKeys[] = {
    "model_type",
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
    "num_hidden_layers",
};

struct ActivationName {
  std::string_view name;
  Activation activation;
};

inline constexpr ActivationName kActivationNames[] = {
    {"gelu", Activation::gelu},          {"gelu_new", Activation::gelu_new},
    {"gelu_fast", Activation::gelu_new}, {"gelu_pytorch_tanh", Activation::gelu_new},
    {"relu", Activation::relu},          {"silu", Activation::silu},
    {"swish", Activation::silu},         {"tanh", Activation::tanh},
};

/// A Hugging Face config.json for GPT-2. Every key that changes the mathematics is honoured or refused, with a
/// ConfigError that names file, key, expected and actual value. Other keys do nothing, as in transformers, except that
/// one which differs from a mathematical key by a single edit is refused as a typing error.
class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& path)
      : path_(path.string()), json_(parseJson(FileMapping(path).text(), path_, 64)) {
    if (!json_.is_object()) throw FileError(path_ + ": expected a JSON object, found " + shown(json_));
  }

  Config config() const {
    checkModelType();
    checkSpelling();
    for (const char* key : {"add_cross_attention", "is_encoder_decoder"}) {
      if (flag(key).value_or(false)) refuse(key, "false");
    }
    for (const char* key : {"pruned_heads", "quantization_config", "auto_map"}) {
      if (json_.contains(key) && !json_[key].empty()) refuse(key, "nothing");
    }
    // The arithmetic is float throughout, which is all that this key asks for.
    static_cast<void>(flag("reorder_and_upcast_attn"));
    static_cast<void>(tieWordEmbeddings());

    Config config;
    config.vocab_size = size(kVocabSizeKeys, kMostVocabulary);
    config.n_positions = size(kPositionsKeys, kMostPositions);
    config.n_embd = size(kEmbdKeys, kMostWidth);
    config.n_layer = size(kLayerKeys, kMostLayers);
    config.n_head = headCount(config.n_embd);
    config.n_inner = innerSize(config.n_embd);
    config.activation_function = activation(config.activation_function);
    config.layer_norm_epsilon = epsilon(config.layer_norm_epsilon);
    config.scale_attn_weights = flag("scale_attn_weights").value_or(config.scale_attn_weights);
    config.scale_attn_by_inverse_layer_idx =
        flag("scale_attn_by_inverse_layer_idx").value_or(config.scale_attn_by_inverse_layer_idx);
    return config;
  }

  /// `tie_word_embeddings`, or nothing where the file does not say.
  std::optional<bool> tieWordEmbeddings() const { return flag("tie_word_embeddings"); }

 private:
  using Json = nlohmann::json;

  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const {
    const auto found = json_.find(key);
    throw ConfigError(path_ + ": " + std::string(key) + ": expected " + expected + ", found " +
                      (found == json_.end() ? "no such key" : shown(*found)));
  }

  void checkModelType() const {
    if (json_.contains("model_type") && json_["model_type"] != "gpt2") refuse("model_type", "\"gpt2\"");
    const Json architectures = json_.value("architectures", Json());
    if (architectures.is_null()) return;
    const auto isGpt2 = [](const Json& name) {
      return name.is_string() && name.get_ref<const std::string&>().starts_with("GPT2");
    };
    if (!architectures.is_array() || !std::all_of(architectures.begin(), architectures.end(), isGpt2)) {
      refuse("architectures", "an array of names that begin with GPT2");
    }
  }

  void checkSpelling() const {
    for (const auto& [key, value] : json_.items()) {
      const std::string& written = key;
      const auto isMeant = [&](std::string_view known) { return isOneEditApart(written, known); };
      const auto* meant = std::find_if(std::begin(kMathematicalKeys), std::end(kMathematicalKeys), isMeant);
      if (meant != std::end(kMathematicalKeys)) {
        throw ConfigError(path_ + ": unknown key " + quotedName(key) + ": expected " + std::string(*meant));
      }
    }
  }

  std::optional<bool> flag(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return std::nullopt;
    if (!found->is_boolean()) refuse(key, "true or false");
    return found->get<bool>();
  }

  Index wholeNumber(std::string_view key, Index most) const {
    const auto found = json_.find(key);
    const bool fits = found != json_.end() && found->is_number_unsigned() && found->get<std::uint64_t>() >= 1 &&
                      found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!fits) refuse(key, "a whole number from 1 to " + std::to_string(most));
    return found->get<Index>();
  }

  /// A size that may stand under several keys, which must agree then.
  template <std::size_t Count>
  Index size(const std::string_view (&keys)[Count], Index most) const {
    std::string_view first;
    for (const std::string_view key : keys) {
      if (!json_.contains(key)) continue;
      if (first.empty()) first = key;
      const Index expected = wholeNumber(first, most);
      if (wholeNumber(key, most) != expected) refuse(key, std::to_string(expected) + " as in " + std::string(first));
    }
    return wholeNumber(first.empty() ? keys[0] : first, most);
  }

  Index headCount(Index n_embd) const {
    const Index n_head = size(kHeadKeys, n_embd);
    if (n_embd % n_head != 0) refuse("n_head", "a divisor of n_embd, " + std::to_string(n_embd));
    return n_head;
  }

  Index innerSize(Index n_embd) const {
    const bool is_default = !json_.contains("n_inner") || json_["n_inner"].is_null();
    return is_default ? 4 * n_embd : wholeNumber("n_inner", 4 * kMostWidth);
  }

  Activation activation(Activation otherwise) const {
    const auto found = json_.find("activation_function");
    if (found == json_.end()) return otherwise;
    std::string names;
    for (const ActivationName& known : kActivationNames) {
      if (*found == known.name) return known.activation;
      names += (names.empty() ? "" : ", ") + std::string(known.name);
    }
    refuse("activation_function", "one of " + names);
  }

  double epsilon(double otherwise) const {
    const auto found = json_.find("layer_norm_epsilon");
    if (found == json_.end()) return otherwise;
    using Limits = std::numeric_limits<float>;
    // In a float's range, so that it is neither zero nor infinite where it is used.
    const bool fits = found->is_number() && found->get<double>() >= double{(Limits::min)()} &&
                      found->get<double>() <= double{(Limits::max)()};
    if (!fits) refuse("layer_norm_epsilon", "a positive, finite number");
    return found->get<double>();
  }

  std::string path_;
  Json json_;
};

}  // namespace driftless::inline DRIFTLESS_ABI::detail
