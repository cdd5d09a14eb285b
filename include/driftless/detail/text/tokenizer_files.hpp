#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/files/file_mapping.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/text/added_tokens.hpp"
#include "driftless/detail/text/byte_pairs.hpp"
#include "driftless/detail/text/utf8.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

inline constexpr const char* kEndOfText = "<|endoftext|>";

/// All ids are lower: more than any vocabulary in use, and small enough for a table by id.
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

// ---- Settings ----

/// A key, and the values under which the ids are those that this library computes: one or two as JSON has them (an
/// absent key is null), or any value if none is given.
struct KeyRule {
  std::string_view key;
  std::string_view permitted[2] = {};
};

/// Truncation and padding are for batches of one size, and up to the caller.
inline constexpr KeyRule kTokenizerRules[] = {{"version", {R"("1.0")"}}, {"truncation"},   {"padding"},
                                              {"normalizer", {"null"}},  {"added_tokens"}, {"pre_tokenizer"},
                                              {"post_processor"},        {"decoder"},      {"model"}};
inline constexpr KeyRule kPreTokenizerRules[] = {
    {"type", {R"("ByteLevel")"}}, {"add_prefix_space", {"false"}}, {"use_regex", {"null", "true"}}, {"trim_offsets"}};
/// After the model, the keys of ByteLevel touch offsets only, and no ids.
inline constexpr KeyRule kByteLevelRules[] = {
    {"type", {R"("ByteLevel")"}}, {"add_prefix_space"}, {"use_regex"}, {"trim_offsets"}};
/// With a token for every byte, nothing is ever unknown.
inline constexpr KeyRule kModelRules[] = {{"type", {"null", R"("BPE")"}},
                                          {"dropout", {"null", "0"}},
                                          {"continuing_subword_prefix", {"null", R"("")"}},
                                          {"end_of_word_suffix", {"null", R"("")"}},
                                          {"byte_fallback", {"null", "false"}},
                                          {"ignore_merges", {"null", "false"}},
                                          {"unk_token"},
                                          {"fuse_unk"},
                                          {"vocab"},
                                          {"merges"}};
inline constexpr KeyRule kAddedTokenRules[] = {{"id"},
                                               {"content"},
                                               {"normalized", {"true", "false"}},
                                               {"special"},
                                               {"__type"},
                                               {"single_word", {"null", "false"}},
                                               {"lstrip", {"null", "false"}},
                                               {"rstrip", {"null", "false"}}};
/// Of tokenizer_config.json, which has many more keys.
inline constexpr KeyRule kConfigRules[] = {{"add_prefix_space", {"null", "false"}},
                                           {"add_bos_token", {"null", "false"}},
                                           {"add_eos_token", {"null", "false"}},
                                           {"split_special_tokens", {"null", "false"}}};

inline bool isPermitted(const JsonValue& value, std::string_view permitted) {
  if (value.is(JsonKind::string)) return "\"" + value.string() + "\"" == permitted;
  if (value.number()) return value.number() == 0.0 && permitted == "0";
  if (value.is(JsonKind::boolean)) return permitted == (value.isTrue() ? "true" : "false");
  return value.is(JsonKind::null) && permitted == "null";
}

inline void requireKnownValues(const JsonValue& object, std::span<const KeyRule> rules) {
  object.object();
  for (const auto& [key, permitted] : rules) {
    const JsonValue value = object[key];
    if (permitted[0].empty() || isPermitted(value, permitted[0]) || isPermitted(value, permitted[1])) continue;
    raise<ConfigError>({value.name(), ": expected ", permitted[0],
                        permitted[1].empty() ? "" : " or " + std::string(permitted[1]), ", found ", value.shown()});
  }
}

/// Also refuses keys that no rule names.
inline void requireSupported(const JsonValue& object, std::span<const KeyRule> rules) {
  requireKnownValues(object, rules);
  for (const JsonValue member : object) {
    const std::string& key = member.key();
    if (std::none_of(rules.begin(), rules.end(), [&](const KeyRule& rule) { return rule.key == key; }))
      raise<ConfigError>({object.name(), ": the key ", quotedName(key), " is not supported, it may change the ids"});
  }
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
  if (character <= 0x120) return toChar(character - 0x100);
  if (character <= 0x142) return toChar(character - 0x121 + 0x7F);
  return character == 0x143 ? std::optional(toChar(0xAD)) : std::nullopt;
}

/// The bytes that a token stands for, as the files write it; none if it is not byte-level.
inline std::string bytesOfToken(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Unit unit = readUtf8(token);
    const auto byte = unit.state == Utf8State::valid ? byteOfCharacter(unit.code_point) : std::nullopt;
    if (!byte) return "";
    bytes += *byte;
    token.remove_prefix(unit.size);
  }
  return bytes;
}

