#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "stopwatch.hpp"

namespace driftless::cli {

/// How far a job is: one line of standard error that is drawn anew a few times per second, and cleared in the end.
/// Draws nothing if standard error is not a terminal.
class Progress {
 public:
  /// `things` are what the job counts, such as requests. If its results go to standard output and that is a terminal
  /// too, nothing is drawn between them.
  Progress(std::string things, bool writes_output);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `count` things and `tokens` tokens are done; `share`, from 0 to 1, is their share of the job, if that is known.
  /// The first call says what was done before, and is not counted into the speed.
  void show(std::size_t count, std::size_t tokens, std::optional<double> share);

  /// Takes the line away, for other text to take its place; nothing is drawn after that.
  void clear();

 private:
  void draw(const std::string& line) const;

  std::string things_;
  bool is_drawn_;
  Stopwatch watch_;
  double next_draw_ = 0;  ///< in seconds of the watch
  std::optional<std::size_t> first_tokens_;
  double first_share_ = 0;
};

}  // namespace driftless::cli
