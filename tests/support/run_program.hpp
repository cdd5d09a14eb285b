#pragma once

#ifdef _WIN32
#error "tests/support/run_program.hpp starts programs with posix_spawn, which Windows does not have"
#endif

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "support/safetensors_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/whole_file.hpp"

extern char** environ;

namespace driftless::test {

/// How a program ended, and what it printed.
struct ProgramRun {
  int status = 0;  ///< exit status; 128 plus the signal's number if a signal ended it
  std::string out;
  std::string err;
};

/// The files that a program's streams are, so that no amount of text on one of them can block another.
struct ProgramStreams {
  std::string in;  ///< closed if empty
  std::string out;
  std::string err;
};

/// Starts the program built with the tests, without a shell.
inline pid_t startProgram(const std::vector<std::string>& arguments, const ProgramStreams& files) {
  std::vector<std::string> words = {DRIFTLESS_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&streams, 1, files.out.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&streams, 2, files.err.c_str(), flags, 0600);
  if (files.in.empty())
    posix_spawn_file_actions_addclose(&streams, 0);
  else
    posix_spawn_file_actions_addopen(&streams, 0, files.in.c_str(), O_RDONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, DRIFTLESS_PROGRAM, &streams, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&streams);
  if (error != 0) throw std::system_error(error, std::generic_category(), DRIFTLESS_PROGRAM);
  return child;
}

/// Waits for a program's end, and returns its exit status or 128 plus the number of the signal that ended it.
inline int waitForProgram(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Runs the program with a file as its standard input, none if it has no name. If `output` names a file, that takes the
/// place of standard output.
inline ProgramRun runProgramOn(const std::string& input_path, const std::vector<std::string>& arguments,
                               const std::string& output = "") {
  const TemporaryDirectory directory;
  const ProgramStreams files{input_path, output.empty() ? (directory.path() / "out").string() : output,
                             (directory.path() / "err").string()};
  const int status = waitForProgram(startProgram(arguments, files));
  return {status, output.empty() ? readWholeFile(files.out) : "", readWholeFile(files.err)};
}

/// The same with `input` on its standard input.
inline ProgramRun runProgram(const std::vector<std::string>& arguments, const std::string& input = "",
                             const std::string& output = "") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "in").string();
  writeFile(path, input);
  return runProgramOn(path, arguments, output);
}

}  // namespace driftless::test
