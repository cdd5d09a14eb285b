#include "driftless/cache_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/resource.h>

#include <csignal>
#endif

#include "driftless/attention.hpp"
#include "driftless/detail/files/checksum.hpp"
#include "driftless/detail/files/fingerprint.hpp"
#include "driftless/forward.hpp"
#include "support/random_models.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using doctest::Contains;
using namespace driftless;
using namespace driftless::test;

namespace {

Config savedConfig() { return smallConfig(12, 3, 10, 259, 150, 2); }

const Weights<float>& savedWeights() {
  static const Weights<float> weights(livelyParameters(savedConfig()), {.threads = Threads(1)});
  return weights;
}

std::string readBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A saved cache.
struct SavedCache {
  TemporaryDirectory directory;
  std::filesystem::path path = directory.path() / "cache";
  std::string bytes;

  explicit SavedCache(StoredType stored = StoredType::int8, TokenIds ids = {3, 1, 2}) {
    ModelCache<float> cache(savedWeights(), stored);
    prefill(ids, savedWeights(), cache);
    saveCache(cache, path, savedWeights());
    bytes = readBytes(path);
  }

  ModelCache<float> load(const std::string& changed) const {
    writeFile(path, changed);
    return loadCache(path, savedWeights());
  }
  std::string withWord(std::size_t index, std::uint64_t word) const {
    std::string changed = bytes;
    for (std::size_t i = 0; i < 8; ++i) changed[8 * index + i] = static_cast<char>(word >> (8 * i) & 0xFF);
    return changed;
  }
  std::uint64_t word(std::size_t index) const {
    std::uint64_t word = 0;
    for (std::size_t i = 8; i-- > 0;) word = word << 8 | static_cast<unsigned char>(bytes[8 * index + i]);
    return word;
  }
};

/// What the file's end must be after it was changed on purpose: computed without the library's code.
std::string withSum(std::string bytes, std::size_t length, std::size_t row_bytes) {
  std::uint64_t sum = 0xCBF29CE484222325;
  std::size_t at = 0;
  const auto addBlock = [&](std::size_t size) {
    for (const std::size_t end = at + size; at < end;) {
      std::uint64_t word = 0;
      for (unsigned i = 0; i < 8 && at < end; ++i)
        word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at++])) << (8 * i);
      sum = (sum ^ word) * 0x100000001B3;
      sum ^= sum >> 32;
    }
  };
  addBlock(80);
  addBlock(4 * length);
  while (at + 8 < bytes.size()) addBlock(row_bytes);
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>(sum >> (8 * i) & 0xFF);
  return bytes;
}

template <class Scalar>
void checkGoesOn(const LoadOptions& options, StoredType stored, Index length) {
  INFO(nameOf(options.stored) << " computed in " << nameOf(options.compute) << ", cache " << nameOf(stored) << ", "
                              << length << " positions");
  const Parameters<Scalar> parameters = livelyParameters<Scalar>(savedConfig());
  const Weights<Scalar> weights(parameters, options);
  const std::vector<int> ids = someIds(length + 20, 259);
  const TemporaryDirectory directory;
  ModelCache<Scalar> cache(weights, stored);
  if (length > 0) prefill(std::span(ids).first(static_cast<std::size_t>(length)), weights, cache);
  saveCache(cache, directory.path() / "cache", weights);
  // Loaded with weights that were made anew, as in another process.
  const Weights<Scalar> again(parameters, options);
  ModelCache<Scalar> loaded = loadCache(directory.path() / "cache", again);
  CHECK(loaded.ids() == cache.ids());
  CHECK(loaded.layer(0).stored() == stored);
  CHECK(loaded.bytes() == cache.bytes());
  for (Index position = length; position < std::ssize(ids); ++position) {
    const int id = ids[static_cast<std::size_t>(position)];
    const RowVector<Scalar> expected = decodeStep(id, position, weights, cache);
    const RowVector<Scalar> actual = decodeStep(id, position, again, loaded);
    REQUIRE(std::memcmp(actual.data(), expected.data(), sizeof(Scalar) * static_cast<std::size_t>(actual.size())) == 0);
  }
}

}  // namespace

