#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/error.hpp"
#include "driftless/token_ids.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
struct TokenizerData;
}

/// What `encode` makes of the text of a special token, such as `<|endoftext|>`: that token, or the tokens of ordinary
/// text. Text from people who must not end the document is plain text.
enum class SpecialTokens { parse, plainText };

/// GPT-2's byte-level byte-pair encoding. Immutable: any number of threads may share one, and copies share their data.
///
/// For well-formed UTF-8 the ids are those of the original (openai/gpt-2, encoder.py), with the Unicode version of
/// detail/text/unicode_ranges.hpp. Any other bytes can be encoded too, and always decode to themselves, unless an added
/// token is spelt like one that the vocabulary has for bytes: if the letter é was added, it gets the id that stands for
/// the byte 233, as it does by Hugging Face's tokenizers, and decodes to that byte.
class Tokenizer {
 public:
  /// Reads `tokenizer.json` in `directory` or, if there is none, `vocab.json` and `merges.txt`; and, in either case,
  /// what `tokenizer_config.json` and `added_tokens.json` beside them say about added tokens. Padding and truncation
  /// are left to the caller, whatever the files say of them. Throws FileError for what is missing or damaged,
  /// ConfigError for a setting under which the ids would differ.
  static Tokenizer load(const std::filesystem::path& directory);

  /// Copies and moves share the data.
  Tokenizer(const Tokenizer&) = default;
  /// Likewise.
  Tokenizer& operator=(const Tokenizer&) = default;

  /// The ids of `text`. Time and memory are near-linear in its length, whatever it holds.
  std::vector<int> encode(std::string_view text, SpecialTokens special = SpecialTokens::parse) const;

  /// Whether `id` has a token, and with it bytes. A model's vocabulary can have ids that the tokenizer's lacks; for
  /// those, and for any other number, false.
  bool has(int id) const;

  /// The bytes of `ids`, one token after the other; not always well-formed UTF-8.
  /// Throws ArgumentError for an id without a token.
  std::string decode(TokenIds ids) const;

  /// The bytes of one token, valid for as long as the tokenizer or a copy of it lives. Throws ArgumentError for an id
  /// without a token.
  const std::string& tokenBytes(int id) const;

  /// One more than the highest id. A model's vocabulary is larger if its rows are padded.
  int vocabSize() const;

  /// The id of `<|endoftext|>`, if that is a special token.
  std::optional<int> endOfText() const;

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerData> data);

  std::shared_ptr<const detail::TokenizerData> data_;
};

/// Decodes a stream of tokens into text that can be shown at once: a character whose bytes are spread over several
/// tokens comes out whole, with the last of them. Bytes that cannot be part of well-formed UTF-8 are passed on as they
/// are. All that `push` and `finish` return, put together, is what `Tokenizer::decode` returns.
class StreamingDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  explicit StreamingDecoder(const Tokenizer&&) = delete;

  /// The text that is complete with this token; may be empty. Throws ArgumentError for an id without a token, and is
  /// then as it was.
  std::string push(int id);

  /// The at most three bytes that are held back. The decoder is then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string held_back_;
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/text/tokenizer.hpp"
#endif
