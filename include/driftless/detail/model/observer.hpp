#pragma once

#include <array>
#include <string>

#include "driftless/observer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE std::string pointName(Point point, Index layer) {
  static constexpr std::array<const char*, kPoints> kNames = {
      "hook_embed",       "hook_pos_embed", "hook_resid_pre",        "ln1.hook_normalized",      "attn.hook_q",
      "attn.hook_k",      "attn.hook_v",    "attn.hook_attn_scores", "attn.hook_pattern",        "attn.hook_z",
      "attn.hook_result", "hook_attn_out",  "hook_resid_mid",        "ln2.hook_normalized",      "mlp.hook_pre",
      "mlp.hook_post",    "hook_mlp_out",   "hook_resid_post",       "ln_final.hook_normalized", "logits"};
  const std::string name = kNames[static_cast<std::size_t>(point)];
  return isInLayer(point) ? "blocks." + std::to_string(layer) + "." + name : name;
}

DRIFTLESS_INLINE Points Points::all() {
  Points points;
  points.set_.set();
  return points;
}

}}  // namespace driftless::DRIFTLESS_ABI
