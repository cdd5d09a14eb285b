// Which plain arithmetic gives the bits of AVX512-BF16's vdpbf16ps? Built by hand, where there is that instruction:
//   g++ -std=c++20 -O2 -mavx512f -mavx512bf16 bench/bf16/dot_product.cpp -o dot_product && ./dot_product
#include <immintrin.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>

/// acc + a0 * b0 + a1 * b1, where the a and b are bf16 and those with 0 are in the lower halves.
struct Case {
  float acc, a0, b0, a1, b1;
};

/// x + y rounded to odd: rounding that to float is the same as rounding the exact sum.
double add(double x, double y) {
  const double sum = x + y, back = sum - x, error = (x - (sum - back)) + (y - back);
  const bool is_odd = (std::bit_cast<std::uint64_t>(sum) & 1) != 0;
  return error == 0 || is_odd || !std::isfinite(sum) ? sum : std::nextafter(sum, error > 0 ? HUGE_VAL : -HUGE_VAL);
}

/// Rounds to float, and to zero what is smaller than the limit.
struct Round {
  double limit;
  float operator()(double x) const { return std::abs(x) < limit ? float(std::copysign(0.0, x)) : float(x); }
};
constexpr Round kRounds[] = {{0}, {FLT_MIN}, {FLT_MIN * (1 - 0x1p-25)}};

/// Of the products p0 and p1, which are exact in double.
struct Candidate {
  const char* name;
  float (*compute)(double p0, double p1, float acc, Round r);
};
constexpr Candidate kCandidates[] = {
    {"fma upper, fma lower", [](auto p0, auto p1, auto acc, auto r) { return r(add(p0, r(add(p1, acc)))); }},
    {"fma lower, fma upper", [](auto p0, auto p1, auto acc, auto r) { return r(add(p1, r(add(p0, acc)))); }},
    {"products first", [](auto p0, auto p1, auto acc, auto r) { return r(add(acc, r(add(p0, p1)))); }},
    {"rounded once", [](auto p0, auto p1, auto acc, auto r) { return r(add(acc, add(p0, p1))); }}};

std::mt19937_64 random_bits;
int upTo(int most) { return static_cast<int>(random_bits() % static_cast<unsigned>(most + 1)); }
float anyBits(int bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(random_bits()) << (32 - bits)); }
float bf16(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u); }
/// A float whose exponent is within `spread` of one.
float near(int exponent, int spread) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(anyBits(32)) & 0x807fffffu;
  return std::ldexp(std::bit_cast<float>(bits | 0x3f800000u), exponent + upTo(2 * spread) - spread);
}
Case nearCase(float acc, int exponent, int spread) {
  const auto factor = [&](int half) { return bf16(near(half, spread)); };
  const int half = exponent / 2, other = exponent - half;
  return {acc, factor(half), factor(other), factor(half), factor(other)};
}
Case nearCase(int exponent, int spread) { return nearCase(near(exponent, spread), exponent, spread); }
float lastDigit() { return std::ldexp(upTo(1) ? 1.0f : -1.0f, -20 - upTo(20)); }
Case halfway() { return {near(0, 2), lastDigit(), 1, lastDigit(), 1}; }
Case anyCase() { return {anyBits(32), anyBits(16), anyBits(16), anyBits(16), anyBits(16)}; }
/// acc or the products cancel, but for a few last digits.
Case cancelling(int exponent) {
  Case c = nearCase(exponent, 4);
  c.acc = -(upTo(1) ? c.a1 * c.b1 : c.a0 * c.b0) + std::ldexp(float(upTo(4)), exponent - 24);
  if (upTo(2) == 0) c.a1 = -c.a0, c.b1 = c.b0;
  return c;
}

struct Kind {
  const char* name;
  Case (*draw)();
};
constexpr Kind kKinds[] = {{"near one", [] { return nearCase(0, 3); }},
                           {"of many sizes", [] { return nearCase(0, 20); }},
                           {"cancelling", [] { return cancelling(0); }},
                           {"halfway", halfway},
                           {"about to overflow", [] { return nearCase(127, 2); }},
                           {"about to be subnormal", [] { return nearCase(-126, 3); }},
                           {"cancelling to subnormal", [] { return cancelling(-110); }},
                           {"at the smallest normal number", [] { return nearCase(FLT_MIN, -151, 3); }},
                           {"of any bits", anyCase}};

[[gnu::noipa]] float instruction(const Case& c) {
  const auto pair = [](float low, float high) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(low) >> 16 | std::bit_cast<std::uint32_t>(high);
    return std::bit_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(bits)));
  };
  return _mm512_cvtss_f32(_mm512_dpbf16_ps(_mm512_set1_ps(c.acc), pair(c.a0, c.a1), pair(c.b0, c.b1)));
}
bool differ(float x, float y) {
  return std::bit_cast<int>(x) != std::bit_cast<int>(y) && !(std::isnan(x) && std::isnan(y));
}
float noSubnormal(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

int main() {
  constexpr int kCases = 4'000'000;
  std::puts("Results that differ in bits, with subnormal ones kept, flushed before rounding, flushed after rounding");
  for (const Kind& kind : kKinds) {
    long count[std::size(kCandidates)][std::size(kRounds)] = {}, changed = 0, flagged = 0;
    for (int i = 0; i < kCases; ++i) {
      const Case c = kind.draw();
      const float result = instruction(c);
      const unsigned csr = _mm_getcsr();
      _mm_setcsr((csr & ~0x3fu) | 0xe000u);  // no exceptions yet, towards zero, flushing
      changed += differ(instruction(c), result);
      flagged += (_mm_getcsr() & 0x3fu) != 0;
      _mm_setcsr(csr);
      const double p0 = double{noSubnormal(c.a0)} * noSubnormal(c.b0),
                   p1 = double{noSubnormal(c.a1)} * noSubnormal(c.b1);
      for (std::size_t n = 0; n < std::size(kCandidates); ++n)
        for (std::size_t r = 0; r < std::size(kRounds); ++r)
          count[n][r] += differ(kCandidates[n].compute(p0, p1, noSubnormal(c.acc), kRounds[r]), result);
    }
    std::printf("%d cases %s; with another MXCSR %ld differ, %ld raise a flag\n", kCases, kind.name, changed, flagged);
    for (std::size_t n = 0; n < std::size(kCandidates); ++n)
      std::printf("%9ld %9ld %9ld  %s\n", count[n][0], count[n][1], count[n][2], kCandidates[n].name);
  }
}
