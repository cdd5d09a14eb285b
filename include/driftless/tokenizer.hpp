#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/added_tokens.hpp"
#include "driftless/detail/byte_pairs.hpp"
#include "driftless/detail/tokenizer_files.hpp"
#include "driftless/detail/utf8.hpp"
#include "driftless/detail/word_split.hpp"
#include "driftless/error.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// What `encode` makes of the text of a special token, such as `<|endoftext|>`: that token, or the tokens of ordinary
/// text. Text from people who must not end the document is plain text.
enum class SpecialTokens { parse, plainText };

/// GPT-2's byte-level byte-pair encoding. Immutable: any number of threads may share one.
///
/// For well-formed UTF-8 the ids are those of the original (openai/gpt-2, encoder.py), with the Unicode version of
/// detail/unicode_ranges.hpp. Any other bytes can be encoded too, and always decode to themselves.
class Tokenizer {
 public:
  /// Reads `tokenizer.json` in `directory`, or `vocab.json` and `merges.txt` where it is not there; and, in either
  /// case, what `tokenizer_config.json` and `added_tokens.json` beside them say about added tokens. Throws FileError
  /// for what is missing or damaged, ConfigError for a setting under which the ids would differ.
  static Tokenizer load(const std::filesystem::path& directory) {
    return Tokenizer(detail::loadTokenizerFiles(directory));
  }

  /// The ids of `text`. Time and memory are near-linear in its length, whatever it holds.
  std::vector<int> encode(std::string_view text, SpecialTokens special = SpecialTokens::parse) const {
    std::vector<int> ids;
    detail::WordMerger merger(data_.merges, data_.byte_ids);
    const auto encodeWords = [&](std::string_view piece) {
      while (!piece.empty()) {
        const std::size_t size = detail::firstWordSize(piece);
        merger.encode(piece.substr(0, size), ids);
        piece.remove_prefix(size);
      }
    };
    if (special == SpecialTokens::plainText) {
      encodeWords(text);
      return ids;
    }
    const auto take = [&](int id) { ids.push_back(id); };
    data_.verbatim_tokens.cut(
        text, [&](std::string_view piece) { data_.normalized_tokens.cut(piece, encodeWords, take); }, take);
    return ids;
  }

  /// The bytes of `ids`, one token after the other; not always well-formed UTF-8.
  /// Throws ArgumentError for an id without a token.
  std::string decode(std::span<const int> ids) const {
    std::string bytes;
    for (const int id : ids) bytes += tokenBytes(id);
    return bytes;
  }

  /// The bytes of one token. Throws ArgumentError for an id without a token.
  const std::string& tokenBytes(int id) const {
    if (id < 0 || id >= vocabSize()) {
      throw ArgumentError("token id " + std::to_string(id) + ": expected 0 to " + std::to_string(vocabSize() - 1));
    }
    const std::string& bytes = data_.tokens[static_cast<std::size_t>(id)];
    if (bytes.empty()) throw ArgumentError("token id " + std::to_string(id) + ": the vocabulary has no such token");
    return bytes;
  }

  /// One more than the highest id. A model's vocabulary can be larger, where its rows are padded.
  int vocabSize() const { return static_cast<int>(data_.tokens.size()); }

  /// The id of `<|endoftext|>`, where that is a special token.
  std::optional<int> endOfText() const { return data_.end_of_text; }

 private:
  explicit Tokenizer(detail::TokenizerData data) : data_(std::move(data)) {}

  detail::TokenizerData data_;
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
  std::string push(int id) {
    held_back_ += tokenizer_->tokenBytes(id);
    const std::string_view bytes = held_back_;
    std::size_t complete = 0;
    while (complete < bytes.size()) {
      const detail::Utf8Unit unit = detail::readUtf8(bytes.substr(complete));
      if (unit.state == detail::Utf8State::truncated) break;
      complete += unit.size;
    }
    std::string text = held_back_.substr(0, complete);
    held_back_.erase(0, complete);
    return text;
  }

  /// The at most three bytes that are held back. The decoder is then as new.
  std::string finish() { return std::exchange(held_back_, {}); }

 private:
  const Tokenizer* tokenizer_;
  std::string held_back_;
};

}  // namespace driftless::inline DRIFTLESS_ABI