TEST_CASE("cache file: a sequence goes on with the bits of one that was never interrupted") {
  for (const StoredType stored : {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8})
    for (const Index length : {0, 1, 63, 64, 65, 130}) {
      checkGoesOn<float>({.threads = Threads(1)}, stored, length);
      checkGoesOn<double>({.threads = Threads(1)}, stored, length);
    }
  for (const LoadOptions& options :
       {LoadOptions{.stored = StoredType::int4, .threads = Threads(1)},
        LoadOptions{.stored = StoredType::int8, .compute = ComputeType::int8, .threads = Threads(1)}})
    checkGoesOn<float>(options, StoredType::int8, 70);
}

TEST_CASE("cache file: ids that are unknown stay so") {
  const SavedCache saved;
  ModelCache<float> cache(savedWeights());
  prefill({5, 6}, savedWeights(), cache);
  for (Index layer = 0; layer < 2; ++layer)
    attnStep(Matrix<float>::Ones(2, 12), savedWeights().h[0].attn, cache.layer(layer));
  decodeStep(7, 4, savedWeights(), cache);
  saveCache(cache, saved.path, savedWeights());
  checkSameIds(loadCache(saved.path, savedWeights()).ids(), {5, 6, -1, -1, 7}, "ids");
}

TEST_CASE("cache file: the bytes are what the format says, on every processor") {
  // Three positions of two layers, three heads of four numbers of a byte and a float each, keys and values.
  const SavedCache saved;
  const std::size_t row = 2 * 3 * (4 + 4);
  REQUIRE(saved.bytes.size() == 80 + 3 * 4 + 2 * 3 * row + 8);
  CHECK(saved.bytes.substr(0, 8) == "driftkv\n");
  const std::vector<std::uint64_t> header = {1, 4, 2, 3, 4, 150};
  for (std::size_t i = 0; i < header.size(); ++i) CHECK(saved.word(1 + i) == header[i]);
  CHECK(saved.word(7) == detail::fingerprint(savedWeights()));
  CHECK(saved.word(8) == 3);
  CHECK(saved.word(9) == 3);
  CHECK(saved.bytes.substr(80, 12) == std::string("\3\0\0\0\1\0\0\0\2\0\0\0", 12));
  CHECK(withSum(saved.bytes, 3, row) == saved.bytes);

  // The first key of the second layer, and its scale: their product is what the cache holds.
  const ModelCache<float> cache = saved.load(saved.bytes);
  const std::size_t at = 80 + 12 + 3 * row;
  std::uint32_t bits = 0;
  for (std::size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(saved.bytes[at + 8 + i]);
  const float scale = std::bit_cast<float>(bits);
  CHECK(scale > 0);
  CHECK(static_cast<float>(static_cast<signed char>(saved.bytes[at])) * scale == cache.layer(1).keys()(0, 0));
  CHECK(static_cast<float>(static_cast<signed char>(saved.bytes[at + 4])) * scale != 0);
}

TEST_CASE("cache file: one that is shorter or longer than it should be is refused") {
  const SavedCache saved;
  for (std::size_t size = 0; size < saved.bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(saved.load(saved.bytes.substr(0, size)), FileError);
  }
  const std::string where = detail::pathText(saved.path);
  const std::string size = std::to_string(saved.bytes.size());
  CHECK_THROWS_WITH_AS(
      saved.load(""),
      (where +
       ": not a saved cache: expected it to begin with \"driftkv\" and a line end, found something else in its 0 bytes")
          .c_str(),
      FileError);
  CHECK_THROWS_WITH_AS(saved.load(saved.bytes.substr(0, 87)),
                       (where + ": expected at least 88 bytes, found 87").c_str(), FileError);
  CHECK_THROWS_WITH_AS(
      saved.load(saved.bytes + "x"),
      (where + ": expected " + size + " bytes for 3 positions, found " + std::to_string(saved.bytes.size() + 1))
          .c_str(),
      FileError);
  CHECK(saved.load(saved.bytes).length() == 3);
}

TEST_CASE("cache file: any bit that is flipped is found") {
  for (const StoredType stored : {StoredType::full, StoredType::int8}) {
    const SavedCache saved(stored, {9});
    std::fstream file(saved.path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t at, int byte) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(byte));
      file.flush();
    };
    for (std::size_t bit = 0; bit < 8 * saved.bytes.size(); ++bit) {
      bool is_refused = false;
      put(bit / 8, saved.bytes[bit / 8] ^ 1 << bit % 8);
      try {
        loadCache(saved.path, savedWeights());
      } catch (const FileError&) {
        is_refused = true;
      }
      put(bit / 8, saved.bytes[bit / 8]);
      REQUIRE_MESSAGE(is_refused, "bit ", bit);
    }
    CHECK(loadCache(saved.path, savedWeights()).length() == 1);
  }
}

