// The compiled library: config.hpp, parameters.hpp, safetensors.hpp, checkpoint.hpp, cache_file.hpp and npy.hpp.

#include <cstdint>
#include <filesystem>

#include "driftless/detail/files/cache_file.hpp"
#include "driftless/detail/files/checkpoint.hpp"
#include "driftless/detail/files/config_json.hpp"
#include "driftless/detail/files/npy.hpp"
#include "driftless/detail/files/safetensors.hpp"
#include "driftless/detail/model/parameters.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template Parameters<float> emptyParameters(const Config&, bool);
template Parameters<double> emptyParameters(const Config&, bool);
template Parameters<float> randomParameters(const Config&, std::uint64_t, bool);
template Parameters<double> randomParameters(const Config&, std::uint64_t, bool);
template void checkParameters(const Parameters<float>&);
template void checkParameters(const Parameters<double>&);
template Parameters<float> loadParameters(const Checkpoint&);
template Parameters<double> loadParameters(const Checkpoint&);
template Weights<float> loadWeights(const Checkpoint&, LoadOptions);
template Weights<double> loadWeights(const Checkpoint&, LoadOptions);
template void saveCache(const ModelCache<float>&, const std::filesystem::path&, const Weights<float>&);
template void saveCache(const ModelCache<double>&, const std::filesystem::path&, const Weights<double>&);
template ModelCache<float> loadCache(const std::filesystem::path&, const Weights<float>&);
template ModelCache<double> loadCache(const std::filesystem::path&, const Weights<double>&);

}}  // namespace driftless::DRIFTLESS_ABI
