#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/added_tokens.hpp"
#include "driftless/detail/byte_pairs.hpp"
#include "driftless/detail/file_mapping.hpp"
#include "driftless/detail/json_text.hpp"
#include "driftless/detail/utf8.hpp"
#include "driftless/error.hpp"

namespace driftless::inline DRIFTLESS_ABI::detail {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

/// Ids must lie below: beyond any vocabulary in use, and small enough for a table by id.
inline constexpr int kMaxVocabularySize = 1 << 20;

/// What the files of a tokenizer say.
struct TokenizerData {
  std::vector<std::string> tokens;  ///< bytes by id; empty for an id without a token
  std::array<int, 256> byte_ids{};  ///< the token of every single byte
  MergeTable merges;
  AddedTokens verbatim_tokens;    ///< looked for first
  AddedTokens normalized_tokens;  ///< looked for between those
  std::optional<int> end_of_text;
};

/// Whether anything has this name: what cannot be looked at counts, so that opening it reports the reason.
inline bool isThere(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

// ---- JSON ----

/// A value in a JSON file, with its place for error messages.
struct JsonPlace {
  const nlohmann::json& value;
  std::string file;
  std::string key;

  std::string name() const { return key.empty() ? file : file + ": key '" + key + "'"; }

  /// A key that the format knows. Null where the object does not have it.
  JsonPlace operator[](const std::string& child) const {
    static const nlohmann::json null;
    const auto found = value.find(child);
    return {found == value.end() ? null : *found, file, key.empty() ? child : key + "." + child};
  }

  /// A key that the object has, and that the file made up.
  JsonPlace entry(const std::string& child) const {
    return {value.at(child), file, key + "[" + quotedName(child) + "]"};
  }

  JsonPlace operator[](std::size_t child) const {
    return {value[child], file, key + "[" + std::to_string(child) + "]"};
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw FileError(name() + ": expected " + expected + ", found " + shown(value));
  }

  const JsonPlace& object() const {
    if (!value.is_object()) fail("an object");
    return *this;
  }

  const JsonPlace& array() const {
    if (!value.is_array()) fail("an array");
    return *this;
  }

  const std::string& string() const {
    if (!value.is_string()) fail("a string");
    return value.get_ref<const std::string&>();
  }
};

inline nlohmann::json readTokenizerJson(const std::filesystem::path& path) {
  constexpr int kMaxDepth = 32;
  return parseJson(FileMapping(path).text(), path.string(), kMaxDepth);
}

/// The keys of an object: an array of the values under which the ids are those that this library computes (an absent
/// key is null), or `true` where any value is. In the order in which they are looked at.
using KeyRules = nlohmann::ordered_json;

inline void requireKnownValues(const JsonPlace& object, const KeyRules& rules) {
  object.object();
  for (const auto& [key, rule] : rules.items()) {
    if (!rule.is_array()) continue;
    const nlohmann::json permitted = rule;
    const JsonPlace found = object[key];
    if (std::find(permitted.begin(), permitted.end(), found.value) != permitted.end()) continue;
    throw ConfigError(found.name() + ": expected one of " + permitted.dump() + ", found " + shown(found.value));
  }
}

inline void requireKnownKeys(const JsonPlace& object, const KeyRules& rules) {
  for (const auto& [key, value] : object.object().value.items()) {
    if (rules.contains(key)) continue;
    throw ConfigError(object.name() + ": the key " + quotedName(key) + " is not supported, it may change the ids");
  }
}

inline void requireSupported(const JsonPlace& object, const KeyRules& rules) {
  requireKnownValues(object, rules);
  requireKnownKeys(object, rules);
}

// ---- The vocabulary ----

/// The byte that a character stands for in the files of byte-level tokenizers: printable Latin-1 characters for
/// themselves, U+0100 and those after it for the other bytes in order. Nothing for any other character.
inline std::optional<char> byteOfCharacter(char32_t character) {
  const auto printable = [](char32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
  };
  const auto toChar = [](char32_t byte) { return static_cast<char>(static_cast<unsigned char>(byte)); };
  if (character < 0x100) return printable(character) ? std::optional(toChar(character)) : std::nullopt;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 0x100; ++byte) {
    if (!printable(byte) && next++ == character) return toChar(byte);
  }
  return std::nullopt;
}

/// The bytes that a token stands for, as the files write it; nothing where it is not byte-level.
inline std::optional<std::string> bytesOfToken(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Unit unit = readUtf8(token);
    const auto byte = unit.state == Utf8State::valid ? byteOfCharacter(unit.code_point) : std::nullopt;
    if (!byte) return std::nullopt;
    bytes += *byte;
    token.remove_prefix(unit.size);
  }
  return bytes;
}

