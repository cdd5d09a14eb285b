#pragma once

#include <stdexcept>

/// DRIFTLESS_NO_EXCEPTIONS is defined where exceptions are turned off (-fno-exceptions): an error then ends the
/// program, its text on standard error. The whole program must agree on it.
#if !defined(__cpp_exceptions) && !defined(DRIFTLESS_NO_EXCEPTIONS)
#define DRIFTLESS_NO_EXCEPTIONS
#endif

namespace driftless {

/// Base of everything this library throws on purpose. The text names the file, tensor, key or argument at fault and
/// says what was expected and what was found.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A file is missing, damaged or not what it claims to be: fetch or export it again.
struct FileError : Error {
  using Error::Error;
};

/// A well-formed configuration asks for something that this library does not compute: use another model.
struct ConfigError : Error {
  using Error::Error;
};

/// An argument of the call is out of range or does not fit the others: a bug in the calling code, or bad user input.
struct ArgumentError : Error {
  using Error::Error;
};

/// The tokens do not fit into the context that is left: shorten the prompt, or truncate the cache.
struct ContextFull : Error {
  using Error::Error;
};

}  // namespace driftless
