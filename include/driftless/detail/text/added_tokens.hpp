#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Tokens that are found in the text before it is split into words, such as `<|endoftext|>`. They are the patterns of
/// an Aho-Corasick automaton: to cut a text takes time in proportion to its length, and hardly more for many tokens
/// than for one.
///
/// The automaton reads backwards, so that at each byte it knows the longest token that begins there. Forwards, it would
/// know a token at its end, and would have to look ahead for a longer one from the same place, over the same bytes each
/// time.
class AddedTokens {
 public:
  /// Takes ids by token, none of which may be empty.
  explicit AddedTokens(const std::map<std::string, int>& ids = {}) {
    std::vector<Pattern> patterns;
    patterns.reserve(ids.size());
    for (const auto& [token, id] : ids) patterns.push_back({{token.rbegin(), token.rend()}, id});
    std::sort(patterns.begin(), patterns.end(),
              [](const Pattern& left, const Pattern& right) { return left.text < right.text; });
    std::size_t most_nodes = 2;
    for (const Pattern& pattern : patterns) {
      tokens_.push_back({pattern.text.size(), pattern.id});
      most_nodes += pattern.text.size();
    }
    nodes_.reserve(most_nodes);
    build(patterns);
  }

  /// Cuts `text` at the tokens in it, from left to right, at the longest if several begin at one place: calls
  /// on_text(piece) for what is not empty between them, and on_token(id) for each.
  template <class OnText, class OnToken>
  void cut(std::string_view text, OnText on_text, OnToken on_token) const {
    std::size_t begin = 0;
    const auto flush = [&](std::size_t end) {
      if (end > begin) on_text(text.substr(begin, end - begin));
    };
    const std::vector<Match> last_first = matches(text);
    for (auto match = last_first.rbegin(); match != last_first.rend(); ++match) {
      if (match->begin < begin) continue;  // it overlaps the token before
      flush(match->begin);
      on_token(match->token->id);
      begin = match->begin + match->token->size;
    }
    flush(text.size());
  }

 private:
  /// A token from its last byte to its first.
  struct Pattern {
    std::string text;
    int id;
  };

  struct Token {
    std::size_t size;
    int id;
  };

  /// A node of the trie of all patterns. The nodes are in breadth-first order: the children of one are neighbours, and
  /// end where those of the next begin.
  struct Node {
    std::size_t first_child;
    std::size_t fallback;  ///< the node of the longest proper suffix of this one's text; of the root, itself
    int longest;           ///< index of the longest token that is a suffix of this one's text, or kNoToken
    unsigned char byte;    ///< the last of its text
  };

  struct Match {
    std::size_t begin;
    const Token* token;
  };

  static constexpr std::size_t kRoot = 0;
  static constexpr int kNoToken = -1;

  void build(const std::vector<Pattern>& patterns) {
    /// The patterns that begin with a node's text, which is as long as the node is deep.
    struct Range {
      std::size_t begin, end, depth;
    };
    std::queue<Range> ranges;
    ranges.push({0, patterns.size(), 0});
    nodes_.push_back({0, kRoot, kNoToken, 0});
    for (std::size_t node = 0; node < nodes_.size(); ++node, ranges.pop()) {
      auto [begin, end, depth] = ranges.front();
      const std::size_t fallback = nodes_[node].fallback;
      nodes_[node].first_child = nodes_.size();
      nodes_[node].longest = nodes_[fallback].longest;
      // The shortest goes first.
      if (begin < end && patterns[begin].text.size() == depth) nodes_[node].longest = static_cast<int>(begin++);
      while (begin < end) {
        const char byte = patterns[begin].text[depth];
        std::size_t next = begin + 1;
        while (next < end && patterns[next].text[depth] == byte) ++next;
        const std::size_t child_fallback = node == kRoot ? kRoot : nextNode(fallback, byte);
        nodes_.push_back({0, child_fallback, kNoToken, static_cast<unsigned char>(byte)});
        ranges.push({begin, next, depth + 1});
        begin = next;
      }
    }
    // Where the children of the last node end.
    nodes_.push_back({nodes_.size(), kRoot, kNoToken, 0});
  }

  /// The node of the longest suffix of a node's text and `byte` that is in the trie.
  std::size_t nextNode(std::size_t node, char byte) const {
    const auto wanted = static_cast<unsigned char>(byte);
    for (;; node = nodes_[node].fallback) {
      const Node* const end = nodes_.data() + nodes_[node + 1].first_child;
      const Node* const child =
          std::lower_bound(nodes_.data() + nodes_[node].first_child, end, wanted,
                           [](const Node& each, unsigned char value) { return each.byte < value; });
      if (child != end && child->byte == wanted) return static_cast<std::size_t>(child - nodes_.data());
      if (node == kRoot) return kRoot;
    }
  }

  /// The longest token at each place where one begins, the last place first.
  std::vector<Match> matches(std::string_view text) const {
    std::vector<Match> matches;
    std::size_t node = kRoot;
    for (std::size_t at = text.size(); at-- > 0;) {
      node = nextNode(node, text[at]);
      if (const int longest = nodes_[node].longest; longest != kNoToken)
        matches.push_back({at, &tokens_[static_cast<std::size_t>(longest)]});
    }
    return matches;
  }

  std::vector<Token> tokens_;  ///< in the order of the patterns
  std::vector<Node> nodes_;    ///< and one that only says where the last one's children end
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
