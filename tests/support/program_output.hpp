#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/run_program.hpp"

/// What the program writes, and how it fails.
namespace driftless::test {

using Words = std::vector<std::string>;

inline std::string commaSeparated(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

/// Every line of JSON Lines.
inline std::vector<nlohmann::json> jsonLines(const std::string& text) {
  std::vector<nlohmann::json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

/// Runs the program, which must succeed, and returns its standard output.
inline std::string outputOf(const Words& arguments, const std::string& input = "") {
  const ProgramRun run = runProgram(arguments, input);
  INFO("standard error: " << run.err);
  CHECK(run.status == 0);
  return run.out;
}

/// The same of a program that writes JSON Lines.
inline std::vector<nlohmann::json> jsonLinesOf(const Words& arguments, const std::string& input = "") {
  return jsonLines(outputOf(arguments, input));
}

/// The same of a program that must write one line, of JSON.
inline nlohmann::json jsonOf(const Words& arguments, const std::string& input = "") {
  const std::string out = outputOf(arguments, input);
  INFO("standard output: " << out);
  REQUIRE(nlohmann::json::accept(out));
  CHECK(std::ranges::count(out, '\n') == 1);
  return nlohmann::json::parse(out);
}

/// Exit status 2, nothing on standard output and one line on standard error, in which there is the text expected.
inline void checkError(const ProgramRun& run, const std::string& expected) {
  INFO("expected in the error: " << expected);
  INFO("standard error: " << run.err);
  CHECK(run.status == 2);
  CHECK(run.out.empty());
  CHECK(run.err.starts_with("driftless: "));
  CHECK(std::ranges::count(run.err, '\n') == 1);
  CHECK(run.err.ends_with('\n'));
  CHECK(run.err.find(expected) != std::string::npos);
}

inline void checkRefused(const Words& arguments, const std::string& expected, const std::string& input = "") {
  checkError(runProgram(arguments, input), expected);
}

}  // namespace driftless::test
