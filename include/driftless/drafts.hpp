#pragma once

#include <functional>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/token_ids.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Guesses how `ids`, a prompt and what follows it so far, go on: at most `most` ids, or none. The model verifies them
/// together, in one step, and only those that it would have chosen itself become part of the output: a wrong guess
/// costs time, never a token. Every sequence has a copy of its own, which sees its ids grow; where they begin with
/// those of a cache that does not know them all, some are -1. If it throws, that sequence ends with the error.
using Drafter = std::function<std::vector<int>(TokenIds ids, Index most)>;

/// Guesses what followed the last time that the last few ids came up, of the longest such run, at most `ngram` ids
/// (Saxena 2023, "Prompt lookup decoding"). For texts that repeat themselves or their prompt.
Drafter promptLookup(Index ngram = 3);

/// Guesses what a smaller model with the same vocabulary chooses greedily (Leviathan 2023, "Fast inference from
/// transformers via speculative decoding"). `weights` must outlive the generation. Guesses nothing when the smaller
/// model's positions are used up, or if it lacks one of the ids.
template <FloatingScalar Scalar>
Drafter draftModel(const Weights<Scalar>& weights);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/model_drafter.hpp"
#include "driftless/detail/model/prompt_lookup.hpp"
#endif
