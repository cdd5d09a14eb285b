#pragma once

#include <filesystem>

#include "driftless/cache.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/weights.hpp"

/// Caches in files. A sequence that goes on from a cache that was saved and loaded has the bits of one that was never
/// interrupted, on every processor.
namespace driftless { inline namespace DRIFTLESS_ABI {

/// Writes the positions of a cache, as they are stored, and their ids to a file; `weights` are those that it was
/// computed with. An older file of this name is replaced when the new one is complete and on the disk, and stays as it
/// is if anything fails. Throws ArgumentError for a cache of another shape, whose layers are out of step or
/// stored as different types, or that does not keep all positions, and FileError if the file cannot be written.
template <FloatingScalar Scalar>
void saveCache(const ModelCache<Scalar>& cache, const std::filesystem::path& path, const Weights<Scalar>& weights);

/// Reads such a file. Throws FileError, naming the file, what was expected and what was found, for one that cannot be
/// read, is none, is damaged, longer or shorter than it should be, of a newer version, or of a cache that was computed
/// with other weights: of another shape, with other numbers, stored or computed as another type.
template <FloatingScalar Scalar>
ModelCache<Scalar> loadCache(const std::filesystem::path& path, const Weights<Scalar>& weights);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/files/cache_file.hpp"
#endif
