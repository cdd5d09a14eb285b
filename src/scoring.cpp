#include "driftless/detail/model/scoring.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template Score scoreTokens(TokenIds, const Weights<float>&, ModelCache<float>&, Workspace<float>&, const ScoreOptions&,
                           const OnScored&);
template Score scoreTokens(TokenIds, const Weights<double>&, ModelCache<double>&, Workspace<double>&,
                           const ScoreOptions&, const OnScored&);
template std::vector<Score> scoreContinuations(TokenIds, Prompts, const Weights<float>&, ModelCache<float>&,
                                               Workspace<float>&);
template std::vector<Score> scoreContinuations(TokenIds, Prompts, const Weights<double>&, ModelCache<double>&,
                                               Workspace<double>&);

}}  // namespace driftless::DRIFTLESS_ABI
