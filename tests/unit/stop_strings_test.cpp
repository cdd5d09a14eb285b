#include "driftless/stop_strings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "driftless/error.hpp"
#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"

using driftless::ArgumentError;
using driftless::StopStrings;
using driftless::Tokenizer;
using namespace driftless::test;

namespace {

constexpr int kWithoutToken = 5000;

/// The bytes have the ids 0 to 255. The last tokens are pieces of UTF-8 characters: "b\xE2" and "\x82\xAC".
const Tokenizer& stopTokenizer() {
  static const Tokenizer tokenizer = [] {
    const TemporaryDirectory directory;
    SmallTokenizer(
        {"aa", "ab", "ba", "aab", "abab", "bbb", "b" + byteCharacter(0xE2), byteCharacter(0x82) + byteCharacter(0xAC)},
        {"a a", "a b", "b a", "aa b", "ab ab"})
        .writeVocabularyAndMerges(directory.path());
    return Tokenizer::load(directory.path());
  }();
  return tokenizer;
}

/// A token on its way into StopStrings.
struct Pushed {
  int id;
  bool passes = false;
};

/// Follows a text by looking at all of it after every token, and checks that StopStrings finds the same.
void checkByLookingAtAll(const std::vector<Pushed>& tokens, const std::vector<std::string>& strings) {
  StopStrings stops(stopTokenizer(), strings);
  std::string text;
  std::vector<int> ids;
  std::vector<std::size_t> ends;
  std::size_t from = 0;  // where the text begins that is looked at
  for (const Pushed& token : tokens) {
    ids.push_back(token.id);
    if (stopTokenizer().has(token.id)) text += stopTokenizer().tokenBytes(token.id);
    ends.push_back(text.size());
    if (token.passes || !stopTokenizer().has(token.id)) from = text.size();
    std::size_t stop = std::string::npos;
    for (const std::string& string : strings) stop = std::min(stop, text.find(string, from));
    std::size_t begins = stop;  // what is complete, or else what may become so
    for (std::size_t at = from; begins == std::string::npos && at < text.size(); ++at)
      for (const std::string& string : strings)
        if (string.starts_with(text.substr(at))) begins = at;
    const auto certain = std::ranges::count_if(ends, [&](std::size_t end) { return end <= begins; });

    bool found = false;
    if (token.passes)
      stops.pass(token.id);
    else
      found = stops.push(token.id);
    REQUIRE(found == (stop != std::string::npos));
    REQUIRE(stops.certain() == static_cast<std::size_t>(certain));
    const std::vector<int> left = stops.ids();
    REQUIRE(std::equal(ids.begin(), ids.begin() + certain, left.begin()));
    if (!found) {
      REQUIRE(left == ids);
      continue;
    }
    std::string bytes;
    for (const int id : left)
      if (stopTokenizer().has(id)) bytes += stopTokenizer().tokenBytes(id);
    REQUIRE(bytes == text.substr(0, stop));
    return;
  }
}

/// Calls with every sequence of tokens that has this text.
void forEachSplit(const std::string& text, std::vector<Pushed>& tokens, const std::function<void()>& function) {
  if (text.empty()) return function();
  for (int id = 0; id < stopTokenizer().vocabSize(); ++id) {
    const std::string& bytes = stopTokenizer().tokenBytes(id);
    if (!text.starts_with(bytes)) continue;
    tokens.push_back({id});
    forEachSplit(text.substr(bytes.size()), tokens, function);
    tokens.pop_back();
  }
}

}  // namespace

TEST_CASE("stop strings: across tokens, and inside one, whose beginning is encoded anew") {
  const Tokenizer& tokenizer = stopTokenizer();
  const int aab = tokenizer.encode("aab").front(), ba = tokenizer.encode("ba").front();
  StopStrings stops(tokenizer, {"bb"});
  CHECK(!stops.push('x'));
  CHECK(stops.certain() == 1);
  CHECK(!stops.push(aab));
  CHECK(stops.certain() == 1);  // its b may be the first of two
  CHECK(stops.push(ba));
  CHECK(stops.certain() == 1);
  CHECK(stops.ids() == std::vector<int>{'x', tokenizer.encode("aa").front()});
  CHECK_THROWS_WITH_AS(stops.push(7), "token id 7: expected none after a stop string", ArgumentError);
  CHECK_THROWS_WITH_AS(stops.pass(7), "token id 7: expected none after a stop string", ArgumentError);
  CHECK(stops.ids() == std::vector<int>{'x', tokenizer.encode("aa").front()});
}

