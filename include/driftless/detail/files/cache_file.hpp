#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <ios>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "driftless/cache_file.hpp"
#include "driftless/detail/files/checksum.hpp"
#include "driftless/detail/files/file_replacement.hpp"
#include "driftless/detail/files/fingerprint.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/error.hpp"

// A saved cache, all of it little-endian:
//
//   the header: whole numbers of 64 bits, kCacheFileMark, kCacheFileVersion, those of cacheFileFields, the number of
//   the stored type, and that of the positions; the ids, 32 bits each, -1 for unknown ones; layer after layer, position
//   after position, head after head: its key, its value and, if the type is quantized, the scale of each, as they are
//   stored; the Checksum of it all, 64 bits. For it, the header, the ids and each position of a layer are blocks,
//   filled up with zeros to whole words.

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// "driftkv" and a line end, which a transfer as text would change.
inline constexpr std::uint64_t kCacheFileMark = 0x0A766B7466697264;
inline constexpr std::uint64_t kCacheFileVersion = 1;

struct CacheFileField {
  std::string_view name;
  std::uint64_t value;
};

/// What the header says of the model that a cache is for.
template <class Scalar>
std::array<CacheFileField, 6> cacheFileFields(const Weights<Scalar>& weights) {
  const Config& config = weights.config;
  const auto size = [](Index value) { return static_cast<std::uint64_t>(value); };
  return {{{"bytes of a Scalar", sizeof(Scalar)},
           {"n_layer", size(config.n_layer)},
           {"n_head", size(config.n_head)},
           {"head size", size(config.headSize())},
           {"n_positions", size(config.n_positions)},
           {"fingerprint of the weights", fingerprint(weights)}}};
}

