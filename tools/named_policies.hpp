#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driftless/cache_policy.hpp"

namespace driftless::cli {

/// Makes a cache policy that leaves at most `budget` positions, from 1 on, of each head. What the policy's own numbers
/// cannot be in a small budget, it cuts down.
using MakePolicy = std::function<std::shared_ptr<const CachePolicy>(Index budget)>;

struct NamedPolicy {
  std::string name;
  MakePolicy make;
};

/// A variable of this type, with the name of a policy, makes it known to the commands: in a file of its own in
/// tools/policies/, which needs no mention anywhere else.
struct RegisterPolicy {
  RegisterPolicy(std::string name, MakePolicy make);
};

/// All of them: the library's, then those that are registered, by name. Throws ArgumentError if two have one name.
std::vector<NamedPolicy> namedPolicies();

/// Their names with commas between them.
std::string policyNames();

/// Throws ArgumentError for a name that there is not, with those that there are.
std::shared_ptr<const CachePolicy> makePolicy(const std::string& name, Index budget);

}  // namespace driftless::cli
