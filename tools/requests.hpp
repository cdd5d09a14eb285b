#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "commands.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/generate.hpp"
#include "models.hpp"

namespace driftless::cli {

/// A request's samples are written together, and are all in memory until then.
inline constexpr Index kMostSamples = 4096;

/// What the options say, for the library; `weights` and `tokenizer` are those of `model`. Throws ArgumentError for what
/// the library or the model refuses, if the text is to end and nothing says where, and for a draft model that does not
/// have the same vocabulary; and what loading that throws.
GenerateOptions generateOptions(const GenerationFlags& flags, const ModelOptions& model, const Weights<float>& weights,
                                ModelTokenizer& tokenizer);

/// One line of a file of requests: a JSON object with `id`, a string or a number; `prompt`, a text, or `ids`; and what
/// GenerateOptions says, under the names that are listed in requests.cpp.
class RequestLine {
 public:
  /// What is wrong with the line comes to light in `request`.
  RequestLine(std::string_view text, std::size_t number);

  /// The line's number if it has no id, or none that can be read.
  const nlohmann::ordered_json& id() const { return id_; }

  /// Throws an Error that names the key at fault, and says what was expected and found. Values that have the right type
  /// but are out of range, such as a top_p of 2, are left to the library, which names them too.
  Request request(const GenerateOptions& defaults, ModelTokenizer& tokenizer) const;

 private:
  nlohmann::ordered_json id_;
  std::optional<detail::JsonDocument> document_;
  std::string error_;  ///< why there is no document
};

}  // namespace driftless::cli
