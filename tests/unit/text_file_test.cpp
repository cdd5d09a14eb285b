#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/error.hpp"
#include "driftless/tokenizer.hpp"
#include "support/checkpoint_writer.hpp"
#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"

using driftless::FileError;
using driftless::Tokenizer;
using driftless::detail::readText;
using driftless::detail::takeLine;
using namespace driftless::test;

namespace {

const std::string kByteOrderMark = "\xEF\xBB\xBF";

/// ASCII text as UTF-16, after its byte order mark.
std::string utf16(const std::string& text, bool big_endian) {
  std::string bytes = big_endian ? "\xFE\xFF" : "\xFF\xFE";
  for (const char c : text) bytes += big_endian ? std::string{'\0', c} : std::string{c, '\0'};
  return bytes;
}

/// Text files of one directory by name, and what reads them.
struct TextFiles {
  std::map<std::string, std::string> texts;
  void (*read)(const std::filesystem::path& directory);
};

void readModel(const std::filesystem::path& directory) {
  writeFile(directory / "one.safetensors", safetensorsFile(gpt2Tensors({})));
  const auto parameters = driftless::loadParameters<float>(directory);
  CHECK(parameters.config.n_head == CheckpointShape().H);
}

void readTokenizer(const std::filesystem::path& directory) {
  const Tokenizer tokenizer = Tokenizer::load(directory);
  CHECK(tokenizer.encode("ab ab<x><y>") == std::vector<int>{256, ' ', 256, 257, 258});
}

std::vector<TextFiles> textFiles() {
  const auto text = [](const nlohmann::json& json) { return json.dump(1) + "\n"; };
  nlohmann::json index, tokenizer_config;
  for (const WrittenTensor& tensor : gpt2Tensors({})) index["weight_map"][tensor.name] = "one.safetensors";
  tokenizer_config["added_tokens_decoder"]["257"] = addedToken("<x>", 257);
  tokenizer_config["added_tokens_decoder"]["257"].erase("id");
  const std::map<std::string, std::string> beside = {{"tokenizer_config.json", text(tokenizer_config)},
                                                     {"added_tokens.json", text({{"<y>", 258}})}};
  const SmallTokenizer small({"ab"}, {"a b"});
  std::vector<TextFiles> files = {
      {{{"config.json", text(nlohmann::json::parse(configJson({})))}, {"model.safetensors.index.json", text(index)}},
       readModel},
      {{{"tokenizer.json", text(small.tokenizerJson())}}, readTokenizer},
      {{{"vocab.json", text(small.vocab)}, {"merges.txt", small.mergesText()}}, readTokenizer}};
  files[1].texts.insert(beside.begin(), beside.end());
  files[2].texts.insert(beside.begin(), beside.end());
  return files;
}

/// Calls function(directory, path, text, read) for every text file that the library reads, among sound ones.
template <class Function>
void forEachTextFile(Function function) {
  for (const TextFiles& files : textFiles()) {
    for (const auto& [name, text] : files.texts) {
      const TemporaryDirectory directory;
      for (const auto& [other, sound] : files.texts) writeFile(directory.path() / other, sound);
      function(directory.path() / name, text, [&] { files.read(directory.path()); });
    }
  }
}

/// With LF, CR LF or CR at the ends of lines.
std::string withLineEnds(const std::string& text, const std::string& line_end) {
  std::string changed;
  for (const char c : text) changed += c == '\n' ? line_end : std::string(1, c);
  return changed;
}

}  // namespace

TEST_CASE("text files: a byte order mark, any line ends and a missing last one change nothing") {
  forEachTextFile([](const std::filesystem::path& path, const std::string& text, const auto& read) {
    CAPTURE(path);
    const std::string without_last = text.substr(0, text.size() - 1);
    for (const std::string& ended : {text, without_last}) {
      for (const std::string line_end : {"\n", "\r\n", "\r"}) {
        CAPTURE(line_end);
        writeFile(path, withLineEnds(ended, line_end));
        CHECK_NOTHROW(read());
        writeFile(path, kByteOrderMark + withLineEnds(ended, line_end));
        CHECK_NOTHROW(read());
      }
    }
  });
}

TEST_CASE("text files: what is no text in UTF-8 is refused by name") {
  forEachTextFile([](const std::filesystem::path& path, const std::string& text, const auto& read) {
    const auto refuses = [&](const std::string& bytes, const std::string& reason) {
      writeFile(path, bytes);
      CHECK_THROWS_WITH_AS(read(), (path.string() + ": " + reason).c_str(), FileError);
    };
    const auto refusesByte = [&](const std::string& bytes, int byte) {
      const auto lines = std::count(text.begin(), text.end(), '\n');
      refuses(text + bytes,
              "line " + std::to_string(lines + 1) + ": expected text in UTF-8, found the byte " + std::to_string(byte));
    };
    refuses("", "it is empty");
    refuses(kByteOrderMark, "it is empty");
    refuses(utf16(text, false), "it is UTF-16: save it as UTF-8");
    refuses(utf16(text, true), "it is UTF-16: save it as UTF-8");
    refuses(utf16(text, true).substr(2), "line 1: expected text in UTF-8, found the byte 0");
    refusesByte(std::string("\0\n", 2), 0);
    refusesByte("caf\xE9\n", 0xE9);
    refusesByte("\xC0\xAF\n", 0xC0);
    refusesByte("\xED\xA0\x80\n", 0xED);
    refusesByte("\xE2\x82", 0xE2);
  });
}

TEST_CASE("text files: only one byte order mark, and only at the start, is left out") {
  CHECK(readText(kByteOrderMark + "a", "file") == "a");
  CHECK(readText(kByteOrderMark + kByteOrderMark, "file") == kByteOrderMark);
  CHECK(readText("a" + kByteOrderMark, "file") == "a" + kByteOrderMark);
}

TEST_CASE("text files: lines end with LF, CR LF or CR, the last with none if need be") {
  std::string_view text = "one\ntwo\r\nthree\r\r\n\n four ";
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(takeLine(text));
  CHECK(lines == std::vector<std::string_view>{"one", "two", "three", "", "", " four "});
}
