#pragma once

#include <Eigen/Core>

#include "driftless/version.hpp"

// The version, what the compiler was allowed to use and whether the bodies are in the headers are part of the name of
// everything in this library. Its types and functions differ by them, so that translation units compiled in different
// ways keep to their own, and linking fails if one hands the library's types to another, instead of mixing them up.

#if defined(EIGEN_VECTORIZE_AVX512)
#define DRIFTLESS_VECTORS avx512
#elif defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__)
#define DRIFTLESS_VECTORS avx2
#elif defined(EIGEN_VECTORIZE_AVX2)
#define DRIFTLESS_VECTORS avx2_without_f16c
#elif defined(EIGEN_VECTORIZE_AVX)
#define DRIFTLESS_VECTORS avx
#elif defined(EIGEN_VECTORIZE_SSE4_1)
#define DRIFTLESS_VECTORS sse4
#elif defined(EIGEN_VECTORIZE_SSE)
#define DRIFTLESS_VECTORS sse2
#elif defined(EIGEN_VECTORIZE_NEON)
#define DRIFTLESS_VECTORS neon
#else
#define DRIFTLESS_VECTORS scalar
#endif

/// Whether Eigen's pmadd rounds a * b + c once.
#if defined(EIGEN_VECTORIZE_FMA) || (defined(EIGEN_VECTORIZE_NEON) && (defined(__aarch64__) || defined(_M_ARM64))) || \
    defined(EIGEN_VECTORIZE_VSX)
#define DRIFTLESS_PACKETS_FUSE 1
#else
#define DRIFTLESS_PACKETS_FUSE 0
#endif

#if defined(DRIFTLESS_ALLOW_FAST_MATH)
#define DRIFTLESS_ROUNDING fast_math
#else
#define DRIFTLESS_ROUNDING exact
#endif

// DRIFTLESS_COMPILED is defined by the CMake target driftless::compiled: public headers then declare functions without
// including their bodies, which the compiled library has. The sources in src/ include the bodies themselves.
#if defined(DRIFTLESS_COMPILED)
#define DRIFTLESS_INLINE
#define DRIFTLESS_BODIES compiled
#else
#define DRIFTLESS_INLINE inline
#define DRIFTLESS_BODIES in_headers
#endif

#define DRIFTLESS_JOIN_EXPANDED(major, minor, patch, vectors, rounding, bodies) \
  v##major##_##minor##_##patch##_##vectors##_##rounding##_##bodies
#define DRIFTLESS_JOIN(major, minor, patch, vectors, rounding, bodies) \
  DRIFTLESS_JOIN_EXPANDED(major, minor, patch, vectors, rounding, bodies)
#define DRIFTLESS_ABI                                                                                          \
  DRIFTLESS_JOIN(DRIFTLESS_VERSION_MAJOR, DRIFTLESS_VERSION_MINOR, DRIFTLESS_VERSION_PATCH, DRIFTLESS_VECTORS, \
                 DRIFTLESS_ROUNDING, DRIFTLESS_BODIES)
