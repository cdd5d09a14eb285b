#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "models.hpp"

namespace driftless::cli {

/// Token ids from an option's value: separated by commas. Throws ArgumentError that names the option.
std::vector<int> parseIds(const std::string& option, const std::string& text);
/// The same, or `-` for those on standard input.
std::vector<int> readIds(const std::string& option, const std::string& text);
std::string idsText(const std::vector<int>& ids);

/// The prompt's ids. Throws ArgumentError if it is missing, or is text and there is no tokenizer. Text on standard
/// input is without the newline at its end and without a byte order mark at its beginning; it can be any bytes but
/// zero.
std::vector<int> encodePrompt(const Prompt& prompt, ModelTokenizer& tokenizer);

/// The ids of a text in a JSON object. Throws ArgumentError if there is no tokenizer.
std::vector<int> encodeText(const std::string& text, ModelTokenizer& tokenizer);

/// What `path` is called in messages: - is standard input.
std::string promptsName(const std::string& path);

/// The prompts of a file, or of standard input if `path` is -, as token ids. Its lines are UTF-8, and one text each; if
/// its first character that is not white space is {, they are JSON objects {"ids": [1, 2]} or {"prompt": "text"}. There
/// may be a byte order mark at the beginning. `check` throws for ids that are no good. Errors, of any of the lines,
/// name the line; none at all is an error.
std::vector<std::vector<int>> readPrompts(const std::string& path, ModelTokenizer& tokenizer,
                                          const std::function<void(const std::vector<int>&)>& check);

/// A line of a file of texts.
struct LabelledText {
  std::string id;  ///< the line's "id" as JSON; empty if it has none
  std::vector<int> ids;
};

/// The same for texts that are not prompts: a JSON object is {"text": "text"} or {"ids": [1, 2]}, and can have an "id",
/// a string or a whole number.
std::vector<LabelledText> readTexts(const std::string& path, ModelTokenizer& tokenizer,
                                    const std::function<void(const std::vector<int>&)>& check);

}  // namespace driftless::cli