/// Some bytes of the file, which numbers are put into or taken from one after the other.
class CacheFileBlock {
 public:
  explicit CacheFileBlock(std::uint64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {}

  std::span<std::byte> bytes() { return bytes_; }
  void rewind() { at_ = 0; }

  void put(const void* number, std::size_t size) {
    copyLittleEndian(static_cast<const std::byte*>(number), size, &bytes_[at_]);
    at_ += size;
  }
  void take(void* number, std::size_t size) {
    copyLittleEndian(&bytes_[at_], size, static_cast<std::byte*>(number));
    at_ += size;
  }
  std::uint64_t takeWord() {
    std::uint64_t word = 0;
    take(&word, sizeof word);
    return word;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

inline constexpr std::uint64_t kCacheFileHeaderBytes = (2 + 6 + 2) * sizeof(std::uint64_t);
inline constexpr std::uint64_t kCacheFileSumBytes = sizeof(std::uint64_t);

/// Bytes of a position of one layer.
template <class Scalar>
std::uint64_t cacheFileRowBytes(const LayerCache<Scalar>& layer) {
  const Index of_a_head = layer.headSize() * CacheAccess::elementBytes(layer) + CacheAccess::scaleBytes(layer);
  return static_cast<std::uint64_t>(2 * layer.heads() * of_a_head);
}

class CacheFileReader {
 public:
  explicit CacheFileReader(const std::filesystem::path& path) : where_(pathText(path)) {
    std::error_code error;
    const bool is_regular = std::filesystem::is_regular_file(path, error);
    if (!error && !is_regular) refuse({"cannot be read: expected a regular file"});
    if (!error) size_ = std::filesystem::file_size(path, error);
    if (error) refuse({"cannot be read: ", error.message()});
    file_.open(path, std::ios::binary | std::ios::in);
    if (!file_.is_open()) refuse({"cannot be read: it cannot be opened"});
  }

  /// Of the whole file.
  std::uint64_t size() const { return size_; }
  /// Of the blocks that were read.
  std::uint64_t sum() const { return checksum_.sum(); }

  void read(CacheFileBlock& block, std::uint64_t size) {
    file_.read(reinterpret_cast<char*>(block.bytes().data()), static_cast<std::streamsize>(size));
    if (!file_.good()) refuse({"cannot be read: expected ", size_, " bytes: it was cut short meanwhile"});
    checksum_.add(block.bytes().data(), block.bytes().size(), 1);
    block.rewind();
  }
  void read(CacheFileBlock& block) { read(block, block.bytes().size()); }

  [[noreturn]] void refuse(std::initializer_list<MessagePart> parts) const {
    raise<FileError>({where_, ": ", message(parts)});
  }

 private:
  std::string where_;
  std::uint64_t size_ = 0;
  std::ifstream file_;
  Checksum checksum_;
};

struct CacheFileHeader {
  StoredType stored;
  Index length;
};

/// Reads the header and checks it.
template <class Scalar>
CacheFileHeader readCacheHeader(CacheFileReader& file, const Weights<Scalar>& weights) {
  CacheFileBlock header(kCacheFileHeaderBytes);
  file.read(header, (std::min)(file.size(), kCacheFileHeaderBytes));
  if (header.takeWord() != kCacheFileMark)
    file.refuse(
        {"not a saved cache: expected it to begin with \"driftkv\" and a line end, found something else in its ",
         file.size(), " bytes"});
  constexpr std::uint64_t kFewest = kCacheFileHeaderBytes + kCacheFileSumBytes;
  if (file.size() < kFewest) file.refuse({"expected at least ", kFewest, " bytes, found ", file.size()});
  const std::uint64_t version = header.takeWord();
  if (version != kCacheFileVersion)
    file.refuse({"expected a saved cache of version ", kCacheFileVersion, ", found version ", version});

  for (const CacheFileField& expected : cacheFileFields(weights)) {
    const std::uint64_t found = header.takeWord();
    if (found != expected.value)
      file.refuse({expected.name, ": expected ", expected.value, " for these weights, found ", found});
  }
  const auto takeUpTo = [&](const char* name, std::uint64_t most) {
    const std::uint64_t found = header.takeWord();
    if (found > most) file.refuse({name, ": expected 0 to ", most, ", found ", found});
    return found;
  };
  const auto stored = static_cast<StoredType>(takeUpTo("stored type", static_cast<std::uint64_t>(StoredType::int8)));
  return {stored, static_cast<Index>(takeUpTo("length", static_cast<std::uint64_t>(weights.config.n_positions)))};
}

}  // namespace detail

template <FloatingScalar Scalar>
void saveCache(const ModelCache<Scalar>& cache, const std::filesystem::path& path, const Weights<Scalar>& weights) {
  detail::checkCache(cache, weights.config);
  for (Index layer = 1; layer < cache.layers(); ++layer)
    if (cache.layer(layer).stored() != cache.layer(0).stored())
      detail::raise<ArgumentError>({"saveCache: expected all layers stored as ", nameOf(cache.layer(0).stored()),
                                    ", like layer 0, got ", nameOf(cache.layer(layer).stored()), " in layer ", layer});
  detail::checkKeepsAll("saveCache", cache);
  detail::FileReplacement file(path);
  detail::Checksum checksum;
  const auto write = [&](detail::CacheFileBlock& block) {
    file.write(block.bytes());
    checksum.add(block.bytes().data(), block.bytes().size(), 1);
    block.rewind();
  };
  const auto putWord = [](detail::CacheFileBlock& block, std::uint64_t word) { block.put(&word, sizeof word); };

  detail::CacheFileBlock header(detail::kCacheFileHeaderBytes);
  putWord(header, detail::kCacheFileMark);
  putWord(header, detail::kCacheFileVersion);
  for (const detail::CacheFileField& field : detail::cacheFileFields(weights)) putWord(header, field.value);
  putWord(header, static_cast<std::uint64_t>(cache.layer(0).stored()));
  putWord(header, static_cast<std::uint64_t>(cache.length()));
  write(header);

  detail::CacheFileBlock ids(sizeof(std::int32_t) * cache.ids().size());
  for (const std::int32_t id : cache.ids()) ids.put(&id, sizeof id);
  write(ids);

  detail::CacheFileBlock row(detail::cacheFileRowBytes(cache.layer(0)));
  for (Index layer = 0; layer < cache.layers(); ++layer)
    for (Index position = 0; position < cache.length(); ++position) {
      detail::CacheAccess::forEachNumber(cache.layer(layer), position,
                                         [&](const std::byte* number, std::size_t bytes) { row.put(number, bytes); });
      write(row);
    }

  detail::CacheFileBlock sum(detail::kCacheFileSumBytes);
  putWord(sum, checksum.sum());
  file.write(sum.bytes());
  file.commit();
}

template <FloatingScalar Scalar>
ModelCache<Scalar> loadCache(const std::filesystem::path& path, const Weights<Scalar>& weights) {
  checkConfig(weights.config);
  detail::CacheFileReader file(path);
  const detail::CacheFileHeader header = detail::readCacheHeader(file, weights);
  ModelCache<Scalar> cache(weights, header.stored);
  const auto length = static_cast<std::uint64_t>(header.length);
  const std::uint64_t row_bytes = detail::cacheFileRowBytes(cache.layer(0));
  const std::uint64_t size = detail::kCacheFileHeaderBytes +
                             length * (sizeof(std::int32_t) + static_cast<std::uint64_t>(cache.layers()) * row_bytes) +
                             detail::kCacheFileSumBytes;
  // Before memory is taken for as many positions as the file claims.
  if (file.size() != size)
    file.refuse({"expected ", size, " bytes for ", header.length, " positions, found ", file.size()});

  detail::CacheFileBlock id_block(sizeof(std::int32_t) * length);
  file.read(id_block);
  std::vector<int> ids(static_cast<std::size_t>(length));
  for (int& id : ids) {
    std::int32_t number = 0;
    id_block.take(&number, sizeof number);
    id = number;
  }

  detail::CacheFileBlock row(row_bytes);
  detail::CacheAccess::makeRoom(detail::CacheAccess::layers(cache), header.length);
  for (Index layer = 0; layer < cache.layers(); ++layer)
    for (Index position = 0; position < header.length; ++position) {
      if (position % detail::kPage == 0) detail::CacheAccess::clearPage(cache.layer(layer), position);
      file.read(row);
      detail::CacheAccess::forEachNumber(cache.layer(layer), position,
                                         [&](std::byte* number, std::size_t bytes) { row.take(number, bytes); });
    }

  const std::uint64_t expected = file.sum();
  detail::CacheFileBlock sum(detail::kCacheFileSumBytes);
  file.read(sum);
  if (const std::uint64_t found = sum.takeWord(); found != expected)
    file.refuse({"it is damaged: expected the checksum ", expected, ", found ", found});
  for (const int id : ids)
    if (id < -1 || id >= weights.config.vocab_size)
      file.refuse({"ids: expected -1 to ", weights.config.vocab_size - 1, ", found ", id});
  detail::CacheAccess::grow(cache, std::span<const int>(ids));
  return cache;
}

}}  // namespace driftless::DRIFTLESS_ABI
