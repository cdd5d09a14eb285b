#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace driftless::cli {

/// Nobody reads standard output any more: there is nothing left to do, and nobody to complain to.
struct OutputClosed {};

/// What standard input is called in messages.
inline constexpr const char* kInputName = "standard input";

/// All of standard input, byte for byte. Throws FileError.
std::string readInput();

/// All of a file, which need not be a regular one. Throws FileError.
std::string readFile(const std::string& path);

/// The object and a line's end. Bytes that are not UTF-8, which JSON cannot hold, become U+FFFD.
std::string jsonLine(const nlohmann::ordered_json& object);

/// A text as JSON, in quotes; bytes likewise.
std::string jsonString(const std::string& text);

/// Writes to standard output, at once. Throws OutputClosed, or Error if writing fails for another reason.
void writeOutput(std::string_view bytes);

}  // namespace driftless::cli
