#include <doctest/doctest.h>

#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "driftless/tokenizer.hpp"
#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"
#include "support/tokenizer_cases.hpp"

using driftless::StreamingDecoder;
using driftless::Tokenizer;
using namespace driftless::test;

static_assert(!std::is_constructible_v<StreamingDecoder, Tokenizer>, "a temporary tokenizer would dangle");

namespace {

using Pieces = std::vector<std::string>;

/// Has the ids 0 to 255 for the bytes, 256 for "a\xE2" and 257 for "\x82\xAC!".
Tokenizer byteTokenizer() {
  const TemporaryDirectory directory;
  SmallTokenizer({"a" + byteCharacter(0xE2), byteCharacter(0x82) + byteCharacter(0xAC) + "!"})
      .writeVocabularyAndMerges(directory.path());
  return Tokenizer::load(directory.path());
}

/// What each id brings out, and at the end what was held back.
Pieces stream(const std::vector<int>& ids) {
  const Tokenizer tokenizer = byteTokenizer();
  StreamingDecoder decoder(tokenizer);
  Pieces pieces;
  for (const int id : ids) pieces.push_back(decoder.push(id));
  pieces.push_back(decoder.finish());
  return pieces;
}

}  // namespace

TEST_CASE("streaming decoder: a character comes out whole") {
  CHECK(stream({'a', 'b'}) == Pieces{"a", "b", ""});
  CHECK(stream({0xC3, 0xA9}) == Pieces{"", "é", ""});
  CHECK(stream({0xE2, 0x82, 0xAC}) == Pieces{"", "", "€", ""});
  CHECK(stream({0xF0, 0x9F, 0x99, 0x82}) == Pieces{"", "", "", "🙂", ""});
  CHECK(stream({256, 257, 'x'}) == Pieces{"a", "€!", "x", ""});
}

TEST_CASE("streaming decoder: a byte that cannot become valid is passed on at once") {
  for (const int byte : {0x80, 0xBF, 0xC0, 0xC1, 0xF5, 0xFF}) {
    CHECK(stream({byte, 'x'}) == Pieces{std::string(1, static_cast<char>(byte)), "x", ""});
  }
  CHECK(stream({0xE2, 'x'}) == Pieces{"", "\xE2x", ""});
  CHECK(stream({0xE2, 0x82, 'x'}) == Pieces{"", "", "\xE2\x82x", ""});
  CHECK(stream({0xED, 0xA0, 0x80}) == Pieces{"", "\xED\xA0", "\x80", ""});
  CHECK(stream({0xE0, 0x9F}) == Pieces{"", "\xE0\x9F", ""});
  CHECK(stream({0xF0, 0x8F}) == Pieces{"", "\xF0\x8F", ""});
  CHECK(stream({0xF4, 0x90}) == Pieces{"", "\xF4\x90", ""});
}

TEST_CASE("streaming decoder: bad bytes do not take the next character with them") {
  CHECK(stream({0xF0, 0x9F, 0xC3, 0xA9}) == Pieces{"", "", "\xF0\x9F", "é", ""});
  CHECK(stream({0xE2, 0xE2, 0x82, 0xAC}) == Pieces{"", "\xE2", "", "€", ""});
}

TEST_CASE("streaming decoder: the end gives out what is held back, once") {
  const Tokenizer tokenizer = byteTokenizer();
  StreamingDecoder decoder(tokenizer);
  CHECK(decoder.push(0xF0).empty());
  CHECK(decoder.push(0x9F).empty());
  CHECK(decoder.finish() == "\xF0\x9F");
  CHECK(decoder.finish().empty());
  CHECK(decoder.push('a') == "a");
}

TEST_CASE("streaming decoder: an id without a token changes nothing") {
  const Tokenizer tokenizer = byteTokenizer();
  StreamingDecoder decoder(tokenizer);
  CHECK(decoder.push(0xC3).empty());
  CHECK_THROWS_AS(decoder.push(258), driftless::ArgumentError);
  CHECK(decoder.push(0xA9) == "é");
}

TEST_CASE("streaming decoder: any tokens give the bytes of the whole, at most three of them late") {
  const Tokenizer tokenizer = byteTokenizer();
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    StreamingDecoder decoder(tokenizer);
    std::string sent, received;
    for (const char byte : randomBytes(random, 40, i % 2 == 0)) {
      const int id = static_cast<unsigned char>(byte);
      sent += tokenizer.tokenBytes(id);
      received += decoder.push(id);
      REQUIRE(received == sent.substr(0, received.size()));
      REQUIRE(sent.size() - received.size() <= 3);
    }
    CHECK(received + decoder.finish() == sent);
  }
}