/// The number that the digits stand for; nothing if there are other characters or it is too large.
inline std::optional<std::uint64_t> parseWholeNumber(std::string_view digits) {
  std::uint64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// An id, unless it is missing or too large. `value` is where it stands in a file.
inline int requireId(std::optional<std::uint64_t> id, const JsonValue& value, std::string_view found) {
  if (id && *id < kMaxVocabularySize) return static_cast<int>(*id);
  raise<FileError>(
      {value.name(), ": expected a token id from 0 to ", kMaxVocabularySize - 1, ", found ", printable(found)});
}

inline int readId(const JsonValue& value) { return requireId(value.wholeNumber(), value, value.shown()); }

/// Token ids by the text that stands for them in the files.
using IdsByToken = std::map<std::string, int>;

/// The added tokens that the files name.
struct AddedTokenIds {
  IdsByToken verbatim;
  IdsByToken normalized;
};

/// One token may stand in several files; the first decides whether it is normalized.
inline void addToken(AddedTokenIds& added, const JsonValue& where, const std::string& content, int id,
                     bool is_normalized) {
  if (content.empty()) raise<FileError>({where.name(), ": expected a token, found an empty one"});
  IdsByToken& list = is_normalized ? added.normalized : added.verbatim;
  IdsByToken& other = is_normalized ? added.verbatim : added.normalized;
  const int known_id = (other.count(content) > 0 ? other : list).emplace(content, id).first->second;
  if (known_id != id)
    raise<FileError>(
        {where.name(), ": the added token ", quotedName(content), " has two ids, ", known_id, " and ", id});
}

/// One entry of tokenizer.json's `added_tokens` or of tokenizer_config.json's `added_tokens_decoder`.
inline void readAddedToken(AddedTokenIds& added, const JsonValue& entry, int id) {
  requireSupported(entry, kAddedTokenRules);
  addToken(added, entry, entry["content"].string(), id, entry["normalized"].isTrue());
}

/// Tokens that were added beside the tokenizer's main files, by transformers' `save_pretrained`.
inline void readAddedTokensBeside(AddedTokenIds& added, const std::filesystem::path& directory) {
  if (const auto path = directory / "tokenizer_config.json"; isThere(path)) {
    const JsonFile json(path);
    requireKnownValues(json.root(), kConfigRules);
    if (const JsonValue entries = json.root()["added_tokens_decoder"]; !entries.is(JsonKind::null))
      for (const JsonValue entry : entries.object())
        readAddedToken(added, entry, requireId(parseWholeNumber(entry.key()), entry, entry.key()));
  }
  if (const auto path = directory / "added_tokens.json"; isThere(path)) {
    const JsonFile json(path);
    for (const JsonValue id : json.root().object()) addToken(added, id, id.key(), readId(id), false);
  }
}

/// False if the id has a token already.
inline bool setToken(TokenizerData& data, int id, const std::string& bytes) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= data.tokens.size()) data.tokens.resize(index + 1);
  if (!data.tokens[index].empty()) return false;
  data.tokens[index] = bytes;
  return true;
}

/// Gives tokens that are looked for in the text to `tokens`, and those that the vocabulary does not hold to it as well.
inline void takeAddedTokens(TokenizerData& data, AddedTokens& tokens, const IdsByToken& ids, const IdsByToken& added,
                            const std::filesystem::path& path) {
  for (const auto& [content, id] : added) {
    const std::string where = message({pathText(path), ": added token ", quotedName(content)});
    const auto known = ids.find(content);
    if (known == ids.end() && !setToken(data, id, content))
      raise<FileError>({where, ": the id ", id, " has a token already"});
    if (known != ids.end() && known->second != id)
      raise<FileError>({where, ": expected its id in the vocabulary, ", known->second, ", found ", id});
    if (content == kEndOfText) data.end_of_text = id;
  }
  tokens = AddedTokens(added);
}

/// Takes the tokens of a vocabulary, which is an object of ids, and the added ones. An added token in the vocabulary is
/// spelt as itself, unless words are made of it: if it is the token of a byte or takes part in a merge. Its id then
/// stands for both, its own text when text is encoded, and byte-level characters when ids are decoded.
inline IdsByToken readVocabulary(TokenizerData& data, const JsonValue& vocabulary, const AddedTokenIds& added,
                                 const std::filesystem::path& path) {
  IdsByToken ids;
  data.byte_ids.fill(-1);
  for (const JsonValue value : vocabulary.object()) {
    const std::string& token = value.key();
    const int id = readId(value);
    const bool is_added = added.verbatim.count(token) + added.normalized.count(token) > 0;
    const std::string byte_level = bytesOfToken(token);
    const bool is_byte = byte_level.size() == 1;
    const std::string& bytes = is_added && !is_byte ? token : byte_level;
    if (bytes.empty()) raise<FileError>({value.name(), ": expected a token of byte-level characters"});
    if (is_byte) data.byte_ids[static_cast<unsigned char>(bytes.front())] = id;
    if (!setToken(data, id, bytes)) raise<FileError>({value.name(), ": the id ", id, " has a token already"});
    ids.emplace(token, id);
  }
  for (std::size_t byte = 0; byte < data.byte_ids.size(); ++byte)
    if (data.byte_ids[byte] < 0)
      raise<FileError>({vocabulary.name(), ": expected a token for every byte, found none for byte ", byte});
  takeAddedTokens(data, data.verbatim_tokens, ids, added.verbatim, path);
  takeAddedTokens(data, data.normalized_tokens, ids, added.normalized, path);
  return ids;
}

