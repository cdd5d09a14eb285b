#pragma once

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) <= 201703L
#error "driftless needs C++20"
// g++ and clang++ go on after an #error, with thousands of lines, but not after a file that is not there.
#include <the rest is left out>
#endif

#include <Eigen/Core>

#include "driftless/version.hpp"

// The version, what the compiler was allowed to use and whether the bodies are in the headers are part of the name of
// everything in this library. Its types and functions differ by them, so that translation units compiled in different
// ways keep to their own code, and linking fails if a function that one calls and another defines takes or returns the
// library's types, or a variable has one.
//
// The linker does not see a class of the user's with such members. Therefore neither the layout of Weights, the caches,
// Workspace, Threads, Config, Tokenizer and the files, nor any allocation that they free, depends on what the compiler
// was allowed to use: where the versions are the same, a class with these works in translation units that were compiled
// in different ways. Matrix, RowVector and Parameters are not safe in that way: they are made of Eigen's matrices,
// whose allocation does depend on it (EIGEN_MAX_ALIGN_BYTES), and whose functions have one name under all flags.

/// The vector instructions that this translation unit is compiled for, and whether dot products of bytes are among
/// them.
#if defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define DRIFTLESS_VECTORS avx512_vnni
#define DRIFTLESS_HAS_BYTE_DOTS 1
#elif defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512BW__)
#define DRIFTLESS_VECTORS avx512
#elif defined(EIGEN_VECTORIZE_AVX512)
#define DRIFTLESS_VECTORS avx512_without_bw
#elif defined(EIGEN_VECTORIZE_AVX2) && defined(EIGEN_VECTORIZE_FMA) && defined(__F16C__) && defined(__AVXVNNI__)
#define DRIFTLESS_VECTORS avx2_vnni
#define DRIFTLESS_HAS_BYTE_DOTS 1
#elif defined(EIGEN_VECTORIZE_AVX2) && defined(EIGEN_VECTORIZE_FMA) && defined(__F16C__)
#define DRIFTLESS_VECTORS avx2
#elif defined(EIGEN_VECTORIZE_AVX2) && defined(EIGEN_VECTORIZE_FMA)
#define DRIFTLESS_VECTORS avx2_without_f16c
#elif defined(EIGEN_VECTORIZE_AVX2)
#define DRIFTLESS_VECTORS avx2_without_fma
#elif defined(EIGEN_VECTORIZE_AVX) && defined(EIGEN_VECTORIZE_FMA)
#define DRIFTLESS_VECTORS avx_fma
#elif defined(EIGEN_VECTORIZE_AVX)
#define DRIFTLESS_VECTORS avx
#elif defined(EIGEN_VECTORIZE_SSE4_1)
#define DRIFTLESS_VECTORS sse4
#elif defined(EIGEN_VECTORIZE_SSE)
#define DRIFTLESS_VECTORS sse2
#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define DRIFTLESS_VECTORS neon_dot
#define DRIFTLESS_HAS_BYTE_DOTS 1
#elif defined(EIGEN_VECTORIZE_NEON)
#define DRIFTLESS_VECTORS neon
#elif defined(__FMA__)
#define DRIFTLESS_VECTORS scalar_fma
#else
#define DRIFTLESS_VECTORS scalar
#endif
#if !defined(DRIFTLESS_HAS_BYTE_DOTS)
#define DRIFTLESS_HAS_BYTE_DOTS 0
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
//
// The compiled library has its kernels for several instruction sets, and takes the best that the processor has. Its
// functions are therefore the same for users that are compiled for any; what remains of a user's flags is how Eigen's
// matrices, which are handed over, are allocated.
#define DRIFTLESS_JOIN_TWO_EXPANDED(left, right) left##_##right
#define DRIFTLESS_JOIN_TWO(left, right) DRIFTLESS_JOIN_TWO_EXPANDED(left, right)
#if defined(DRIFTLESS_COMPILED)
#define DRIFTLESS_INLINE
#define DRIFTLESS_FLAVOUR DRIFTLESS_JOIN_TWO(compiled_align, EIGEN_MAX_ALIGN_BYTES)
#else
#define DRIFTLESS_INLINE inline
#define DRIFTLESS_FLAVOUR DRIFTLESS_JOIN_TWO(in_headers, DRIFTLESS_VECTORS)
#endif

#define DRIFTLESS_JOIN_EXPANDED(major, minor, patch, rounding, flavour) \
  v##major##_##minor##_##patch##_##rounding##_##flavour
#define DRIFTLESS_JOIN(major, minor, patch, rounding, flavour) \
  DRIFTLESS_JOIN_EXPANDED(major, minor, patch, rounding, flavour)
#define DRIFTLESS_ABI                                                                                           \
  DRIFTLESS_JOIN(DRIFTLESS_VERSION_MAJOR, DRIFTLESS_VERSION_MINOR, DRIFTLESS_VERSION_PATCH, DRIFTLESS_ROUNDING, \
                 DRIFTLESS_FLAVOUR)

#define DRIFTLESS_TEXT_EXPANDED(name) #name
#define DRIFTLESS_TEXT(name) DRIFTLESS_TEXT_EXPANDED(name)

#if defined(__GNUC__)
// A function's name says what it takes. With this, it also says what it returns, and a variable's what its type is.
namespace driftless { inline namespace DRIFTLESS_ABI __attribute__((abi_tag(DRIFTLESS_TEXT(DRIFTLESS_ABI)))) {
}}
#endif
