#include <algorithm>
#include <cctype>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "commands.hpp"
#include "driftless/error.hpp"
#include "driftless/version.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

constexpr int kFailure = 2;

std::string version() {
  return "driftless " + std::to_string(DRIFTLESS_VERSION_MAJOR) + "." + std::to_string(DRIFTLESS_VERSION_MINOR) + "." +
         std::to_string(DRIFTLESS_VERSION_PATCH);
}

/// Where to read on about the arguments that were given.
std::string helpCommand(const CLI::App& app) {
  std::string command = "driftless";
  for (const CLI::App* subcommand : app.get_subcommands()) command += " " + subcommand->get_name();
  return command + " --help";
}

int run(int argc, char** argv) {
  CLI::App app("GPT-2 with a cache that never drifts.", "driftless");
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);  // CLI11's error for none would hide the one for a subcommand that does not exist
  int status = 0;
  addGenerate(app);
  addVerify(app, status);
  addBench(app);
  addTokenize(app);
  addInfo(app);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
  } catch (const CLI::Success& request) {  // --help and --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw ArgumentError(std::string(error.what()) + "; see " + helpCommand(app));
  }
  return status;
}

/// One line, whatever the text holds.
int fail(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char byte) { return std::iscntrl(byte) != 0; }, ' ');
  std::cerr << "driftless: " << text << std::endl;
  return kFailure;
}

}  // namespace
}  // namespace driftless::cli

int main(int argc, char** argv) {
  using namespace driftless::cli;
  try {
    return run(argc, argv);
  } catch (const OutputClosed&) {
    return kFailure;
  } catch (const std::bad_alloc&) {
    return fail("expected more memory than there is");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
