#pragma once

#include <string>

namespace driftless::cli {

/// The types that weights and caches are stored as, by the names that the command line has for them.
struct StoredTypes {
  std::string weights = "f32";
  std::string cache = "f32";

  /// Whether they hold what the plain reference computes with.
  bool areExact() const { return weights == "f32" && cache == "f32"; }
};

}  // namespace driftless::cli
