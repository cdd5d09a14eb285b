#pragma once

#include <cstddef>
#include <utility>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/text/byte_pairs.hpp"
#include "driftless/detail/text/tokenizer_files.hpp"
#include "driftless/detail/text/utf8.hpp"
#include "driftless/detail/text/word_split.hpp"
#include "driftless/tokenizer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE Tokenizer::Tokenizer(std::shared_ptr<const detail::TokenizerData> data) : data_(std::move(data)) {}

DRIFTLESS_INLINE Tokenizer Tokenizer::load(const std::filesystem::path& directory) {
  return Tokenizer(std::make_shared<const detail::TokenizerData>(detail::loadTokenizerFiles(directory)));
}

DRIFTLESS_INLINE std::vector<int> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<int> ids;
  detail::WordMerger merger(data_->merges, data_->byte_ids);
  const auto encodeWords = [&](std::string_view piece) {
    while (!piece.empty()) {
      const std::size_t size = detail::firstWordSize(piece);
      merger.encode(piece.substr(0, size), ids);
      piece.remove_prefix(size);
    }
  };
  const auto take = [&](int id) { ids.push_back(id); };
  const auto encodeText = [&](std::string_view piece) { data_->normalized_tokens.cut(piece, encodeWords, take); };
  if (special == SpecialTokens::parse)
    data_->verbatim_tokens.cut(text, encodeText, take);
  else
    encodeWords(text);
  return ids;
}

DRIFTLESS_INLINE bool Tokenizer::has(int id) const {
  return id >= 0 && id < vocabSize() && !data_->tokens[static_cast<std::size_t>(id)].empty();
}

DRIFTLESS_INLINE std::string Tokenizer::decode(TokenIds ids) const {
  std::string bytes;
  for (const int id : ids) bytes += tokenBytes(id);
  return bytes;
}

DRIFTLESS_INLINE const std::string& Tokenizer::tokenBytes(int id) const {
  if (id < 0 || id >= vocabSize()) detail::raise<ArgumentError>({"token id ", id, ": expected 0 to ", vocabSize() - 1});
  if (!has(id)) detail::raise<ArgumentError>({"token id ", id, ": the vocabulary has no such token"});
  return data_->tokens[static_cast<std::size_t>(id)];
}

DRIFTLESS_INLINE int Tokenizer::vocabSize() const { return static_cast<int>(data_->tokens.size()); }

DRIFTLESS_INLINE std::optional<int> Tokenizer::endOfText() const { return data_->end_of_text; }

DRIFTLESS_INLINE std::string StreamingDecoder::push(int id) {
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

DRIFTLESS_INLINE std::string StreamingDecoder::finish() { return std::exchange(held_back_, {}); }

}}  // namespace driftless::DRIFTLESS_ABI
