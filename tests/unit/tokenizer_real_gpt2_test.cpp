#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "driftless/tokenizer.hpp"
#include "support/sha256.hpp"
#include "support/temporary_directory.hpp"
#include "support/tokenizer_cases.hpp"

using driftless::Tokenizer;
using namespace driftless::test;

namespace {

std::filesystem::path sharedDirectory() {
  if (const char* directory = std::getenv("DRIFTLESS_SHARED_DIR")) return directory;
#ifdef DRIFTLESS_DEFAULT_SHARED_DIR
  return DRIFTLESS_DEFAULT_SHARED_DIR;
#else
  return {};
#endif
}

/// Where the original GPT-2's tokenizer and its test vectors lie; nothing, and a word about it, where they do not.
std::optional<std::filesystem::path> realGpt2() {
  const std::filesystem::path directory = sharedDirectory();
  for (const char* needed : {"gpt2-tokenizer", "goldens/tokenizer.json", "goldens/tokenizer-stress.json"}) {
    if (std::filesystem::exists(directory / needed)) continue;
    const std::string reason = "the original GPT-2's tokenizer is not tested: there is no " +
                               (directory / needed).string() +
                               "; DRIFTLESS_SHARED_DIR may name a directory that has gpt2-tokenizer/ and goldens/";
    std::cout << "[skipped] " << reason << std::endl;
    MESSAGE(reason);
    return std::nullopt;
  }
  return directory;
}

/// The ids as little-endian 32-bit words, hashed.
std::string hashOf(const std::vector<int>& ids) {
  std::string bytes;
  for (const int id : ids) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>((static_cast<std::uint32_t>(id) >> shift) & 0xFF);
    }
  }
  return sha256(bytes);
}

/// A stress case's text: `c*10000`, perhaps after `" "+`, perhaps before `+"\n"`.
std::string stressText(const nlohmann::json& stress) {
  const auto formula = stress.at("text").get<std::string>();
  const auto repeated = stress.at("char").get<std::string>();
  REQUIRE(formula.find("c*10000") != std::string::npos);
  std::string text = formula.starts_with(R"(" "+)") ? " " : "";
  for (int i = 0; i < 10'000; ++i) text += repeated;
  return text + (formula.ends_with(R"(+"\n")") ? "\n" : "");
}

}  // namespace

TEST_SUITE("real-gpt2-tokenizer") {
  TEST_CASE("real GPT-2 tokenizer: published ids") {
    const auto directory = realGpt2();
    if (!directory) return;
    const TemporaryDirectory separate_files;
    for (const char* name : {"vocab.json", "merges.txt"}) {
      std::filesystem::copy_file(*directory / "gpt2-tokenizer" / name, separate_files.path() / name);
    }
    const nlohmann::json goldens = readJson(*directory / "goldens" / "tokenizer.json");
    REQUIRE(goldens.size() > 500);
    for (const auto& files : {*directory / "gpt2-tokenizer", separate_files.path()}) {
      const Tokenizer tokenizer = Tokenizer::load(files);
      CHECK(tokenizer.vocabSize() == 50257);
      CHECK(tokenizer.endOfText() == 50256);
      for (const nlohmann::json& golden : goldens) {
        const TokenizerCase expected = tokenizerCase(golden, "allow_special");
        CAPTURE(golden.at("source").get<std::string>());
        CAPTURE(expected.text);
        CHECK(tokenizer.encode(expected.text, expected.special) == expected.ids);
        CHECK(tokenizer.decode(expected.ids) == expected.text);
        CHECK(decodeAsStream(tokenizer, expected.ids) == expected.text);
      }
    }
  }

  TEST_CASE("real GPT-2 tokenizer: ten thousand times the same") {
    const auto directory = realGpt2();
    if (!directory) return;
    REQUIRE(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const Tokenizer tokenizer = Tokenizer::load(*directory / "gpt2-tokenizer");
    const nlohmann::json goldens = readJson(*directory / "goldens" / "tokenizer-stress.json");
    REQUIRE(goldens.at("stress").size() > 10);
    for (const nlohmann::json& stress : goldens.at("stress")) {
      CAPTURE(stress.at("char").get<std::string>());
      CAPTURE(stress.at("text").get<std::string>());
      const std::string text = stressText(stress);
      const std::vector<int> ids = tokenizer.encode(text);
      CHECK(ids.size() == stress.at("n_tokens").get<std::size_t>());
      CHECK(hashOf(ids) == stress.at("sha256_u32le").get<std::string>());
      CHECK(tokenizer.decode(ids) == text);
    }
  }

  TEST_CASE("real GPT-2 tokenizer: a word of a hundred thousand letters") {
    const auto directory = realGpt2();
    if (!directory) return;
    const Tokenizer tokenizer = Tokenizer::load(*directory / "gpt2-tokenizer");
    CHECK(tokenizer.encode(std::string(100'000, 'a')) == std::vector<int>(25'000, 24794));
  }
}