TEST_CASE("cache file: what does not fit is refused by name, before memory is taken for it") {
  const SavedCache saved;
  const auto refuses = [&](const std::string& bytes, const std::string& text) {
    CHECK_THROWS_WITH_AS(saved.load(bytes), Contains(text.c_str()), FileError);
  };
  refuses(saved.withWord(1, 2), "expected a saved cache of version 1, found version 2");
  refuses(saved.withWord(2, 8), "bytes of a Scalar: expected 4 for these weights, found 8");
  refuses(saved.withWord(3, 3), "n_layer: expected 2 for these weights, found 3");
  refuses(saved.withWord(4, 0), "n_head: expected 3 for these weights, found 0");
  refuses(saved.withWord(5, 5), "head size: expected 4 for these weights, found 5");
  refuses(saved.withWord(6, ~std::uint64_t{0}),
          "n_positions: expected 150 for these weights, found 18446744073709551615");
  refuses(saved.withWord(7, 1), "fingerprint of the weights: expected ");
  refuses(saved.withWord(8, 4), "stored type: expected 0 to 3, found 4");
  refuses(saved.withWord(8, 0), "bytes for 3 positions, found ");
  refuses(saved.withWord(9, 151), "length: expected 0 to 150, found 151");
  refuses(saved.withWord(9, ~std::uint64_t{0}), "length: expected 0 to 150, found 18446744073709551615");
  refuses(saved.withWord(9, 4), "bytes for 4 positions, found ");
  refuses(saved.withWord(11, 0), "it is damaged: expected the checksum ");
  std::string changed = saved.bytes;
  changed[84] = 3;
  changed[85] = 1;
  refuses(withSum(changed, 3, 48), "ids: expected -1 to 258, found 259");
  changed[87] = static_cast<char>(0x80);
  refuses(withSum(changed, 3, 48), "ids: expected -1 to 258, found -2147483389");
  refuses("{\"model_type\": \"gpt2\"}", "not a saved cache");

  CHECK_THROWS_WITH_AS(loadCache(saved.directory.path(), savedWeights()),
                       Contains("cannot be read: expected a regular file"), FileError);
  CHECK_THROWS_WITH_AS(loadCache(saved.directory.path() / "none", savedWeights()), Contains("none: cannot be read: "),
                       FileError);
}

