#include "options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "driftless/error.hpp"
#include "streams.hpp"

namespace driftless::cli {

CLI::Option* addModel(CLI::App& command, std::string& path) {
  return command
      .add_option("-m,--model", path, "A Hugging Face directory, or a .safetensors file beside its config.json")
      ->type_name("DIR")
      ->capture_default_str();
}

void addStoredTypes(CLI::App& command, StoredTypes& types) {
  command.add_option("--weights", types.weights, "What weights are stored as; arithmetic is in f32")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}));
  command.add_option("--cache", types.cache, "What keys and values are stored as")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
}

void addThreads(CLI::App& command, std::optional<int>& count) {
  command.add_option("-t,--threads", count, "Threads that compute (default: one a physical core)")
      ->type_name("N")
      ->transform(wholeNumber(1, 1024));
}

Threads makeThreads(const std::optional<int>& count) { return count ? Threads(*count) : Threads(); }

bool areIds(const nlohmann::json& value) {
  const auto isId = [](const nlohmann::json& element) {
    return element.is_number_unsigned() && element <= std::numeric_limits<int>::max();
  };
  return value.is_array() && std::ranges::all_of(value, isId);
}

std::vector<int> parseIds(const std::string& option, const std::string& text) {
  const std::string list = text == "-" ? readInput() : text;
  const nlohmann::json ids = nlohmann::json::parse("[" + list + "]", nullptr, false);
  if (!areIds(ids)) {
    throw ArgumentError(option + ": expected token ids separated by commas, such as 1,2,3, each from 0 to " +
                        std::to_string(std::numeric_limits<int>::max()) + ", got " + detail::quotedName(list));
  }
  return ids.get<std::vector<int>>();
}

std::string idsText(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

namespace {

struct Preset {
  const char* name;
  Index n_layer;
  Index n_embd;
  Index n_head;
};

constexpr std::array kPresets = {Preset{"distilgpt2", 6, 768, 12}, Preset{"gpt2", 12, 768, 12},
                                 Preset{"gpt2-medium", 24, 1024, 16}, Preset{"gpt2-large", 36, 1280, 20},
                                 Preset{"gpt2-xl", 48, 1600, 25}};

}  // namespace

CLI::Option* addPreset(CLI::App& command, std::string& name, CLI::Option* model) {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return command.add_option("--preset", name, "Seeded random weights of a published shape in place of a model")
      ->check(CLI::IsMember(names))
      ->excludes(model);
}

Config presetConfig(const std::string& name) {
  const Preset& preset = *std::ranges::find(kPresets, name, &Preset::name);
  Config config;
  config.n_layer = preset.n_layer;
  config.n_embd = preset.n_embd;
  config.n_head = preset.n_head;
  config.n_inner = 4 * preset.n_embd;
  return config;
}

void addPrompt(CLI::App& command, Prompt& prompt) {
  prompt.text_option = command
                           .add_option("PROMPT,-p,--prompt", prompt.text,
                                       "The text to continue; - takes standard input, without the newline at its end")
                           ->type_name("TEXT");
  prompt.ids_option =
      command.add_option("--ids", prompt.ids, "Token ids to continue, such as 1,2,3; - takes standard input")
          ->type_name("IDS")
          ->excludes(prompt.text_option);
}

std::vector<int> encodePrompt(const Prompt& prompt, const std::optional<Tokenizer>& tokenizer) {
  if (prompt.hasIds()) return parseIds("--ids", prompt.ids);
  if (!prompt.hasText()) throw ArgumentError("expected a prompt: text, - for standard input, or --ids");
  if (!tokenizer) {
    throw ArgumentError("the model has no tokenizer files: expected the prompt as token ids, --ids 1,2,3, got text");
  }
  std::string text = prompt.text == "-" ? readInput() : prompt.text;
  // Whoever pipes `echo` or a file into the program does not mean its last newline, after which a model starts afresh.
  if (prompt.text == "-" && text.ends_with('\n')) text.pop_back();
  return tokenizer->encode(text);
}

std::optional<Tokenizer> loadTokenizerOf(const std::string& model) {
  const std::filesystem::path path = model;
  const std::filesystem::path directory = std::filesystem::is_directory(path) ? path : path.parent_path();
  const auto isThere = [&](const char* file) { return std::filesystem::exists(directory / file); };
  const std::initializer_list<const char*> files = {"tokenizer.json", "vocab.json", "merges.txt"};
  if (std::ranges::none_of(files, isThere)) return std::nullopt;
  return Tokenizer::load(directory);
}

}  // namespace driftless::cli