inline int requireId(std::int64_t id, const std::string& where, const std::string& found) {
  if (id >= 0 && id < kMaxVocabularySize) return static_cast<int>(id);
  throw FileError(where + ": expected a token id from 0 to " + std::to_string(kMaxVocabularySize - 1) + ", found " +
                  shortened(found));
}

inline int readId(const JsonPlace& place) {
  const bool integer = place.value.is_number_integer();
  return requireId(integer ? place.value.get<std::int64_t>() : -1, place.name(), place.value.dump());
}

struct AddedToken {
  int id;
  bool normalized;
};

/// By their text. One token may stand in several files; the first decides.
using AddedTokenList = std::map<std::string, AddedToken, std::less<>>;

inline void addToList(AddedTokenList& list, const JsonPlace& where, const std::string& content, AddedToken token) {
  if (content.empty()) throw FileError(where.name() + ": expected a token, found an empty one");
  const auto [known, inserted] = list.try_emplace(content, token);
  if (known->second.id == token.id) return;
  throw FileError(where.name() + ": the added token " + quotedName(content) + " has two ids, " +
                  std::to_string(known->second.id) + " and " + std::to_string(token.id));
}

/// One entry of tokenizer.json's `added_tokens` or of tokenizer_config.json's `added_tokens_decoder`.
inline void readAddedToken(AddedTokenList& list, const JsonPlace& entry, int id) {
  static const KeyRules rules = KeyRules::parse(R"({
    "id": true, "content": true, "normalized": [true, false], "special": true, "__type": true,
    "single_word": [null, false], "lstrip": [null, false], "rstrip": [null, false]})");
  requireSupported(entry, rules);
  addToList(list, entry, entry["content"].string(), {id, entry["normalized"].value.get<bool>()});
}

inline int parseId(const std::string& text, const std::string& where) {
  std::int64_t id = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, id);
  return requireId(error == std::errc() && stop == end ? id : -1, where, quotedName(text));
}

/// Tokens that were added beside the tokenizer's main files, by transformers' `save_pretrained`.
inline void readAddedTokensBeside(AddedTokenList& list, const std::filesystem::path& directory) {
  if (const auto path = directory / "tokenizer_config.json"; isThere(path)) {
    const nlohmann::json json = readTokenizerJson(path);
    const JsonPlace root{json, path.string(), ""};
    static const KeyRules rules = KeyRules::parse(R"({
      "add_prefix_space": [null, false], "add_bos_token": [null, false], "add_eos_token": [null, false],
      "split_special_tokens": [null, false]})");
    requireKnownValues(root, rules);
    if (const JsonPlace added = root["added_tokens_decoder"]; !added.value.is_null()) {
      for (const auto& [id, entry] : added.object().value.items()) {
        readAddedToken(list, added.entry(id), parseId(id, added.entry(id).name()));
      }
    }
  }
  if (const auto path = directory / "added_tokens.json"; isThere(path)) {
    const nlohmann::json json = readTokenizerJson(path);
    const JsonPlace root{json, path.string(), ""};
    for (const auto& [content, id] : root.object().value.items()) {
      addToList(list, root, content, {readId(root.entry(content)), false});
    }
  }
}

/// Token ids by the text that stands for them in the files.
using TokenIds = std::unordered_map<std::string, int>;

inline void setToken(TokenizerData& data, int id, std::string bytes, const std::string& where) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= data.tokens.size()) data.tokens.resize(index + 1);
  if (!data.tokens[index].empty()) throw FileError(where + ": the id " + std::to_string(id) + " has a token already");
  data.tokens[index] = std::move(bytes);
}

