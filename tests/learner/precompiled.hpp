#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// What Eigen asserts is thrown, so that the report can say in which case and at which position, and the other test
// cases are still graded.
namespace adapters {
[[noreturn]] inline void failEigenAssertion(const char* asserted, const char* function) {
  throw std::logic_error(std::string("Eigen asserts in ") + function + ": " + asserted);
}
}  // namespace adapters
#define eigen_assert(condition)                                           \
  do {                                                                    \
    if (!(condition)) adapters::failEigenAssertion(#condition, __func__); \
  } while (false)

#include "adapters.hpp"

// scripts/grade.sh compiles a learner's file again after every edit, with this file precompiled. A third of the time
// that is left would go into the kernels of Eigen's matrix products: products.cpp compiles them once. Their names are
// internals of Eigen 3.4; with another version each file compiles its own.
#if EIGEN_WORLD_VERSION == 3 && EIGEN_MAJOR_VERSION == 4
#define DRIFTLESS_EIGEN_PRODUCTS(EXTERN)                                                                             \
  namespace Eigen { namespace internal {                                                                             \
  using FloatTraits = gebp_traits<float, float>;                                                                     \
  using RowOperand = const_blas_data_mapper<float, Index, RowMajor>;                                                 \
  using ColOperand = const_blas_data_mapper<float, Index, ColMajor>;                                                 \
  EXTERN template struct gebp_kernel<float, float, Index, blas_data_mapper<float, Index, ColMajor>, FloatTraits::mr, \
                                     FloatTraits::nr>;                                                               \
  EXTERN template struct gemm_pack_lhs<float, Index, RowOperand, FloatTraits::mr, FloatTraits::LhsProgress,          \
                                       FloatTraits::LhsPacket4Packing, RowMajor>;                                    \
  EXTERN template struct gemm_pack_lhs<float, Index, ColOperand, FloatTraits::mr, FloatTraits::LhsProgress,          \
                                       FloatTraits::LhsPacket4Packing, ColMajor>;                                    \
  EXTERN template struct gemm_pack_rhs<float, Index, RowOperand, FloatTraits::nr, RowMajor>;                         \
  EXTERN template struct gemm_pack_rhs<float, Index, ColOperand, FloatTraits::nr, ColMajor>;                         \
  EXTERN template struct general_matrix_vector_product<Index, float, RowOperand, RowMajor, false, float, ColOperand, \
                                                       false>;                                                       \
  EXTERN template struct general_matrix_vector_product<Index, float, ColOperand, ColMajor, false, float, RowOperand, \
                                                       false>;                                                       \
  }                                                                                                                  \
  } /* namespace Eigen::internal */
#else
#define DRIFTLESS_EIGEN_PRODUCTS(EXTERN)
#endif

DRIFTLESS_EIGEN_PRODUCTS(extern)
