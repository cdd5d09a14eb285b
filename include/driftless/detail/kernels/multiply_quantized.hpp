#pragma once

#include <type_traits>

#include "driftless/detail/kernels/integer_packet.hpp"
#include "driftless/detail/kernels/quantized_tile.hpp"
#include "driftless/detail/kernels/tiles.hpp"
#include "driftless/detail/stored/int4.hpp"
#include "driftless/detail/stored/int8.hpp"
#include "driftless/stored_type.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// A panel of Packing::int8_quads as the tile below goes through it: packet after packet of quads, all in one group.
struct Int8Panel {
  using Weights = Int8Weights;
  static constexpr int kQuads = 1;  ///< of rows in a packet
  static constexpr std::int32_t kOffset = kInt8Offset;
  static constexpr bool kHasScales = false;
  static Weights quad(const IntegerPacket& packet, int) { return int8Weights(packet); }
  static IntegerPacket add(const IntegerPacket& sum, const Weights& weights, const IntegerPacket& factor) {
    return addDots(sum, weights, factor);
  }
  template <class Scalar>
  static Lanes<Scalar> row(const std::byte* panel, Index width, Index index, Index column) {
    return loadInt8Quads<Scalar>(panel, width, index, column);
  }
};

/// A panel of Packing::int4_groups likewise.
struct Int4Panel {
  using Weights = IntegerPacket;
  static constexpr int kQuads = 2;
  static constexpr std::int32_t kOffset = kInt4Offset;
  static constexpr bool kHasScales = true;
  static Weights quad(const IntegerPacket& packet, int index) {
    return index == 0 ? lowNibbles(packet) : highNibbles(packet);
  }
  static IntegerPacket add(const IntegerPacket& sum, const Weights& weights, const IntegerPacket& factor) {
    return addNibbleDots(sum, weights, factor);
  }
  template <class Scalar>
  static Lanes<Scalar> row(const std::byte* panel, Index width, Index index, Index column) {
    return loadInt4<Scalar>(panel, width, index, column);
  }
};

/// Rows and lanes of columns of a product in whole numbers: an element is the exact sum over each group of rows of the
/// panel, times the group's scale if it has one, added up in ascending order, times the scale of the row of x.
template <int Rows, int Groups, class Panel, class Scalar>
EIGEN_STRONG_INLINE void multiplyIntegerTile(const QuantizedTile<Scalar>& x, const std::byte* panel, Index width,
                                             Index column, Index group_packets, Scalar* sums, Index sums_stride) {
  constexpr int kPackets = static_cast<int>(kLanes) / kPacketIntegers;  // for kLanes columns
  constexpr Index kPacketBytes = sizeof(IntegerPacket);
  const Index scale_bytes = Panel::kHasScales ? width * static_cast<Index>(sizeof(Eigen::half)) : 0;
  for (Index group = 0; group < x.groups; ++group) {
    IntegerPacket sum[std::size_t{Rows}][std::size_t{Groups * kPackets}];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (IntegerPacket& packet : sum[r]) packet = repeatInteger(-Panel::kOffset * x.sums[r * x.groups + group]);

    const std::byte* const scales = panel + group * (scale_bytes + group_packets * 4 * width);
    const std::byte* packets = scales + scale_bytes + 4 * column;
    const std::int8_t* factors = x.values + group * group_packets * 4 * Panel::kQuads;
    for (Index i = 0; i < group_packets; ++i, packets += 4 * width) {
#pragma GCC unroll 16
      for (int p = 0; p < Groups * kPackets; p += 64 / static_cast<int>(kPacketBytes))
        prefetch(packets, 4096 + p * kPacketBytes);
#pragma GCC unroll 2
      for (int quad = 0; quad < Panel::kQuads; ++quad, factors += 4) {
        typename Panel::Weights weight[std::size_t{Groups * kPackets}];
#pragma GCC unroll 16
        for (int p = 0; p < Groups * kPackets; ++p)
          weight[p] = Panel::quad(loadPacket(packets + p * kPacketBytes), quad);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const IntegerPacket factor = repeatQuad(factors + r * x.stride);
#pragma GCC unroll 16
          for (int p = 0; p < Groups * kPackets; ++p) sum[r][p] = Panel::add(sum[r][p], weight[p], factor);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g) {
        Scalar whole[kLanes];
#pragma GCC unroll 16
        for (int p = 0; p < kPackets; ++p) storeIntegers(sum[r][g * kPackets + p], whole + p * kPacketIntegers);
        Lanes<Scalar> value = Lanes<Scalar>::load(whole);
        Scalar* const to = sums + r * sums_stride + g * kLanes;
        if constexpr (Panel::kHasScales) {
          const auto* const scale = reinterpret_cast<const Eigen::half*>(scales) + column + g * kLanes;
          const Lanes<Scalar> before = group > 0 ? Lanes<Scalar>::load(to) : Lanes<Scalar>::broadcast(Scalar(0));
          value = fusedMultiplyAdd(value, loadLanes<Scalar>(scale), before);
        }
        if (group == x.groups - 1) value = product(value, Lanes<Scalar>::broadcast(x.scales[r]));
        value.store(to);
      }
  }
}

/// sums [rows, width] = x [rows, in] * panel [in, width] but for the scales of whole columns, for 1 to kTileRows rows
/// and a panel packed for whole numbers, of a width that is a multiple of kLanes, up to kPanelWidth. An element is the
/// product of what was rounded, and then outliers are added by one fused multiply-add each in ascending order.
template <class Scalar>
void multiplyQuantized(Index rows, const QuantizedTile<Scalar>& x, StoredType stored, const std::byte* panel,
                       Index width, Index in, Scalar* sums, Index sums_stride) {
  constexpr int kGroups = Lanes<float>::kPackets == 1 && kPacketIntegers == kLanes ? kPanelWidth / kLanes : 1;
  const auto multiplyAs = [&]<class Panel>(std::type_identity<Panel>, Index group_packets) {
    // A tile has fewer rows where weights take two of sixteen registers each.
    constexpr bool kIsCramped = kPacketIntegers == 8 && sizeof(typename Panel::Weights) > sizeof(IntegerPacket);
    constexpr int kMostRows = static_cast<int>(kTileRows) / (kIsCramped ? 2 : 1);
    forEachTile<kMostRows, kGroups>(rows, width, [&]<int Rows, int Groups>(Index row, Index column) {
      multiplyIntegerTile<Rows, Groups, Panel>(x.from(row), panel, width, column, group_packets,
                                               sums + row * sums_stride + column, sums_stride);
    });
    for (Index r = 0; r < rows; ++r) {
      const QuantizedTile<Scalar> row = x.from(r);
      for (const std::int32_t* outlier = row.outliers; *outlier >= 0; ++outlier) {
        const Lanes<Scalar> factor = Lanes<Scalar>::broadcast(row.numbers[*outlier]);
        for (Index column = 0; column < width; column += kLanes) {
          Scalar* const to = sums + r * sums_stride + column;
          fusedMultiplyAdd(factor, Panel::template row<Scalar>(panel, width, *outlier, column), Lanes<Scalar>::load(to))
              .store(to);
        }
      }
    }
  };
  if (stored == StoredType::int4)
    multiplyAs(std::type_identity<Int4Panel>(), kInt4Group / kInt4Octet);
  else
    multiplyAs(std::type_identity<Int8Panel>(), roundUpToQuads(in) / 4);
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
