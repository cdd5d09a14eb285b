#include "progress.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

namespace driftless::cli {
namespace {

bool isTerminal(std::FILE* stream) {
#ifdef _WIN32
  return _isatty(_fileno(stream)) != 0;
#else
  return isatty(fileno(stream)) != 0;
#endif
}

/// Such as 4:05 or 1:04:05.
std::string clockText(double seconds) {
  constexpr double kMost = 359999;  // 99:59:59
  const int whole = static_cast<int>(std::lround(std::fmin(seconds, kMost)));
  std::array<char, 16> text;
  if (whole >= 3600)
    std::snprintf(text.data(), text.size(), "%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
  else
    std::snprintf(text.data(), text.size(), "%d:%02d", whole / 60, whole % 60);
  return text.data();
}

}  // namespace

Progress::Progress(std::string things, bool writes_output)
    : things_(std::move(things)), is_drawn_(isTerminal(stderr) && !(writes_output && isTerminal(stdout))) {}

void Progress::clear() {
  if (is_drawn_) draw("");
  is_drawn_ = false;
}

void Progress::show(std::size_t count, std::size_t tokens, std::optional<double> share) {
  if (!is_drawn_) return;
  if (!first_tokens_) {
    first_tokens_ = tokens;
    first_share_ = share.value_or(0);
  }
  const double now = watch_.seconds();
  if (now < next_draw_) return;
  next_draw_ = now + 0.1;
  std::array<char, 32> number;
  std::string line;
  if (share) {
    constexpr std::size_t kBar = 20;
    const auto full = static_cast<std::size_t>(std::lround(*share * kBar));
    std::snprintf(number.data(), number.size(), "%3.0f %% ", 100 * *share);
    line += number.data() + ("[" + std::string(full, '#')) + std::string(kBar - full, '-') + "] ";
  }
  line += std::to_string(count) + " " + things_;
  std::snprintf(number.data(), number.size(), ", %.1f tokens/s", static_cast<double>(tokens - *first_tokens_) / now);
  line += number.data();
  if (share && *share > first_share_) line += ", " + clockText(now * (1 - *share) / (*share - first_share_)) + " left";
  draw(line);
}

void Progress::draw(const std::string& line) const {
  std::cerr << "\r" + line + "\x1b[K" << std::flush;  // to the start of the line, and the rest of an older one away
}

}  // namespace driftless::cli
