#include "driftless/detail/model/drafts.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template Drafter draftModel(const Weights<float>&);
template Drafter draftModel(const Weights<double>&);

}}  // namespace driftless::DRIFTLESS_ABI
