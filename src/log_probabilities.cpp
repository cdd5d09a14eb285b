#include "driftless/detail/model/log_probabilities.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template class detail::LogSoftmax<float>;
template class detail::LogSoftmax<double>;

}}  // namespace driftless::DRIFTLESS_ABI