inline TokenIds readVocabulary(TokenizerData& data, const JsonPlace& vocabulary, const AddedTokenList& added) {
  TokenIds ids;
  data.byte_ids.fill(-1);
  for (const auto& [token, value] : vocabulary.object().value.items()) {
    const JsonPlace place = vocabulary.entry(token);
    const int id = readId(place);
    const std::optional<std::string> byte_level = bytesOfToken(token);
    const std::optional<std::string> bytes = added.contains(token) ? token : byte_level;
    if (!bytes || bytes->empty()) throw FileError(place.name() + ": expected a token of byte-level characters");
    if (bytes == byte_level && bytes->size() == 1) data.byte_ids[static_cast<unsigned char>(bytes->front())] = id;
    setToken(data, id, *bytes, place.name());
    ids.emplace(token, id);
  }
  for (std::size_t byte = 0; byte < data.byte_ids.size(); ++byte) {
    if (data.byte_ids[byte] >= 0) continue;
    throw FileError(vocabulary.name() + ": expected a token for every byte, found none for byte " +
                    std::to_string(byte));
  }
  return ids;
}

/// Gives the added tokens to the tokenizer, those that the vocabulary does not hold as new tokens.
inline void takeAddedTokens(TokenizerData& data, const TokenIds& ids, const AddedTokenList& added,
                            const std::string& file) {
  for (const auto& [content, token] : added) {
    const std::string where = file + ": added token " + quotedName(content);
    if (const auto known = ids.find(content); known == ids.end()) {
      setToken(data, token.id, content, where);
    } else if (known->second != token.id) {
      throw FileError(where + ": expected its id in the vocabulary, " + std::to_string(known->second) + ", found " +
                      std::to_string(token.id));
    }
    (token.normalized ? data.normalized_tokens : data.verbatim_tokens).insert(content, token.id);
    if (content == kEndOfText) data.end_of_text = token.id;
  }
}

// ---- The merges ----

/// Adds merges in the order of their ranks.
class MergeReader {
 public:
  MergeReader(TokenizerData& data, const TokenIds& ids) : data_(data), ids_(ids) {}

  void add(const std::string& left, const std::string& right, const std::string& where) {
    const int left_id = idOf(left, where);
    const int right_id = idOf(right, where);
    const int merged_id = idOf(left + right, where);
    // It differs where an added token is spelt like a byte-level one.
    if (bytesOf(left_id) + bytesOf(right_id) != bytesOf(merged_id)) {
      throw FileError(where + ": the token " + quotedName(left + right) + " has other bytes than its parts");
    }
    if (!data_.merges.insert(left_id, right_id, {next_rank_, merged_id})) {
      throw FileError(where + ": the merge " + quotedName(left + " " + right) + " stands twice");
    }
    ++next_rank_;
  }

  /// A merge as one string, its parts separated by a space.
  void add(std::string_view merge, const std::string& where) {
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      throw FileError(where + ": expected two tokens separated by a space, found " + quotedName(merge));
    }
    add(std::string(merge.substr(0, space)), std::string(merge.substr(space + 1)), where);
  }

 private:
  int idOf(const std::string& token, const std::string& where) const {
    if (const auto found = ids_.find(token); found != ids_.end()) return found->second;
    throw FileError(where + ": the token " + quotedName(token) + " is not in the vocabulary");
  }

  const std::string& bytesOf(int id) const { return data_.tokens[static_cast<std::size_t>(id)]; }

  TokenizerData& data_;
  const TokenIds& ids_;
  std::size_t next_rank_ = 0;
};

inline void readMergesArray(TokenizerData& data, const TokenIds& ids, const JsonPlace& merges) {
  MergeReader reader(data, ids);
  for (std::size_t i = 0; i < merges.array().value.size(); ++i) {
    const JsonPlace merge = merges[i];
    if (merge.value.is_string()) {
      reader.add(merge.string(), merge.name());
    } else if (merge.value.is_array() && merge.value.size() == 2) {
      reader.add(merge[std::size_t{0}].string(), merge[std::size_t{1}].string(), merge.name());
    } else {
      merge.fail("a merge (\"a b\" or [\"a\", \"b\"])");
    }
  }
}

