#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "driftless/tokenizer.hpp"
#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"

using doctest::Contains;
using driftless::ConfigError;
using driftless::FileError;
using driftless::Tokenizer;
using nlohmann::json;
using namespace driftless::test;

namespace {

using Ids = std::vector<int>;

/// Loads tokenizers of given files, one after the other.
class Loader {
 public:
  Tokenizer loadText(const std::string& tokenizer_json) const {
    writeFile(directory_.path() / "tokenizer.json", tokenizer_json);
    return Tokenizer::load(directory_.path());
  }
  Tokenizer load(const json& tokenizer_json) const { return loadText(tokenizer_json.dump()); }
  Tokenizer loadSeparate(const std::string& vocab, const std::string& merges) const {
    writeFile(directory_.path() / "vocab.json", vocab);
    writeFile(directory_.path() / "merges.txt", merges);
    return Tokenizer::load(directory_.path());
  }
  const std::filesystem::path& directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

/// Merges a + b into token 256.
const SmallTokenizer kSound({"ab"}, {"a b"});

const std::string kNoMerges = "#version: 0.2\n";

json changed(const char* pointer, const json& value) {
  json changed = kSound.tokenizerJson();
  changed[json::json_pointer(pointer)] = value;
  return changed;
}

json withAddedToken(const json& entry) { return changed("/added_tokens", json::array({entry})); }

json addedTokenWith(const char* key, const json& value) {
  json token = addedToken("<x>", 257);
  token[key] = value;
  return token;
}

struct Refused {
  json file;
  const char* message;
};

}  // namespace

TEST_CASE("tokenizer files: a directory without them is named") {
  const TemporaryDirectory directory;
  const auto missing = directory.path() / "missing";
  CHECK_THROWS_WITH_AS(Tokenizer::load(missing), Contains(missing.string().c_str()), FileError);
  CHECK_THROWS_WITH_AS(Tokenizer::load(directory.path()), Contains("expected tokenizer.json, or vocab.json and"),
                       FileError);
  writeFile(directory.path() / "vocab.json", kSound.vocab.dump());
  CHECK_THROWS_WITH_AS(Tokenizer::load(directory.path()), Contains("merges.txt: cannot be read"), FileError);
  std::filesystem::create_directory(directory.path() / "tokenizer.json");
  CHECK_THROWS_WITH_AS(Tokenizer::load(directory.path()), Contains("tokenizer.json: cannot be read"), FileError);
}

TEST_CASE("tokenizer files: tokenizer.json goes before vocab.json") {
  const Loader loader;
  writeFile(loader.directory() / "vocab.json", "no JSON");
  CHECK(loader.load(kSound.tokenizerJson()).encode("ab") == Ids{256});
}

TEST_CASE("tokenizer files: merges may be strings or pairs") {
  const Loader loader;
  CHECK(loader.load(kSound.tokenizerJson()).encode("abb") == Ids{256, 'b'});
  CHECK(loader.load(changed("/model/merges", json::array({json::array({"a", "b"})}))).encode("abb") == Ids{256, 'b'});
}

TEST_CASE("tokenizer files: settings may be absent where that means the same") {
  const Loader loader;
  json sparse = kSound.tokenizerJson();
  for (const char* key : {"truncation", "padding", "added_tokens", "normalizer", "post_processor"}) sparse.erase(key);
  for (const char* key : {"type", "dropout", "byte_fallback", "ignore_merges"}) sparse["model"].erase(key);
  sparse["pre_tokenizer"].erase("use_regex");
  CHECK(loader.load(sparse).encode("ab") == Ids{256});
}

TEST_CASE("tokenizer files: truncation and padding are up to the caller") {
  const Loader loader;
  json padded = changed("/truncation", {{"direction", "Right"}, {"max_length", 1}, {"stride", 0}});
  padded["padding"] = {{"strategy", {{"Fixed", 8}}}, {"pad_id", 0}, {"pad_token", "!"}};
  CHECK(loader.load(padded).encode("abb") == Ids{256, 'b'});
}

TEST_CASE("tokenizer files: an added token may be spelt like the token of a byte") {
  const Loader loader;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = byteCharacter(byte);
    CAPTURE(character);
    const std::string bytes(1, static_cast<char>(byte));
    for (const bool normalized : {false, true}) {
      const Tokenizer tokenizer = loader.load(withAddedToken(addedToken(character, byte, normalized)));
      CHECK(tokenizer.encode(character) == Ids{byte});
      CHECK(tokenizer.encode(bytes) == Ids{byte});
      CHECK(tokenizer.tokenBytes(byte) == bytes);
    }
  }
  const Loader separate;
  writeFile(separate.directory() / "added_tokens.json", R"({"é": 233})");
  CHECK(separate.loadSeparate(kSound.vocab.dump(), kNoMerges).encode("é\xE9") == Ids{233, 233});
}

