#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Tokens that are found in the text before it is split into words, such as `<|endoftext|>`.
class AddedTokens {
 public:
  /// `content` must not be empty, and must not be among the tokens yet.
  void insert(std::string content, int id) {
    std::vector<Token>& tokens = by_first_byte_[static_cast<unsigned char>(content.front())];
    const auto shorter = std::find_if(tokens.begin(), tokens.end(),
                                      [&](const Token& token) { return token.content.size() < content.size(); });
    tokens.insert(shorter, {std::move(content), id});
  }

  /// Cuts `text` at the tokens in it, from left to right, at the longest if several begin at one place: calls
  /// on_text(piece) for what is not empty between them, and on_token(id) for each.
  template <class OnText, class OnToken>
  void cut(std::string_view text, OnText on_text, OnToken on_token) const {
    std::size_t begin = 0;
    const auto flush = [&](std::size_t end) {
      if (end > begin) on_text(text.substr(begin, end - begin));
    };
    for (std::size_t at = 0; at < text.size();) {
      const Token* token = findAt(text.substr(at));
      if (token == nullptr) {
        ++at;
        continue;
      }
      flush(at);
      on_token(token->id);
      at += token->content.size();
      begin = at;
    }
    flush(text.size());
  }

 private:
  struct Token {
    std::string content;
    int id;
  };

  const Token* findAt(std::string_view text) const {
    for (const Token& token : by_first_byte_[static_cast<unsigned char>(text.front())]) {
      if (text.starts_with(token.content)) return &token;
    }
    return nullptr;
  }

  std::array<std::vector<Token>, 256> by_first_byte_;  ///< the longest first
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