/// merges.txt: one merge a line, after a line that begins with `#version`. No other line is a comment: "# #" is a
/// merge.
inline void readMergesText(TokenizerData& data, const TokenIds& ids, const std::filesystem::path& path) {
  const FileMapping file(path);
  MergeReader reader(data, ids);
  std::string_view rest = file.text();
  for (std::size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix((std::min)(rest.size(), line.size() + 1));
    // No token has a raw carriage return: it comes from a checkout with Windows line ends.
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    reader.add(line, path.string() + ": line " + std::to_string(number));
  }
}

// ---- The files ----

inline TokenizerData loadTokenizerJson(const std::filesystem::path& path) {
  const nlohmann::json json = readTokenizerJson(path);
  const JsonPlace root{json, path.string(), ""};
  static const KeyRules root_rules = KeyRules::parse(R"({
    "version": ["1.0"], "truncation": [null], "padding": [null], "normalizer": [null],
    "added_tokens": true, "pre_tokenizer": true, "post_processor": true, "decoder": true, "model": true})");
  static const KeyRules pre_tokenizer_rules = KeyRules::parse(R"({
    "type": ["ByteLevel"], "add_prefix_space": [false], "use_regex": [null, true], "trim_offsets": true})");
  // Behind the model, the keys of ByteLevel touch offsets only, and no ids.
  static const KeyRules byte_level_rules = KeyRules::parse(R"({
    "type": ["ByteLevel"], "add_prefix_space": true, "use_regex": true, "trim_offsets": true})");
  // With a token for every byte, nothing is ever unknown.
  static const KeyRules model_rules = KeyRules::parse(R"({
    "type": [null, "BPE"], "dropout": [null, 0], "continuing_subword_prefix": [null, ""],
    "end_of_word_suffix": [null, ""], "byte_fallback": [null, false], "ignore_merges": [null, false],
    "unk_token": true, "fuse_unk": true, "vocab": true, "merges": true})");
  requireSupported(root, root_rules);
  requireSupported(root["pre_tokenizer"], pre_tokenizer_rules);
  requireSupported(root["decoder"], byte_level_rules);
  if (!root["post_processor"].value.is_null()) requireSupported(root["post_processor"], byte_level_rules);
  const JsonPlace model = root["model"];
  requireSupported(model, model_rules);

  AddedTokenList added;
  if (const JsonPlace entries = root["added_tokens"]; !entries.value.is_null()) {
    for (std::size_t i = 0; i < entries.array().value.size(); ++i) {
      readAddedToken(added, entries[i], readId(entries[i].object()["id"]));
    }
  }
  readAddedTokensBeside(added, path.parent_path());

  TokenizerData data;
  const TokenIds ids = readVocabulary(data, model["vocab"], added);
  takeAddedTokens(data, ids, added, path.string());
  readMergesArray(data, ids, model["merges"]);
  return data;
}

inline TokenizerData loadVocabularyAndMerges(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "vocab.json";
  const nlohmann::json json = readTokenizerJson(path);
  const JsonPlace vocabulary{json, path.string(), ""};

  AddedTokenList added;
  readAddedTokensBeside(added, directory);
  if (const JsonPlace id = vocabulary.object()[std::string(kEndOfText)]; !id.value.is_null()) {
    addToList(added, vocabulary, std::string(kEndOfText), {readId(id), false});
  }

  TokenizerData data;
  const TokenIds ids = readVocabulary(data, vocabulary, added);
  takeAddedTokens(data, ids, added, path.string());
  readMergesText(data, ids, directory / "merges.txt");
  return data;
}

inline TokenizerData loadTokenizerFiles(const std::filesystem::path& directory) {
  if (const auto path = directory / "tokenizer.json"; isThere(path)) return loadTokenizerJson(path);
  if (isThere(directory / "vocab.json")) return loadVocabularyAndMerges(directory);
  throw FileError(directory.string() + ": expected tokenizer.json, or vocab.json and merges.txt, found neither");
}

}  // namespace driftless::inline DRIFTLESS_ABI::detail
