#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "driftless/tokenizer.hpp"

namespace driftless::test {

inline nlohmann::json readJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return nlohmann::json::parse(file);
}

/// A text, the ids that an independent tokenizer gave it, and how it took special tokens.
struct TokenizerCase {
  std::string text;
  std::vector<int> ids;
  SpecialTokens special;
};

inline TokenizerCase tokenizerCase(const nlohmann::json& json, const char* special_key) {
  return {json.at("text").get<std::string>(), json.at("ids").get<std::vector<int>>(),
          json.at(special_key).get<bool>() ? SpecialTokens::parse : SpecialTokens::plainText};
}

/// What a streaming decoder gives out for the ids, put together.
inline std::string decodeAsStream(const Tokenizer& tokenizer, std::span<const int> ids) {
  StreamingDecoder decoder(tokenizer);
  std::string text;
  for (const int id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

/// Bytes at random, the same on every platform: of any value, or biased to lead and continuation bytes of UTF-8.
inline std::string randomBytes(std::mt19937& random, std::size_t size, bool biased) {
  constexpr unsigned char kTroublesome[] = {0x20, 0x27, 0x73, 0x80, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0,
                                            0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0x8F, 0x9F};
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) {
    const auto number = random();
    bytes += static_cast<char>(biased ? kTroublesome[number % std::size(kTroublesome)] : number & 0xFF);
  }
  return bytes;
}

}  // namespace driftless::test