TEST_CASE("tokenizer files: an added token may be spelt like one that merges make") {
  const Loader loader;
  json file = withAddedToken(addedToken("é!", 257));
  file["model"]["vocab"]["é!"] = 257;
  CHECK(loader.load(file).tokenBytes(257) == "é!");
  file["model"]["merges"].push_back("é !");
  const Tokenizer tokenizer = loader.load(file);
  CHECK(tokenizer.encode("é!") == Ids{257});
  CHECK(tokenizer.encode("\xE9!") == Ids{257});
  CHECK(tokenizer.tokenBytes(257) == "\xE9!");
}

TEST_CASE("tokenizer files: damaged JSON is refused") {
  const Loader loader;
  const std::string sound = kSound.tokenizerJson().dump(-1, ' ', true);
  REQUIRE_NOTHROW(loader.loadText(sound));
  for (std::size_t size = 1; size < sound.size(); size += 61) {
    CHECK_THROWS_WITH_AS(loader.loadText(sound.substr(0, size)), Contains("tokenizer.json: bad JSON"), FileError);
  }
  CHECK_THROWS_WITH_AS(loader.loadText(sound + "}"), Contains("bad JSON"), FileError);
  CHECK_THROWS_WITH_AS(loader.loadText("version https://git-lfs.github.com/spec/v1\n"), Contains("bad JSON"),
                       FileError);
  CHECK_THROWS_WITH_AS(loader.loadText(std::string(100'000, '[')), Contains("bad JSON"), FileError);
  CHECK_THROWS_WITH_AS(loader.loadText("{\"\xFF\": 1}"), Contains("expected text in UTF-8"), FileError);
  CHECK_THROWS_WITH_AS(loader.loadText("[]"), Contains("tokenizer.json: expected an object, found []"), FileError);
}

TEST_CASE("tokenizer files: a token may stand in the vocabulary once") {
  const Loader loader;
  std::string twice = kSound.vocab.dump();
  twice.insert(1, R"("ab": 300, )");
  CHECK_THROWS_WITH_AS(loader.loadSeparate(twice, kNoMerges),
                       Contains("vocab.json: bad JSON: the key \"ab\" stands twice"), FileError);
}

TEST_CASE("tokenizer files: a bad vocabulary is refused") {
  const Loader loader;
  const auto with = [](const char* token, const json& id) {
    json vocab = kSound.vocab;
    vocab[token] = id;
    return changed("/model/vocab", vocab);
  };
  json no_byte = kSound.tokenizerJson();
  no_byte["model"]["vocab"].erase(byteCharacter(7));
  const std::vector<Refused> refused = {
      {changed("/model/vocab", json::array()), "key 'model.vocab': expected an object, found []"},
      {changed("/model/vocab", nullptr), "key 'model.vocab': expected an object, found null"},
      {with("x1", 97), "key 'model.vocab[\"x1\"]': the id 97 has a token already"},
      {with("x1", -1), "key 'model.vocab[\"x1\"]': expected a token id from 0 to 1048575, found -1"},
      {with("x1", 1 << 20), "found 1048576"},
      {with("x1", 1ull << 32), "found 4294967296"},
      {with("x1", ~0ull), "found 18446744073709551615"},
      {with("x1", 1e30), "found 1e+30"},
      {with("x1", 257.0), "found 257.0"},
      {with("x1", "257"), "found \"257\""},
      {with("x1", nullptr), "found null"},
      {with("x1", json::array({257})), "found [257]"},
      {with("", 257), "key 'model.vocab[\"\"]': expected a token of byte-level characters"},
      {with("a b", 257), "key 'model.vocab[\"a b\"]': expected a token of byte-level characters"},
      {with("日", 257), "key 'model.vocab[\"日\"]': expected a token of byte-level characters"},
      {with("\u0144", 257), "expected a token of byte-level characters"},
      {with("\u00AD", 257), "expected a token of byte-level characters"},
      {no_byte, "key 'model.vocab': expected a token for every byte, found none for byte 7"},
  };
  for (const Refused& bad : refused) {
    CHECK_THROWS_WITH_AS(loader.load(bad.file), Contains(bad.message), FileError);
    CHECK_THROWS_WITH_AS(loader.load(bad.file), Contains((loader.directory() / "tokenizer.json: ").string().c_str()),
                         FileError);
  }
}

TEST_CASE("tokenizer files: a bad merge is refused") {
  const Loader loader;
  const auto merges = [](const json& list) { return changed("/model/merges", list); };
  const std::vector<Refused> refused = {
      {merges(nullptr), "key 'model.merges': expected an array, found null"},
      {merges({"a b", "b q"}), "key 'model.merges[1]': the token \"bq\" is not in the vocabulary"},
      {merges({"abc d"}), "key 'model.merges[0]': the token \"abc\" is not in the vocabulary"},
      {merges({"a bcd"}), "key 'model.merges[0]': the token \"bcd\" is not in the vocabulary"},
      {merges({"ab"}), "key 'model.merges[0]': expected two tokens separated by a space, found \"ab\""},
      {merges({"a  b"}), "expected two tokens separated by a space"},
      {merges({"a b "}), "expected two tokens separated by a space"},
      {merges({" b"}), "the token \"\" is not in the vocabulary"},
      {merges({""}), "expected two tokens separated by a space"},
      {merges({"a b", "a b"}), "key 'model.merges[1]': the merge \"a b\" stands twice"},
      {merges(json::array({json::array({"a"})})), "key 'model.merges[0]': expected a merge"},
      {merges(json::array({json::array({"a", 1})})), "key 'model.merges[0][1]': expected a string, found 1"},
      {merges(json::array({1})), "key 'model.merges[0]': expected a merge"},
  };
  for (const Refused& bad : refused) CHECK_THROWS_WITH_AS(loader.load(bad.file), Contains(bad.message), FileError);
}

TEST_CASE("tokenizer files: a setting under which the ids differ is refused by name") {
  const Loader loader;
  const json template_processing = {{"type", "TemplateProcessing"}, {"single", json::array()}};
  const json sequence = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  const std::vector<Refused> refused = {
      {changed("/version", "2.0"), "key 'version': expected \"1.0\", found \"2.0\""},
      {changed("/normalizer", {{"type", "NFC"}}), "key 'normalizer': expected null, found {\"type\":\"NFC\"}"},
      {changed("/pre_tokenizer", sequence), "key 'pre_tokenizer.type': expected \"ByteLevel\", found"},
      {changed("/pre_tokenizer/type", "Metaspace"), "key 'pre_tokenizer.type'"},
      {changed("/pre_tokenizer/add_prefix_space", true), "key 'pre_tokenizer.add_prefix_space'"},
      {changed("/pre_tokenizer/add_prefix_space", nullptr), "key 'pre_tokenizer.add_prefix_space'"},
      {changed("/pre_tokenizer/use_regex", false), "key 'pre_tokenizer.use_regex'"},
      {changed("/pre_tokenizer/new", 1), "key 'pre_tokenizer': the key \"new\" is not supported"},
      {changed("/post_processor", template_processing), "key 'post_processor.type'"},
      {changed("/decoder/type", "WordPiece"), "key 'decoder.type'"},
      {changed("/model/type", "Unigram"), "key 'model.type'"},
      {changed("/model/dropout", 0.1), "key 'model.dropout': expected null or 0, found 0.1"},
      {changed("/model/continuing_subword_prefix", "##"), "key 'model.continuing_subword_prefix'"},
      {changed("/model/end_of_word_suffix", "</w>"), "key 'model.end_of_word_suffix'"},
      {changed("/model/byte_fallback", true), "key 'model.byte_fallback'"},
      {changed("/model/ignore_merges", true), "key 'model.ignore_merges'"},
      {changed("/model/new", 1), "key 'model': the key \"new\" is not supported"},
      {changed("/new", 1), "tokenizer.json: the key \"new\" is not supported"},
      {withAddedToken(addedTokenWith("lstrip", true)), "key 'added_tokens[0].lstrip'"},
      {withAddedToken(addedTokenWith("rstrip", true)), "key 'added_tokens[0].rstrip'"},
      {withAddedToken(addedTokenWith("single_word", true)), "key 'added_tokens[0].single_word'"},
      {withAddedToken(addedTokenWith("normalized", nullptr)), "key 'added_tokens[0].normalized'"},
      {withAddedToken(addedTokenWith("new", 1)), "key 'added_tokens[0]': the key \"new\" is not supported"},
  };
  for (const Refused& bad : refused) CHECK_THROWS_WITH_AS(loader.load(bad.file), Contains(bad.message), ConfigError);
}

TEST_CASE("tokenizer files: a section of the wrong kind is refused") {
  const Loader loader;
  const std::vector<Refused> refused = {
      {changed("/pre_tokenizer", nullptr), "key 'pre_tokenizer': expected an object, found null"},
      {changed("/decoder", nullptr), "key 'decoder': expected an object"},
      {changed("/post_processor", 1), "key 'post_processor': expected an object"},
      {changed("/model", json::array()), "key 'model': expected an object"},
      {changed("/added_tokens", 1), "key 'added_tokens': expected an array"},
      {withAddedToken("<x>"), "key 'added_tokens[0]': expected an object"},
  };
  for (const Refused& bad : refused) CHECK_THROWS_WITH_AS(loader.load(bad.file), Contains(bad.message), FileError);
}

TEST_CASE("tokenizer files: a bad added token is refused") {
  const Loader loader;
  const auto both = [](const json& first, const json& second) {
    return changed("/added_tokens", json::array({first, second}));
  };
  const std::vector<Refused> refused = {
      {withAddedToken(addedTokenWith("id", -1)), "key 'added_tokens[0].id': expected a token id"},
      {withAddedToken(addedTokenWith("id", 1 << 20)), "key 'added_tokens[0].id': expected a token id"},
      {withAddedToken(addedTokenWith("id", nullptr)), "key 'added_tokens[0].id': expected a token id"},
      {withAddedToken(addedTokenWith("id", 97)), "added token \"<x>\": the id 97 has a token already"},
      {withAddedToken(addedToken("ab", 257)), "added token \"ab\": expected its id in the vocabulary, 256, found 257"},
      {withAddedToken(addedTokenWith("content", "")), "key 'added_tokens[0]': expected a token, found an empty one"},
      {withAddedToken(addedTokenWith("content", 1)), "key 'added_tokens[0].content': expected a string"},
      {both(addedToken("<x>", 257), addedToken("<x>", 258)), "key 'added_tokens[1]': the added token \"<x>\" has two"},
      {both(addedToken("<x>", 257), addedToken("<y>", 257)), "the id 257 has a token already"},
  };
  for (const Refused& bad : refused) CHECK_THROWS_WITH_AS(loader.load(bad.file), Contains(bad.message), FileError);
}

TEST_CASE("tokenizer files: merges.txt has no comments but its version") {
  const Loader loader;
  const SmallTokenizer hashes({"##", "#version"}, {"# #"});
  const std::string vocab = hashes.vocab.dump();
  CHECK(loader.loadSeparate(vocab, "#version: 0.2\n# #\n").encode("##") == Ids{256});
  CHECK(loader.loadSeparate(vocab, "# #\n").encode("##") == Ids{256});
  CHECK(loader.loadSeparate(vocab, "# #").encode("##") == Ids{256});
  CHECK(loader.loadSeparate(vocab, kNoMerges).encode("##") == Ids{'#', '#'});
  CHECK_THROWS_WITH_AS(loader.loadSeparate(vocab, "# #\n#version: 0.2\n"), Contains("merges.txt: line 2"), FileError);
}

TEST_CASE("tokenizer files: merges.txt may have Windows line ends and empty lines") {
  const Loader loader;
  CHECK(loader.loadSeparate(kSound.vocab.dump(), kSound.mergesText("\r\n")).encode("ab") == Ids{256});
  CHECK(loader.loadSeparate(kSound.vocab.dump(), kSound.mergesText("\n\n")).encode("ab") == Ids{256});
}

TEST_CASE("tokenizer files: a bad line of merges.txt is named") {
  const Loader loader;
  const std::string vocab = kSound.vocab.dump();
  const auto message = [&](const std::string& expected) {
    return (loader.directory() / "merges.txt").string() + ": " + expected;
  };
  CHECK_THROWS_WITH_AS(loader.loadSeparate(vocab, "#version: 0.2\na b\na c\n"),
                       message("line 3: the token \"ac\" is not in the vocabulary").c_str(), FileError);
  CHECK_THROWS_WITH_AS(loader.loadSeparate(vocab, "a b\na b\n"),
                       message("line 2: the merge \"a b\" stands twice").c_str(), FileError);
  CHECK_THROWS_WITH_AS(loader.loadSeparate(vocab, "a b c\n"),
                       message("line 1: expected two tokens separated by a space, found \"a b c\"").c_str(), FileError);
  CHECK_THROWS_AS(loader.loadSeparate(vocab, std::string("a\0b\n\xFF \xFE\n", 8)), FileError);
}

TEST_CASE("tokenizer files: vocab.json makes <|endoftext|> special") {
  const Loader loader;
  const SmallTokenizer small({"<|endoftext|>"});
  const Tokenizer tokenizer = loader.loadSeparate(small.vocab.dump(), kNoMerges);
  CHECK(tokenizer.endOfText() == 256);
  CHECK(tokenizer.encode("a<|endoftext|>") == Ids{'a', 256});
}

TEST_CASE("tokenizer files: tokens added beside the main files are taken") {
  const Loader loader;
  json decoder_entry = addedToken("<pad>", 257);
  decoder_entry.erase("id");
  const json config = {{"add_prefix_space", false}, {"added_tokens_decoder", {{"257", decoder_entry}}}};
  writeFile(loader.directory() / "tokenizer_config.json", config.dump());
  writeFile(loader.directory() / "added_tokens.json", R"({"<pad>": 257, "<sep>": 258})");
  const Ids expected = {257, 256, 258};
  CHECK(loader.loadSeparate(kSound.vocab.dump(), kSound.mergesText()).encode("<pad>ab<sep>") == expected);
  CHECK(loader.load(kSound.tokenizerJson()).encode("<pad>ab<sep>") == expected);
}

TEST_CASE("tokenizer files: settings beside the main files are refused where the ids would differ") {
  const Loader loader;
  const auto path = loader.directory() / "tokenizer_config.json";
  for (const std::string key : {"add_prefix_space", "add_bos_token", "add_eos_token", "split_special_tokens"}) {
    writeFile(path, json{{key, true}}.dump());
    CHECK_THROWS_WITH_AS(loader.load(kSound.tokenizerJson()), Contains(("key '" + key + "'").c_str()), ConfigError);
  }
  for (const std::string id : {"X", "", "-1", "+257", "257x", " 257", "1048576", "99999999999999999999"}) {
    writeFile(path, json{{"added_tokens_decoder", {{id, addedToken("<x>", 257)}}}}.dump());
    CHECK_THROWS_WITH_AS(loader.load(kSound.tokenizerJson()),
                         Contains(("key 'added_tokens_decoder[\"" + id + "\"]': expected a token id").c_str()),
                         FileError);
  }
  writeFile(path, "{");
  CHECK_THROWS_WITH_AS(loader.load(kSound.tokenizerJson()), Contains("tokenizer_config.json: bad JSON"), FileError);
  writeFile(path, "{}");
  writeFile(loader.directory() / "added_tokens.json", R"({"ab": 1})");
  CHECK_THROWS_WITH_AS(loader.load(kSound.tokenizerJson()), Contains("added token \"ab\": expected its id"), FileError);
}
