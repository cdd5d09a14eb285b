#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/threads.hpp"
#include "driftless/tokenizer.hpp"
#include "stored_types.hpp"

/// Options that several subcommands share.
namespace driftless::cli {

/// For CLI::Option::transform: refuses all but decimal numbers from `least` to `most`. CLI11's own conversion takes
/// 010 for eight and -1 for a large unsigned number, and lets NaN pass its range check.
template <class Number>
CLI::Validator number(Number least, Number most, const std::string& expected) {
  const auto check = [=](std::string& text) -> std::string {
    const char* const end = text.data() + text.size();
    Number value{};
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= least && value <= most))
      return "expected " + expected + ", got " + text;
    if constexpr (std::is_integral_v<Number>) text = std::to_string(value);
    return {};
  };
  return CLI::Validator(check, "");
}

template <class Number>
CLI::Validator wholeNumber(Number least, Number most = std::numeric_limits<Number>::max()) {
  return number(least, most, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

CLI::Option* addModel(CLI::App& command, std::string& path);

void addStoredTypes(CLI::App& command, StoredTypes& types);

void addThreads(CLI::App& command, std::optional<int>& count);
Threads makeThreads(const std::optional<int>& count);

/// Whether JSON is a list of numbers that can be token ids: from 0 to the largest int.
bool areIds(const nlohmann::json& value);

/// Token ids from an option's value: separated by commas, or `-` for those on standard input. Throws ArgumentError that
/// names the option.
std::vector<int> parseIds(const std::string& option, const std::string& text);
std::string idsText(const std::vector<int>& ids);

/// `--preset NAME`, which excludes `model`: random weights of a published shape.
CLI::Option* addPreset(CLI::App& command, std::string& name, CLI::Option* model);
/// The shape of a preset.
Config presetConfig(const std::string& name);

/// A prompt as the command line gives it: text, token ids or nothing.
struct Prompt {
  std::string text;
  std::string ids;
  CLI::Option* text_option = nullptr;
  CLI::Option* ids_option = nullptr;

  bool hasText() const { return text_option->count() > 0; }
  bool hasIds() const { return ids_option->count() > 0; }
};

void addPrompt(CLI::App& command, Prompt& prompt);

/// The prompt's ids. Throws ArgumentError where it is missing, or is text and there is no tokenizer.
std::vector<int> encodePrompt(const Prompt& prompt, const std::optional<Tokenizer>& tokenizer);

/// The tokenizer beside a model's weights, where there are any files of one.
std::optional<Tokenizer> loadTokenizerOf(const std::string& model);

}  // namespace driftless::cli
