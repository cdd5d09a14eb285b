#include "driftless/detail/model/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template std::string detail::faultOf(std::span<const float>);
template std::string detail::faultOf(std::span<const double>);
template int detail::draw(std::span<const float>, const Sampling&, std::mt19937_64&, Candidates&);
template int detail::sample(std::span<const float>, const Sampling&, std::mt19937_64&);
template int detail::sample(std::span<const float>, const Sampling&, std::mt19937_64&, Workspace<float>&);
template int detail::draw(std::span<const double>, const Sampling&, std::mt19937_64&, Candidates&);
template int detail::sample(std::span<const double>, const Sampling&, std::mt19937_64&);
template int detail::sample(std::span<const double>, const Sampling&, std::mt19937_64&, Workspace<double>&);

}}  // namespace driftless::DRIFTLESS_ABI