TEST_CASE("stop strings: the one that begins first counts, of those that a token completes") {
  const int abab = stopTokenizer().encode("abab").front();
  StopStrings first(stopTokenizer(), {"ba", "aba"});
  CHECK(first.push(abab));
  CHECK(first.ids().empty());
  StopStrings later(stopTokenizer(), {"ba", "abac"});
  CHECK(later.push(abab));
  CHECK(later.ids() == std::vector<int>{'a'});
}

TEST_CASE("stop strings: what is before one in its token stays plain text, even if it spells a special token") {
  const TemporaryDirectory directory;
  nlohmann::json json = SmallTokenizer({"<s>!"}).tokenizerJson();
  json["added_tokens"] = nlohmann::json::array({addedToken("<s>", 257)});
  writeFile(directory.path() / "tokenizer.json", json.dump());
  StopStrings stops(Tokenizer::load(directory.path()), {"!"});
  CHECK(!stops.push(257));
  CHECK(stops.push(256));
  CHECK(stops.ids() == std::vector<int>{257, '<', 's', '>'});
}

TEST_CASE("stop strings: without any, and with an empty one") {
  StopStrings none(stopTokenizer(), {});
  for (int id = 0; id < 300; ++id) CHECK(!none.push(id));
  CHECK(none.certain() == 300);
  CHECK_THROWS_WITH_AS(StopStrings(stopTokenizer(), {"a", ""}),
                       "stop_strings: expected strings with at least one byte, got an empty one at index 1",
                       ArgumentError);
}

TEST_CASE("stop strings: none begins in a token that is passed, or goes on across an id without a token") {
  StopStrings stops(stopTokenizer(), {"ab"});
  stops.pass('a');
  stops.pass('b');
  CHECK(stops.certain() == 2);
  stops.pass('a');
  CHECK(!stops.push('b'));
  CHECK(!stops.push('a'));
  CHECK(stops.certain() == 4);
  CHECK(!stops.push(kWithoutToken));
  CHECK(!stops.push(-1));
  CHECK(stops.certain() == 7);
  CHECK(!stops.push('b'));
  CHECK(!stops.push('a'));
  CHECK(stops.push('b'));
  CHECK(stops.ids() == std::vector<int>{'a', 'b', 'a', 'b', 'a', kWithoutToken, -1, 'b'});
}

TEST_CASE("stop strings: a copy goes on by itself") {
  StopStrings stops(stopTokenizer(), {"ab"});
  CHECK(!stops.push('a'));
  StopStrings copy = stops;
  CHECK(copy.push('b'));
  CHECK(!stops.push('c'));
  CHECK(stops.ids() == std::vector<int>{'a', 'c'});
}

TEST_CASE("stop strings: every split of a text into tokens") {
  const std::vector<std::vector<std::string>> several = {
      {"aab"}, {"abab"}, {"ba", "aba"}, {"bbb", "b\xE2"}, {"\xAC"}, {"\xE2\x82\xAC", "bb"}, {"aaab", "ab\x82", "baa"}};
  for (const std::string text :
       {"aaab", "abababab", "ababbaab", "bbabbbaa", "aab\xE2\x82\xAC", "abb\xE2\x82\xE2\x82\xAC"})
    for (const std::vector<std::string>& strings : several) {
      std::vector<Pushed> tokens;
      forEachSplit(text, tokens, [&] { checkByLookingAtAll(tokens, strings); });
    }
}

TEST_CASE("stop strings: random tokens and strings") {
  std::mt19937 random(9);
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  const std::string letters = "abab\xE2\x82\xAC";
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::string> strings(static_cast<std::size_t>(below(4)));
    const int used = below(2) == 0 ? 2 : static_cast<int>(letters.size());
    const int longest = 1 + below(9);
    for (std::string& string : strings)
      for (int size = 1 + below(longest); size > 0; --size) string += letters[static_cast<std::size_t>(below(used))];
    std::vector<Pushed> tokens(static_cast<std::size_t>(below(40)));
    const bool is_odd = below(3) == 0;
    for (Pushed& token : tokens) {
      token.id = below(2) == 0 ? 256 + below(stopTokenizer().vocabSize() - 256)
                               : static_cast<unsigned char>(letters[static_cast<std::size_t>(below(used))]);
      if (is_odd && below(8) == 0) token.id = kWithoutToken;
      token.passes = is_odd && below(8) == 0;
    }
    checkByLookingAtAll(tokens, strings);
  }
}
