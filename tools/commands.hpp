#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/generate.hpp"

/// The subcommands: what the arguments of each say, which main.cpp fills in, and the function that does it, in the file
/// of the command's name. One that fails throws.
namespace driftless::cli {

/// What --version prints.
std::string version();

/// The model that comes with the program: from where it is installed, or from the source tree.
std::string defaultModel();

/// Which model a command runs, what it is stored as, and on how many threads it runs.
struct ModelOptions {
  std::string path = defaultModel();
  std::optional<std::string> preset;  ///< random weights in place of the files
  std::string weights = "f32";        ///< what weights are stored as
  std::string compute = "f32";        ///< what products with them are computed in
  std::string cache = "f32";          ///< what keys and values are stored as
  std::optional<std::string> policy;  ///< which positions a cache keeps; all if absent
  std::optional<Index> cache_budget;  ///< how many, if there is a policy
  bool past_context = false;          ///< whether a cache goes on after n_positions
  std::optional<int> threads;         ///< as many as Threads() has if absent
  bool maps_files = true;             ///< see driftless::CheckpointOptions
  bool ignores_extra = false;         ///< likewise

  const std::string& name() const { return preset ? *preset : path; }

  /// Whether weights and caches hold what the plain reference computes with.
  bool isExact() const { return weights == "f32" && cache == "f32"; }
};

/// The shapes that `preset` can name.
std::vector<std::string> presetNames();

/// Text, token ids or nothing.
struct Prompt {
  std::optional<std::string> text;
  std::optional<std::string> ids;
};

/// How prompts are continued.
struct GenerationFlags {
  GenerateOptions options = {};  ///< what needs neither the model nor its tokenizer
  bool stops_at_eos = false;
  std::optional<Index> prompt_lookup_tokens;
  std::optional<std::string> draft_model;
};

struct GenerateCommand {
  ModelOptions model;
  Prompt prompt;
  std::optional<std::string> prompts;  ///< a file of them
  std::size_t batch = 16;              ///< prompts that run together
  GenerationFlags generation;
  std::optional<std::string> output;      ///< text, or JSON for a file of prompts, if absent
  std::optional<std::string> load_cache;  ///< a file with the cache to go on from
  std::optional<std::string> save_cache;  ///< a file for the cache as it is in the end

  void run() const;
};

struct BatchCommand {
  ModelOptions model;
  std::string input;         ///< a file of requests; - is standard input
  std::string output = "-";  ///< a file for their results; - is standard output
  bool resumes = false;
  bool overwrites = false;
  bool is_unordered = false;
  std::size_t batch = 16;  ///< sequences that run together
  std::optional<Index> cache_mib;
  Index prefix_cache_mib = 256;
  GenerationFlags generation;  ///< of requests that do not say

  /// What went wrong with requests; empty if nothing did.
  std::string run() const;
};

struct ScoreCommand {
  ModelOptions model;
  Prompt text;
  std::optional<std::string> file;   ///< with one text
  std::optional<std::string> lines;  ///< a file of several
  std::optional<std::ptrdiff_t> max_length;
  std::optional<std::ptrdiff_t> stride;
  std::ptrdiff_t top = 0;
  bool shows_tokens = false;
  bool is_json = false;

  void run() const;
};

struct RankCommand {
  ModelOptions model;
  Prompt prompt;
  std::vector<std::string> candidates;
  std::optional<std::string> candidates_file;
  std::string by = "total";  ///< or mean
  bool is_json = false;

  void run() const;
};

struct CaptureCommand {
  ModelOptions model;
  Prompt text;
  std::vector<std::string> points;  ///< names, in which * stands for anything; the usual ones if empty
  std::string output;               ///< a directory
  bool overwrites = false;

  void run() const;
};

/// On a page: attention takes room by their square.
inline constexpr std::size_t kMostExplainedTokens = 256;

struct ExplainCommand {
  ModelOptions model;
  Prompt prompt;
  std::size_t max_tokens = 24;
  std::string output;  ///< a file for the page; - is standard output

  void run() const;
};

struct VerifyCommand {
  ModelOptions model;
  Prompt prompt;
  int max_tokens = 100;
  bool is_json = false;

  /// Whether nothing drifts.
  bool run() const;
};

struct BenchCommand {
  ModelOptions model;
  std::optional<std::ptrdiff_t> prompt_tokens;
  std::ptrdiff_t max_tokens = 64;
  std::size_t batch = 1;
  std::size_t repeats = 5;
  bool draws_curve = false;
  bool is_json = false;
  std::optional<std::string> against;  ///< a file with what an earlier run printed as JSON

  void run() const;
};

struct CacheStudyCommand {
  ModelOptions model;
  std::optional<std::string> file;    ///< with a text; - is standard input
  std::optional<std::string> ids;     ///< in its place
  std::vector<std::string> policies;  ///< names of policies and stored types; all if there are none
  std::vector<double> budgets;        ///< shares of a window's positions
  std::optional<Index> max_length;    ///< tokens of a window
  bool is_json = false;

  void run() const;
};

struct TokenizeCommand {
  std::string model = defaultModel();
  std::optional<std::string> text;
  std::optional<std::string> ids;  ///< to be decoded
  bool is_plain = false;

  void run() const;
};

struct InfoCommand {
  ModelOptions model;

  void run() const;
};

}  // namespace driftless::cli
