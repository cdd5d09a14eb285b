#include "named_policies.hpp"

#include <algorithm>
#include <utility>

#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/policies.hpp"

namespace driftless::cli {
namespace {

/// A function's own, for files register their policies before main, in no order.
std::vector<NamedPolicy>& registered() {
  static std::vector<NamedPolicy> policies;
  return policies;
}

}  // namespace

RegisterPolicy::RegisterPolicy(std::string name, MakePolicy make) {
  registered().push_back({std::move(name), std::move(make)});
}

std::vector<NamedPolicy> namedPolicies() {
  std::vector<NamedPolicy> policies = {
      {"window", [](Index budget) { return std::make_shared<SlidingWindow>(budget); }},
      {"sinks", [](Index budget) { return std::make_shared<AttentionSinks>(budget, std::min(Index{4}, budget - 1)); }},
      {"h2o", [](Index budget) { return std::make_shared<HeavyHitters>(budget); }},
      {"tova", [](Index budget) { return std::make_shared<Tova>(budget); }},
      {"snapkv", [](Index budget) { return std::make_shared<SnapKv>(budget, std::min(Index{16}, (budget + 1) / 2)); }},
      {"keynorm", [](Index budget) { return std::make_shared<KeyNorm>(budget); }},
      {"keydiff", [](Index budget) { return std::make_shared<KeyDiff>(budget); }},
      {"random", [](Index budget) { return std::make_shared<RandomPositions>(budget); }}};
  std::vector<NamedPolicy> own = registered();
  std::ranges::stable_sort(own, {}, &NamedPolicy::name);
  for (NamedPolicy& policy : own) {
    if (std::ranges::find(policies, policy.name, &NamedPolicy::name) != policies.end())
      throw ArgumentError("tools/policies: expected each policy to have a name of its own, got two of " + policy.name);
    policies.push_back(std::move(policy));
  }
  return policies;
}

std::string policyNames() {
  std::string names;
  for (const NamedPolicy& policy : namedPolicies()) names += (names.empty() ? "" : ", ") + policy.name;
  return names;
}

std::shared_ptr<const CachePolicy> makePolicy(const std::string& name, Index budget) {
  for (const NamedPolicy& policy : namedPolicies())
    if (policy.name == name) return policy.make(budget);
  throw ArgumentError("--policy: expected one of " + policyNames() + ", got " + detail::quotedName(name));
}

}  // namespace driftless::cli
