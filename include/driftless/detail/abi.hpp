#pragma once

#include <Eigen/Core>

// What the compiler was allowed to use is part of the name of everything in this library. Its types and functions
// differ by it, so that translation units compiled for different processors keep to their own, and linking fails where
// one hands the library's types to another, instead of mixing them up.

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

/// Whether a * b + c is rounded once.
#if defined(__FMA__) || defined(EIGEN_VECTORIZE_FMA) || defined(__aarch64__) || defined(_M_ARM64)
#define DRIFTLESS_HAS_FMA 1
#else
#define DRIFTLESS_HAS_FMA 0
#endif

#if defined(DRIFTLESS_ALLOW_FAST_MATH)
#define DRIFTLESS_ROUNDING fast_math
#elif DRIFTLESS_HAS_FMA
#define DRIFTLESS_ROUNDING fused
#else
#define DRIFTLESS_ROUNDING unfused
#endif

#define DRIFTLESS_JOIN_EXPANDED(a, b) a##_##b
#define DRIFTLESS_JOIN(a, b) DRIFTLESS_JOIN_EXPANDED(a, b)
#define DRIFTLESS_ABI DRIFTLESS_JOIN(DRIFTLESS_VECTORS, DRIFTLESS_ROUNDING)
