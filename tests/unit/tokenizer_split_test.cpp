#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "driftless/detail/text/word_split.hpp"

namespace {

using Words = std::vector<std::string>;

Words split(std::string_view text) {
  Words words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, driftless::detail::firstWordSize(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

}  // namespace

TEST_CASE("word split: letters, numbers and the rest part company") {
  CHECK(split("abc123!?x") == Words{"abc", "123", "!?", "x"});
  CHECK(split("naïve Größe 北京") == Words{"naïve", " Größe", " 北京"});
  CHECK(split("x²½Ⅷ٣y") == Words{"x", "²½Ⅷ٣", "y"});
  CHECK(split("e\u0301") == Words{"e", "\u0301"});
  CHECK(split("🙂🙂a") == Words{"🙂🙂", "a"});
}

TEST_CASE("word split: one space goes with the word after it") {
  CHECK(split("a b") == Words{"a", " b"});
  CHECK(split(" 1 !") == Words{" 1", " !"});
  CHECK(split("a\tb") == Words{"a", "\t", "b"});
  CHECK(split("a\u00A0b") == Words{"a", "\u00A0", "b"});
}

TEST_CASE("word split: a run of spaces leaves its last to what follows") {
  CHECK(split("a   b") == Words{"a", "  ", " b"});
  CHECK(split("a \n\n b") == Words{"a", " \n\n", " b"});
  CHECK(split("a\n\nb") == Words{"a", "\n", "\n", "b"});
  CHECK(split("a\u2003\u3000b") == Words{"a", "\u2003", "\u3000", "b"});
  CHECK(split("a \u3000") == Words{"a", " \u3000"});
  CHECK(split("   ") == Words{"   "});
  CHECK(split("a ") == Words{"a", " "});
  CHECK(split(" ") == Words{" "});
}

TEST_CASE("word split: White_Space is space, and nothing else is") {
  for (const std::string space : {"\t", "\n", "\v", "\f", "\r", " ", "\u0085", "\u00A0", "\u1680", "\u2000", "\u200A",
                                  "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
    CHECK(split("a" + space + space + "b").size() == (space == " " ? 3 : 4));
  }
  for (const std::string other : {"\x1C", "\x1F", "\u180E", "\u200B", "\u2060", "\uFEFF"}) {
    CHECK(split("a" + other + other + "b") == Words{"a", other + other, "b"});
  }
}

TEST_CASE("word split: contractions are words, in lower case and where a word begins") {
  CHECK(split("it's we're I've I'm you'll he'd don't") ==
        Words{"it", "'s", " we", "'re", " I", "'ve", " I", "'m", " you", "'ll", " he", "'d", " don", "'t"});
  CHECK(split("IT'S") == Words{"IT", "'", "S"});
  CHECK(split("it’s") == Words{"it", "’", "s"});
  CHECK(split("'sir") == Words{"'s", "ir"});
  CHECK(split(" 's") == Words{" '", "s"});
  CHECK(split("!'s") == Words{"!'", "s"});
  CHECK(split("''s") == Words{"''", "s"});
  CHECK(split("'s's") == Words{"'s", "'s"});
  CHECK(split("'r'v'l'") == Words{"'", "r", "'", "v", "'", "l", "'"});
}

TEST_CASE("word split: bytes outside of well-formed UTF-8 are of no class") {
  CHECK(split("a\xFF\x80\xC3") == Words{"a", "\xFF\x80\xC3"});
  CHECK(split(" \xED\xA0\x80z") == Words{" \xED\xA0\x80", "z"});
  CHECK(split("a\xC1\x81"
              "b") == Words{"a", "\xC1\x81", "b"});
  CHECK(split("\xE2\x80") == Words{"\xE2\x80"});
}