TEST_CASE("cache file: another model's cache is refused, whatever it differs in") {
  const SavedCache saved(StoredType::full);
  const std::uint64_t fingerprint = saved.word(7);
  Parameters<float> parameters = livelyParameters(savedConfig());
  const auto fingerprintOf = [&](const LoadOptions& options) {
    return detail::fingerprint(Weights<float>(parameters, options));
  };
  CHECK(fingerprintOf({}) == fingerprint);
  std::vector<std::uint64_t> seen = {fingerprint};
  const auto isNew = [&](std::uint64_t other) {
    const bool is_new = std::find(seen.begin(), seen.end(), other) == seen.end();
    seen.push_back(other);
    return is_new;
  };
  for (const StoredType stored : {StoredType::f16, StoredType::bf16, StoredType::int8, StoredType::int4}) {
    CAPTURE(nameOf(stored));
    CHECK(isNew(fingerprintOf({.stored = stored})));
    if (stored == StoredType::int8 || stored == StoredType::int4)
      CHECK(isNew(fingerprintOf({.stored = stored, .compute = ComputeType::int8})));
  }
  const auto change = [&](const std::string& what, const std::function<void()>& doIt) {
    CAPTURE(what);
    const Parameters<float> before = parameters;
    doIt();
    CHECK(isNew(fingerprintOf({})));
    CHECK_THROWS_WITH_AS(loadCache(saved.path, Weights<float>(parameters)),
                         Contains("fingerprint of the weights: expected "), FileError);
    parameters = before;
  };
  change("activation", [&] { parameters.config.activation_function = Activation::relu; });
  change("epsilon", [&] { parameters.config.layer_norm_epsilon = 1e-6; });
  change("scale", [&] { parameters.config.scale_attn_weights = false; });
  change("scale by layer", [&] { parameters.config.scale_attn_by_inverse_layer_idx = true; });
  change("output weights", [&] { parameters.lm_head = parameters.wte; });
  // The last number of every tensor; and two signs at once, whose bits are the uppermost of their words.
  forEachTensor(parameters, [&](const std::string& name, auto& tensor, Index rows, Index cols) {
    change(name, [&] { tensor(rows * cols - 1) += 1; });
  });
  change("signs", [&] {
    parameters.wte(0, 1) *= -1;
    parameters.wte(1, 1) *= -1;
    parameters.wte(3, 1) *= -1;
    parameters.wte(5, 1) *= -1;
  });
}

TEST_CASE("cache file: the checksum is the same on every processor") {
  // Computed by hand: the words 0x0807060504030201 and 0x0A09 in both cases.
  const auto sumOf = [](auto... words) {
    std::uint64_t sum = 0xCBF29CE484222325;
    ((sum = (sum ^ words) * 0x100000001B3, sum ^= sum >> 32), ...);
    return sum;
  };
  const std::uint64_t expected = sumOf(std::uint64_t{0x0807060504030201}, std::uint64_t{0x0A09});
  detail::Checksum of_bytes, of_halves;
  const std::uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::uint16_t halves[] = {0x0201, 0x0403, 0x0605, 0x0807, 0x0A09};
  of_bytes.add(bytes, 10, 1);
  of_halves.add(halves, 5, 2);
  CHECK(of_bytes.sum() == expected);
  CHECK(of_halves.sum() == expected);
}

TEST_CASE("cache file: what cannot be written is an error, and the older file stays as it was") {
  const SavedCache saved;
  ModelCache<float> cache(savedWeights());
  prefill(someIds(100, 259), savedWeights(), cache);
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(saved.directory.path()),
                         std::filesystem::directory_iterator());
  };
  CHECK_THROWS_WITH_AS(saveCache(cache, saved.directory.path() / "none" / "cache", savedWeights()),
                       Contains("cache: cannot be written: No such file or directory"), FileError);
  std::filesystem::create_directory(saved.directory.path() / "taken");
  CHECK_THROWS_WITH_AS(saveCache(cache, saved.directory.path() / "taken", savedWeights()),
                       Contains("taken: cannot be written: "), FileError);
  const Weights<float> deeper(livelyParameters(smallConfig(12, 3, 10, 259, 150, 3)));
  CHECK_THROWS_WITH_AS(saveCache(cache, saved.path, deeper),
                       "expected a cache made for these weights, of n_layer 3, got 2", ArgumentError);
  ModelCache<float> mixed(savedWeights(), StoredType::int8);
  mixed.layer(1) = ModelCache<float>(savedWeights()).layer(1).clone();
  CHECK_THROWS_WITH_AS(saveCache(mixed, saved.path, savedWeights()),
                       "saveCache: expected all layers stored as int8, like layer 0, got full in layer 1",
                       ArgumentError);
#ifdef __linux__
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS_WITH_AS(saveCache(cache, saved.path, savedWeights()),
                       Contains("cache: cannot be written: File too large"), FileError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
#endif
  CHECK(files() == 2);
  CHECK(readBytes(saved.path) == saved.bytes);
  saveCache(cache, saved.path, savedWeights());
  CHECK(files() == 2);
  CHECK(loadCache(saved.path, savedWeights()).length() == 100);
}
