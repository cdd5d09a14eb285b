#include "driftless/detail/text/added_tokens.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using driftless::detail::AddedTokens;

namespace {

using IdsByToken = std::map<std::string, int>;

/// The text's pieces, and the ids of tokens in angle brackets.
std::string cut(const AddedTokens& tokens, std::string_view text) {
  std::string pieces;
  tokens.cut(
      text, [&](std::string_view piece) { pieces += "[" + std::string(piece) + "]"; },
      [&](int id) { pieces += "<" + std::to_string(id) + ">"; });
  return pieces;
}

/// The same by comparing every token at every place.
std::string cutByComparing(const IdsByToken& ids, std::string_view text) {
  std::string pieces, piece;
  const auto flush = [&] {
    if (!piece.empty()) pieces += "[" + piece + "]";
    piece.clear();
  };
  while (!text.empty()) {
    std::size_t longest = 0;
    for (const auto& [token, id] : ids)
      if (token.size() > longest && text.starts_with(token)) longest = token.size();
    if (longest == 0) {
      piece += text[0];
    } else {
      flush();
      pieces += "<" + std::to_string(ids.at(std::string(text.substr(0, longest)))) + ">";
    }
    text.remove_prefix(longest == 0 ? 1 : longest);
  }
  flush();
  return pieces;
}

}  // namespace

TEST_CASE("added tokens: text is cut where comparing every token at every place would cut it") {
  std::mt19937 random(1);
  const auto randomText = [&](std::size_t most) {
    std::string text;
    for (auto size = random() % most + 1; size > 0; --size) text += std::string_view("aaab\xC3\xA9\0", 7)[random() % 7];
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    IdsByToken ids;
    for (auto count = random() % 12; count > 0; --count) ids.emplace(randomText(8), static_cast<int>(random() % 100));
    const AddedTokens tokens(ids);
    for (int k = 0; k < 5; ++k) {
      const std::string text = randomText(60);
      CHECK(cut(tokens, text) == cutByComparing(ids, text));
    }
  }
  CHECK(cut(AddedTokens(), "text") == "[text]");
  CHECK(cut(AddedTokens({{"a", 1}}), "").empty());
}

// Each of these takes a fraction of a second, or hours if the time grows with the product of the two sizes.

TEST_CASE("added tokens: very many may begin at every byte of a long text") {
  IdsByToken ids;
  for (int id = 0; id < 200'000; ++id) ids.emplace("e" + std::to_string(id), id);
  const AddedTokens tokens(ids);
  CHECK(cut(tokens, std::string(5'000'000, 'e') + "199999") == "[" + std::string(4'999'999, 'e') + "]<199999>");
}

TEST_CASE("added tokens: a long one may nearly match at every byte of a long text") {
  const std::string almost(500'000, 'e');
  const AddedTokens tokens({{"e", 1}, {almost + "!", 2}, {"!" + almost, 3}});
  std::string expected;
  for (int i = 0; i < 5'000'000; ++i) expected += "<1>";
  CHECK(cut(tokens, std::string(5'000'000, 'e')) == expected);
}
