#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "driftless/tokenizer.hpp"

namespace driftless::cli {

/// The prompts of a file, or of standard input where `path` is -, as token ids. Its lines are one text each; where its
/// first character that is not white space is {, they are JSON objects {"ids": [1, 2]} or {"prompt": "text"}.
/// `check` throws for ids that are no good. Errors, of any of the lines, name the line; none at all is an error.
std::vector<std::vector<int>> readPrompts(const std::string& path, const std::optional<Tokenizer>& tokenizer,
                                          const std::function<void(std::span<const int>)>& check);

}  // namespace driftless::cli
