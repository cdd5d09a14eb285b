#include "driftless/tokenizer.hpp"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"
#include "support/tokenizer_cases.hpp"

using doctest::Contains;
using driftless::ArgumentError;
using driftless::SpecialTokens;
using driftless::Tokenizer;
using namespace driftless::test;

namespace {

using Ids = std::vector<int>;

const std::filesystem::path kModel = std::filesystem::path(DRIFTLESS_FIXTURES_DIR) / "tales-gpt2";

/// The embedded model's tokenizer, from its vocab.json and merges.txt.
Tokenizer loadFromVocabularyAndMerges() {
  const TemporaryDirectory directory;
  for (const char* name : {"vocab.json", "merges.txt"}) {
    std::filesystem::copy_file(kModel / name, directory.path() / name);
  }
  return Tokenizer::load(directory.path());
}

Tokenizer load(const SmallTokenizer& small) {
  const TemporaryDirectory directory;
  small.writeVocabularyAndMerges(directory.path());
  return Tokenizer::load(directory.path());
}

Tokenizer load(const nlohmann::json& tokenizer_json) {
  const TemporaryDirectory directory;
  writeFile(directory.path() / "tokenizer.json", tokenizer_json.dump());
  return Tokenizer::load(directory.path());
}

}  // namespace

TEST_CASE("tokenizer: the embedded model's goldens, from either form of its files") {
  const std::array tokenizers = {Tokenizer::load(kModel), loadFromVocabularyAndMerges()};
  const nlohmann::json goldens = readJson(kModel / "goldens" / "tokenizer.json");
  REQUIRE(goldens.at("cases").size() > 50);
  for (const nlohmann::json& golden : goldens.at("cases")) {
    const TokenizerCase expected = tokenizerCase(golden, "special");
    CAPTURE(expected.text);
    for (const Tokenizer& tokenizer : tokenizers) {
      CHECK(tokenizer.encode(expected.text, expected.special) == expected.ids);
      CHECK(tokenizer.decode(expected.ids) == expected.text);
      CHECK(decodeAsStream(tokenizer, expected.ids) == expected.text);
    }
  }
}

TEST_CASE("tokenizer: the vocabulary can be asked about") {
  const Tokenizer tokenizer = Tokenizer::load(kModel);
  CHECK(tokenizer.vocabSize() == 2048);
  CHECK(tokenizer.endOfText() == 2047);
  CHECK(tokenizer.tokenBytes(0) == "!");
  CHECK(tokenizer.tokenBytes(220) == " ");
  CHECK(tokenizer.tokenBytes(188) == std::string(1, '\0'));
  CHECK(tokenizer.tokenBytes(2047) == "<|endoftext|>");
  CHECK_FALSE(load(SmallTokenizer()).endOfText());
}

TEST_CASE("tokenizer: an id without a token is refused") {
  SmallTokenizer small;
  small.vocab["ab"] = 300;
  const Tokenizer tokenizer = load(small);
  REQUIRE(tokenizer.vocabSize() == 301);
  CHECK(tokenizer.decode(std::array{97, 300}) == "aab");
  for (const int id : {0, 97, 255, 300}) CHECK(tokenizer.has(id));
  for (const int id : {-1, 256, 299, 301, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()})
    CHECK_FALSE(tokenizer.has(id));
  CHECK_THROWS_WITH_AS(tokenizer.tokenBytes(-1), "token id -1: expected 0 to 300", ArgumentError);
  CHECK_THROWS_WITH_AS(tokenizer.tokenBytes(301), Contains("token id 301"), ArgumentError);
  CHECK_THROWS_WITH_AS(tokenizer.decode(std::array{97, 299}), Contains("token id 299"), ArgumentError);
}

TEST_CASE("tokenizer: nothing is encoded as nothing") {
  const Tokenizer tokenizer = Tokenizer::load(kModel);
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.encode("", SpecialTokens::plainText).empty());
  CHECK(tokenizer.decode({}).empty());
}

TEST_CASE("tokenizer: any bytes decode to themselves") {
  const Tokenizer tokenizer = Tokenizer::load(kModel);
  std::string all_bytes(256, '\0');
  std::iota(all_bytes.begin(), all_bytes.end(), '\0');
  std::vector<std::string> texts = {
      all_bytes,
      all_bytes + all_bytes,
      std::string("\0\0\0", 3),
      "lone surrogates \xED\xA0\x80 \xED\xBF\xBF, a pair of them \xED\xA0\xBD\xED\xB8\x80",
      "overlong \xC0\xAF \xC1\xBF \xE0\x80\xAF \xE0\x9F\xBF \xF0\x80\x80\xAF \xF0\x8F\xBF\xBF",
      "beyond U+10FFFF \xF4\x90\x80\x80 \xF5\x80\x80\x80 \xFF\xFE",
      "cut short \xC3",
      "cut short \xE2\x82",
      "cut short \xF0\x9F\x98",
      "cut short inside \xF0\x9F\x98 of a text \xE2\x82",
      "continued without a start \x80\xBF",
      "\xC2\xA0 spaces of several bytes \xE2\x80\x83\xE3\x80\x80\xE2\x80\x83x \xC2",
      "nearly the end <|endoftext| >",
  };
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) texts.push_back(randomBytes(random, random() % 60, i % 2 == 0));
  for (const std::string& text : texts) {
    for (const SpecialTokens special : {SpecialTokens::parse, SpecialTokens::plainText}) {
      const Ids ids = tokenizer.encode(text, special);
      CHECK(tokenizer.decode(ids) == text);
      CHECK(decodeAsStream(tokenizer, ids) == text);
    }
  }
}