// ---- The merges ----

/// Adds merges in the order of their ranks.
class MergeReader {
 public:
  MergeReader(TokenizerData& data, const IdsByToken& ids) : data_(data), ids_(ids) {}

  /// What is wrong with the merge, or nothing once it is added.
  std::string add(const std::string& left, const std::string& right) {
    const std::string merged = left + right;
    const std::string* const tokens[] = {&left, &right, &merged};
    int ids[3] = {};
    for (std::size_t i = 0; i < std::size(tokens); ++i) {
      const auto found = ids_.find(*tokens[i]);
      if (found == ids_.end()) return message({"the token ", quotedName(*tokens[i]), " is not in the vocabulary"});
      ids[i] = found->second;
      readAsByteLevel(*tokens[i], ids[i]);
    }
    if (!data_.merges.insert(ids[0], ids[1], {next_rank_++, ids[2]}))
      return message({"the merge ", quotedName(message({left, " ", right})), " stands twice"});
    return "";
  }

  /// A merge as one string, its parts separated by a space.
  std::string add(std::string_view merge) {
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos)
      return message({"expected two tokens separated by a space, found ", quotedName(merge)});
    return add(std::string(merge.substr(0, space)), std::string(merge.substr(space + 1)));
  }

 private:
  /// What takes part in a merge stands for bytes, even if an added token is spelt the same.
  void readAsByteLevel(const std::string& token, int id) {
    if (std::string bytes = bytesOfToken(token); !bytes.empty())
      data_.tokens[static_cast<std::size_t>(id)] = std::move(bytes);
  }

  TokenizerData& data_;
  const IdsByToken& ids_;
  std::size_t next_rank_ = 0;
};

inline void readMergesArray(TokenizerData& data, const IdsByToken& ids, const JsonValue& merges) {
  MergeReader reader(data, ids);
  for (const JsonValue merge : merges.array()) {
    const bool is_pair = merge.is(JsonKind::array) && merge.size() == 2;
    if (!is_pair && !merge.is(JsonKind::string)) merge.fail("a merge (\"a b\" or [\"a\", \"b\"])");
    const std::string reason =
        is_pair ? reader.add((*merge.begin()).string(), (*++merge.begin()).string()) : reader.add(merge.string());
    if (!reason.empty()) raise<FileError>({merge.name(), ": ", reason});
  }
}

/// merges.txt: one merge per line, after a line that begins with `#version`. No other line is a comment: "# #" is a
/// merge.
inline void readMergesText(TokenizerData& data, const IdsByToken& ids, const std::filesystem::path& path) {
  const FileBytes file(path, false);
  MergeReader reader(data, ids);
  std::string_view rest = readText(file.text(), pathText(path));
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = takeLine(rest);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    if (const std::string reason = reader.add(line); !reason.empty())
      raise<FileError>({pathText(path), ": line ", number, ": ", reason});
  }
}

// ---- The files ----

inline TokenizerData loadTokenizerJson(const std::filesystem::path& path) {
  const JsonFile json(path);
  const JsonValue root = json.root(), model = root["model"];
  requireSupported(root, kTokenizerRules);
  requireSupported(root["pre_tokenizer"], kPreTokenizerRules);
  requireSupported(root["decoder"], kByteLevelRules);
  if (!root["post_processor"].is(JsonKind::null)) requireSupported(root["post_processor"], kByteLevelRules);
  requireSupported(model, kModelRules);

  AddedTokenIds added;
  if (const JsonValue entries = root["added_tokens"]; !entries.is(JsonKind::null))
    for (const JsonValue entry : entries.array()) readAddedToken(added, entry, readId(entry.object()["id"]));
  readAddedTokensBeside(added, path.parent_path());

  TokenizerData data;
  const IdsByToken ids = readVocabulary(data, model["vocab"], added, path);
  readMergesArray(data, ids, model["merges"]);
  return data;
}

inline TokenizerData loadVocabularyAndMerges(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "vocab.json";
  const JsonFile json(path);
  const JsonValue vocabulary = json.root();

  AddedTokenIds added;
  readAddedTokensBeside(added, directory);
  if (const JsonValue id = vocabulary.object()[kEndOfText]; !id.is(JsonKind::null))
    addToken(added, id, kEndOfText, readId(id), false);

  TokenizerData data;
  const IdsByToken ids = readVocabulary(data, vocabulary, added, path);
  readMergesText(data, ids, directory / "merges.txt");
  return data;
}

inline TokenizerData loadTokenizerFiles(const std::filesystem::path& directory) {
  if (const auto path = directory / "tokenizer.json"; isThere(path)) return loadTokenizerJson(path);
  if (isThere(directory / "vocab.json")) return loadVocabularyAndMerges(directory);
  raise<FileError>({pathText(directory), ": expected tokenizer.json, or vocab.json and merges.txt, found neither"});
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
