#include "driftless/detail/model/rules.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template void detail::suppressTokens(std::span<float>, std::span<const int>);
template void detail::suppressTokens(std::span<double>, std::span<const int>);
template void detail::applyRules(std::span<float>, const LogitsRules&, std::span<const int>, std::size_t, RulesRoom&);
template void detail::applyRules(std::span<double>, const LogitsRules&, std::span<const int>, std::size_t, RulesRoom&);
template void applyRules(Eigen::Ref<RowVector<float>>, const LogitsRules&, TokenIds, std::size_t, Workspace<float>&);
template void applyRules(Eigen::Ref<RowVector<double>>, const LogitsRules&, TokenIds, std::size_t, Workspace<double>&);

}}  // namespace driftless::DRIFTLESS_ABI