TEST_CASE("tokenizer: one long word") {
  const Tokenizer tokenizer = Tokenizer::load(kModel);
  for (const std::size_t size : {std::size_t{100'000}, std::size_t{1'000'000}}) {
    std::string text;
    std::mt19937 random(1);
    while (text.size() < size) text += static_cast<char>('a' + random() % 26);
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    CHECK(tokenizer.encode(std::string(size, ' ')) == Ids(size, 220));
  }
}

TEST_CASE("tokenizer: the lowest rank goes first") {
  const Tokenizer tokenizer = load(SmallTokenizer({"bc", "ab", "abc"}, {"b c", "a b", "ab c"}));
  CHECK(tokenizer.encode("abc") == Ids{97, 256});
  CHECK(tokenizer.encode("ab") == Ids{257});
}

TEST_CASE("tokenizer: a rank's occurrences go from left to right") {
  const Tokenizer tokenizer = load(SmallTokenizer({"aa", "aaaa"}, {"a a", "aa aa"}));
  CHECK(tokenizer.encode("aaa") == Ids{256, 97});
  CHECK(tokenizer.encode("aaaaaaa") == Ids{257, 256, 97});
}

TEST_CASE("tokenizer: a rank is finished before a lower one that it makes possible") {
  const Tokenizer tokenizer = load(SmallTokenizer({"ab", "aba"}, {"ab a", "a b"}));
  CHECK(tokenizer.encode("abab") == Ids{256, 256});
  CHECK(tokenizer.encode("abaa") == Ids{257, 97});
}

TEST_CASE("tokenizer: merges stay inside a word") {
  const Tokenizer tokenizer = load(SmallTokenizer({"ab", "Ġa", "a!"}, {"a b", "Ġ a", "a !"}));
  CHECK(tokenizer.encode("ab a!") == Ids{256, 257, '!'});
}

TEST_CASE("tokenizer: of added tokens, the leftmost and then the longest is taken") {
  nlohmann::json json = SmallTokenizer().tokenizerJson();
  json["added_tokens"] = nlohmann::json::array(
      {addedToken("<a>", 256), addedToken("<a><b>", 257), addedToken("b><c", 258), addedToken("über alles", 259)});
  const Tokenizer tokenizer = load(json);
  CHECK(tokenizer.encode("<a><b><c") == Ids{257, '<', 'c'});
  CHECK(tokenizer.encode("<a><a>b><c") == Ids{256, 256, 258});
  CHECK(tokenizer.encode("xüber alles<a") == Ids{'x', 259, '<', 'a'});
  CHECK(tokenizer.encode("<a>", SpecialTokens::plainText) == Ids{'<', 'a', '>'});
  CHECK(tokenizer.decode(std::array{259, 257}) == "über alles<a><b>");
}

TEST_CASE("tokenizer: added tokens at random get the ids of Hugging Face's tokenizers") {
  const nlohmann::json goldens = readJson(std::filesystem::path(DRIFTLESS_FIXTURES_DIR) / "added-tokens.json");
  const SmallTokenizer small(goldens.at("tokens"), goldens.at("merges"));
  REQUIRE(goldens.at("cases").size() > 20);
  for (const nlohmann::json& golden : goldens.at("cases")) {
    nlohmann::json json = small.tokenizerJson();
    json["added_tokens"] = golden.at("added_tokens");
    CAPTURE(json["added_tokens"].dump());
    const Tokenizer tokenizer = load(json);
    for (const nlohmann::json& each : golden.at("texts")) {
      const auto text = each.at("text").get<std::string>();
      CAPTURE(text);
      CHECK(tokenizer.encode(text) == each.at("ids").get<Ids>());
    }
  }
}

TEST_CASE("tokenizer: added tokens that are not normalized are found before those that are") {
  nlohmann::json json = SmallTokenizer().tokenizerJson();
  json["added_tokens"] = nlohmann::json::array({addedToken("ab", 256, true), addedToken("bc", 257, false)});
  const Tokenizer tokenizer = load(json);
  CHECK(tokenizer.encode("abc ab") == Ids{'a', 257, ' ', 256});
}

TEST_CASE("tokenizer: an added token may be in the vocabulary, spelt as itself") {
  nlohmann::json json = SmallTokenizer({"<a b>"}).tokenizerJson();
  json["added_tokens"] = nlohmann::json::array({addedToken("<a b>", 256)});
  const Tokenizer tokenizer = load(json);
  CHECK(tokenizer.encode("x<a b>") == Ids{'x', 256});
  CHECK(tokenizer.tokenBytes(256) == "<a b>");
}
