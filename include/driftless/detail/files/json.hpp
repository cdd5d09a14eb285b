#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/files/file_mapping.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

// JSON files that anybody may have written, read with nlohmann/json.

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

struct DuplicateKey : FileError {
  using FileError::FileError;
};

/// A map whose operator[], by which nlohmann/json's parser stores the members of an object, refuses a key that stands
/// twice.
template <class Key, class Value, class Compare, class Allocator>
struct UniqueKeyMap : std::map<Key, Value, Compare, Allocator> {
  using std::map<Key, Value, Compare, Allocator>::map;

  Value& operator[](const Key& key) {
    const auto [member, is_new] = this->try_emplace(key);
    if (!is_new) raise<DuplicateKey>({"the key ", quotedName(key), " stands twice in one object"});
    return member->second;
  }
};

using Json = nlohmann::basic_json<UniqueKeyMap>;
using JsonKind = Json::value_t;

/// A JSON text, read as `readText` says, whose arrays and objects nest at most `max_depth` deep and in which no object
/// has a key twice.
struct JsonDocument {
  /// `name` stands before every error's text. Throws FileError for any other text.
  JsonDocument(std::string_view bytes, std::string name, std::size_t max_depth) : where(std::move(name)) {
    // Without zero bytes, of which the parser would take the first for the end of its input.
    const std::string_view text = readText(bytes, where);
    checkDepth(text, max_depth);
#ifdef DRIFTLESS_NO_EXCEPTIONS
    root = Json::parse(text.begin(), text.end(), nullptr, false);
    if (root.is_discarded()) fail("it breaks the syntax");
#else
    try {
      root = Json::parse(text.begin(), text.end());
    } catch (const DuplicateKey& twice) {
      fail(twice.what());
    } catch (const Json::exception& error) {
      fail(printable(error.what()));
    }
#endif
  }

  std::string where;
  Json root;

 private:
  [[noreturn]] void fail(const std::string& reason) const { raise<FileError>({where, ": bad JSON: ", reason}); }

  /// Before parsing, which would need memory for every level.
  void checkDepth(std::string_view text, std::size_t max_depth) const {
    std::size_t depth = 0;
    bool is_in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '"') is_in_string = !is_in_string;
      if (is_in_string) {
        if (c == '\\') ++i;
      } else if (c == '{' || c == '[') {
        if (++depth > max_depth) fail(message({"expected at most ", max_depth, " levels of nesting"}));
      } else if ((c == '}' || c == ']') && depth > 0) {
        --depth;
      }
    }
  }
};

/// A value of a document, or a key that an object lacks. The document must outlive it. Its name in error messages is
/// found only when it is needed.
class JsonValue {
 public:
  /// The value of the whole document.
  explicit JsonValue(const JsonDocument& document) : JsonValue(document, document.root) {}

  /// False for a key that its object lacks. The kind of such a value is null.
  bool isThere() const { return missing_.empty(); }
  bool is(JsonKind kind) const { return isThere() ? value_->type() == kind : kind == JsonKind::null; }
  bool isString(std::string_view string) const { return is(JsonKind::string) && this->string() == string; }
  bool isTrue() const { return is(JsonKind::boolean) && *value_->get_ptr<const bool*>(); }
  /// Whether it is null, or contains nothing.
  bool isEmpty() const { return is(JsonKind::null) || (value_->is_structured() && value_->empty()); }

  /// For an error message.
  std::string shown() const {
    return isThere() ? printable(value_->dump(-1, ' ', false, Json::error_handler_t::replace)) : "no such key";
  }

  /// Nothing unless this is a number from 0 to 2^64 - 1, written without a fraction.
  std::optional<std::uint64_t> wholeNumber() const {
    return is(JsonKind::number_unsigned) ? std::optional(*value_->get_ptr<const std::uint64_t*>()) : std::nullopt;
  }
  /// Nothing unless this is a number.
  std::optional<double> number() const {
    return isThere() && value_->is_number() ? std::optional(value_->get<double>()) : std::nullopt;
  }

  // These throw FileError for a value of another kind.
  JsonValue object() const { return require(JsonKind::object, "an object"); }
  JsonValue array() const { return require(JsonKind::array, "an array"); }
  const std::string& string() const {
    return require(JsonKind::string, "a string").value_->get_ref<const std::string&>();
  }

  /// What an object has under this key.
  JsonValue operator[](std::string_view key) const {
    if (is(JsonKind::object))
      if (const auto member = value_->find(key); member != value_->end()) return {*document_, *member, &member.key()};
    JsonValue missing = *this;
    missing.missing_ = key;
    return missing;
  }

  /// The key of an object's member.
  const std::string& key() const { return *key_; }

  /// Goes through the elements of an array or the members of an object.
  struct Iterator {
    const JsonDocument* document;
    Json::const_iterator at;
    bool has_keys;

    JsonValue operator*() const { return {*document, *at, has_keys ? &at.key() : nullptr}; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const { return {document_, contains() ? value_->begin() : value_->end(), is(JsonKind::object)}; }
  Iterator end() const { return {document_, value_->end(), is(JsonKind::object)}; }
  std::size_t size() const { return contains() ? value_->size() : 0; }

  /// The file and the value's place in it, for an error message.
  std::string name() const {
    std::string path = pathFrom(document_->root).value_or("");
    if (!isThere()) path += "." + std::string(missing_);
    if (path.empty()) return document_->where;
    return message({document_->where, ": key '", std::string_view(path).substr(path.front() == '.' ? 1 : 0), "'"});
  }

  [[noreturn]] void fail(const std::string& expected) const {
    raise<FileError>({name(), ": expected ", expected, ", found ", shown()});
  }

 private:
  JsonValue(const JsonDocument& document, const Json& value, const std::string* key = nullptr)
      : document_(&document), value_(&value), key_(key) {}

  bool contains() const { return isThere() && value_->is_structured(); }

  const JsonValue& require(JsonKind kind, const char* expected) const {
    if (!is(kind)) fail(expected);
    return *this;
  }

  /// This value's place in one that contains it, such as `.model.vocab["ab"]`. Keys in lower case are a format's own.
  std::optional<std::string> pathFrom(const Json& container) const {
    if (&container == value_) return "";
    if (!container.is_structured()) return std::nullopt;
    std::size_t position = 0;
    for (auto child = container.begin(); child != container.end(); ++child, ++position) {
      const auto rest = pathFrom(*child);
      if (!rest) continue;
      if (container.is_array()) return message({"[", position, "]", *rest});
      const std::string& key = child.key();
      const bool is_known = !key.empty() && key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
      return (is_known ? "." + key : "[" + quotedName(key) + "]") + *rest;
    }
    return std::nullopt;
  }

  const JsonDocument* document_;
  const Json* value_;  ///< of a key that is missing: the object that lacks it
  const std::string* key_;
  std::string_view missing_;
};

/// A JSON file, read as JsonDocument says.
class JsonFile {
 public:
  explicit JsonFile(const std::filesystem::path& path, std::size_t max_depth = 64)
      : document_(FileBytes(path, false).text(), pathText(path), max_depth) {}

  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  /// Valid for as long as this object lives.
  JsonValue root() const { return JsonValue(document_); }

 private:
  JsonDocument document_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
