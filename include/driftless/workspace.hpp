#pragma once

#include <memory>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/threads.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
template <class Scalar>
struct Step;
}

/// What steps compute in: threads, room for intermediate results, and the logits of the last step. It serves any number
/// of caches, one step at a time. Its room grows with the largest step and is kept: a step allocates nothing if one
/// before it, of the same model, had as many rows and sequences.
template <FloatingScalar Scalar = float>
class Workspace {
 public:
  /// Steps are shared out among these threads.
  explicit Workspace(Threads threads = Threads());
  Workspace(Workspace&&) noexcept = default;  ///< the other one may only be assigned to or destroyed afterwards
  Workspace& operator=(Workspace&&) noexcept = default;  ///< likewise

  /// The threads that steps are shared out among; valid for as long as the workspace lives.
  const Threads& threads() const { return threads_; }
  /// The memory that it holds.
  Index bytes() const;

  /// For the library's own steps.
  detail::Step<Scalar>& step() { return *step_; }

 private:
  Threads threads_;
  std::shared_ptr<detail::Step<Scalar>> step_;  ///< of this workspace alone
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/workspace.hpp"
#endif
