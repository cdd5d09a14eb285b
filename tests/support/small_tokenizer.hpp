#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/safetensors_writer.hpp"

/// Small byte-level tokenizers for tests, written without the library.
namespace driftless::test {

/// How the files of byte-level tokenizers write a byte: GPT-2's `bytes_to_unicode`, in UTF-8.
inline std::string byteCharacter(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  int character = byte;
  if (!printable(byte)) {
    character = 256;
    for (int before = 0; before < byte; ++before) character += printable(before) ? 0 : 1;
  }
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

/// Ids 0 to 255 are the bytes; further tokens follow in the order in which they are given.
struct SmallTokenizer {
  nlohmann::json vocab = nlohmann::json::object();
  std::vector<std::string> merges;

  explicit SmallTokenizer(const std::vector<std::string>& tokens = {}, std::vector<std::string> merge_list = {})
      : merges(std::move(merge_list)) {
    for (int byte = 0; byte < 256; ++byte) vocab[byteCharacter(byte)] = byte;
    for (const std::string& token : tokens) vocab[token] = vocab.size();
  }

  nlohmann::json tokenizerJson() const {
    nlohmann::json json = nlohmann::json::parse(R"({
      "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
      "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
      "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
                "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false}})");
    json["model"]["vocab"] = vocab;
    json["model"]["merges"] = merges;
    return json;
  }

  std::string mergesText(const std::string& line_end = "\n") const {
    std::string text = "#version: 0.2" + line_end;
    for (const std::string& merge : merges) text += merge + line_end;
    return text;
  }

  void writeVocabularyAndMerges(const std::filesystem::path& directory) const {
    writeFile(directory / "vocab.json", vocab.dump());
    writeFile(directory / "merges.txt", mergesText());
  }
};

/// An entry of tokenizer.json's `added_tokens`.
inline nlohmann::json addedToken(const std::string& content, int id, bool normalized = false) {
  return {{"id", id},        {"content", content},       {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", true}};
}

}  // namespace driftless::test
